//! Start and stop of a node's replica.

use crate::acknowledgements::AcknowledgementTable;
use crate::config::{Config, ConfigError, Founding};
use crate::engine::{self, Engine};
use crate::group::{driver, founding, level, removal, seek};
use crate::handle::LogHandle;
use crate::net::client::Network;
use crate::net::{Dial, Duplex, TcpDial, server};
use crate::plane::{LocalReplica, Plane};
use crate::raft::{Membership, Raft};
use crate::state::{Snapshots, State, StateMachine};
use crate::store::disk::{Directory, Disk};
use crate::store::identity::Identity;
use crate::store::{LogStore, Sizes, StoreError, snapshot_file};
use crate::{evidence, housekeeping, keep_alives, term_watch};
use convoke_log::command::ReplicaLocation;
use convoke_log::{Level, LimitsError, Machine, ReplicaId};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Why the log cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "log directory {path} belongs to node {found}, not to {node}: start with that id, or with another directory"
    )]
    OfAnother { path: std::path::PathBuf, found: String, node: String },
    #[error("{0}")]
    Limits(#[from] LimitsError),
    #[error(
        "the log has feature level {level}, and this version supports level {supported} (start a newer version of Convoke)"
    )]
    TooOld { level: Level, supported: Level },
    #[error("cannot start the Raft engine: {0}")]
    Engine(String),
    #[error("the operating system returned no random numbers: {0}")]
    Randomness(String),
}

/// The log of one node. Dropping it stops it; [`LogHandle::stop`] also waits until everything is closed.
#[derive(Debug)]
pub struct Replica {
    handle: LogHandle,
}

impl Replica {
    /// Starts in the current tokio runtime. It continues as the replica of an earlier start, creates a log if
    /// `config.founding` allows it, or looks for other nodes.
    pub async fn start(config: Config) -> Result<Replica, StartError> {
        Self::start_with(config, Arc::new(TcpDial)).await
    }

    /// Starts with a custom dialer.
    pub async fn start_with(config: Config, dialer: Arc<dyn Dial>) -> Result<Replica, StartError> {
        config.validate()?;
        let disk = match &config.data_dir {
            Some(path) => Some(Directory::open(path).map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => StoreError::InUse { path: path.clone() },
                _ => StoreError::Disk { action: "open", path: path.clone(), source },
            })? as Arc<dyn Disk>),
            None => None,
        };
        Self::start_on(config, dialer, disk).await
    }

    /// Starts on a custom disk instead of `config.data_dir`, for simulations. Without a disk everything is in memory.
    pub async fn start_on(
        config: Config,
        dialer: Arc<dyn Dial>,
        disk: Option<Arc<dyn Disk>>,
    ) -> Result<Replica, StartError> {
        config.validate()?;
        let nonce = u64::from_le_bytes(random()?);
        let identity = disk.as_deref().map(Identity::load).transpose()?.flatten();
        let plane = Arc::new(Plane::new(config, dialer, disk, nonce));
        match identity {
            Some(identity) => {
                if identity.node != plane.config.node {
                    let path = plane.config.data_dir.clone().unwrap_or_default();
                    let node = plane.config.node.clone();
                    return Err(StartError::OfAnother { path, found: identity.node, node });
                }
                match launch(&plane, identity).await {
                    // The node serves its registry without a log.
                    Err(StartError::Store(error)) if error.is_full() => plane.fail(error.to_string()),
                    launched => launched?,
                }
            }
            None if plane.holds_log()? => {
                let path = plane.config.data_dir.clone().unwrap_or_default();
                return Err(StoreError::NoIdentity { path }.into());
            }
            None if plane.config.join.is_empty() && plane.config.founding == Founding::AtOnce => {
                let identity = founder(&plane, vec![plane.place()], plane.config.supported)?;
                match begin(&plane, identity).await {
                    Err(StartError::Store(error)) if error.is_full() => plane.fail(error.to_string()),
                    begun => begun?,
                }
            }
            None => plane.spawn(seek::seek(plane.clone())),
        }
        Ok(Replica { handle: LogHandle { plane } })
    }

    pub fn handle(&self) -> LogHandle {
        self.handle.clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.handle.plane.stopping.send_replace(true);
    }
}

impl LogHandle {
    /// Serves a connection of the peer port whose first eight bytes were [`LOG_PREAMBLE`](crate::LOG_PREAMBLE).
    pub fn accept(&self, stream: impl Duplex, from: SocketAddr) {
        self.accept_in(stream, from, None, None);
    }

    /// The same for a connection whose certificate names a node of this cluster. Its messages are accepted only in the
    /// name of this node (TS4).
    pub fn accept_authenticated(&self, stream: impl Duplex, from: SocketAddr, node: &str) {
        self.accept_in(stream, from, None, Some(SmolStr::new(node)));
    }

