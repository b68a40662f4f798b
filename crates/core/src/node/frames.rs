//! Frames from peers: decoding, order, dispatch (P5, P7).

use super::{Effect, LinkId, LossReason, Node, Output, PeerState, Phase, RegistryEvent};
use crate::peer::LinkPhase;
use crate::time::{ReceivedAt, Time};
use crate::version::NodeId;
use crate::wire::{CodecError, Message, RejectReason};
use bytes::Bytes;

impl Node {
    /// Handles a received frame.
    pub fn received(&mut self, now: Time, link: LinkId, frame: &[u8], out: &mut Output) {
        self.observe(now, out);
        if self.phase == Phase::Over || !self.peers.links.contains_key(&link) {
            return;
        }
        self.counters.frames_received += 1;
        let limit = self.config.limits.frame_bytes;
        let decoded = if frame.len() > limit {
            Err(CodecError::TooLarge { what: "frame", found: frame.len() as u64, limit: limit as u64 })
        } else {
            Message::decode(frame)
        };
        if let Ok(message) = &decoded
            && let Err(excess) = self.check_numbers(message)
        {
            self.reject_frame(link, excess, out);
            return;
        }
        let handled = decoded.and_then(|message| self.handle(link, message, frame, out));
        if let Err(error) = handled {
            self.counters.frames_malformed += 1;
            let node = self.peers.links.get(&link).and_then(|link| link.peer.clone());
            out.events.push(RegistryEvent::PeerRejected { node, reason: error.to_string() });
            self.close(link, LossReason::Malformed, out);
        }
    }

    fn handle(&mut self, id: LinkId, message: Message<'_>, frame: &[u8], out: &mut Output) -> Result<(), CodecError> {
        let Some(link) = self.peers.links.get_mut(&id) else { return Ok(()) };
        link.received = ReceivedAt::now(self.clock);
        match (link.phase, link.dialled, message) {
            (LinkPhase::Handshake, false, Message::Hello(hello)) => self.handle_hello(id, &hello, out),
            (LinkPhase::Handshake, true, Message::Welcome(hello)) => self.handle_welcome(id, &hello, out),
            (LinkPhase::Handshake, true, Message::Reject { reason, node, known_incarnation, address }) => {
                self.handle_reject(id, reason, node, known_incarnation, &address, out);
            }
            (LinkPhase::Handshake | LinkPhase::Candidate, _, _) => return Err(CodecError::Invalid("message order")),
            (LinkPhase::Up, _, message) => self.handle_up(id, message, frame, out)?,
        }
        Ok(())
    }

    /// A message on an established link.
    fn handle_up(
        &mut self,
        id: LinkId,
        message: Message<'_>,
        frame: &[u8],
        out: &mut Output,
    ) -> Result<(), CodecError> {
        let Some(link) = self.peers.links.get(&id) else { return Ok(()) };
        let (Some(node), Some(origin)) = (link.peer.clone(), link.origin.clone()) else { return Ok(()) };
        // The peer still uses this link: its second connection is not needed (P5).
        if let Some(candidate) = self.peers.peers.get_mut(&node).and_then(|peer| peer.candidate.take()) {
            self.peers.links.remove(&candidate);
            let node = self.me.node.clone();
            let reject =
                Message::Reject { reason: RejectReason::Linked, node, known_incarnation: None, address: String::new() };
            self.send(candidate, &reject, out);
            out.effects.push(Effect::CloseLink { link: candidate });
        }
        let ping = if let Message::Ping(ping) = &message { Some((ping.liveness_counter, ping.written)) } else { None };
        self.direct_evidence(&origin, ping, out);
        match message {
            Message::Ping(ping) => self.handle_ping(id, &node, ping, out),
            Message::Push { origin, from, to, receipt, items, evidence } => {
                self.handle_push(id, &node, &origin, (from, to), receipt, &items, &evidence, frame, out);
            }
            Message::Want { exchange, context, evidence } => {
                self.handle_want(id, &node, exchange, context, &evidence, out);
            }
            Message::Chunk(chunk) => self.handle_chunk(id, &node, chunk, out),
            Message::ChunkAck { exchange, index } => self.handle_chunk_ack(id, exchange, index, out),
            Message::ChunkAbort { exchange } => self.handle_chunk_abort(id, exchange),
            Message::HealthQuery { query, about } => self.answer_health(id, query, about, out),
            Message::HealthReport { query, about, state, evidence } => {
                self.relayed_all(evidence.as_slice(), &node, out);
                self.handle_report(&node, query, &about, state, out);
            }
            Message::CheckReport { id: member, check, status, output } => {
                self.handle_check_report(member, check, status, output, out);
            }
            Message::Drain { id: member, drain, maintenance } => {
                self.handle_drain(id, member, drain, maintenance.as_ref(), out);
            }
            Message::Search { query, dots } => self.answer_search(id, query, &dots, out),
            Message::SearchReport { query, covered, linked } => {
                self.handle_search_report(id, query, covered, linked, out);
            }
            Message::Revoke(revocations) => self.handle_revocations(id, revocations, out),
            Message::Received { n } => self.handle_received(id, n),
            Message::Goodbye { leaving } => self.handle_goodbye(id, &node, leaving, out),
            Message::Reject { known_incarnation, address, .. } => {
                self.handle_late_reject(&node, known_incarnation, &address, out);
            }
            Message::Hello(_) | Message::Welcome(_) => return Err(CodecError::Invalid("message order")),
        }
        Ok(())
    }

    fn handle_goodbye(&mut self, id: LinkId, node: &NodeId, leaving: bool, out: &mut Output) {
        if let Some(peer) = self.peers.peers.get_mut(node) {
            peer.state = if leaving { PeerState::Left } else { PeerState::Distant };
        }
        if leaving {
            out.events.push(RegistryEvent::PeerLeft { node: node.clone() });
        }
        self.close(id, LossReason::Closed, out);
    }

    pub(super) fn send(&mut self, link: LinkId, message: &Message<'_>, out: &mut Output) {
        out.effects.push(Effect::Send { link, frame: Bytes::from(message.encode()) });
    }
}
