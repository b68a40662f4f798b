//! The task behind a watch or a view: reads a node's stream and resumes it at the next node when it is lost.

use crate::backoff::Backoff;
use crate::connection::Link;
use crate::watch::Watch;
use crate::{Error, ErrorCode, Event};
use convoke_proto::v1;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_session::watch_state::{Next, WatchState};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Limits the pauses between attempts, in place of a heartbeat timeout.
const BACKOFF_TIMEOUT: Duration = Duration::from_secs(20);

/// The receiver of the events.
pub(crate) trait Target: Send {
    /// Changes the state and passes its events on. Returns `None` if the receiver was dropped.
    fn change<T: Send>(
        &mut self,
        change: impl FnOnce(&mut WatchState, &mut Vec<Event>) -> T + Send,
    ) -> impl Future<Output = Option<T>> + Send;
}

/// Runs until the receiver is dropped, the client is closed, or an error occurs that a retry cannot fix.
pub(crate) async fn follow(
    mut links: watch::Receiver<Option<Link>>,
    filter: String,
    mut target: impl Target,
) -> Option<Error> {
    let (start, mut backoff, mut random) = (Instant::now(), Backoff::default(), fastrand::Rng::new());
    loop {
        let link = links.wait_for(Option::is_some).await.ok()?.clone()?;
        let resume = target.change(WatchState::resume).await?;
        let resumed = resume.is_some();
        let request = v1::WatchRequest { filter: filter.clone(), resume };
        let ended = read(&links, &link, request, &mut target, &mut backoff).await;
        match ended {
            End::Moved | End::Again => {}
            End::Closed => return None,
            End::Failed(error) if resumed && matches!(error.code, ErrorCode::TooLarge | ErrorCode::InvalidArgument) => {
                // The node rejects the state to resume from: start with a new snapshot.
                target.change(WatchState::forget).await?;
            }
            End::Failed(error) if is_final(error.code) => return Some(error),
            End::Failed(error) => {
                backoff.not_before(error.retry_after());
                let pause = backoff.pause(start.elapsed(), false, BACKOFF_TIMEOUT, &mut random);
                tracing::debug!(%error, ?pause, "watch interrupted");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    open = moved(&links, &link) => if !open { return None },
                }
            }
        }
    }
}

enum End {
    /// The client has connected to another node.
    Moved,
    /// The client is closed, or the receiver was dropped.
    Closed,
    /// Resume immediately.
    Again,
    Failed(Error),
}

/// Reads one stream to its end. A change is applied and passed on completely, or not at all.
async fn read(
    links: &watch::Receiver<Option<Link>>,
    link: &Link,
    request: v1::WatchRequest,
    target: &mut impl Target,
    backoff: &mut Backoff,
) -> End {
    let mut client = RegistryClient::new(link.channel.clone());
    let opened = tokio::select! {
        opened = client.watch(request) => opened,
        open = moved(links, link) => return if open { End::Moved } else { End::Closed },
    };
    let mut stream = match opened {
        Ok(response) => response.into_inner(),
        Err(status) => return End::Failed(status.into()),
    };
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            open = moved(links, link) => return if open { End::Moved } else { End::Closed },
        };
        match message {
            Ok(Some(event)) => {
                backoff.reset();
                match target.change(|state, out| state.apply(event, out)).await {
                    Some(Next::Read) => {}
                    Some(Next::Resume) => return End::Again,
                    None => return End::Closed,
                }
            }
            Ok(None) => return End::Failed(Error::new(ErrorCode::NotReady, "the node ended the watch")),
            Err(status) => return End::Failed(status.into()),
        }
    }
}

/// Waits until the client is connected by another link. Returns false if it is closed.
async fn moved(links: &watch::Receiver<Option<Link>>, present: &Link) -> bool {
    let elsewhere = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.connection != present.connection);
    links.clone().wait_for(elsewhere).await.is_ok()
}

fn is_final(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidFilter
            | ErrorCode::InvalidArgument
            | ErrorCode::TooLarge
            | ErrorCode::PermissionDenied
            | ErrorCode::Unauthenticated
    )
}

/// Keeps a callback active. Dropping it ends the calls.
#[derive(Debug)]
#[must_use = "the calls end when this is dropped"]
pub struct CallbackGuard {
    _task: Task,
}

pub(crate) fn call_back(mut watch: Watch, mut call: impl FnMut(Event) + Send + 'static) -> CallbackGuard {
    let task = tokio::spawn(async move {
        while let Some(event) = watch.next().await {
            call(event);
        }
    });
    CallbackGuard { _task: Task(task) }
}

/// A task that is aborted when its handle is dropped.
#[derive(Debug)]
pub(crate) struct Task(pub(crate) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