    /// The same for a connection from an address where no peer is known. Such connections get half of the places, so
    /// that they cannot keep replicas out.
    pub fn accept_stranger(&self, stream: impl Duplex, from: SocketAddr) {
        match self.plane.strangers.clone().try_acquire_owned() {
            Ok(place) => self.accept_in(stream, from, Some(place), None),
            Err(_) => crate::counters::add(&self.plane.counting.connections_rejected, 1),
        }
    }

    fn accept_in(
        &self,
        stream: impl Duplex,
        from: SocketAddr,
        place: Option<OwnedSemaphorePermit>,
        authenticated: Option<SmolStr>,
    ) {
        let plane = self.plane.clone();
        let Ok(permit) = plane.connections.clone().try_acquire_owned() else {
            crate::counters::add(&plane.counting.connections_rejected, 1);
            return;
        };
        crate::counters::add(&plane.counting.connections, 1);
        let serving = server::serve(plane.clone(), Box::new(stream), from, authenticated);
        plane.spawn(async move {
            serving.await;
            drop((permit, place));
        });
    }

    /// If this replica leads, transfers leadership to the voter with the highest matched index. Waits at most one
    /// election timeout.
    pub async fn hand_over(&self) {
        let Ok(engine) = self.engine() else { return };
        let status = self.status();
        let others =
            status.group.replicas.iter().filter(|member| member.voter && Some(member.replica) != status.replica);
        let matched = |id: ReplicaId| status.matched.iter().find(|(found, _)| *found == id).map(|(_, index)| *index);
        let Some(next) = others.max_by_key(|member| matched(member.replica)) else { return };
        if status.role != crate::Role::Leader || engine.raft.trigger().transfer_leader(next.replica.0).await.is_err() {
            return;
        }
        let given_up = async {
            while engine.state.term().epoch().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(self.plane.config.timers.election_timeout_max, given_up).await;
    }

    /// Stops the log of this node. The data directory is released when this returns.
    pub async fn stop(&self) {
        self.plane.stopping.send_replace(true);
        self.plane.stopped().await;
    }

    /// Waits until the replica fails, and returns the reason. Never returns otherwise.
    pub async fn failed(&self) -> String {
        let mut faults = self.plane.faults.subscribe();
        loop {
            if let Some(fault) = faults.borrow_and_update().clone() {
                return fault;
            }
            if faults.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], StartError> {
    crate::entropy::random().map_err(|error| StartError::Randomness(error.to_string()))
}

/// Returns the identity of the creating node for a log with these founders, in the order of their ids. This node is one
/// of them, and all of them support the feature level.
pub(crate) fn founder(plane: &Plane, members: Vec<ReplicaLocation>, level: Level) -> Result<Identity, StartError> {
    let members: BTreeMap<u64, ReplicaLocation> = (1..).zip(members).collect();
    let me = members.iter().find(|(_, place)| place.node == plane.config.node).map_or(1, |(id, _)| *id);
    let voters: BTreeSet<u64> = members.keys().copied().collect();
    let founding = Membership::new(vec![voters], members).map_err(|error| StartError::Engine(error.to_string()))?;
    Ok(Identity {
        log: u128::from_le_bytes(random()?),
        replica: me,
        node: plane.config.node.clone(),
        genesis: Machine::created(plane.config.state.clone(), level)?.snapshot().to_bytes(),
        inherited: 0,
        founding: Some(founding),
        agreed: BTreeSet::new(),
    })
}

/// Becomes a replica: writes the identity to disk, then starts the engine.
pub(crate) async fn begin(plane: &Arc<Plane>, identity: Identity) -> Result<(), StartError> {
    if let Some(disk) = plane.disk() {
        let written = identity.save(&*disk);
        written.map_err(|source| StoreError::Disk { action: "write to", path: disk.path("identity"), source })?;
    }
    launch(plane, identity).await
}

/// Opens the stored log, and starts the engine and its tasks.
async fn launch(plane: &Arc<Plane>, identity: Identity) -> Result<(), StartError> {
    let (config, counting, disk) = (plane.config.clone(), plane.counting.clone(), plane.disk());
    if plane.is_stopped() {
        // The disk may have been released; do not start a replica in memory instead.
        return Err(StartError::Engine("the log of this node has been stopped".to_owned()));
    }
    let limits = &config.limits;
    let sizes = Sizes {
        read_bytes: limits.append_bytes,
        segment_bytes: limits.segment_bytes,
        grown_bytes: limits.snapshot_log_bytes + limits.catch_up_bytes,
    };
    let (store, image) = match &disk {
        Some(disk) => {
            let image = snapshot_file::load(&**disk)?;
            let store = LogStore::open(disk.clone(), sizes, counting.clone())?;
            let covered = image.as_ref().and_then(|image| image.meta.last_log_id);
            if store.purged().map(|purged| purged.index) > covered.map(|covered| covered.index) {
                let what = "the snapshot before the first entry of the log is missing".to_owned();
                return Err(StoreError::Damaged { path: disk.path(""), what }.into());
            }
            (store, image)
        }
        None => (LogStore::in_memory(sizes), None),
    };
    let machine = match &image {
        Some(image) => Machine::clone(&image.machine),
        None => identity.machine().map_err(StartError::Engine)?,
    };
    if machine.level() > config.supported {
        return Err(StartError::TooOld { level: machine.level(), supported: config.supported });
    }
    let over = store.vote().map_or(0, |vote| vote.leader_id.term);
    let state = Arc::new(State::new(ReplicaId(identity.replica), over, machine));
    let snapshots = Arc::new(Snapshots::new(image, disk, counting.clone()));
    let machine = StateMachine::new(state.clone(), snapshots, store.clone());
    let acknowledgements = Arc::new(AcknowledgementTable::new(state.hashes.clone()));
    if let Some(disk) = plane.disk() {
        evidence::load(&*disk, &acknowledgements);
    }
    let network = Network {
        config: config.clone(),
        dialer: plane.dialer.clone(),
        log: identity.log,
        counting: counting.clone(),
        acknowledgements: acknowledgements.clone(),
    };
    let engine_config = engine::config(&config).map_err(StartError::Engine)?;
    let raft = Raft::new(identity.replica, Arc::new(engine_config), network, store.clone(), machine)
        .await
        .map_err(|error| StartError::Engine(error.to_string()))?;
    if let Some(founding) = &identity.founding {
        let initialized = raft.is_initialized().await.map_err(|error| StartError::Engine(error.to_string()))?;
        if !initialized {
            let members: BTreeMap<u64, ReplicaLocation> =
                founding.nodes().map(|(id, place)| (*id, place.clone())).collect();
            raft.initialize(members).await.map_err(|error| StartError::Engine(error.to_string()))?;
        }
    }
    let (engine, queued) = Engine::new(raft.clone(), state, store, identity.log, counting, acknowledgements, config);
    let engine = Arc::new(engine);
    tracing::info!(node = %plane.config.node, replica = identity.replica, log = %format_args!("{:032x}", identity.log), "replica started");
    plane.engine.store(Some(engine.clone()));
    let local = LocalReplica { identity: Arc::new(identity), engine };
    plane.spawn(engine::forward(raft, queued));
    plane.spawn(term_watch::watch(plane.clone(), local.engine.clone()));
    plane.spawn(term_watch::propose_due(local.engine.clone()));
    plane.spawn(keep_alives::confirm(local.engine.clone()));
    plane.spawn(housekeeping::keep(local.engine.clone()));
    plane.spawn(evidence::keep(plane.clone(), local.engine.clone()));
    plane.spawn(driver::drive(plane.clone(), local.clone()));
    plane.spawn(level::keep(plane.clone(), local.engine.clone()));
    plane.spawn(removal::watch(plane.clone(), local.engine.clone()));
    if local.identity.founding.is_some() {
        plane.spawn(founding::gather(plane.clone(), local.clone()));
    }
    plane.become_replica(local);
    Ok(())
}

/// Maximum time for closing; only a hanging disk takes longer.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

impl Plane {
    /// Returns whether the directory holds segments or snapshots of a log.
    fn holds_log(&self) -> Result<bool, StoreError> {
        let Some(disk) = self.disk() else { return Ok(false) };
        let names = disk.list().map_err(|source| StoreError::Disk { action: "list", path: disk.path(""), source })?;
        Ok(names.iter().any(|name| name.ends_with(".log") || name.starts_with("snapshot-")))
    }

    /// Stops the engine and waits until the directory is released.
    async fn stopped(&self) {
        if self.closing.swap(true, Ordering::SeqCst) {
            let mut closed = self.closed.subscribe();
            let _ = closed.wait_for(|closed| *closed).await;
            return;
        }
        let engine = self.engine.swap(None);
        if let Some(engine) = &engine {
            // Clients of this node are sent to the other replicas.
            self.learn(engine.own_group());
        }
        let store = engine.as_ref().map(|engine| engine.store.downgrade());
        self.leave();
        if let Some(engine) = engine {
            if tokio::time::timeout(CLOSE_TIMEOUT, engine.raft.shutdown()).await.is_err() {
                tracing::warn!(node = %self.config.node, timeout = ?CLOSE_TIMEOUT, "log engine stop timed out");
            }
            engine.state.end_term();
            // Wake tasks that wait for an index which will not come.
            engine.state.wake_waiting();
        }
        let freed = async {
            while store.as_ref().is_some_and(|store| store.strong_count() > 0) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, freed).await.is_err() {
            tracing::warn!(node = %self.config.node, timeout = ?CLOSE_TIMEOUT, "log directory release timed out");
        }
        self.closed.send_replace(true);
    }
}
