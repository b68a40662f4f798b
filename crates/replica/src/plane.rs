//! State shared by the tasks of a node's log.

use crate::config::{Config, Founding};
use crate::counters::Counting;
use crate::engine::Engine;
use crate::net::Dial;
use crate::net::message::{Adopt, Probed};
use crate::raft::Vote;
use crate::rejection::LogRejection;
use crate::status::{Group, LogConflict};
use crate::store::disk::Disk;
use crate::store::identity::Identity;
use arc_swap::ArcSwapOption;
use convoke_log::command::ReplicaLocation;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

/// Operator requests in progress at a leader. Below the quota of reserved log sessions (LS7).
const OPERATING_MAX: usize = 32;
/// Nodes whose addresses for clients are remembered.
const CLIENT_ADDRESSES_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) config: Arc<Config>,
    pub(crate) dialer: Arc<dyn Dial>,
    /// `None` if everything is in memory, or after the stop: the directory is then released, even if handles remain.
    disk: Mutex<Option<Arc<dyn Disk>>>,
    pub(crate) counting: Arc<Counting>,
    /// Random number of this process.
    nonce: u64,
    /// Set when this node becomes a replica.
    pub(crate) engine: ArcSwapOption<Engine>,
    local: Mutex<Option<LocalReplica>>,
    /// Held while this node becomes a replica, so that it becomes only one.
    pub(crate) becoming: tokio::sync::Mutex<()>,
    /// Number of the recorded configuration that the engine has reached.
    pub(crate) settled: watch::Sender<u64>,
    /// Why the engine has not reached it, while this node leads.
    obstacle: Mutex<Option<String>>,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) closing: AtomicBool,
    pub(crate) closed: watch::Sender<bool>,
    pub(crate) faults: watch::Sender<Option<String>>,
    pub(crate) connections: Arc<Semaphore>,
    /// The part of them that connections from unknown addresses may use.
    pub(crate) strangers: Arc<Semaphore>,
    /// Limits the log sessions of operator requests in progress; further requests wait.
    pub(crate) operating: Semaphore,
    /// The snapshot being received; only the latest one is accepted.
    pub(crate) arriving: watch::Sender<Arrival>,
    /// Permit for installing a snapshot, one at a time.
    pub(crate) installing: Arc<Semaphore>,
    /// The group as reported by other nodes, while this node is not a replica.
    known: Mutex<Group>,
    /// Whether a replica reported a leader with a majority in the last round, while this node is not a replica.
    group_available: AtomicBool,
    /// Ids of the nodes behind the join list, as of the last round of the search for a log.
    sees: Mutex<Vec<SmolStr>>,
    /// What holds the feature level back, while this node leads.
    level_obstacle: Mutex<Option<String>>,
    /// Set while the cluster has two logs.
    pub(crate) conflict: ArcSwapOption<LogConflict>,
    /// Addresses for clients that other nodes reported, by node id.
    client_addresses: Mutex<BTreeMap<SmolStr, SmolStr>>,
}

/// Identifies the snapshot being received. A new transfer replaces one whose sender is silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Sequence number of the transfer.
    pub(crate) number: u64,
    /// Vote of the sending leader.
    vote: Option<Vote>,
}

/// The parts that make a node a replica.
#[derive(Clone, Debug)]
pub(crate) struct LocalReplica {
    pub(crate) identity: Arc<Identity>,
    pub(crate) engine: Arc<Engine>,
}

impl Plane {
    pub(crate) fn new(config: Config, dialer: Arc<dyn Dial>, disk: Option<Arc<dyn Disk>>, nonce: u64) -> Self {
        Plane {
            connections: Arc::new(Semaphore::new(config.limits.connections)),
            strangers: Arc::new(Semaphore::new(config.limits.connections.div_ceil(2))),
            operating: Semaphore::new(OPERATING_MAX),
            config: Arc::new(config),
            dialer,
            disk: Mutex::new(disk),
            counting: Arc::default(),
            nonce,
            engine: ArcSwapOption::empty(),
            local: Mutex::default(),
            becoming: tokio::sync::Mutex::default(),
            settled: watch::Sender::new(0),
            obstacle: Mutex::default(),
            stopping: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            closed: watch::Sender::new(false),
            faults: watch::Sender::new(None),
            arriving: watch::Sender::new(Arrival::default()),
            installing: Arc::new(Semaphore::new(1)),
            known: Mutex::default(),
            group_available: AtomicBool::new(false),
            sees: Mutex::default(),
            level_obstacle: Mutex::default(),
            conflict: ArcSwapOption::empty(),
            client_addresses: Mutex::default(),
        }
    }

