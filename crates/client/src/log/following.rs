//! Streams of watches and observers: they go from replica to replica and continue where they were.

use super::ambassador::Shared;
use super::read::client;
use crate::connect::LogChannel;
use crate::{Error, ErrorCode};
use convoke_proto::v1::{self, key_watch_response::Message};
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval of progress marks. A replica that sends nothing for three of them is left.
const PROGRESS: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Pauses before another attempt.
const PAUSE_BASE: Duration = Duration::from_millis(20);
const PAUSE_CAP: Duration = Duration::from_secs(2);

/// Why the stream of one replica ended.
pub(super) enum Ended {
    /// The application dropped the watch.
    Dropped,
    /// Another replica may continue.
    Lost(Error),
    /// No replica can continue.
    Failed(Error),
}

impl Ended {
    /// The next stream starts with the current state.
    pub(super) fn start_again() -> Ended {
        Ended::Lost(Error::new(ErrorCode::Compacted, "the watch starts again"))
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        match error.code {
            ErrorCode::InvalidArgument
            | ErrorCode::TooLarge
            | ErrorCode::PermissionDenied
            | ErrorCode::Unauthenticated
            | ErrorCode::FailedPrecondition => Ended::Failed(error),
            _ => Ended::Lost(error),
        }
    }
}

/// A watch or an observer.
pub(super) trait Follower: Send {
    fn shared(&self) -> &Shared;

    /// Where the next stream continues; `None` to start with the current state.
    fn position(&self) -> Option<v1::EventPosition>;

    /// Follows one replica until its stream ends.
    fn follow(&mut self, address: &str) -> impl Future<Output = Ended> + Send;

    /// Reports the error with which everything ends.
    fn failed(self, error: Error) -> impl Future<Output = ()> + Send;
}

/// Follows one replica after the other. Pauses grow while none of them sends anything.
pub(super) async fn run(mut follower: impl Follower) {
    let mut pause = PAUSE_BASE;
    loop {
        let addresses = follower.shared().peers().all();
        for address in addresses {
            let before = follower.position();
            match follower.follow(&address).await {
                Ended::Dropped => return,
                Ended::Failed(error) => return follower.failed(error).await,
                Ended::Lost(error) => {
                    let replicas = error.log.map(|log| log.replicas).unwrap_or_default();
                    follower.shared().peers().learn(&replicas);
                }
            }
            if follower.position() != before {
                pause = PAUSE_BASE;
            }
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_CAP);
    }
}

/// Passes an event to the application. A full queue delays it, and the stream of the replica is not read meanwhile.
pub(super) async fn send<T: Send>(shared: &Shared, sender: &mpsc::Sender<T>, event: T) -> Result<(), Ended> {
    let event = match sender.try_send(event) {
        Ok(()) => return Ok(()),
        Err(mpsc::error::TrySendError::Closed(_)) => return Err(Ended::Dropped),
        Err(mpsc::error::TrySendError::Full(event)) => event,
    };
    shared.lock().core.counters.events_delayed += 1;
    sender.send(event).await.map_err(|_| Ended::Dropped)
}

/// Opens a stream with one watch at a replica.
pub(super) async fn open_stream(
    shared: &Shared,
    address: &str,
    watch: v1::KeyWatch,
    log: Option<v1::LogId>,
    stale: bool,
) -> Result<(LogChannel, tonic::Streaming<v1::KeyWatchResponse>), Error> {
    let progress_ms = u64::try_from(PROGRESS.as_millis()).unwrap_or(u64::MAX);
    let request = v1::KeyWatchRequest { log, watches: vec![watch], stale, progress_ms, replica_only: false };
    open_request(shared, address, request).await
}

/// Opens a stream at a replica.
pub(super) async fn open_request(
    shared: &Shared,
    address: &str,
    request: v1::KeyWatchRequest,
) -> Result<(LogChannel, tonic::Streaming<v1::KeyWatchResponse>), Error> {
    let opening = async {
        let channel = shared.channel(address).await?;
        let stream = client(shared, channel.clone()).watch(request).await.map_err(Error::from)?;
        Ok((channel, stream.into_inner()))
    };
    tokio::time::timeout(SILENCE_MAX, opening).await.map_err(|_| silent(address))?
}

/// Returns the next message of a stream. A replica that is silent for too long is left.
pub(super) async fn next_message(
    stream: &mut tonic::Streaming<v1::KeyWatchResponse>,
    address: &str,
) -> Result<Message, Error> {
    let received = tokio::time::timeout(SILENCE_MAX, stream.message()).await.map_err(|_| silent(address))?;
    let received = received.map_err(Error::from)?.and_then(|received| received.message);
    received.ok_or_else(|| silent(address))
}

fn silent(address: &str) -> Error {
    Error::new(ErrorCode::NotReady, format!("{address} ended the watch or sent nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Ambassador;

    #[tokio::test]
    async fn an_event_that_waits_for_the_application_is_counted() {
        let ambassador = Ambassador::start(["127.0.0.1:1"]).unwrap();
        let kv = ambassador.kv();
        let (sender, mut events) = mpsc::channel(1);
        assert!(send(kv.handle().shared(), &sender, 1).await.is_ok());
        assert_eq!(ambassador.limit_counters().events_delayed, 0);
        let (sent, first) = tokio::join!(send(kv.handle().shared(), &sender, 2), events.recv());
        assert!(sent.is_ok());
        assert_eq!((first, events.recv().await), (Some(1), Some(2)));
        assert_eq!(ambassador.limit_counters().events_delayed, 1);
        drop(events);
        assert!(matches!(send(kv.handle().shared(), &sender, 3).await, Err(Ended::Dropped)));
    }
}
