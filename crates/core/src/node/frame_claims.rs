//! Limits for what one frame of a peer may claim (P10). A peer with a bug, or a stranger, could otherwise mute an origin,
//! use up the incarnations of a node, or raise numbers so far that nobody can count on.

use super::{LinkId, LossReason, Node, Output, PeerState, Phase, RegistryEvent, RestartReason};
use crate::mutant::seam;
use crate::version::{Incarnation, NodeId, OriginId, VectorClock};
use crate::wire::{CLAIM_FLOOR_MAX, COUNTER_MAX, Context, EvidenceItem, Item, Items, Message};

/// How far one frame may raise the incarnation number of a known node: more starts than a node makes in its life.
const INCARNATION_JUMP_MAX: u64 = 1 << 32;
/// Write numbers and incarnations are accepted up to half of the range. Nobody can count up to the other half.
const COUNTER_TAKEN_MAX: u64 = COUNTER_MAX / 2;
/// With so many nodes that know writes of this node which it does not know, it begins a new incarnation.
const WITNESSES: usize = 2;
/// Restarts of one process for that reason. Then it only rejects.
const RESTARTS_MAX: u32 = 3;

/// A claim that no correct node makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExcessiveClaim {
    #[error("the frame names write {claimed} of this node, which has made {written} writes")]
    OwnWrite { claimed: u64, written: u64 },
    #[error("the frame names liveness counter {claimed} of this node, which is at {reached}")]
    OwnLiveness { claimed: u64, reached: u64 },
    #[error("the frame names incarnation {claimed} of node {node}; the highest known one is {known}")]
    Incarnation { node: NodeId, claimed: u64, known: u64 },
    #[error("the frame names write {claimed} of {origin}; the limit is {limit}")]
    WriteNumber { origin: OriginId, claimed: u64, limit: u64 },
    #[error("the frame raises the claim floor to {claimed}; the limit is {limit}")]
    ClaimFloor { claimed: u64, limit: u64 },
}

impl Node {
    /// Checks a frame before it changes anything.
    pub(super) fn check_claims(&self, message: &Message<'_>) -> Result<(), ExcessiveClaim> {
        seam!(self, ClaimsOfFramesUnbounded => return Ok(()));
        match message {
            Message::Hello(hello) | Message::Welcome(hello) => {
                self.check_incarnation(&hello.origin.node, hello.origin.incarnation)?;
                self.check_own_incarnation(hello.known_incarnation)
            }
            Message::Reject { known_incarnation, .. } => self.check_own_incarnation(*known_incarnation),
            Message::Ping(ping) => self.check_evidence(&ping.evidence),
            Message::Push { origin, to, items, evidence, .. } => {
                self.check_write(origin, *to)?;
                self.check_items(items)?;
                self.check_evidence(evidence)
            }
            Message::Want { context, evidence, .. } => {
                self.check_context(context)?;
                self.check_evidence(evidence)
            }
            Message::Chunk(chunk) => {
                self.check_items(&chunk.items)?;
                if let Some((context, floor)) = &chunk.end {
                    self.check_context(context)?;
                    self.check_clock(floor)?;
                }
                chunk.reply.iter().try_for_each(|context| self.check_context(context))?;
                self.check_evidence(&chunk.evidence)
            }
            Message::HealthReport { evidence, .. } => self.check_evidence(evidence.as_slice()),
            // A search names what a client has sent; nothing is adopted from it.
            Message::Search { .. }
            | Message::SearchReport { .. }
            // Capped by the writes that exist.
            | Message::Received { .. }
            | Message::ChunkAck { .. }
            | Message::ChunkAbort { .. }
            | Message::HealthQuery { .. }
            | Message::Drain { .. }
            // The set is bounded, and entries only add.
            | Message::Revoke(_)
            | Message::Goodbye { .. } => Ok(()),
        }
    }

    fn check_context(&self, context: &Context) -> Result<(), ExcessiveClaim> {
        self.check_clock(&context.clock)?;
        self.check_clock(&context.written_off)?;
        for (node, incarnation) in &context.retired {
            self.check_incarnation(node, *incarnation)?;
        }
        let (claimed, limit) = (context.claim_floor, CLAIM_FLOOR_MAX);
        if claimed > limit { Err(ExcessiveClaim::ClaimFloor { claimed, limit }) } else { Ok(()) }
    }

