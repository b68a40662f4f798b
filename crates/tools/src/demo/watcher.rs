//! Watchers, one at every node. The demo reports what they see.

use super::printer::{Printer, Tone};
use super::view::{Counts, Expected, View};
use convoke_cli::Result;
use convoke_client::{Client, ConnectionState, Event};
use serde_json::json;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Excludes the nodes themselves, which are members, too.
const FILTER: &str = "service != \"convoke\"";

/// The expected ids, shared by clients and watchers.
#[derive(Clone, Debug)]
pub(crate) struct SharedExpected {
    expected: Arc<Mutex<Expected>>,
    flaps: Arc<AtomicU64>,
    printer: Arc<Printer>,
}

impl SharedExpected {
    pub(crate) fn new(printer: Arc<Printer>) -> SharedExpected {
        SharedExpected { expected: Arc::default(), flaps: Arc::default(), printer }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Expected) -> T) -> T {
        change(&mut self.expected.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All flaps that all watchers have seen.
    pub(crate) fn flaps(&self) -> u64 {
        self.flaps.load(Ordering::Relaxed)
    }

    /// Applies an event that the watcher at a node received, and prints its flaps.
    fn apply(&self, at: &str, view: &mut View, event: &Event) {
        for flap in self.change(|expected| view.apply(event, expected)) {
            self.flaps.fetch_add(1, Ordering::Relaxed);
            let facts = json!({ "member": flap.id, "at": at, "shown": flap.shown, "owner": flap.owner });
            let text = format!("flap: the watcher of {at} saw {} {}, owner {}", flap.id, flap.shown, flap.owner);
            // A closed pipe ends the demo with the next line of its script.
            let _ = self.printer.event(Tone::Bad, "flap", facts, &text);
        }
    }
}

/// A watcher at one node. If the node dies, it reconnects to another one, as every client does.
#[derive(Debug)]
pub(crate) struct NodeWatcher {
    node: String,
    client: Client,
    view: Arc<Mutex<View>>,
    updates: watch::Receiver<u64>,
    _watching: JoinSet<()>,
}

impl NodeWatcher {
    pub(crate) async fn at(
        node: &str,
        address: SocketAddr,
        expected: &SharedExpected,
        counts: Counts,
    ) -> Result<NodeWatcher> {
        let client = Client::builder().seeds([address.to_string()]).build()?;
        client.wait_connected().await?;
        let mut watch = client.watch(FILTER)?;
        let view = Arc::new(Mutex::new(View::counting_from(counts)));
        let (sender, updates) = watch::channel(0);
        let (telling, expected, at) = (view.clone(), expected.clone(), node.to_owned());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while let Some(event) = watch.next().await {
                expected.apply(&at, &mut lock(&telling), &event);
                sender.send_modify(|events| *events += 1);
            }
        });
        Ok(NodeWatcher { node: node.to_owned(), client, view, updates, _watching: watching })
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Whether it is still connected to its node.
    pub(crate) fn in_place(&self) -> bool {
        matches!(self.client.state(), ConnectionState::Connected { node, .. } if node == self.node)
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&lock(&self.view))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.look(|view| view.counts)
    }

    /// Waits for a condition. Returns the time it took, or `None` after the timeout.
    pub(crate) async fn until(&self, patience: Duration, mut holds: impl FnMut(&View) -> bool) -> Option<Duration> {
        let mut updates = self.updates.clone();
        within(patience, async || {
            while !self.look(&mut holds) {
                if updates.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        })
        .await
    }
}

fn lock(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future with a timeout and returns the time it took.
pub(crate) async fn within<F: Future<Output = ()>>(patience: Duration, what: impl FnOnce() -> F) -> Option<Duration> {
    let begin = Instant::now();
    timeout(patience, what()).await.ok().map(|()| begin.elapsed())
}
