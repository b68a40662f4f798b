//! A watch: events, one after another.

use crate::client::Client;
use crate::follow::{Target, Task, follow};
use crate::{Error, Event, Filter};
use convoke_session::watch_state::WatchState;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Events that may wait for the application. Beyond that the node is not read from; if that goes on, the watch starts over
/// with [`Event::Reset`].
const EVENTS_MAX: usize = 1024;

/// A stream of [`Event`]s. It goes on across lost connections and nodes, and ends when the client is closed.
#[derive(Debug)]
#[must_use = "dropping a watch ends it"]
pub struct Watch {
    events: mpsc::Receiver<Event>,
    failure: Arc<OnceLock<Error>>,
    _task: Task,
    _client: Client,
}

struct Sender {
    state: WatchState,
    events: mpsc::Sender<Event>,
}

impl Target for Sender {
    async fn change<T: Send>(
        &mut self,
        change: impl FnOnce(&mut WatchState, &mut Vec<Event>) -> T + Send,
    ) -> Option<T> {
        let mut told = Vec::new();
        let result = change(&mut self.state, &mut told);
        for event in told {
            self.events.send(event).await.ok()?;
        }
        Some(result)
    }
}

impl Watch {
    pub(crate) fn start(client: Client, filter: &Filter) -> Watch {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let failure = Arc::new(OnceLock::new());
        let following = follow(
            client.inner.links.clone(),
            filter.to_string(),
            Sender { state: WatchState::default(), events: sender },
        );
        let told = failure.clone();
        let task = tokio::spawn(async move {
            if let Some(error) = following.await {
                tracing::warn!(%error, "a watch ended");
                let _ = told.set(error);
            }
        });
        Watch { events, failure, _task: Task(task), _client: client }
    }

    /// The next event; `None` once the client is closed, or the watch has failed for good.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Why the watch ended, if no node accepts it: no permission, for example.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}
