//! Judging which origins are alive: evidence and admission (L2, L3).

use super::queries::node_member_id;
use super::{Node, Output, RegistryEvent};
use crate::map::{Evidence, OriginEntry, Standing, StandingEvent};
use crate::member::{Member, Space};
use crate::mutant::seam;
use crate::time::{Duration, ReceivedAt};
use crate::version::{NodeId, OriginId};
use crate::wire::{Context, EvidenceItem};

impl Node {
    /// Applies a message that came from the origin itself. Only a ping with a higher liveness counter is evidence: any
    /// other message may have waited in a queue since before its sender died.
    pub(super) fn direct_evidence(&mut self, origin: &OriginId, ping: Option<(u64, u64)>, out: &mut Output) {
        if ping.is_some() {
            self.readmit_gone(origin);
        }
        let Some(index) = self.map.admit_origin(origin, self.clock) else { return };
        let received_at = ReceivedAt::now(self.clock);
        let entry = self.map.origins.entry_mut(index);
        if let Some((liveness_counter, written)) = ping
            && liveness_counter > entry.evidence.liveness_counter
        {
            let written = entry.evidence.written.max(written);
            entry.evidence =
                Evidence { liveness_counter, written, received_at, via: None, assumed: false, forgiven: false };
            self.judge(index, StandingEvent::Young, out);
        }
    }

    /// Applies relayed evidence (L2). Only a higher liveness counter is evidence. Without one, an older age counts if there is no
    /// evidence of the origin yet, so that a new node waits no longer than the others.
    pub(super) fn relayed_evidence(&mut self, item: &EvidenceItem, via: &NodeId, out: &mut Output) {
        seam!(self, NoRelayedEvidence => return);
        if item.origin == self.me {
            return;
        }
        let (age, young) = (Duration::from_millis(item.age_ms), self.is_young(item));
        if young && item.liveness_counter > 0 {
            self.readmit_gone(&item.origin);
        }
        let Some(index) = self.map.admit_origin(&item.origin, self.clock) else { return };
        let received_at = ReceivedAt::ago(self.clock, age);
        let evidence = &mut self.map.origins.entry_mut(index).evidence;
        let (first, newer) = (evidence.assumed, item.liveness_counter > evidence.liveness_counter);
        if first && item.liveness_counter == 0 && evidence.received_at.is_after(received_at) {
            evidence.received_at = received_at;
            if !young {
                self.judge(index, StandingEvent::Quiet, out);
            }
        }
        seam!(self, SilenceBeforeRecords => self.count_silence_of_outlived(item));
        if !self.counts(newer) {
            return;
        }
        // Later evidence makes no origin more silent at a node that was paused: the members that have moved on since are still on
        // their way (L5).
        let earlier = self.map.origins.entry(index).evidence.received_at;
        let mut counted = if first { received_at } else { received_at.forgiving_as(earlier, self.clock) };
        seam!(self, RelayedAgeNotForgiven => counted = received_at);
        let evidence = &mut self.map.origins.entry_mut(index).evidence;
        evidence.liveness_counter = evidence.liveness_counter.max(item.liveness_counter);
        evidence.written = evidence.written.max(item.written);
        if first || received_at.is_after(earlier) {
            evidence.forgiven |= counted != received_at;
            (evidence.received_at, evidence.via, evidence.assumed) = (counted, Some(via.clone()), false);
        }
        // If a newer incarnation of this node's own id lives on, two processes use the id (N4). A single piece of evidence may
        // be of an incarnation that has just died.
        let duplicate = item.origin.node == self.me.node && item.origin.incarnation > self.me.incarnation;
        if duplicate && young && !first && newer {
            self.duplicate_reported(via, item.origin.incarnation, "", out);
        }
        let event = match (young, first) {
            (true, _) => StandingEvent::Young,
            (false, true) => StandingEvent::Quiet,
            (false, false) => StandingEvent::Old,
        };
        self.judge(index, event, out);
    }

