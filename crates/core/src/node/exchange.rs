//! Pushes, deltas and full merges between two nodes (D5–D7, D12).

use super::{Effect, LinkId, Node, Output, Phase, RegistryEvent};
use crate::map::{CausalMap, Cursor, Delta, OriginEntry, Standing};
use crate::mutant::{Mutation, seam};
use crate::peer::{Incoming, Link, Outgoing, Pending};
use crate::time::{Clock, Duration, ReceivedAt, Time};
use crate::version::{NodeId, OriginId, VectorClock};
use crate::wire::{Chunk, Context, EvidenceItem, Items, ItemsWriter, Message};
use bytes::Bytes;
use std::collections::BTreeMap;

impl Node {
    /// Sends the writes since the last call to the peers; call after every batch of inputs.
    pub fn flush(&mut self, now: Time, out: &mut Output) {
        self.observe(now, out);
        if self.phase == Phase::Over {
            return;
        }
        self.send_receipts(out);
        let written = self.written();
        let receipt = std::mem::take(&mut self.receipt_wanted);
        let mut frames: BTreeMap<u64, Option<Bytes>> = BTreeMap::new();
        let mut behind = Vec::new();
        let returning = self.silence_of_returning();
        for id in self.peers.up_links() {
            let Some(link) = self.peers.links.get_mut(&id) else { continue };
            let Some(sent) = link.sent.filter(|sent| *sent < written && link.outgoing.is_none()) else { continue };
            let frame = frames.entry(sent).or_insert_with(|| {
                let items = self.map.push_items(sent, self.clock)?;
                let evidence = evidence_of_items(&self.map, &items, self.clock, returning, self.mutation);
                let frame = Message::encode_push(&self.me, (sent, written), receipt, &items, &evidence);
                if frame.len() > self.config.limits.frame_bytes {
                    self.counters.pushes_too_large += 1;
                    return None;
                }
                Some(Bytes::from(frame))
            });
            match frame {
                Some(frame) => {
                    link.sent = Some(written);
                    self.counters.pushes_sent += 1;
                    out.effects.push(Effect::Send { link: id, frame: frame.clone() });
                }
                None => {
                    link.sent = None;
                    behind.push(id);
                }
            }
        }
        // Too much for a push: an exchange brings it.
        for id in behind {
            self.want(id, out);
        }
    }

    /// A peer reads more slowly than this node writes: pushes to it stop. An exchange, which waits for its
    /// acknowledgements, brings the missing writes (D5).
    pub fn congested(&mut self, id: LinkId) {
        if let Some(link) = self.peers.links.get_mut(&id)
            && link.sent.take().is_some()
        {
            self.to_ask.insert(id);
            self.counters.pushes_suspended += 1;
        }
    }

