//! State shared by hosts and driver.

use crate::disk::SimDisk;
use crate::lockers::LOCKERS;
use crate::members::MEMBERS;
use crate::plan::{Mutant, Plan};
use crate::record::Recorder;
use crate::registry::Registry;
use convoke_replica::LogHandle;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// A node as the driver sees it.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Handle of its replica, while it runs.
    pub(crate) handle: Option<LogHandle>,
    /// Makes its clock jump ahead.
    pub(crate) jump: Option<UnboundedSender<Duration>>,
    /// Why its replica has stopped, or did not start.
    pub(crate) failed: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) recorder: Recorder,
    pub(crate) disks: Vec<SimDisk>,
    nodes: Vec<Mutex<Node>>,
    registry: Mutex<Registry>,
}

impl Shared {
    pub(crate) fn new(plan: Plan, verbose: bool) -> Shared {
        let nodes = plan.nodes();
        let workers = 2 * (plan.workers + LOCKERS) + MEMBERS;
        Shared {
            recorder: Recorder::new(workers, verbose),
            disks: (0..nodes).map(|_| SimDisk::new(plan.has(Mutant::DisksLie))).collect(),
            nodes: (0..nodes).map(|_| Mutex::default()).collect(),
            registry: Mutex::default(),
            plan,
        }
    }

    pub(crate) fn node(&self, place: usize) -> MutexGuard<'_, Node> {
        self.nodes[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn handle(&self, place: usize) -> Option<LogHandle> {
        self.node(place).handle.clone()
    }
}
