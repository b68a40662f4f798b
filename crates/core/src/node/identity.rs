//! The id of this node: which reports of others about it count (N1, N4, N9).
//!
//! One compromised node can report anything, and correct nodes relay it. So no report of another node stops or renumbers this
//! one while it runs. It need not change its number either: a node that has retired an incarnation accepts it again once it
//! proves to be alive (D14).

use super::{Effect, LinkId, Node, Output, Phase, RegistryEvent, RestartReason, StopReason};
use crate::member::Record;
use crate::mutant::seam;
use crate::peer::Dial;
use crate::time::Time;
use crate::version::{Incarnation, NodeId};
use crate::wire::Context;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often one peer may raise the number of a starting process.
const RAISES_MAX: u32 = 3;

/// What others report about the id of this node.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// How often each peer raised the number of this process while it was starting.
    raised: BTreeMap<NodeId, u32>,
    /// The latest report of each node that had no effect.
    reports: BTreeMap<NodeId, Time>,
    /// When each node's report last led to a dial.
    dials: BTreeMap<NodeId, Time>,
    /// Where the node record of another process with this id says that it is.
    address: Option<String>,
    /// When this node last replaced the node record of a newer process with its id, and whether it has to do so again.
    replaced_at: Option<Time>,
    replace: bool,
    /// Nodes that rejected this process because another one uses the id: when first and when last.
    rejections: BTreeMap<NodeId, (Time, Time)>,
}