    /// Number of writes of this node.
    pub(super) fn written(&self) -> u64 {
        self.map.origins.entry(self.map.origins.me()).seen
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn handle_push(
        &mut self,
        id: LinkId,
        node: &NodeId,
        origin: &OriginId,
        (from, to): (u64, u64),
        receipt: bool,
        items: &Items<'_>,
        evidence: &[EvidenceItem],
        frame: &[u8],
        out: &mut Output,
    ) {
        if *origin == self.me {
            return;
        }
        let Some(index) = self.map.admit_origin(origin, self.clock) else {
            self.counters.records_rejected += items.len() as u64;
            return;
        };
        let seen = self.map.origins.entry(index).seen;
        self.relayed_before_records(evidence, node, out);
        self.apply_items(items, false, out);
        self.relayed_all(evidence, node, out);
        if self.phase == Phase::Over {
            return;
        }
        if !self.map.join_push(index, from, to) {
            self.counters.pushes_gapped += 1;
            self.want(id, out);
            return;
        }
        if receipt && let Some(link) = self.peers.links.get_mut(&id).filter(|link| link.origin.as_ref() == Some(origin))
        {
            link.receipt_owed = true;
        }
        if to > seen {
            self.forward(id, origin, frame, out);
        }
    }

    /// Forwards a push across a region link, or from one into the region (P9), and to peers that have no link to its sender
    /// or to the region of its author (D5). Only peers that receive pushes get it.
    fn forward(&mut self, from: LinkId, origin: &OriginId, frame: &[u8], out: &mut Output) {
        let home = &self.config.region;
        let distant = |node: &NodeId| self.peers.peers.get(node).is_some_and(|peer| peer.region != *home);
        let sender = self.peers.links.get(&from).and_then(|link| link.origin.as_ref());
        let came_from_afar = sender.is_some_and(|sender| distant(&sender.node));
        let crosses = came_from_afar || !distant(&origin.node);
        let mut bridges = true;
        seam!(self, RegionsNotBridged => bridges = !came_from_afar);
        let to: Vec<LinkId> = self
            .peers
            .up()
            .filter(|(node, link)| link.id != from && **node != origin.node && sender.is_some())
            .filter(|(node, link)| match distant(node) == came_from_afar {
                false => crosses || self.lacks_region(link, origin),
                true => bridges && self.lacks_link(link, sender),
            })
            // A peer without pushes reads too slowly, or gets everything by an exchange.
            .filter(|(_, link)| link.sent.is_some())
            .map(|(_, link)| link.id)
            .collect();
        if !to.is_empty() {
            let frame = Bytes::copy_from_slice(frame);
            out.effects.extend(to.into_iter().map(|link| Effect::Send { link, frame: frame.clone() }));
        }
    }

    /// Whether a peer has requested evidence of an origin: it has no link to it (L2).
    fn lacks_link(&self, link: &Link, to: Option<&OriginId>) -> bool {
        seam!(self, PushNotRelayed => return false);
        to.is_some_and(|origin| link.asked.contains(origin))
    }

    /// Whether a node of another region has no link to an origin, and none to the region of the origin. It may be in that
    /// region, which is split.
    fn lacks_region(&self, link: &Link, origin: &OriginId) -> bool {
        seam!(self, SplitRegionNotBridged => return false);
        let region = self.peers.peers.get(&origin.node).map(|peer| &peer.region);
        link.asked.contains(origin) && region.is_some_and(|region| !link.regions.contains(region))
    }

    /// Requests a delta from a peer, and offers one (D7). False if it is too early for that.
    pub(super) fn want(&mut self, id: LinkId, out: &mut Output) -> bool {
        let (interval, timeout) = (self.config.timers.gossip_interval, self.config.timers.ping_timeout);
        let clock = self.clock;
        let Some(link) = self.peers.links.get_mut(&id) else { return false };
        let recent = link.wanted.is_some_and(|at| at.silence(clock) < interval);
        let under_way =
            link.incoming.as_ref().is_some_and(|i| i.progress.silence_without_pauses(clock, Duration::MAX) < timeout);
        if recent || under_way {
            return false;
        }
        link.wanted = Some(ReceivedAt::now(clock));
        if link.incoming.take().is_some_and(|incoming| incoming.full) {
            self.map.abort_full_merge();
        }
        let exchange = self.peers.links.get_mut(&id).map_or(0, Link::next_exchange);
        self.counters.exchanges_started += 1;
        let context = self.context_to_send();
        let evidence = evidence(&self.map, self.clock, self.silence_of_returning());
        self.send(id, &Message::Want { exchange, context, evidence }, out);
        true
    }

    /// Requests the exchanges that are due (D7), except during a full merge: another could not start.
    pub(super) fn request_due_exchanges(&mut self, out: &mut Output) {
        if self.map.is_merging() {
            return;
        }
        for link in std::mem::take(&mut self.to_ask) {
            if !self.want(link, out) && self.peers.links.contains_key(&link) {
                self.to_ask.insert(link);
            }
        }
    }

    /// The context, and for how long this node itself reports no member as absent.
    fn context_to_send(&self) -> Context {
        let grace = match self.phase {
            Phase::Serving { absence_from, .. } => absence_from.since(self.clock.now),
            _ => Duration::ZERO,
        };
        Context { grace_ms: grace.as_millis() as u64, ..self.map.context() }
    }

    pub(super) fn evidence_of(&self, index: u32) -> EvidenceItem {
        evidence_item(self.map.origins.entry(index), self.clock, self.silence_of_returning())
    }

    /// Evidence of a returning origin is relayed as it was before the return, with at least this age. A peer must not admit
    /// the origin, or void inferences about it, before this node does (L8).
    fn silence_of_returning(&self) -> Option<Duration> {
        seam!(self, ReturningRelayedAsAlive => return None);
        Some(self.config.timers.admission_window())
    }

    pub(super) fn relayed_all(&mut self, evidence: &[EvidenceItem], via: &NodeId, out: &mut Output) {
        for item in evidence {
            self.relayed_evidence(item, via, out);
        }
    }

    /// Old evidence counts before the records: those of a dead origin that is new here must not show as `up` (L2). Of the
    /// young evidence, only the proof that a retired origin is alive does: its records follow (D17).
    fn relayed_before_records(&mut self, evidence: &[EvidenceItem], via: &NodeId, out: &mut Output) {
        for item in evidence {
            if !self.is_young(item) {
                self.relayed_evidence(item, via, out);
                self.judge_outdated(item, out);
            } else if item.liveness_counter > 0 && item.origin != self.me {
                self.readmit_gone(&item.origin);
            }
        }
    }

    /// Starts sending the delta for a peer with this context.
    pub(super) fn send_delta(
        &mut self,
        id: LinkId,
        exchange: u64,
        mut receiver: Context,
        reply: bool,
        out: &mut Output,
    ) {
        self.revive_retired(&mut receiver);
        let mut context = self.context_to_send();
        // The receiver ignores records of origins that it has retired. It must not claim them, even if it admits the
        // origin again before the delta ends (D17).
        let sent = context.clock.iter().filter(|(origin, _)| !receiver.is_retired(origin));
        context.clock = sent.map(|(origin, n)| (origin.clone(), n)).collect();
        let pending = match self.map.delta(&receiver) {
            Delta::Full => Pending::Full(Cursor::Slot(0)),
            Delta::Items(items) => Pending::List { items, next: 0 },
        };
        let nothing = matches!(&pending, Pending::List { items, .. } if items.is_empty());
        let written = self.written();
        let Some(link) = self.peers.links.get_mut(&id) else { return };
        // A delta in progress is not restarted for a peer that did not request that: it might never end.
        if !reply && link.outgoing.is_some() {
            return;
        }
        // Once this delta is complete the peer has all of this node's writes; pushes continue from here.
        link.sent = Some(written);
        if nothing && !reply && receiver.clock.includes(&context.clock) {
            return;
        }
        link.outgoing = Some(Outgoing { exchange, pending, context, receiver, next_index: 0, acked: 0, reply });
        self.pump(id, out);
    }

    /// Lowers the markers in a received context below this origin and those of which it has young evidence, as the receiver of
    /// the delta will have done before it applies the first record (D17). A ping of this node precedes the delta.
    fn revive_retired(&self, receiver: &mut Context) {
        seam!(self, RetiredOmitted => return);
        receiver.revive(&self.me);
        let others = self.map.origins.iter().filter(|(index, _)| *index != self.map.origins.me());
        for item in others.map(|(index, _)| self.evidence_of(index)) {
            if item.liveness_counter > 0 && self.is_young(&item) {
                receiver.revive(&item.origin);
            }
        }
    }

    /// Sends chunks as far as the window allows.
    fn pump(&mut self, id: LinkId, out: &mut Output) {
        while let Some(link) = self.peers.links.get(&id)
            && let Some(outgoing) = &link.outgoing
            && outgoing.next_index < outgoing.acked + self.config.limits.chunk_window as u64
        {
            if !self.send_chunk(id, out) {
                return;
            }
        }
    }

    /// Sends the next chunk; `false` after the last.
    fn send_chunk(&mut self, id: LinkId, out: &mut Output) -> bool {
        let limit = self.config.limits.chunk_bytes;
        let returning = self.silence_of_returning();
        let Some(link) = self.peers.links.get_mut(&id) else { return false };
        let Some(outgoing) = &mut link.outgoing else { return false };
        let mut items = ItemsWriter::at(self.clock);
        let done = match &mut outgoing.pending {
            Pending::List { items: list, next } => {
                while *next < list.len() && items.len() < limit {
                    self.map.encode(&list[*next], self.clock, &mut items);
                    *next += 1;
                }
                *next >= list.len()
            }
            Pending::Full(cursor) => loop {
                if items.len() >= limit {
                    break false;
                }
                let Some((item, inferred, next)) = self.map.next_items(cursor) else { break true };
                for item in std::iter::once(&item).chain(&inferred) {
                    self.map.encode(item, self.clock, &mut items);
                }
                *cursor = next;
            },
        };
        let full = matches!(outgoing.pending, Pending::Full(_));
        // A record that the receiver has not seen was collected meanwhile: it needs a full merge instead (D12).
        if done && !full && self.map.below_floor(&outgoing.receiver) {
            let exchange = outgoing.exchange;
            link.outgoing = None;
            self.send(id, &Message::ChunkAbort { exchange }, out);
            return false;
        }
        let first = outgoing.next_index == 0;
        let evidence = if first || done { evidence(&self.map, self.clock, returning) } else { Vec::new() };
        let floor = self.map.origins.floor();
        let end = done.then_some((&outgoing.context, &floor));
        let reply = (first && outgoing.reply).then_some(&outgoing.context);
        let frame = Message::encode_chunk(outgoing.exchange, outgoing.next_index, full, &items, end, reply, &evidence);
        outgoing.next_index += 1;
        self.counters.chunks_sent += 1;
        out.effects.push(Effect::Send { link: id, frame: Bytes::from(frame) });
        if done {
            link.outgoing = None;
        }
        !done
    }

    pub(super) fn handle_chunk_ack(&mut self, id: LinkId, exchange: u64, index: u64, out: &mut Output) {
        if let Some(link) = self.peers.links.get_mut(&id)
            && let Some(outgoing) = &mut link.outgoing
            && outgoing.exchange == exchange
            && index < outgoing.next_index
        {
            outgoing.acked = outgoing.acked.max(index + 1);
            self.pump(id, out);
        }
    }

    pub(super) fn handle_chunk_abort(&mut self, id: LinkId, exchange: u64) {
        let Some(link) = self.peers.links.get_mut(&id) else { return };
        if link.outgoing.as_ref().is_some_and(|outgoing| outgoing.exchange == exchange) {
            link.outgoing = None;
            link.sent = None;
        }
        if link.incoming.as_ref().is_some_and(|incoming| incoming.exchange == exchange) {
            if link.incoming.take().is_some_and(|incoming| incoming.full) {
                self.map.abort_full_merge();
            }
            self.to_ask.insert(id);
        }
    }

    pub(super) fn handle_chunk(&mut self, id: LinkId, node: &NodeId, chunk: Chunk<'_>, out: &mut Output) {
        for context in chunk.reply.iter().chain(chunk.end.iter().map(|(context, _)| context)) {
            if self.check_own_number(node, context, out) {
                return;
            }
        }
        if !self.begin_chunk(id, &chunk, out) {
            return;
        }
        self.relayed_before_records(&chunk.evidence, node, out);
        seam!(self, PartialDeltaCovered => chunk.reply.iter().for_each(|context| self.map.join(context, self.clock)));
        self.apply_items(&chunk.items, chunk.full, out);
        if self.phase == Phase::Over {
            return;
        }
        self.send(id, &Message::ChunkAck { exchange: chunk.exchange, index: chunk.index }, out);
        if let Some(context) = chunk.reply {
            let exchange = self.peers.links.get_mut(&id).map_or(0, Link::next_exchange);
            self.apply_peer_forgetting(&context, out);
            self.send_delta(id, exchange, context, false, out);
        }
        if let Some((context, floor)) = chunk.end {
            self.finish_incoming(id, node, &context, &floor, &chunk.evidence, out);
        }
    }

    /// Whether the chunk is the next of its stream. The first one restarts the stream. For any other chunk the sender
    /// gets an abort: it would wait for the acknowledgement, and neither push nor send another delta.
    fn begin_chunk(&mut self, id: LinkId, chunk: &Chunk<'_>, out: &mut Output) -> bool {
        let clock = self.clock;
        let Some(link) = self.peers.links.get_mut(&id) else { return false };
        if chunk.index == 0 {
            if link.incoming.take().is_some_and(|incoming| incoming.full) {
                self.map.abort_full_merge();
            }
            if chunk.full && self.map.is_merging() {
                // One at a time.
                self.abort_incoming(id, chunk.exchange, out);
                return false;
            }
            if chunk.full {
                self.map.begin_full_merge();
            }
            link.incoming = Some(Incoming {
                exchange: chunk.exchange,
                next_index: 0,
                full: chunk.full,
                records: 0,
                began: clock.now,
                progress: ReceivedAt::now(clock),
            });
        }
        match &mut link.incoming {
            Some(incoming)
                if incoming.exchange == chunk.exchange
                    && incoming.next_index == chunk.index
                    && incoming.full == chunk.full =>
            {
                incoming.next_index += 1;
                incoming.records += chunk.items.len() as u64;
                incoming.progress = ReceivedAt::now(clock);
                true
            }
            _ => {
                self.abort_incoming(id, chunk.exchange, out);
                false
            }
        }
    }

    /// Tells the sender of a delta to stop. It neither pushes nor receives pushes before the next exchange, so that
    /// one is due even if both contexts become equal meanwhile.
    fn abort_incoming(&mut self, id: LinkId, exchange: u64, out: &mut Output) {
        self.send(id, &Message::ChunkAbort { exchange }, out);
        self.to_ask.insert(id);
    }

    fn finish_incoming(
        &mut self,
        id: LinkId,
        node: &NodeId,
        context: &Context,
        floor: &VectorClock,
        evidence: &[EvidenceItem],
        out: &mut Output,
    ) {
        let Some(incoming) = self.peers.links.get_mut(&id).and_then(|link| link.incoming.take()) else { return };
        let Incoming { full, next_index: chunks, records, began, .. } = incoming;
        let took = self.clock.now.since(began);
        out.events.push(RegistryEvent::Exchanged { from: node.clone(), full, chunks, records, took });
        if let Some(link) = self.peers.links.get_mut(&id) {
            link.receipt_owed = true;
        }
        if full {
            self.counters.full_merges += 1;
            let merge = self.map.finish_full_merge(context, floor, self.clock);
            out.events.push(RegistryEvent::FullMerge { from: node.clone(), removed: merge.removed.len() });
            for (slot, before) in &merge.removed {
                self.on_removed(*slot, before, out);
            }
            for slot in merge.own {
                self.claim_again(slot, out);
            }
            for before in merge.uninferred {
                let (space, id) = before.record.key();
                self.route_shown(space, &id, Some(before), out);
            }
        } else {
            self.map.join(context, self.clock);
        }
        // Young evidence after the records: it admits an owner, and records that others wrote over its own have just
        // arrived (L3).
        self.relayed_all(evidence, node, out);
        self.exchanged(node, context, evidence, out);
        self.apply_peer_forgetting(context, out);
        self.watchers.stamp += 1;
        self.request_after_full_merge(full, out);
    }

    /// Handles the request for a delta. If this node has received everything that the peer has, no delta comes back and
    /// the exchange is complete here.
    pub(super) fn handle_want(
        &mut self,
        id: LinkId,
        node: &NodeId,
        exchange: u64,
        context: Context,
        evidence: &[EvidenceItem],
        out: &mut Output,
    ) {
        self.relayed_all(evidence, node, out);
        if self.check_own_number(node, &context, out) {
            return;
        }
        self.apply_peer_forgetting(&context, out);
        if self.map.origins.context().clock.includes(&context.clock) {
            self.exchanged(node, &context, evidence, out);
        }
        self.send_delta(id, exchange, context, true, out);
    }

    /// This node has received everything that a peer had when it sent this context and this evidence.
    fn exchanged(&mut self, node: &NodeId, context: &Context, evidence: &[EvidenceItem], out: &mut Output) {
        self.readmit_returning(node, context, evidence, out);
        self.join_cluster(Some(node), Duration::from_millis(context.grace_ms), out);
        if self.has_served(node) {
            self.paused_for = Duration::ZERO;
            self.map.origins.count_whole_silence(self.clock);
            for item in evidence {
                self.count_silence_of_outlived(item);
            }
            self.registry_received(node, Duration::from_millis(context.grace_ms), out);
        }
    }
}

/// The latest evidence of every origin but this node's own, for a peer that may have none (L2).
fn evidence(map: &CausalMap, clock: Clock, returning: Option<Duration>) -> Vec<EvidenceItem> {
    let others = map.origins.iter().filter(|(index, _)| *index != map.origins.me());
    others.map(|(_, entry)| evidence_item(entry, clock, returning)).collect()
}

/// The evidence of the other origins whose records a push carries (L2).
fn evidence_of_items(
    map: &CausalMap,
    items: &ItemsWriter,
    clock: Clock,
    returning: Option<Duration>,
    mutation: Mutation,
) -> Vec<EvidenceItem> {
    seam!(in mutation, PushOmitsEvidence => return Vec::new());
    let others = items.origins().iter().filter_map(|origin| map.origins.index_of(origin));
    let others = others.filter(|index| *index != map.origins.me());
    others.map(|index| evidence_item(map.origins.entry(index), clock, returning)).collect()
}

fn evidence_item(entry: &OriginEntry, clock: Clock, returning: Option<Duration>) -> EvidenceItem {
    let (mut liveness_counter, written) = (entry.evidence.liveness_counter, entry.evidence.written);
    let mut age = entry.evidence.received_at.silence(clock);
    if let (Standing::Returning { liveness_counter: before, .. }, Some(silence)) = (entry.standing, returning) {
        (liveness_counter, age) = (before, age.max(silence));
    }
    let age_ms = age.as_millis() as u64;
    EvidenceItem { origin: entry.origin.id.clone(), liveness_counter, written, age_ms }
}