    /// An origin with a newer incarnation will send nothing more, so the longest known silence counts: a node that was paused
    /// waits no longer than the others (L2). The caller has all records that the sender had. Before, members whose clients
    /// have moved on would show as `down` here.
    pub(super) fn count_silence_of_outlived(&mut self, item: &EvidenceItem) {
        let Some(index) = self.map.origins.index_of(&item.origin).filter(|_| item.origin != self.me) else { return };
        let received_at = ReceivedAt::ago(self.clock, Duration::from_millis(item.age_ms));
        let outlived = self.map.origins.is_outlived(&item.origin);
        let evidence = &mut self.map.origins.entry_mut(index).evidence;
        if outlived && item.liveness_counter == evidence.liveness_counter && evidence.received_at.is_after(received_at)
        {
            evidence.received_at = received_at;
        }
    }

    /// Whether relayed evidence is younger than the admission window.
    pub(super) fn is_young(&self, item: &EvidenceItem) -> bool {
        Duration::from_millis(item.age_ms) < self.config.timers.admission_window()
    }

    /// A node whose name was removed proves to be alive: it was behind a partition for a long time (D17).
    pub(super) fn readmit_gone(&mut self, origin: &OriginId) {
        seam!(self, MuteReturned => return);
        self.map.origins.revive(origin);
    }

    /// Whether relayed evidence counts: only with a higher liveness counter (L2).
    fn counts(&self, newer: bool) -> bool {
        seam!(self, EvidenceByAgeAlone => return true);
        newer
    }

    /// Changes the standing of an origin by the table in docs/protocol.md, and sends watchers the members that look
    /// different now (L3).
    fn judge(&mut self, index: u32, event: StandingEvent, out: &mut Output) {
        let entry = self.map.origins.entry(index);
        let was = entry.standing;
        let mut known = entry.known();
        seam!(self, RecordsBeforeReturnShown => known.written = known.seen);
        let mut standing = was.next(event, known);
        seam!(self, ReturningAdmittedAtOnce => if event == StandingEvent::Young { standing = Standing::Admitted });
        seam!(self, ReturningNeedsNoExchange => if entry.seen >= entry.evidence.written && !standing.is_silent() { standing = Standing::Admitted });
        if standing == was {
            return;
        }
        let before = self.shown_of(index);
        self.map.origins.entry_mut(index).standing = standing;
        let origin = self.map.origins.entry(index).origin.id.clone();
        match (was.is_admitted(), standing.is_admitted()) {
            (true, false) => out.events.push(RegistryEvent::OriginSilent { origin }),
            (false, true) => out.events.push(RegistryEvent::OriginReturned { origin }),
            _ => {}
        }
        self.watchers.stamp += 1;
        for (slot, before) in before {
            let after = self.map.member(self.map.at(slot));
            if after.status() != before.status() {
                self.route(slot, Some(&before), Some(&after), false, out);
            }
        }
    }

    /// Judges an origin whose records come from a peer to which it is silent. If this node has later evidence of it but none
    /// of its writes, the records are older than the evidence and must not show as `up` (L8).
    pub(super) fn judge_outdated(&mut self, item: &EvidenceItem, out: &mut Output) {
        seam!(self, OutdatedRecordsShown => return);
        let Some(index) = self.map.origins.index_of(&item.origin).filter(|_| item.origin != self.me) else { return };
        let entry = self.map.origins.entry(index);
        let known = entry.known();
        if known.holds_nothing() && !entry.evidence.assumed && item.liveness_counter < known.liveness_counter {
            self.judge(index, StandingEvent::Outdated { liveness_counter: item.liveness_counter }, out);
        }
    }

    /// The live records of an origin as shown, if anything watches them.
    fn shown_of(&self, index: u32) -> Vec<(u32, Member)> {
        if !self.is_watched() {
            return Vec::new();
        }
        let slots = self.map.origins.entry(index).stated.values();
        let records = slots.map(|slot| (*slot, self.map.at(*slot))).filter(|(_, record)| record.is_live());
        records.map(|(slot, record)| (slot, self.map.member(record))).collect()
    }

