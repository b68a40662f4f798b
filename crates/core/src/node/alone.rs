//! A node that has reached none of its seeds asserts no absence (N7).

use super::{Node, Output, Phase, RegistryEvent, SeedFailure, SeedView};
use crate::error::{ErrorCode, Rejection};
use crate::mutant::seam;
use crate::peer::Seed;
use crate::time::{Duration, Time};
use crate::version::NodeId;
use crate::wire::RejectReason;

impl Node {
    /// Whether an unknown id is absent from the registry, as far as a node can tell. False while this node is starting
    /// or alone: it may only not have received the member yet. Every interface asks this method.
    pub fn asserts_absence(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. } | Phase::Stopping { .. }) && !self.is_alone()
    }

    /// Whether this node serves clients although it has reached none of its seeds since its process started (N7).
    pub fn is_alone(&self) -> bool {
        seam!(self, AloneAssertsAbsence => return false);
        !self.joined && !matches!(self.phase, Phase::Starting { .. })
    }

    /// The rejection of a request whose answer would assert an absence.
    pub fn absence_unknown(&self) -> Rejection {
        let failures: Vec<String> = self.seeds().iter().filter_map(SeedView::problem).collect();
        Rejection::new(ErrorCode::NotReady, alone_message(&failures))
    }

    /// The seeds and why no node was found there.
    pub fn seeds(&self) -> Vec<SeedView> {
        let view = |seed: &Seed| SeedView {
            address: seed.address.clone(),
            node: seed.node.clone(),
            failure: seed.failure.filter(|_| seed.node.is_none()),
        };
        self.peers.seeds.iter().map(view).collect()
    }

    /// An operator states that this is the first node: there is no registry to receive. It concerns the registry only.
    pub fn declare_first(&mut self, now: Time, out: &mut Output) -> Result<(), Rejection> {
        self.observe(now, out);
        let result = match self.phase {
            Phase::Serving { .. } | Phase::Starting { .. } if self.joined => {
                let message = "this node has joined a cluster already: it cannot be declared the first node";
                Err(Rejection::new(ErrorCode::InvalidArgument, message))
            }
            Phase::Serving { .. } | Phase::Starting { .. } => Ok(()),
            Phase::Stopping { .. } | Phase::Over => Err(super::attach::not_ready()),
        };
        if result.is_ok() {
            self.join_cluster(None, Duration::ZERO, out);
            self.begin_serving(true, Duration::ZERO, out);
        }
        self.count_rejection(result)
    }

    /// An exchange with another node is complete, or an operator said that there is none (N7). `grace` is the time for
    /// which that node itself reports no absence to resuming watchers (N3).
    pub(super) fn join_cluster(&mut self, with: Option<&NodeId>, grace: Duration, out: &mut Output) {
        if self.joined {
            return;
        }
        self.joined = true;
        let now = self.clock.now;
        if let Phase::Serving { absence_from, .. } = &mut self.phase {
            *absence_from = now + grace;
            out.events.push(RegistryEvent::Joined { node: with.cloned() });
        }
    }

    /// Notes why there was no node at a seed. Reported once for each reason.
    pub(super) fn note_seed_failure(&mut self, seed: Option<usize>, failure: SeedFailure, out: &mut Output) {
        let Some(seed) = seed.and_then(|seed| self.peers.seeds.get_mut(seed)) else { return };
        if seed.node.is_some() {
            return;
        }
        seed.failure = Some(failure);
        // A list of all nodes names this one too, and a name of all nodes leads to it now and then.
        if failure == SeedFailure::Oneself || seed.reported.replace(failure) == Some(failure) {
            return;
        }
        out.events.push(RegistryEvent::SeedFailed { address: seed.address.clone(), failure });
    }
}

fn alone_message(failures: &[String]) -> String {
    let reached = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
    format!(
        "this node has reached none of its seeds{reached}, so it cannot tell what is absent; ask another node, or run \
         `convoke nodes declare-first` if this is the first node of its cluster"
    )
}

impl From<RejectReason> for SeedFailure {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Cluster => SeedFailure::OtherCluster,
            RejectReason::Version => SeedFailure::OtherVersion,
            RejectReason::Oneself => SeedFailure::Oneself,
            RejectReason::Identity => SeedFailure::IdInUse,
            RejectReason::Full | RejectReason::Linked => SeedFailure::Full,
            RejectReason::Incarnations => SeedFailure::Incarnations,
        }
    }
}