    /// Runs a task until it ends or the log stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.stopping.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = task => {}
            }
        });
    }

    /// Returns the location of this node.
    pub(crate) fn place(&self) -> ReplicaLocation {
        ReplicaLocation { node: SmolStr::new(&self.config.node), address: SmolStr::new(&self.config.address) }
    }

    /// Returns the current address of a node, as far as it is known.
    pub(crate) fn current_address(&self, node: &str) -> Option<SmolStr> {
        let own = (node == self.config.node).then(|| self.config.address.clone());
        own.or_else(|| self.dialer.find(node)).map(SmolStr::from)
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Returns the join list sorted and without duplicates, so that equal lists compare equal.
    pub(crate) fn join(&self) -> Vec<SmolStr> {
        let mut join: Vec<SmolStr> = self.config.join.iter().map(SmolStr::new).collect();
        join.sort();
        join.dedup();
        join
    }

    /// Returns the number of nodes with which this node creates a log: 1 for alone, 0 if the join list decides.
    pub(crate) fn expected(&self) -> u64 {
        match self.config.founding {
            Founding::AtOnce | Founding::Listed => 0,
            Founding::Alone { .. } => 1,
            Founding::Expected(nodes) => nodes as u64,
        }
    }

    pub(crate) fn see(&self, nodes: Vec<SmolStr>) {
        *self.sees.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    pub(crate) fn become_replica(&self, local: LocalReplica) {
        *self.lock_local() = Some(local);
    }

    pub(crate) fn leave(&self) {
        *self.lock_local() = None;
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the index up to which recorded configurations belong to an earlier log.
    pub(crate) fn inherited(&self) -> u64 {
        self.lock_local().as_ref().map_or(0, |local| local.identity.inherited)
    }

    fn lock_local(&self) -> std::sync::MutexGuard<'_, Option<LocalReplica>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self) -> Group {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn learn(&self, group: Group) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = group;
    }

    pub(crate) fn set_group_available(&self, available: bool) {
        self.group_available.store(available, Ordering::Relaxed);
    }

    pub(crate) fn is_group_available(&self) -> bool {
        self.group_available.load(Ordering::Relaxed)
    }

    pub(crate) fn learn_client_address(&self, node: &str, address: &str) {
        let mut known = self.client_addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if !address.is_empty() && (known.len() < CLIENT_ADDRESSES_MAX || known.contains_key(node)) {
            known.insert(node.into(), address.into());
        }
    }

    pub(crate) fn client_address(&self, node: &str) -> Option<SmolStr> {
        self.client_addresses.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// Returns why the group differs from the recorded configuration.
    pub(crate) fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn obstructed(&self, by: Option<String>) {
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    /// Returns why the log does not have the highest feature level.
    pub(crate) fn level_obstacle(&self) -> Option<String> {
        self.level_obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_level_obstacle(&self, obstacle: Option<String>) {
        *self.level_obstacle.lock().unwrap_or_else(PoisonError::into_inner) = obstacle;
    }

    /// Returns the fault that stopped the log.
    pub(crate) fn fault(&self) -> Option<String> {
        self.faults.borrow().clone()
    }

    pub(crate) fn fail(&self, fault: String) {
        tracing::error!(node = %self.config.node, %fault, "replicated log failed");
        self.faults.send_replace(Some(fault));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns why a node that is not a replica rejects requests.
    pub(crate) fn outside(&self) -> LogRejection {
        if self.is_stopped() || self.fault().is_some() {
            LogRejection::Stopped
        } else {
            LogRejection::NotLeader(self.known())
        }
    }

    /// Starts to receive a snapshot in place of any other one. Returns `None` if a later leader already sends one.
    pub(crate) fn arrival(&self, vote: Vote) -> Option<u64> {
        let mut number = None;
        self.arriving.send_if_modified(|arrival| {
            if arrival.vote.is_some_and(|latest| latest > vote) {
                return false;
            }
            *arrival = Arrival { number: arrival.number + 1, vote: Some(vote) };
            number = Some(arrival.number);
            true
        });
        number
    }

    /// Returns this node's answer to a probe.
    pub(crate) fn probed(&self) -> Probed {
        let engine = self.engine.load();
        Probed {
            node: SmolStr::new(&self.config.node),
            address: SmolStr::new(&self.config.address),
            nonce: self.nonce,
            join: self.join(),
            expected: self.expected(),
            sees: self.sees.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            log: engine.as_ref().map(|engine| engine.log),
            group: engine.as_ref().map_or_else(|| self.known(), |engine| engine.group()),
            available: engine.as_ref().is_some_and(|engine| engine.is_available()),
            level: self.config.supported,
        }
    }

    /// Becomes a replica of a log at the request of its leader or founder. Fails if the node already is a replica of
    /// another log or has another id.
    pub(crate) async fn adopt(self: &Arc<Self>, adopt: Adopt) -> Result<(), String> {
        if adopt.node != self.config.node {
            return Err(format!("this node is {}, not {}", self.config.node, adopt.node));
        }
        let _becoming = self.becoming.lock().await;
        if let Some(engine) = self.engine.load_full() {
            let same = engine.log == adopt.target.log && engine.state.me().0 == adopt.target.replica;
            return if same {
                Ok(())
            } else {
                Err(format!(
                    "node {} already is replica {} of log {:032x}; stop it, move its log directory away and start it again",
                    self.config.node,
                    engine.state.me(),
                    engine.log
                ))
            };
        }
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let identity = Identity {
            log: adopt.target.log,
            replica: adopt.target.replica,
            node: self.config.node.clone(),
            genesis: adopt.state,
            inherited: 0,
            founding: None,
            agreed: BTreeSet::new(),
        };
        crate::replica::begin(self, identity).await.map_err(|error| {
            self.fail(error.to_string());
            error.to_string()
        })
    }
}