    /// Readmits returning origins after a complete exchange with a peer (L8). It counts if the peer is the origin, or is
    /// serving and admits it, and if the peer had the writes that the origin had announced.
    pub(super) fn readmit_returning(
        &mut self,
        node: &NodeId,
        context: &Context,
        evidence: &[EvidenceItem],
        out: &mut Output,
    ) {
        let window = self.config.timers.admission_window();
        let serving = self.has_served(node);
        for index in self.returning_origins() {
            let entry = self.map.origins.entry(index);
            let origin = &entry.origin.id;
            let admits = |item: &EvidenceItem| item.origin == *origin && Duration::from_millis(item.age_ms) < window;
            let current = entry.standing.is_complete_with(context.clock.get(origin));
            if current && (origin.node == *node || serving && evidence.iter().any(admits)) {
                self.judge(index, StandingEvent::Exchanged, out);
            }
        }
    }

    fn returning_origins(&self) -> Vec<u32> {
        self.origins_that(|_, entry| matches!(entry.standing, Standing::Returning { .. }))
    }

    /// Judges returning origins that fell silent again. For the others an exchange is due: with the origin, or with the
    /// peer that relays its evidence (L8).
    fn judge_returning(&mut self, out: &mut Output) {
        let window = self.config.timers.admission_window();
        for index in self.returning_origins() {
            if self.silence(index) > window {
                self.judge(index, StandingEvent::Quiet, out);
                continue;
            }
            let entry = self.map.origins.entry(index);
            let via = entry.evidence.via.as_ref().unwrap_or(&entry.origin.id.node);
            self.to_ask.extend(self.peers.link_to(via).map(|link| link.id));
        }
    }

    /// Withdraws admission from origins that have been silent for the admission window (L2), unless the guard holds
    /// (L6).
    pub(super) fn judge_origins(&mut self, out: &mut Output) {
        self.judge_returning(out);
        self.end_degraded(out);
        let window = self.config.timers.admission_window();
        let me = self.map.origins.me();
        let silent = self
            .origins_that(|index, entry| index != me && entry.standing.is_admitted() && self.silence(index) > window);
        if !silent.is_empty() && !self.hold_nodes(out) {
            for index in silent {
                self.judge(index, StandingEvent::Quiet, out);
            }
        }
    }

    /// Indexes of the origins that satisfy a condition.
    pub(super) fn origins_that(&self, condition: impl Fn(u32, &OriginEntry) -> bool) -> Vec<u32> {
        let all = self.map.origins.iter();
        all.filter(|(index, entry)| condition(*index, entry)).map(|(index, _)| index).collect()
    }

    pub(super) fn silence(&self, index: u32) -> Duration {
        self.map.origins.entry(index).evidence.received_at.silence_without_pauses(self.clock, Duration::MAX)
    }

    /// Whether a linked peer is serving, or was serving in its current incarnation and is stopping by now: its registry is
    /// complete (N3).
    pub(super) fn has_served(&self, node: &NodeId) -> bool {
        let Some(peer) = self.peers.peers.get(node) else { return false };
        let run = peer.incarnation.map(|incarnation| OriginId { node: node.clone(), incarnation });
        let index = run.and_then(|run| self.map.origins.index_of(&run));
        peer.serving || index.is_some_and(|index| self.states_serving(self.map.origins.entry(index)))
    }

    /// Whether an origin states that it is serving, by its node record, which it unregisters when it leaves.
    pub(super) fn states_serving(&self, entry: &OriginEntry) -> bool {
        let own = self.map.record(Space::Member, &node_member_id(&entry.origin.id.node));
        own.is_some_and(|record| record.is_live() && record.origin.index == entry.origin.index)
    }
}
