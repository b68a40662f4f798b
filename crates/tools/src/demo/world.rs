//! The state of a running demo: nodes, clients and watchers.

use super::clients::DemoClients;
use super::counter::LogCounter;
use super::links::Links;
use super::printer::Printer;
use super::watcher::{NodeWatcher, SharedExpected, within};
use convoke_cli::{CommandError, Result};
use convoke_core::Timers;
use convoke_lab::LocalCluster;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Mutex, RwLock};
use tokio::time::timeout;

/// Interval at which views are compared.
const COMPARE_PAUSE: Duration = Duration::from_millis(50);
const REPLACE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cluster: Arc<Mutex<LocalCluster>>,
    /// Id and client address of each node.
    pub(crate) nodes: Vec<(String, SocketAddr)>,
    pub(crate) links: Links,
    pub(crate) clients: Mutex<DemoClients>,
    pub(crate) counter: Mutex<LogCounter>,
    pub(crate) log_writes: Arc<LogWrites>,
    /// One per node, in the same order.
    pub(crate) watchers: RwLock<Vec<NodeWatcher>>,
    pub(crate) expected: SharedExpected,
    pub(crate) printer: Arc<Printer>,
    pub(crate) speed: f64,
}

/// Acknowledged writes to the log, and how many of them were lost. Reported at the end.
#[derive(Debug, Default)]
pub(crate) struct LogWrites {
    pub(crate) entries: AtomicU64,
    pub(crate) lost: AtomicU64,
}

impl World {
    /// Scales a duration by the speed.
    pub(crate) fn scaled(&self, duration: Duration) -> Duration {
        duration.div_f64(self.speed)
    }

    pub(crate) fn id(&self, node: usize) -> &str {
        &self.nodes[node].0
    }

    /// Starts a new watcher at a node that has returned; the old one has reconnected elsewhere.
    pub(crate) async fn replace_watcher(&self, node: usize) -> Result {
        let (id, address) = &self.nodes[node];
        let counts = self.watchers.read().await[node].counts();
        let watcher = NodeWatcher::at(id, *address, &self.expected, counts).await?;
        self.watchers.write().await[node] = watcher;
        Ok(())
    }

    /// Waits until the watchers of all nodes agree. Returns the time it took, or `None` after the timeout.
    pub(crate) async fn wait_for_agreement(&self, patience: Duration) -> Option<Duration> {
        within(patience, async || {
            while !self.all_agree().await {
                tokio::time::sleep(COMPARE_PAUSE).await;
                self.restore_watchers().await;
            }
        })
        .await
    }

    /// Replaces watchers that reconnected elsewhere while their node was slow.
    async fn restore_watchers(&self) {
        for node in 0..self.nodes.len() {
            let in_place = self.watchers.read().await[node].in_place();
            if !in_place {
                // After a failure the next round tries again.
                let _ = timeout(REPLACE_TIMEOUT, self.replace_watcher(node)).await;
            }
        }
    }

    async fn all_agree(&self) -> bool {
        let watchers = self.watchers.read().await;
        let [first, others @ ..] = watchers.as_slice() else { return true };
        watchers.iter().all(NodeWatcher::in_place)
            && others.iter().all(|other| first.look(|a| other.look(|b| a.same(b))))
    }
}

/// Timers of the nodes at a speed, as environment variables. All are scaled together, so that they stay valid.
pub fn timers(speed: f64) -> Result<Vec<(OsString, OsString)>> {
    let timers = Timers::default();
    let variable = |(name, time): (&str, Duration)| {
        let time = u64::try_from(time.div_f64(speed).as_millis());
        let time = time.map_err(|_| CommandError::usage("--speed is too small"))?;
        Ok((format!("CONVOKE_TIMERS_{name}").into(), format!("{}ms", time.max(1)).into()))
    };
    [
        ("HEARTBEAT_INTERVAL", timers.heartbeat_interval),
        ("HEARTBEAT_TIMEOUT", timers.heartbeat_timeout),
        ("RECONNECT_TIMEOUT", timers.reconnect_timeout),
        ("TOMBSTONE_TIMEOUT", timers.tombstone_timeout),
        ("PEER_RETRY_INTERVAL", timers.peer_retry_interval),
        ("DEAD_PEER_TIMEOUT", timers.dead_peer_timeout),
        ("PING_INTERVAL", timers.ping_interval),
        ("PING_TIMEOUT", timers.ping_timeout),
        ("HANDOVER_TIMEOUT", timers.handover_timeout),
    ]
    .into_iter()
    .map(variable)
    .collect()
}
