//! Node inputs: the call into the core, the flush and the effects that the node requests.

use crate::client::FromClient;
use crate::faults::Action;
use crate::host::Input;
use crate::invariants::{NO_PANIC, Violation};
use crate::network::{Item, Kind, SECOND, Site};
use crate::reach::host_of;
use crate::trace::{Fold, Line};
use crate::world::{Crash, Event, World, micros};
use convoke_core::node::{
    ConnId, DialId, Effect, LinkId, PeerState, RegistryEvent, RestartReason, SeedFailure, StopReason,
};
use convoke_core::{Node, Output};
use convoke_proto::v1;

impl World {
    pub(crate) fn wake(&mut self, host: usize, boot: u64) {
        if self.hosts[host].boot != boot || self.hosts[host].wake_at != Some(self.now) {
            return;
        }
        self.hosts[host].wake_at = None;
        if self.hosts[host].paused() {
            self.hosts[host].wake_missed = true;
            return;
        }
        let due = self.hosts[host].node.as_ref().map(Node::next_wake);
        let time = self.hosts[host].time(self.now);
        if due.is_some_and(|due| due > time) {
            self.schedule_wake(host);
        } else {
            self.input(host, Input::Wake);
        }
    }

    fn schedule_wake(&mut self, host: usize) {
        let held = &mut self.hosts[host];
        let Some(node) = &held.node else { return };
        let due = node.next_wake();
        if due == convoke_core::Time::MAX {
            return;
        }
        let at = held.virtual_time(due).max(self.now);
        if held.wake_at.is_none_or(|scheduled| at < scheduled) {
            held.wake_at = Some(at);
            let boot = held.boot;
            self.schedule(at, Event::Wake { host, boot });
        }
    }

    /// Delivers an input to a host. The input waits while the host is paused or busy.
    pub(crate) fn input(&mut self, host: usize, input: Input) {
        let held = &mut self.hosts[host];
        if held.node.is_none() {
            return;
        }
        if held.paused() || held.busy_until > self.now || !held.inbox.is_empty() {
            held.inbox.push_back(input);
            let backlog = held.slow * held.inbox.len() as u64;
            if backlog > 0 && !held.overloaded && self.breaks_links(backlog) {
                self.hosts[host].overloaded = true;
                self.strain(host);
            }
        } else {
            self.process(host, input);
        }
    }

    pub(crate) fn drain_inbox(&mut self, host: usize) {
        while self.violation.is_none() {
            let held = &mut self.hosts[host];
            if held.paused() || held.busy_until > self.now {
                return;
            }
            let Some(input) = held.inbox.pop_front() else { return };
            self.process(host, input);
        }
    }

    fn process(&mut self, host: usize, input: Input) {
        self.trace_input(host, &input);
        let now = self.now;
        let slow = self.hosts[host].slow;
        match input {
            Input::Wake => self.with_node(host, Node::wake),
            Input::Accepted { conn, side } => {
                if self.end_open(conn, side) {
                    self.with_node(host, |node, time, out| node.accepted(time, link(conn, side), out));
                }
            }
            Input::Dialled { dial, conn, side } => {
                self.with_node(host, |node, time, out| node.dialled(time, DialId(dial), link(conn, side), out));
            }
            Input::DialFailed { dial } => {
                self.with_node(host, |node, time, out| node.dial_failed(time, DialId(dial), SeedFailure::Refused, out));
            }
            Input::Frame { conn, side, frame } => {
                if self.end_open(conn, side) {
                    self.with_node(host, |node, time, out| node.received(time, link(conn, side), &frame, out));
                }
            }
            Input::Closed { conn, side } => {
                if self.end_open(conn, side) {
                    self.close_end(conn, side, false);
                    self.with_node(host, |node, time, out| node.closed(time, link(conn, side), out));
                }
            }
            Input::Client { conn, message } => {
                if self.end_open(conn, 1) {
                    self.serve(host, conn, *message);
                }
            }
            Input::ClientGone { conn } => {
                if self.end_open(conn, 1) {
                    self.close_end(conn, 1, false);
                    self.with_node(host, |node, time, out| node.disconnected(time, ConnId(conn), out));
                }
            }
            Input::Http { exchange } => self.http_serve(host, exchange),
            Input::HttpHangUp { connection } => self.http_disconnected(host, connection),
            Input::HttpStep { task } => self.http_step(host, task),
            Input::HttpReply { task, result } => self.http_reply(host, task, *result),
            Input::Stop => self.with_node(host, Node::stop),
        }
        if slow > 0 && self.hosts[host].running() {
            let held = &mut self.hosts[host];
            held.busy_until = now + slow;
            let boot = held.boot;
            self.schedule(now + slow, Event::Continue { host, boot });
        }
    }

