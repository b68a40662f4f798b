//! Machines: starting, crashing, pausing and stopping the node on a host.

use crate::faults::Action;
use crate::host::{Host, HostState, Input};
use crate::invariants::{CRASHES_DETECTED, Published, Violation};
use crate::network::{Item, Micros, SECOND, Site};
use crate::world::{Crash, Event, World};
use convoke_core::Node;
use convoke_core::member::Status;
use convoke_core::node::{Archive, InheritedState, PeerState, SlotView, Start};

/// Time in which peers detect a crash: with a closed connection, and without one.
const DETECTED_BY_END: Micros = SECOND;
const NOTICED_BY_SILENCE: Micros = 5 * SECOND;

impl World {
    /// Starts a new process of the node on a host.
    pub fn start(&mut self, host: usize) {
        let seeds = self.hosts[host].config.seeds.clone();
        if self.hosts[host].state == HostState::Down {
            self.reach.process_started(host, &seeds);
            self.hosts[host].met = false;
        }
        self.start_after(host, InheritedState::default());
    }

    /// Starts a new incarnation within the same process.
    pub(crate) fn start_after(&mut self, host: usize, inherited: InheritedState) {
        let now = self.now;
        let nonce = self.rng.u64(1..);
        let mutation = self.setup.mutation;
        let held = &mut self.hosts[host];
        if held.state != HostState::Down {
            return;
        }
        held.boot += 1;
        held.state = HostState::Running;
        held.dark = false;
        held.stopping = false;
        held.started_at = now;
        held.serving_at = None;
        held.alone = false;
        held.stopped_at = None;
        held.fault_period.touch(now);
        held.wake_at = None;
        held.wake_missed = false;
        held.busy_until = now;
        let persisted = if held.has_disk { held.persisted } else { 0 };
        if !held.has_disk {
            held.archive = Archive::default();
        }
        let archive = held.archive.clone();
        held.published = Published::default();
        let (collisions, wall_ms) = (held.collisions, held.wall_ms(now));
        let start = Start { persisted, nonce, collisions, inherited, archive, wall_ms, publish: true, mutation };
        let node = Node::new(held.config.clone(), start, held.time(now)).expect("the configuration was validated");
        held.node = Some(node);
        for (conn, side) in std::mem::take(&mut held.silenced) {
            self.push(conn, side, Item::EndOfStream);
        }
        self.note(format!("n{host} starts, process {}, persisted {persisted}", self.hosts[host].boot));
        self.update_reach();
        self.with_node(host, Node::begin);
    }

    pub fn start_all(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
    }

    pub fn crash(&mut self, host: usize, crash: Crash) {
        if !self.hosts[host].running() {
            return;
        }
        self.note(format!("n{host} crashes ({crash:?})"));
        self.take_down(host, crash);
    }

    pub(crate) fn take_down(&mut self, host: usize, crash: Crash) {
        let now = self.now;
        self.check(|invariant, world, _| invariant.host_stopped(world, host));
        self.forget_unregistrations(host);
        self.expect_detected(host, crash);
        self.http_host_stopped(host, crash);
        if self.hosts[host].slow > 0 {
            self.end_slow(host);
        }
        let held = &mut self.hosts[host];
        held.state = HostState::Down;
        held.node = None;
        held.boot += 1;
        held.collisions = 0;
        held.inbox.clear();
        held.checks.clear();
        held.dials.clear();
        held.dark = crash == Crash::Silent;
        held.stopped_at = Some(now);
        held.last_stop = now;
        held.fault_period.touch(now);
        held.end_pause(now);
        for (conn, side) in self.network.at(Site::Host(host), None) {
            self.close_end(conn, side, crash == Crash::Silent);
            if crash == Crash::Silent {
                self.hosts[host].silenced.push((conn, side));
            }
        }
        self.detach_watchers(host);
        self.update_reach();
        self.agentless_lost();
    }

    /// Requires that every host with a link to a crashed node detects it in time: at once if the connection closes,
    /// otherwise by timeout. A node that has just lost the link itself closed it before, perhaps during a cut, so the end of
    /// the connection may arrive late.
    fn expect_detected(&mut self, host: usize, crash: Crash) {
        let linked = |other: &usize| {
            *other != host
                && self.hosts[*other].long_delays == 0
                && self.peer_is_up(*other, host)
                && !self.network.severed(Site::Host(*other), Site::Host(host))
        };
        let lost_a_link = self.now.saturating_sub(self.hosts[host].link_lost_at) < NOTICED_BY_SILENCE;
        let by_end = |other: &usize| crash != Crash::Silent && (!lost_a_link || self.peer_is_up(host, *other));
        let observers: Vec<usize> = (0..self.hosts.len()).filter(linked).collect();
        let (by_end, by_silence): (Vec<usize>, Vec<usize>) = observers.into_iter().partition(by_end);
        if self.hosts[host].long_delays > 0 || self.hosts[host].duplicate.is_some() {
            return;
        }
        for (bound, observers) in [(DETECTED_BY_END, by_end), (NOTICED_BY_SILENCE, by_silence)] {
            let observers: Vec<(usize, u64)> =
                observers.iter().map(|other| (*other, self.hosts[*other].boot)).collect();
            if !observers.is_empty() {
                self.schedule_action(bound, Action::ExpectDetected { host, stopped: self.now, observers });
            }
        }
    }

