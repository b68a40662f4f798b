//! Execution of the core's effects.

use super::{EventLoop, Reply};
use crate::archive::Entry;
use crate::connection::{CloseReason, Delivery};
use crate::counters::add;
use crate::events::NodeEvent;
use crate::links::{self, Full};
use crate::shared::Phase;
use bytes::Bytes;
use convoke_core::node::{Effect, LinkId, RegistryEvent};
use std::sync::Arc;

impl EventLoop {
    /// Executes the effects and events of the last call.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.out.revocations_changed) {
            self.shared.revocations.send_replace(Arc::new(self.core.revocations().clone()));
        }
        if self.out.effects.is_empty() && self.out.events.is_empty() {
            return;
        }
        let mut events = std::mem::take(&mut self.out.events);
        for event in events.drain(..) {
            self.event(event);
        }
        self.out.events = events;
        let mut effects = std::mem::take(&mut self.out.effects);
        let generation = self.generation;
        for effect in effects.drain(..) {
            // A restart or stop among the effects ends this core: the remaining effects are void.
            if self.generation == generation && self.ended.is_none() {
                self.effect(effect);
            }
        }
        // The effects above may have caused further ones.
        if self.out.effects.is_empty() && self.out.events.is_empty() {
            self.out.effects = effects;
        } else {
            self.settle();
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send { link, frame } => self.send(link, frame),
            Effect::Readable { watcher } => self.streams.readable(watcher),
            Effect::Notify { conn, notice } => {
                if let Some(outbox) = self.clients.get(&conn) {
                    self.replies.push(Reply::Deliver(outbox.clone(), conn, Delivery::Notice(notice)));
                }
            }
            Effect::Dial { dial, address, turn } => {
                self.dials.spawn(links::dial(self.generation, dial, address, turn, self.shared.clone()));
            }
            Effect::CloseLink { link } => {
                if let Some(link) = self.links.remove(&link) {
                    link.queue.close();
                }
            }
            Effect::CloseClient { conn } => self.close_client(conn, CloseReason::Dropped),
            Effect::CloseAllClients => self.close_all_clients(CloseReason::NodePaused),
            Effect::Persist { incarnation } => self.persist(incarnation),
            Effect::Archive { id, record, floor } => self.archive.write(Entry { id, record, floor }),
            Effect::Checks { id, checks } => self.shared.checks.assign(id, checks),
            Effect::CheckReported(report) => {
                if !self.shared.checks.report(report) {
                    add(&self.shared.counting.check_reports_dropped, 1);
                }
            }
            Effect::Restart { reason, incarnation, inherited } => self.restart(reason, incarnation, inherited),
            Effect::Stop { reason } => {
                self.ended = Some(reason);
                self.shared.timeline.record(NodeEvent::Stopped { reason });
                self.close_all_clients(CloseReason::NodeStopped);
            }
        }
    }

    fn send(&mut self, id: LinkId, frame: Bytes) {
        let Some(link) = self.links.get(&id) else { return };
        match link.queue.push(frame) {
            Ok(waiting) => {
                if waiting > self.shared.network.congestion_bytes {
                    self.core.congested(id);
                }
            }
            Err(Full) => {
                add(&self.shared.counting.links_overflowed, 1);
                let address = link.address.to_string();
                link.queue.cut();
                self.links.remove(&id);
                self.shared.timeline.record(NodeEvent::LinkOverflow { address });
                let now = self.clock.now();
                self.core.closed(now, id, &mut self.out);
            }
        }
    }

    fn event(&mut self, event: RegistryEvent) {
        match &event {
            RegistryEvent::Serving { alone, .. } => {
                let alone = *alone;
                self.publish_absence();
                self.enter_phase(Phase::Starting, if alone { Phase::Alone } else { Phase::Ready });
                self.register_names_again();
            }
            RegistryEvent::Joined { .. } => {
                self.publish_absence();
                self.enter_phase(Phase::Alone, Phase::Ready);
            }
            RegistryEvent::SeedFailed { .. } => self.publish_absence(),
            RegistryEvent::Exchanged { from, full, chunks, records, took } => {
                let name = if *full { "registry.full_merge" } else { "registry.exchange" };
                let began_ago = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                // The exchange has ended when the core reports it.
                drop(tracing::info_span!(
                    target: convoke_trace::TARGET,
                    parent: None,
                    "registry.exchange",
                    otel.name = name,
                    otel.began_ago_us = began_ago,
                    convoke.peer = from.as_str(),
                    convoke.chunks = chunks,
                    convoke.records = records,
                ));
                return;
            }
            RegistryEvent::NameLost { name, .. } => {
                self.names.remove(name);
            }
            // These events can repeat with every retry.
            RegistryEvent::PeerRejected { .. }
            | RegistryEvent::FrameRejected { .. }
            | RegistryEvent::Conflict { .. }
            | RegistryEvent::Late { .. }
                if !self.log_throttle.is_new(&NodeEvent::Registry(event.clone()).to_string()) =>
            {
                return;
            }
            _ => {}
        }
        self.shared.timeline.record(NodeEvent::Registry(event));
    }

    /// Publishes whether an unknown id is absent (N7). After the publication of this turn's changes, so that a reader who
    /// is told that an id is absent has seen the whole registry.
    fn publish_absence(&mut self) {
        let unknown = self.core.is_alone().then(|| Arc::new(self.core.absence_unknown()));
        let shared = self.shared.clone();
        self.replies.push(Reply::Call(Box::new(move || shared.absence_unknown.store(unknown))));
    }

    /// Changes the phase after the publication, so that a reader of a ready node sees the whole registry.
    fn enter_phase(&mut self, from: Phase, to: Phase) {
        let shared = self.shared.clone();
        self.replies.push(Reply::Call(Box::new(move || {
            shared.phase.send_if_modified(|phase| {
                let entered = *phase == from;
                if entered {
                    *phase = to;
                }
                entered
            });
        })));
    }

    /// Persists the incarnation without waiting. If this process dies first, the nonce still distinguishes its
    /// incarnations, and peers know the number (N1).
    fn persist(&mut self, incarnation: u64) {
        let Some(data_dir) = self.data_dir.clone() else { return };
        if data_dir.incarnation() >= incarnation {
            return;
        }
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = data_dir.persist(incarnation) {
                let error = format!("{}: {error}", data_dir.path().display());
                shared.timeline.record(NodeEvent::PersistFailed { error });
            }
        });
    }
}
