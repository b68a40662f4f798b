//! Limits for the numbers in one frame of a peer (P10). A peer with a bug, or a stranger, could otherwise mute an origin,
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

/// A number that no correct node sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExcessiveNumber {
    #[error("the frame names write {named} of this node, which has made {written} writes")]
    OwnWrite { named: u64, written: u64 },
    #[error("the frame names liveness counter {named} of this node, which is at {reached}")]
    OwnLiveness { named: u64, reached: u64 },
    #[error("the frame names incarnation {named} of node {node}; the highest known one is {known}")]
    Incarnation { node: NodeId, named: u64, known: u64 },
    #[error("the frame names write {named} of {origin}; the limit is {limit}")]
    WriteNumber { origin: OriginId, named: u64, limit: u64 },
    #[error("the frame raises the claim floor to {named}; the limit is {limit}")]
    ClaimFloor { named: u64, limit: u64 },
}

impl Node {
    /// Checks a frame before it changes anything.
    pub(super) fn check_numbers(&self, message: &Message<'_>) -> Result<(), ExcessiveNumber> {
        seam!(self, FrameNumbersUnbounded => return Ok(()));
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
            | Message::CheckReport { .. }
            // The set is bounded, and entries only add.
            | Message::Revoke(_)
            | Message::Goodbye { .. } => Ok(()),
        }
    }

    fn check_context(&self, context: &Context) -> Result<(), ExcessiveNumber> {
        self.check_clock(&context.clock)?;
        self.check_clock(&context.written_off)?;
        for (node, incarnation) in &context.retired {
            self.check_incarnation(node, *incarnation)?;
        }
        let (named, limit) = (context.claim_floor.max(context.agentless_floor), CLAIM_FLOOR_MAX);
        if named > limit { Err(ExcessiveNumber::ClaimFloor { named, limit }) } else { Ok(()) }
    }

    fn check_clock(&self, clock: &VectorClock) -> Result<(), ExcessiveNumber> {
        clock.iter().try_for_each(|(origin, n)| self.check_write(origin, n))
    }

    fn check_evidence(&self, evidence: &[EvidenceItem]) -> Result<(), ExcessiveNumber> {
        evidence.iter().try_for_each(|item| {
            self.check_write(&item.origin, item.written)?;
            let (named, reached) = (item.liveness_counter, self.liveness_counter);
            if item.origin == self.me && named > reached {
                return Err(ExcessiveNumber::OwnLiveness { named, reached });
            }
            Ok(())
        })
    }

    /// The origins of a frame are in one table, so most frames need no look at each record.
    fn check_items(&self, items: &Items<'_>) -> Result<(), ExcessiveNumber> {
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

    fn check_write(&self, origin: &OriginId, named: u64) -> Result<(), ExcessiveNumber> {
        if *origin == self.me {
            let written = self.written();
            return if named > written { Err(ExcessiveNumber::OwnWrite { named, written }) } else { Ok(()) };
        }
        let limit = COUNTER_TAKEN_MAX;
        if named > limit {
            return Err(ExcessiveNumber::WriteNumber { origin: origin.clone(), named, limit });
        }
        self.check_incarnation(&origin.node, origin.incarnation)
    }

    fn check_own_incarnation(&self, named: Option<Incarnation>) -> Result<(), ExcessiveNumber> {
        named.map_or(Ok(()), |named| self.check_incarnation(&self.me.node, named))
    }

    fn check_incarnation(&self, node: &NodeId, incarnation: Incarnation) -> Result<(), ExcessiveNumber> {
        let named = incarnation.number;
        // Most numbers are small, and then nothing has to be looked up.
        if named <= INCARNATION_JUMP_MAX {
            return Ok(());
        }
        let known = self.map.origins.incarnations(node).map(|(incarnation, _)| incarnation.number).max();
        let retired = self.map.origins.retired().get(node).map(|retired| retired.incarnation.number);
        let known = known.max(retired);
        let limit = known.map_or(COUNTER_TAKEN_MAX, |known| known.saturating_add(INCARNATION_JUMP_MAX));
        if named > limit.min(COUNTER_TAKEN_MAX) {
            return Err(ExcessiveNumber::Incarnation { node: node.clone(), named, known: known.unwrap_or(0) });
        }
        Ok(())
    }

    /// Rejects the frame and closes its link. If several nodes know writes of this incarnation that it does not know,
    /// either its memory went back in time or somebody wrote in its name. Its next writes would carry used numbers, so
    /// it begins a new incarnation.
    pub(super) fn reject_frame(&mut self, link: LinkId, excess: ExcessiveNumber, out: &mut Output) {
        self.counters.frames_excessive += 1;
        let node = self.peers.links.get(&link).and_then(|link| link.peer.clone());
        let own = matches!(excess, ExcessiveNumber::OwnWrite { .. });
        out.events.push(RegistryEvent::FrameRejected { node: node.clone(), excess });
        self.close(link, LossReason::Excessive, out);
        let Some(node) = node.filter(|_| own) else { return };
        self.witnesses.insert(node);
        let others = self.peers.peers.values().filter(|peer| peer.state != PeerState::Left).count();
        let enough = self.witnesses.len() >= WITNESSES.min(others);
        let running = matches!(self.phase, Phase::Serving { .. } | Phase::Stopping { .. });
        if enough && running && self.collisions < RESTARTS_MAX {
            self.restart(RestartReason::WritesUnknown, out);
        }
    }
}