    fn trace_input(&mut self, host: usize, input: &Input) {
        let at = self.now;
        let who = host as u64;
        match input {
            Input::Wake => {
                self.trace.event(at, 1, who, 0);
                self.trace.line(at, Line::Wake { host });
            }
            Input::Frame { conn, side, frame } => {
                let mut hash = Fold::default();
                hash.bytes(frame);
                self.trace.event(at, 2, who, hash.0);
                let from = self.network.connections.get(conn).map_or(usize::MAX, |connection| {
                    match connection.ends[1 - side].place {
                        Site::Host(from) | Site::Client(from) => from,
                    }
                });
                let kind = frame.first().copied().unwrap_or(0);
                self.trace.line(at, Line::Frame { from, to: host, bytes: frame.len(), kind });
            }
            Input::Client { conn, message } => {
                self.trace.event(at, 3, who, *conn);
                if is_heartbeat(message) {
                    self.trace.line(at, Line::Heartbeat { host, conn: *conn });
                    return;
                }
                let text = crate::serving::describe(message);
                self.note(format!("n{host} receives {text} on connection {conn}"));
            }
            Input::Http { exchange: number }
            | Input::HttpHangUp { connection: number }
            | Input::HttpStep { task: number }
            | Input::HttpReply { task: number, .. } => self.trace.event(at, 5, who, *number),
            other => {
                self.trace.event(at, 4, who, 0);
                self.note(format!("n{host} input {other:?}"));
            }
        }
    }

    /// Calls the node, flushes it and carries out its effects.
    pub fn with_node<T: Default>(
        &mut self,
        host: usize,
        call: impl FnOnce(&mut Node, convoke_core::Time, &mut Output) -> T,
    ) -> T {
        let (time, wall_ms) = (self.hosts[host].time(self.now), self.hosts[host].wall_ms(self.now));
        let Some(node) = self.hosts[host].node.as_mut() else { return T::default() };
        node.set_wall_clock(wall_ms);
        let mut out = std::mem::take(&mut self.out);
        let result = call(node, time, &mut out);
        node.flush(time, &mut out);
        let boot = self.hosts[host].boot;
        self.hosts[host].published.looked_at();
        for change in out.changes.drain(..) {
            self.hosts[host].published.apply(change);
        }
        for event in std::mem::take(&mut out.events) {
            self.node_event(host, event);
        }
        for effect in std::mem::take(&mut out.effects) {
            // A restart or stop effect ends this process: the effects after it are void.
            if self.hosts[host].boot == boot {
                self.carry_out(host, effect);
            }
        }
        self.out = out;
        if self.hosts[host].node.is_some() {
            self.schedule_wake(host);
            self.read_observer(host);
            self.check(|invariant, world, found| invariant.after_input(world, host, found));
        }
        result
    }

