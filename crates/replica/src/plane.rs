//! What the parts of the log plane of one node share.

use crate::config::Config;
use crate::counters::Counting;
use crate::engine::Engine;
use crate::net::Dial;
use crate::net::message::{Adopt, Probed};
use crate::raft::Vote;
use crate::refusal::Refusal;
use crate::status::Group;
use crate::store::disk::Disk;
use crate::store::identity::Identity;
use arc_swap::ArcSwapOption;
use convoke_log::command::Replica as Place;
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) config: Arc<Config>,
    pub(crate) dialer: Arc<dyn Dial>,
    /// `None`: everything is in memory, or the plane has ended: its directory is free then, whoever still has a handle.
    disk: Mutex<Option<Arc<dyn Disk>>>,
    pub(crate) counting: Arc<Counting>,
    /// Of this run.
    nonce: u64,
    /// Set when this node becomes a replica.
    pub(crate) engine: ArcSwapOption<Engine>,
    member: Mutex<Option<Member>>,
    /// Held while this node becomes a replica, so that it becomes only one.
    pub(crate) becoming: tokio::sync::Mutex<()>,
    /// Number of the recorded configuration that the engine has arrived at.
    pub(crate) settled: watch::Sender<u64>,
    /// Why it has not arrived, as this node sees it while it leads.
    obstacle: Mutex<Option<String>>,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) closing: AtomicBool,
    pub(crate) closed: watch::Sender<bool>,
    pub(crate) faults: watch::Sender<Option<String>>,
    pub(crate) connections: Arc<Semaphore>,
    /// The snapshot that is arriving: one at a time, the latest.
    pub(crate) arriving: watch::Sender<Arrival>,
    /// Snapshots that may be installed at a time: one.
    pub(crate) installing: Arc<Semaphore>,
    /// The group as others told it, while this node is no replica.
    known: Mutex<Group>,
}

/// Which snapshot may arrive. A sender that fell silent must not keep others out: the next one takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Counts them.
    pub(crate) number: u64,
    /// Of the leader that sends it.
    vote: Option<Vote>,
}

/// What makes a node a replica.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) identity: Arc<Identity>,
    pub(crate) engine: Arc<Engine>,
}

impl Plane {
    pub(crate) fn new(config: Config, dialer: Arc<dyn Dial>, disk: Option<Arc<dyn Disk>>, nonce: u64) -> Self {
        Plane {
            connections: Arc::new(Semaphore::new(config.limits.connections)),
            config: Arc::new(config),
            dialer,
            disk: Mutex::new(disk),
            counting: Arc::default(),
            nonce,
            engine: ArcSwapOption::empty(),
            member: Mutex::default(),
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
        }
    }

    /// Runs something until it ends or the plane does.
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

    /// This node, as others are to find it.
    pub(crate) fn place(&self) -> Place {
        Place { node: SmolStr::new(&self.config.node), address: SmolStr::new(&self.config.address) }
    }

    /// Where a node is now, as far as this one knows.
    pub(crate) fn whereabouts(&self, node: &str) -> Option<SmolStr> {
        let own = (node == self.config.node).then(|| self.config.address.clone());
        own.or_else(|| self.dialer.find(node)).map(SmolStr::from)
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Addresses to look for a log at, in order, without duplicates: equal lists look equal.
    pub(crate) fn join(&self) -> Vec<SmolStr> {
        let mut join: Vec<SmolStr> = self.config.join.iter().map(SmolStr::new).collect();
        join.sort();
        join.dedup();
        join
    }

    pub(crate) fn become_member(&self, member: Member) {
        *self.lock_member() = Some(member);
    }

    pub(crate) fn leave(&self) {
        *self.lock_member() = None;
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Configurations up to this number are not of the log this node is a replica of.
    pub(crate) fn inherited(&self) -> u64 {
        self.lock_member().as_ref().map_or(0, |member| member.identity.inherited)
    }

    fn lock_member(&self) -> std::sync::MutexGuard<'_, Option<Member>> {
        self.member.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self) -> Group {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn learn(&self, group: Group) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = group;
    }

    /// Why the group is not as recorded.
    pub(crate) fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn obstructed(&self, by: Option<String>) {
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    /// What stopped the plane.
    pub(crate) fn fault(&self) -> Option<String> {
        self.faults.borrow().clone()
    }

    pub(crate) fn fail(&self, fault: String) {
        tracing::error!(node = %self.config.node, "the log plane has failed: {fault}");
        self.faults.send_replace(Some(fault));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Why a node that is no replica refuses.
    pub(crate) fn outside(&self) -> Refusal {
        if self.is_stopped() || self.fault().is_some() { Refusal::Stopped } else { Refusal::NotLeader(self.known()) }
    }

    /// Lets a snapshot arrive in the place of any other; `None` if that one is a later leader's.
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

    /// What this node says of itself.
    pub(crate) fn probed(&self) -> Probed {
        let engine = self.engine.load();
        Probed {
            node: SmolStr::new(&self.config.node),
            address: SmolStr::new(&self.config.address),
            nonce: self.nonce,
            join: self.join(),
            log: engine.as_ref().map(|engine| engine.log),
            group: engine.as_ref().map_or_else(|| self.known(), |engine| engine.group()),
        }
    }

    /// Becomes a replica of a log, as its leader or founder asks; refuses if it is one already, of another log or under
    /// another id.
    pub(crate) async fn adopt(self: &Arc<Self>, adopt: Adopt) -> Result<(), String> {
        if adopt.node != self.config.node {
            return Err(format!("this is node {}, not {}", self.config.node, adopt.node));
        }
        let _becoming = self.becoming.lock().await;
        if let Some(engine) = self.engine.load_full() {
            let same = engine.log == adopt.target.log && engine.state.me().0 == adopt.target.replica;
            return if same {
                Ok(())
            } else {
                Err(format!(
                    "node {} is replica {} of log {:032x} already; stop it, move its log directory away and start it again",
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
