//! Streams of watches and observers: they go from replica to replica and continue where they were.

use super::ambassador::Shared;
use super::read::client;
use super::watch::ResetReason;
use crate::connect::LogChannel;
use crate::{Error, ErrorCode};
use convoke_proto::v1::{self, key_watch_response::Message};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval of progress marks. A replica that sends nothing for three of them is left.
const PROGRESS: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Pauses before another attempt.
const PAUSE_BASE: Duration = Duration::from_millis(20);
const PAUSE_CAP: Duration = Duration::from_secs(2);

/// What a follower reports: an event or the final error, and where the next one continues after it.
#[derive(Debug)]
pub(super) struct Report<E, P> {
    /// `None`: nothing happened until this position.
    pub(super) event: Option<Result<E, Error>>,
    /// `None`: the position has not moved.
    pub(super) position: Option<P>,
}

/// The reports of a follower, as a stream of events. Dropping it ends the follower.
#[derive(Debug)]
pub(super) struct Reports<E, P> {
    received: mpsc::Receiver<Report<E, P>>,
    position: P,
    task: tokio::task::JoinHandle<()>,
}

impl<E: Send + 'static, P: Copy + Send + 'static> Reports<E, P> {
    /// Starts a follower. `room` is the number of reports that may wait for the application; beyond it, the stream of
    /// the replica is not read.
    pub(super) fn start<F: Follower + 'static>(
        position: P,
        room: usize,
        follower: impl FnOnce(mpsc::Sender<Report<E, P>>) -> F,
    ) -> Self {
        let (sender, received) = mpsc::channel(room);
        Reports { received, position, task: tokio::spawn(run(follower(sender))) }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<E, Error>>> {
        loop {
            let Some(report) = ready!(self.received.poll_recv(context)) else { return Poll::Ready(None) };
            self.position = report.position.unwrap_or(self.position);
            if let Some(event) = report.event {
                return Poll::Ready(Some(event));
            }
        }
    }

    /// Returns the next event; `None` after an error. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<E, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns the position after the last returned event.
    pub(super) fn position(&self) -> P {
        self.position
    }
}

impl<E, P> Drop for Reports<E, P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why the stream of one replica ended.
pub(super) enum Ended {
    /// The application dropped the watch.
    Dropped,
    /// Another replica may continue.
    Lost(Error),
    /// No replica can continue.
    Failed(Error),
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

/// Where the next stream continues. Without a position it starts with the current state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub(super) log: Option<v1::LogId>,
    pub(super) next: Option<v1::EventPosition>,
}

/// A watch or an observer. The place is moved before an event or a mark is passed to it.
pub(super) trait Follower: Send {
    fn shared(&self) -> &Shared;

    fn place(&mut self) -> &mut Place;

    /// Returns what to watch, and whether a replica without a leader may serve it. The place is added to it.
    fn wanted(&self) -> (v1::KeyWatch, bool);

    /// Prepares a stream. A follower that needs a place sets it here.
    fn prepare(&mut self) -> impl Future<Output = Result<(), Ended>> + Send {
        std::future::ready(Ok(()))
    }

    /// A replica serves the stream, with this revision as its current one.
    fn started(&mut self, replica: &LogChannel, revision: u64) -> impl Future<Output = Result<(), Ended>> + Send {
        let _ = (replica, revision);
        std::future::ready(Ok(()))
    }

    fn event(&mut self, event: v1::KeyEvent) -> impl Future<Output = Result<(), Ended>> + Send;

    /// There are no further events before a position.
    fn marked(&mut self, next: v1::EventPosition) -> impl Future<Output = Result<(), Ended>> + Send;

    /// Whether everything ends when the log has no quorum. Otherwise the follower waits for it.
    fn ends_without_quorum(&self) -> bool {
        false
    }

    /// The place was forgotten, because no replica can continue at it.
    fn start_again(&mut self, reason: ResetReason);

    /// Reports the error with which everything ends.
    fn failed(self, error: Error) -> impl Future<Output = ()> + Send;
}

/// Follows one replica until its stream ends.
async fn follow(follower: &mut impl Follower, address: &str) -> Result<std::convert::Infallible, Ended> {
    follower.prepare().await?;
    let Place { log, next } = *follower.place();
    let (watch, stale) = follower.wanted();
    let opened = open_stream(follower.shared(), address, v1::KeyWatch { id: 1, from: next, ..watch }, log, stale).await;
    let (replica, mut stream) = match opened {
        Err(error) if error.code == ErrorCode::SessionGone => return Err(forget(follower, ResetReason::OtherLog)),
        Err(error) if error.code == ErrorCode::Compacted => return Err(forget(follower, ResetReason::Compacted)),
        opened => opened?,
    };
    loop {
        match next_message(&mut stream, address).await? {
            Message::Started(started) => {
                follower.place().log = started.log;
                follower.started(&replica, started.revision).await?;
            }
            Message::Progress(progress) => {
                let next = progress.next.unwrap_or_default();
                follower.place().next = Some(next);
                follower.marked(next).await?;
            }
            Message::Events(events) => {
                let (count, after) = (events.events.len(), events.next);
                for (at, event) in events.events.into_iter().enumerate() {
                    let position = event.position.unwrap_or_default();
                    let next = Some(v1::EventPosition { index: position.index + 1, ..position });
                    follower.place().next = if at + 1 == count { after.or(next) } else { next };
                    follower.event(event).await?;
                }
            }
            Message::Compacted(_) => return Err(forget(follower, ResetReason::Compacted)),
        }
    }
}

/// The next stream starts with the current state.
fn forget(follower: &mut impl Follower, reason: ResetReason) -> Ended {
    *follower.place() = Place::default();
    follower.start_again(reason);
    Ended::Lost(Error::new(ErrorCode::Compacted, "the watch starts again"))
}

/// Follows one replica after the other. Pauses grow while none of them sends anything.
async fn run(mut follower: impl Follower) {
    let mut pause = PAUSE_BASE;
    loop {
        let mut addresses = follower.shared().peers().all();
        // The watches of a node with its own replica, or with a shared stream, cost no further connection.
        addresses.sort_by_key(|address| !follower.shared().is_local(address));
        let mut no_quorum = None;
        for address in addresses {
            let before = *follower.place();
            let Err(ended) = follow(&mut follower, &address).await;
            if follower.place().next != before.next {
                (pause, no_quorum) = (PAUSE_BASE, None);
            }
            match ended {
                Ended::Dropped => return,
                Ended::Failed(error) => return follower.failed(error).await,
                // No node answered a read in time.
                Ended::Lost(error) if error.code == ErrorCode::Timeout && follower.ends_without_quorum() => {
                    return follower.failed(error).await;
                }
                Ended::Lost(error) => {
                    let replicas = error.log.as_ref().map(|log| log.replicas.clone()).unwrap_or_default();
                    follower.shared().peers().learn(&replicas);
                    no_quorum = Some(error).filter(|error| error.code == ErrorCode::NoQuorum).or(no_quorum);
                }
            }
        }
        if let Some(error) = no_quorum.filter(|_| follower.ends_without_quorum()) {
            return follower.failed(error).await;
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
async fn open_stream(
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
