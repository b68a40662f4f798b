//! Subscribers, one at every node: what the demo tells about members is what they were told.

use super::seen::{Counts, Seen, Wanted};
use convoke_cli::Result;
use convoke_client::{Client, ConnectionState, Event};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Not the nodes themselves: they are members, too.
const FILTER: &str = "service != \"convoke\"";

/// Ids that are wanted, shared by those who act and those who watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedWanted {
    wanted: Arc<Mutex<Wanted>>,
    flaps: Arc<AtomicU64>,
}

impl SharedWanted {
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Wanted) -> T) -> T {
        change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of all times, as all subscribers saw them.
    pub(crate) fn flaps(&self) -> u64 {
        self.flaps.load(Ordering::Relaxed)
    }

    fn apply(&self, seen: &mut Seen, event: &Event) {
        let before = seen.counts;
        self.change(|wanted| seen.apply(event, wanted));
        self.flaps.fetch_add(seen.counts.since(before).flaps, Ordering::Relaxed);
    }
}

/// A subscriber at one node. If the node dies it goes on elsewhere, as every client does.
#[derive(Debug)]
pub(crate) struct Witness {
    node: String,
    client: Client,
    seen: Arc<Mutex<Seen>>,
    news: watch::Receiver<u64>,
    _watching: JoinSet<()>,
}

impl Witness {
    pub(crate) async fn at(node: &str, address: SocketAddr, wanted: &SharedWanted, counts: Counts) -> Result<Witness> {
        let client = Client::builder().seeds([address.to_string()]).build()?;
        client.wait_connected().await?;
        let mut watch = client.watch(FILTER)?;
        let seen = Arc::new(Mutex::new(Seen::counting_from(counts)));
        let (tell, news) = watch::channel(0);
        let (telling, wanted) = (seen.clone(), wanted.clone());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while let Some(event) = watch.next().await {
                wanted.apply(&mut lock(&telling), &event);
                tell.send_modify(|events| *events += 1);
            }
        });
        Ok(Witness { node: node.to_owned(), client, seen, news, _watching: watching })
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Whether it is still where it was placed.
    pub(crate) fn in_place(&self) -> bool {
        matches!(self.client.state(), ConnectionState::Connected { node, .. } if node == self.node)
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&lock(&self.seen))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.look(|seen| seen.counts)
    }

    /// Waits until what it sees is like that; how long it took, or `None` if it did not become so in time.
    pub(crate) async fn until(&self, patience: Duration, mut holds: impl FnMut(&Seen) -> bool) -> Option<Duration> {
        let mut news = self.news.clone();
        within(patience, async || {
            while !self.look(&mut holds) {
                if news.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        })
        .await
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long something took, if it happened in time.
pub(crate) async fn within<F: Future<Output = ()>>(patience: Duration, what: impl FnOnce() -> F) -> Option<Duration> {
    let begin = Instant::now();
    timeout(patience, what()).await.ok().map(|()| begin.elapsed())
}