    pub(crate) fn require_detected(&mut self, host: usize, stopped: Micros, observers: &[(usize, u64)]) {
        let (now, took) = (self.now, self.now - stopped);
        if self.hosts[host].last_stop != stopped || self.hosts[host].running() {
            return;
        }
        for (observer, boot) in observers.iter().copied() {
            let held = &self.hosts[observer];
            let free = held.boot == boot
                && held.duplicate.is_none()
                && held.fault_period.calm_for(now) >= took
                && held.calm_after_pause(now, 0) >= took
                && self.reach.joined(observer, observer, stopped, now);
            if !free {
                continue;
            }
            *self.stats.checks.entry(CRASHES_DETECTED).or_default() += 1;
            if self.peer_is_up(observer, host) {
                let message = format!("n{observer} has not detected the crash of n{host} after {} ms", took / 1000);
                self.violate(Violation::new(CRASHES_DETECTED, now, message));
            }
        }
    }

    fn peer_is_up(&self, host: usize, peer: usize) -> bool {
        let Some(node) = self.hosts[host].serving() else { return false };
        let id = &self.hosts[peer].id;
        node.peers().iter().any(|view| view.node == *id && view.state == PeerState::Up)
    }

    /// The node runs at normal speed again.
    pub(crate) fn end_slow(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].slow = 0;
        self.hosts[host].fault_period.end(now);
        self.hosts[host].delays.end(now);
        if std::mem::take(&mut self.hosts[host].overloaded) {
            self.relieve(host);
        }
    }

    /// A client receives the acknowledgement of its unregistration.
    pub(crate) fn unregistration_acknowledged(&mut self, id: &str, client: usize, host: usize) {
        let run = (host, self.hosts[host].boot);
        self.truth.unregistered(id, client, run, self.now);
        if let Some(claimed) = self.truth.ids.get_mut(id) {
            claimed.ended_by = Some((client, self.clients[client].process_number));
        }
        // The answer may arrive after its node has stopped.
        if !self.hosts[host].running() {
            self.forget_unregistrations(host);
        }
    }

    /// Marks unregistrations that only this node held: other nodes may show these members until they infer that they
    /// left.
    fn forget_unregistrations(&mut self, host: usize) {
        let run = (host, self.hosts[host].boot);
        let (now, hosts) = (self.now, &self.hosts);
        for (id, claimed) in self.truth.ids.iter_mut().filter(|(_, claimed)| claimed.known_by == Some(run)) {
            let rank = |slot: &SlotView| (slot.claim, slot.seq);
            let own = hosts[host].node.as_ref().and_then(|node| node.slot(id));
            // A tombstone of an earlier registration does not count, even with another client's higher claim: it may
            // be collected at any moment.
            let knows = |other: &Host| {
                let slot = other.node.as_ref().filter(|_| other.running()).and_then(|node| node.slot(id));
                slot.is_some_and(|slot| {
                    let covers = |own: &SlotView| rank(&slot) >= rank(own) && slot.client == own.client;
                    slot.stated == Status::Left && own.as_ref().is_some_and(covers)
                })
            };
            let other = (0..hosts.len()).find(|other| *other != host && knows(&hosts[*other]));
            claimed.known_by = other.map(|other| (other, hosts[other].boot));
            if other.is_none() {
                claimed.silent_since = now;
            }
        }
    }

    /// Returns the time since which a host runs, reaches the same hosts and is reached by the same hosts. A host that
    /// resumes from a pause detects only then what happened meanwhile.
    pub fn settled_since(&self, host: usize) -> Micros {
        let resumed = self.now.saturating_sub(self.hosts[host].calm_after_pause(self.now, SECOND));
        self.reach.settled_since(host).max(resumed)
    }

    /// Pauses the process (SIGSTOP); the clock continues.
    pub fn pause(&mut self, host: usize, duration: Micros) {
        if !self.hosts[host].running() || self.hosts[host].paused() {
            return;
        }
        self.note(format!("n{host} is paused for {} ms", duration / 1000));
        let until = self.now + duration;
        let held = &mut self.hosts[host];
        held.paused_until = Some(until);
        held.paused_since = self.now;
        let boot = held.boot;
        self.schedule(until, Event::Resume { host, boot });
        self.update_reach();
    }

    pub(crate) fn resume(&mut self, host: usize) {
        let now = self.now;
        let held = &mut self.hosts[host];
        if !held.end_pause(now) {
            return;
        }
        let missed = std::mem::take(&mut held.wake_missed);
        self.note(format!("n{host} resumes"));
        self.update_reach();
        // A real event loop may handle its timer or its sockets first.
        if missed && self.rng.bool() {
            self.hosts[host].inbox.push_front(Input::Wake);
        } else if missed {
            self.hosts[host].inbox.push_back(Input::Wake);
        }
        self.drain_inbox(host);
        for watcher in 0..self.watchers.len() {
            if self.watchers[watcher].at.is_some_and(|(at, ..)| at == host) {
                self.schedule_read(watcher);
            }
        }
    }

    /// SIGTERM: a graceful stop (N6).
    pub fn stop(&mut self, host: usize) {
        if self.hosts[host].running() && !self.hosts[host].stopping {
            self.note(format!("n{host} receives SIGTERM"));
            self.hosts[host].stopping = true;
            self.hosts[host].fault_period.touch(self.now);
            self.update_reach();
            self.input(host, Input::Stop);
        }
    }
}
