//! What the parts of the log plane of one node share.

use crate::config::Config;
use crate::counters::Counting;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::status::Group;
use arc_swap::ArcSwapOption;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) config: Arc<Config>,
    pub(crate) counting: Arc<Counting>,
    /// Set once, when this node becomes a replica.
    pub(crate) engine: ArcSwapOption<Engine>,
    /// Number of the recorded configuration that the engine has arrived at.
    pub(crate) settled: watch::Sender<u64>,
    pub(crate) stopping: watch::Sender<bool>,
    /// The group as others told it, while this node is no replica.
    known: Mutex<Group>,
    fault: Mutex<Option<String>>,
}

impl Plane {
    pub(crate) fn new(config: Config) -> Self {
        Plane {
            config: Arc::new(config),
            counting: Arc::default(),
            engine: ArcSwapOption::empty(),
            settled: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            known: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    pub(crate) fn known(&self) -> Group {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn learn(&self, group: Group) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = group;
    }

    /// What stopped the plane before it had an engine.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn fail(&self, fault: String) {
        tracing::error!(node = %self.config.node, "the log plane has stopped: {fault}");
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Why a node that is no replica refuses.
    pub(crate) fn outside(&self) -> Refusal {
        if self.is_stopped() || self.fault().is_some() { Refusal::Stopped } else { Refusal::NotLeader(self.known()) }
    }
}