    fn node_event(&mut self, host: usize, event: RegistryEvent) {
        if matches!(event, RegistryEvent::Exchanged { .. }) {
            self.hosts[host].exchanged_at = self.now;
            return;
        }
        self.note(format!("n{host} reports {event:?}"));
        if let RegistryEvent::PeerUp { node } = &event {
            self.hosts[host].met = true;
            let known = self.hosts[host].node.as_ref().map(Node::peers).unwrap_or_default();
            let other = known.iter().find(|peer| peer.node == *node).and_then(|peer| host_of(&peer.peer_address));
            if other.is_some_and(|other| self.reach.met(host, other)) {
                self.update_reach();
            }
        }
        match event {
            RegistryEvent::Serving { first, .. } => {
                self.hosts[host].serving_at = Some(self.now);
                // Nodes that started together are linked by now.
                let linked = |node: &Node| node.peers().iter().any(|peer| peer.state == PeerState::Up);
                self.hosts[host].alone = first && !self.hosts[host].node.as_ref().is_some_and(linked);
                let boot = self.hosts[host].boot;
                let delay = self.rng.u64(..SECOND / 10);
                self.schedule_action(delay, Action::Serving { host, boot });
                self.update_reach();
            }
            RegistryEvent::PeerUp { .. } if self.hosts[host].alone => {
                self.hosts[host].serving_at = Some(self.now);
                self.hosts[host].alone = false;
                self.update_reach();
            }
            RegistryEvent::FrameRejected { node, excess } if !self.forged => {
                let what = format!("n{host} rejected a frame of the correct node {node:?}: {excess}");
                self.violate(Violation::new(NO_PANIC, self.now, what));
            }
            RegistryEvent::PeerLost { .. } | RegistryEvent::PeerLeft { .. } => self.hosts[host].link_lost_at = self.now,
            RegistryEvent::FullMerge { .. } => self.hosts[host].full_merge_at = Some(self.now),
            RegistryEvent::NameLost { name, .. } => {
                self.hosts[host].names.remove(&name);
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::Dial { dial, address, turn } => self.dial(host, dial.0, &address, turn),
            Effect::Send { link, frame } => self.push(link.0 / 2, (link.0 % 2) as usize, Item::Frame(frame)),
            Effect::CloseLink { link } => self.close_end(link.0 / 2, (link.0 % 2) as usize, false),
            Effect::Notify { conn, notice } => {
                if !self.http_notice(host, conn.0, &notice) {
                    self.notify(host, conn.0, notice);
                }
            }
            Effect::CloseClient { conn } => {
                self.http_closed(host, conn.0);
                self.close_end(conn.0, 1, false);
            }
            Effect::CloseAllClients => {
                self.note(format!("n{host} closes all clients"));
                for (conn, side) in self.network.at(Site::Host(host), Some(Kind::Client)) {
                    self.close_end(conn, side, false);
                }
                self.http_close_all(host);
                // Watcher streams are client streams.
                self.detach_watchers(host);
            }
            Effect::Readable { watcher } => {
                let boot = self.hosts[host].boot;
                let found = self.watchers.iter().position(|s| s.at == Some((host, boot, watcher)));
                if let Some(index) = found.filter(|index| !self.watchers[*index].observer) {
                    self.schedule_read(index);
                }
            }
            Effect::Persist { incarnation } => self.hosts[host].persisted = incarnation,
            Effect::Checks { id, checks: Some(checks) } => drop(self.hosts[host].checks.insert(id.to_string(), checks)),
            Effect::Checks { id, checks: None } => drop(self.hosts[host].checks.remove(id.as_str())),
            Effect::CheckReported(report) => self.hosts[host].reports.push(report),
            Effect::Archive { id, record, floor } => self.hosts[host].archive.apply(id, record, floor),
            Effect::Restart { reason, incarnation, inherited } => {
                self.note(format!("n{host} restarts itself: {reason:?}, incarnation {incarnation}"));
                let collisions = self.hosts[host].collisions + u32::from(reason != RestartReason::PausedTooLong);
                self.take_down(host, Crash::Process);
                self.hosts[host].collisions = collisions;
                let has_disk = std::mem::replace(&mut self.hosts[host].has_disk, true);
                let persisted = self.hosts[host].persisted.max(incarnation.saturating_sub(1));
                self.hosts[host].persisted = persisted;
                let seeds = self.hosts[host].config.seeds.clone();
                self.reach.incarnation_started(host, &seeds);
                self.start_after(host, inherited);
                self.hosts[host].has_disk = has_disk;
            }
            Effect::Stop { reason } => {
                self.note(format!("n{host} stops: {reason:?}"));
                let expected = match reason {
                    StopReason::Graceful => self.hosts[host].stopping,
                    StopReason::IdentityConflict => self.knows_a_second_process(host),
                };
                if !expected {
                    self.violate(Violation::new(NO_PANIC, self.now, format!("n{host} stopped: {reason:?}")));
                }
                self.take_down(host, Crash::Process);
            }
        }
    }
}

impl World {
    /// Whether a second process with the id of a host runs, ran until so recently that its pings are still relayed, or has
    /// taken numbers from this process, which may learn that only when a partition ends (N4).
    fn knows_a_second_process(&self, host: usize) -> bool {
        let held = &self.hosts[host];
        let relayed = micros(self.setup.timers.ping_timeout);
        held.duplicate.is_some()
            || held.duplicate_ended_at.is_some_and(|at| self.now - at < relayed || at > held.started_at)
    }
}

fn is_heartbeat(message: &FromClient) -> bool {
    let FromClient::Message(message) = message else { return false };
    matches!(message.message, Some(v1::client_message::Message::Heartbeat(_)))
}

fn link(conn: u64, side: usize) -> LinkId {
    LinkId(conn * 2 + side as u64)
}
