//! A watch: a stream of events.

use crate::client::Client;
use crate::follow::{Target, Task, follow};
use crate::{Error, Event, Filter};
use convoke_session::watch_state::WatchState;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Events that may wait for the application. When the queue is full, the node's stream is not read; if that lasts, the
/// watch is reset with [`Event::Reset`].
const EVENTS_MAX: usize = 1024;

/// A stream of [`Event`]s. It continues across lost connections and nodes and ends when the client is closed.
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
        let mut events = Vec::new();
        let result = change(&mut self.state, &mut events);
        for event in events {
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
        let failed = failure.clone();
        let task = tokio::spawn(async move {
            if let Some(error) = following.await {
                tracing::warn!(%error, "watch ended");
                let _ = failed.set(error);
            }
        });
        Watch { events, failure, _task: Task(task), _client: client }
    }

    /// Returns the next event; `None` once the client is closed or the watch has failed permanently.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns why the watch ended if no node accepts it, for example because of a missing permission.
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