impl Node {
    /// Whether others report a newer incarnation or another process with this node's id (N9).
    pub fn is_id_disputed(&self) -> bool {
        let recent = self.config.timers.heartbeat_timeout * 2;
        self.identity.reports.values().any(|at| self.clock.now.since(*at) < recent)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. } | Phase::Stopping { .. })
    }

    /// Whether the other end of a link is a process with this node's id: its certificate names it, or without TLS the process
    /// itself does.
    pub(super) fn is_own_process(&self, link: LinkId, named: &NodeId) -> bool {
        seam!(self, ReportsStopNodes => return true);
        let authenticated = self.peers.links.get(&link).and_then(|link| link.authenticated.as_ref());
        *authenticated.unwrap_or(named) == self.me.node
    }

    /// A peer reports on an established link that a newer process with this node's id is alive.
    pub(super) fn handle_late_reject(
        &mut self,
        node: &NodeId,
        known_incarnation: Option<Incarnation>,
        address: &str,
        out: &mut Output,
    ) {
        let Some(known_incarnation) = known_incarnation else { return };
        seam!(self, ReportsStopNodes => return self.met_duplicate(node, known_incarnation, true, out));
        self.duplicate_reported(node, known_incarnation, address, out);
    }

    /// Another process with this id is at the other end of a link, or a starting process is told so by a node that rejects
    /// it (N4).
    pub(super) fn met_duplicate(&mut self, by: &NodeId, other: Incarnation, other_serving: bool, out: &mut Output) {
        seam!(self, DuplicateIdTolerated => return);
        match self.phase {
            Phase::Starting { .. } => self.note_rejection(by, out),
            Phase::Serving { .. } | Phase::Stopping { .. } if other_serving && other > self.me.incarnation => {
                self.stop_now(StopReason::IdentityConflict, out);
            }
            _ => {}
        }
    }

    fn note_rejection(&mut self, by: &NodeId, out: &mut Output) {
        let (now, timeout) = (self.clock.now, self.config.timers.heartbeat_timeout);
        let known = self.is_rejected();
        // Old entries end here, and one that is repeated keeps its first time.
        self.identity.rejections.retain(|_, (_, last)| now.since(*last) < timeout);
        let (first, last) = self.identity.rejections.entry(by.clone()).or_insert((now, now));
        *last = now;
        if now.since(*first) >= timeout && self.peers.up().next().is_none() {
            self.stop_now(StopReason::IdentityConflict, out);
        } else if !known {
            out.events.push(RegistryEvent::IdInUse { timeout });
        }
    }

    /// Whether a node rejects this process because another one uses its id, and has not accepted it since. Another node
    /// that accepts it may have no link to that process, so it does not settle the matter. But no single node may keep this
    /// one from serving for ever (N4).
    pub(super) fn is_rejected(&self) -> bool {
        let (now, timeout) = (self.clock.now, self.config.timers.heartbeat_timeout);
        let accepted = self.peers.up().next().is_some();
        seam!(self, OneAcceptanceIsEnough => if accepted { return false });
        let counts = |(first, last): &(Time, Time)| now.since(if accepted { *first } else { *last }) < timeout;
        self.identity.rejections.values().any(counts)
    }

    /// A link to a node is up: it takes this process for the node, whichever side dialled.
    pub(super) fn accepted_by(&mut self, node: &NodeId) {
        self.identity.rejections.remove(node);
    }

    /// Another node reports a live process with this node's id. That does not stop a running node. It dials the other process:
    /// if they meet, the older one stops (N4).
    pub(super) fn duplicate_reported(&mut self, by: &NodeId, other: Incarnation, address: &str, out: &mut Output) {
        if !self.is_running() {
            return;
        }
        self.report_dispute(by, other, out);
        let known = self.identity.address.clone().unwrap_or_default();
        let address = if address.is_empty() { known } else { address.to_owned() };
        let pause = self.config.timers.peer_retry_interval / 2;
        let recent = self.identity.dials.get(by).is_some_and(|at| self.clock.now.since(*at) < pause);
        if address.is_empty() || address == self.config.peer_address || recent {
            return;
        }
        self.identity.dials.insert(by.clone(), self.clock.now);
        let dial = self.peers.start_dial(Dial::SameId);
        out.effects.push(Effect::Dial { dial, address, turn: 0 });
    }

    fn report_dispute(&mut self, by: &NodeId, incarnation: Incarnation, out: &mut Output) {
        if incarnation <= self.me.incarnation {
            return;
        }
        if !self.is_id_disputed() {
            out.events.push(RegistryEvent::IdDisputed { by: by.clone(), incarnation });
        }
        self.identity.reports.insert(by.clone(), self.clock.now);
    }

    /// A peer knows a higher incarnation of this node. While it is starting it has written nothing, so its number can still
    /// rise, and distinguishes incarnations by itself; the nonce is for those that never met (N1).
    pub(super) fn raise_number(&mut self, by: &NodeId, known: Option<Incarnation>, out: &mut Output) -> bool {
        let me = self.me.incarnation;
        seam!(self, IncarnationNotRaised => return false);
        let Some(known) = known.filter(|known| *known != me) else { return false };
        match self.phase {
            Phase::Starting { .. } if known.number >= me.number => {
                let raised = self.identity.raised.entry(by.clone()).or_default();
                *raised += 1;
                let raises = *raised <= RAISES_MAX;
                if raises {
                    self.renumber(known.number + 1, out);
                }
                raises
            }
            Phase::Over => known > me,
            _ => false,
        }
    }

    /// Compares the number of this node with those in the context of a peer. A running node keeps its number, whatever others
    /// know (N8). True if the message must not be handled any more.
    pub(super) fn check_own_number(&mut self, by: &NodeId, context: &Context, out: &mut Output) -> bool {
        let claimed = context.clock.iter().map(|(origin, _)| origin).filter(|origin| origin.node == self.me.node);
        let highest = claimed.map(|origin| origin.incarnation).filter(|other| *other != self.me.incarnation).max();
        let highest = highest.max(context.retired.get(&self.me.node).copied());
        seam!(self, ReportsRenumberNodes => if let Some(known) = highest.filter(|known| *known > self.me.incarnation && self.is_running()) {
            self.restart_above(RestartReason::WritesUnknown, known.number, out);
            return true;
        });
        self.raise_number(by, highest, out)
    }

    /// The node record was replaced by one that another process with this id wrote. True if this node leaves it for now: two
    /// processes that do not meet would otherwise replace it for ever.
    pub(super) fn gives_way_to(&mut self, new: &Arc<Record>) -> bool {
        if new.origin.id.node != self.me.node || new.origin.index == self.map.origins.me() {
            return false;
        }
        self.identity.address = new.metadata.get("peer_address").map(str::to_owned);
        if new.origin.id.incarnation < self.me.incarnation {
            return false;
        }
        let pause = self.config.timers.heartbeat_timeout;
        let recent = self.identity.replaced_at.is_some_and(|at| self.clock.now.since(at) < pause);
        self.identity.replace = recent;
        if !recent {
            self.identity.replaced_at = Some(self.clock.now);
        }
        recent
    }

    /// With every tick: replaces the node record of a newer process with this id, if that had to wait.
    pub(super) fn check_identity(&mut self, out: &mut Output) {
        let pause = self.config.timers.heartbeat_timeout;
        let due = self.identity.replaced_at.is_some_and(|at| self.clock.now.since(at) >= pause);
        if self.identity.replace && due && matches!(self.phase, Phase::Serving { .. }) {
            (self.identity.replace, self.identity.replaced_at) = (false, Some(self.clock.now));
            self.write_node_record(out);
        }
    }
}