    fn check_clock(&self, clock: &VectorClock) -> Result<(), ExcessiveClaim> {
        clock.iter().try_for_each(|(origin, n)| self.check_write(origin, n))
    }

    fn check_evidence(&self, evidence: &[EvidenceItem]) -> Result<(), ExcessiveClaim> {
        evidence.iter().try_for_each(|item| {
            self.check_write(&item.origin, item.written)?;
            let (claimed, reached) = (item.liveness_counter, self.liveness_counter);
            if item.origin == self.me && claimed > reached {
                return Err(ExcessiveClaim::OwnLiveness { claimed, reached });
            }
            Ok(())
        })
    }

    /// The origins of a frame are in one table, so most frames need no look at each record.
    fn check_items(&self, items: &Items<'_>) -> Result<(), ExcessiveClaim> {
        for origin in items.origins() {
            self.check_incarnation(&origin.node, origin.incarnation)?;
        }
        if !items.origins().contains(&self.me) {
            return Ok(());
        }
        items.iter().try_for_each(|item| match item {
            Item::Record(record) => self.check_write(record.origin, record.n),
            Item::Inferred(inferred) => {
                self.check_write(inferred.origin, inferred.n)?;
                self.check_write(inferred.about, inferred.about_n)
            }
        })
    }

    fn check_write(&self, origin: &OriginId, claimed: u64) -> Result<(), ExcessiveClaim> {
        if *origin == self.me {
            let written = self.written();
            return if claimed > written { Err(ExcessiveClaim::OwnWrite { claimed, written }) } else { Ok(()) };
        }
        let limit = COUNTER_TAKEN_MAX;
        if claimed > limit {
            return Err(ExcessiveClaim::WriteNumber { origin: origin.clone(), claimed, limit });
        }
        self.check_incarnation(&origin.node, origin.incarnation)
    }

    fn check_own_incarnation(&self, claimed: Option<Incarnation>) -> Result<(), ExcessiveClaim> {
        claimed.map_or(Ok(()), |claimed| self.check_incarnation(&self.me.node, claimed))
    }

    fn check_incarnation(&self, node: &NodeId, incarnation: Incarnation) -> Result<(), ExcessiveClaim> {
        let claimed = incarnation.number;
        // Most numbers are small, and then nothing has to be looked up.
        if claimed <= INCARNATION_JUMP_MAX {
            return Ok(());
        }
        let known = self.map.origins.incarnations(node).map(|(incarnation, _)| incarnation.number).max();
        let retired = self.map.origins.retired().get(node).map(|retired| retired.incarnation.number);
        let known = known.max(retired);
        let limit = known.map_or(COUNTER_TAKEN_MAX, |known| known.saturating_add(INCARNATION_JUMP_MAX));
        if claimed > limit.min(COUNTER_TAKEN_MAX) {
            return Err(ExcessiveClaim::Incarnation { node: node.clone(), claimed, known: known.unwrap_or(0) });
        }
        Ok(())
    }

    /// Rejects the frame and closes its link. If several nodes know writes of this incarnation that it does not know,
    /// either its memory went back in time or somebody wrote in its name. Its next writes would carry used numbers, so
    /// it begins a new incarnation.
    pub(super) fn reject_claim(&mut self, link: LinkId, claim: ExcessiveClaim, out: &mut Output) {
        self.counters.frames_excessive += 1;
        let node = self.peers.links.get(&link).and_then(|link| link.peer.clone());
        let own = matches!(claim, ExcessiveClaim::OwnWrite { .. });
        out.events.push(RegistryEvent::ClaimRejected { node: node.clone(), claim });
        self.close(link, LossReason::Excessive, out);
        let Some(node) = node.filter(|_| own) else { return };
        self.witnesses.insert(node);
        let others = self.peers.peers.values().filter(|peer| peer.state != PeerState::Left).count();
        let enough = self.witnesses.len() >= WITNESSES.min(others);
        let running = matches!(self.phase, Phase::Ready { .. } | Phase::Stopping { .. });
        if enough && running && self.collisions < RESTARTS_MAX {
            self.restart(RestartReason::WritesUnknown, out);
        }
    }
}
