//! Everything that is there while the demo plays: nodes, members, and those who watch.

use super::ledger::Ledger;
use super::links::Links;
use super::story::Story;
use super::troupe::Troupe;
use super::witness::{SharedWanted, Witness, within};
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

/// How often views are compared while waiting for them to be the same.
const COMPARE_PAUSE: Duration = Duration::from_millis(50);
const REPLACE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Arc<Mutex<LocalCluster>>,
    /// Id and where clients connect; they keep both.
    pub(crate) nodes: Vec<(String, SocketAddr)>,
    pub(crate) links: Links,
    pub(crate) troupe: Mutex<Troupe>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) kept: Arc<Kept>,
    /// One for each node, in their order.
    pub(crate) witnesses: RwLock<Vec<Witness>>,
    pub(crate) wanted: SharedWanted,
    pub(crate) story: Arc<Story>,
    pub(crate) speed: f64,
}

/// Writes to the log that were acknowledged, and how many of them were not found later. Told at the end, when the stage is gone.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) entries: AtomicU64,
    pub(crate) lost: AtomicU64,
}

impl Stage {
    /// So long at speed 1.
    pub(crate) fn scaled(&self, duration: Duration) -> Duration {
        duration.div_f64(self.speed)
    }

    pub(crate) fn id(&self, node: usize) -> &str {
        &self.nodes[node].0
    }

    /// A new subscriber at a node that has come back; the one before has gone elsewhere.
    pub(crate) async fn witness_again(&self, node: usize) -> Result {
        let (id, address) = &self.nodes[node];
        let counts = self.witnesses.read().await[node].counts();
        let witness = Witness::at(id, *address, &self.wanted, counts).await?;
        self.witnesses.write().await[node] = witness;
        Ok(())
    }

    /// Waits until all nodes tell their subscribers the same; how long it took, or `None`.
    pub(crate) async fn same_everywhere(&self, patience: Duration) -> Option<Duration> {
        within(patience, async || {
            while !self.is_same_everywhere().await {
                tokio::time::sleep(COMPARE_PAUSE).await;
                self.back_in_place().await;
            }
        })
        .await
    }

    /// Subscribers that went elsewhere while their node was slow say nothing about it: others take their place.
    async fn back_in_place(&self) {
        for node in 0..self.nodes.len() {
            let in_place = self.witnesses.read().await[node].in_place();
            if !in_place {
                // If it cannot be reached, the next round tries again, while there is time.
                let _ = timeout(REPLACE_TIMEOUT, self.witness_again(node)).await;
            }
        }
    }

    async fn is_same_everywhere(&self) -> bool {
        let witnesses = self.witnesses.read().await;
        let [first, others @ ..] = witnesses.as_slice() else { return true };
        witnesses.iter().all(Witness::in_place) && others.iter().all(|other| first.look(|a| other.look(|b| a.same(b))))
    }
}

/// Timers of nodes, so much faster. All of them: together they are valid at any speed.
pub fn timers(speed: f64) -> Result<Vec<(OsString, OsString)>> {
    let Timers {
        heartbeat_interval,
        heartbeat_timeout,
        reconnect_timeout,
        tombstone_timeout,
        peer_retry_interval,
        dead_peer_timeout,
        gossip_interval,
        ping_interval,
        ping_timeout,
        health_query_delay,
        health_report_wait,
        lone_start_wait,
        resume_wait,
        mark_interval,
        handover_timeout,
    } = Timers::default();
    let variable = |(name, time): (&str, Duration)| {
        let time = u64::try_from(time.div_f64(speed).as_millis());
        let time = time.map_err(|_| CommandError::usage("the demo cannot be that slow"))?;
        Ok((format!("CONVOKE_TIMERS_{name}").into(), format!("{}ms", time.max(1)).into()))
    };
    [
        ("HEARTBEAT_INTERVAL", heartbeat_interval),
        ("HEARTBEAT_TIMEOUT", heartbeat_timeout),
        ("RECONNECT_TIMEOUT", reconnect_timeout),
        ("TOMBSTONE_TIMEOUT", tombstone_timeout),
        ("PEER_RETRY_INTERVAL", peer_retry_interval),
        ("DEAD_PEER_TIMEOUT", dead_peer_timeout),
        ("GOSSIP_INTERVAL", gossip_interval),
        ("PING_INTERVAL", ping_interval),
        ("PING_TIMEOUT", ping_timeout),
        ("HEALTH_QUERY_DELAY", health_query_delay),
        ("HEALTH_REPORT_WAIT", health_report_wait),
        ("LONE_START_WAIT", lone_start_wait),
        ("RESUME_WAIT", resume_wait),
        ("MARK_INTERVAL", mark_interval),
        ("HANDOVER_TIMEOUT", handover_timeout),
    ]
    .into_iter()
    .map(variable)
    .collect()
}
