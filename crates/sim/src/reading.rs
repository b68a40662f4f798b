//! How watchers connect, read, lose their node and reconnect.

use crate::faults::Action;
use crate::invariants::Violation;
use crate::network::{Micros, SECOND};
use crate::watcher::{Return, Watcher};
use crate::world::{Event, World};
use convoke_core::Output;
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{ResetReason, StreamEvent, WatchSelection};
use convoke_session::watch_state::Next;

impl World {
    /// Adds a watcher; it connects to a random node by itself.
    pub fn add_watcher(&mut self, space: Space, filter: Filter, pace: Micros, batch: usize) -> usize {
        let index = self.watchers.len();
        let mutation = self.setup.sdk_mutation;
        let sdk = convoke_session::watch_state::WatchState::mutated(mutation);
        self.watchers.push(Watcher { sdk, mutation, ..Watcher::new(space, filter, pace, batch) });
        self.schedule_action(0, Action::Reconnect { watcher: index });
        index
    }

    /// Connects a watcher to a node; returns false if the node rejects it.
    pub fn watcher_connect(&mut self, watcher: usize, host: usize, how: Return) -> bool {
        self.watcher_disconnect(watcher);
        if self.hosts[host].paused() || !self.hosts[host].running() {
            return false;
        }
        let s = &mut self.watchers[watcher];
        let (resume, how) = s.resume(how);
        let interest = WatchSelection::new(s.space, s.filter.clone());
        let result = if s.observer {
            // Calls the node directly: this runs within a round already.
            let time = self.hosts[host].time(self.now);
            self.hosts[host].node.as_mut().map(|node| node.watch(time, interest, resume, &mut Output::default()))
        } else {
            self.with_node(host, |node, time, out| Some(node.watch(time, interest, resume, out)))
        };
        let Some(Ok(id)) = result else { return false };
        let (now, boot) = (self.now, self.hosts[host].boot);
        self.note(format!("watcher {watcher} connects to n{host} ({how:?})"));
        let s = &mut self.watchers[watcher];
        s.complete = false;
        s.drained = false;
        s.returned = how;
        s.connected_at = now;
        s.at = Some((host, boot, id));
        self.check(|invariant, world, _| invariant.watched(world, watcher));
        if !self.watchers[watcher].observer {
            self.schedule_read(watcher);
        }
        true
    }

    pub(crate) fn watcher_disconnect(&mut self, watcher: usize) {
        let s = &mut self.watchers[watcher];
        s.generation += 1;
        s.reading = false;
        if let Some((host, boot, id)) = s.at.take()
            && self.hosts[host].boot == boot
        {
            if !self.hosts[host].paused() {
                self.with_node(host, |node, _, _| node.unwatch(id));
            } else if let Some(node) = &mut self.hosts[host].node {
                // A paused process detects this when it resumes; until then its clock does not see it either.
                node.unwatch(id);
            }
        }
    }

    /// Reconnects to a random node in a random way.
    pub(crate) fn watcher_return(&mut self, watcher: usize) {
        if self.watchers[watcher].at.is_some() {
            return;
        }
        let hosts: Vec<usize> = self.running_hosts().into_iter().filter(|host| !self.hosts[*host].is_second).collect();
        let how = match self.rng.u32(..10) {
            0 => Return::Fresh,
            1..6 => Return::Token,
            6..8 => Return::TokenAndKnown,
            _ => Return::Known,
        };
        let connected = self.rng.choice(hosts).is_some_and(|host| self.watcher_connect(watcher, host, how));
        if !connected {
            let delay = self.rng.u64(SECOND / 5..2 * SECOND);
            self.schedule_action(delay, Action::Reconnect { watcher });
        }
    }

    /// Detaches the streams of a node that stopped.
    pub(crate) fn detach_watchers(&mut self, host: usize) {
        for watcher in 0..self.watchers.len() {
            if self.watchers[watcher].at.is_none_or(|(at, ..)| at != host) {
                continue;
            }
            let s = &mut self.watchers[watcher];
            s.at = None;
            s.generation += 1;
            s.reading = false;
            if s.observer {
                s.forget();
            } else {
                let delay = self.rng.u64(SECOND / 10..3 * SECOND);
                self.schedule_action(delay, Action::Reconnect { watcher });
            }
        }
    }

    pub(crate) fn schedule_read(&mut self, watcher: usize) {
        let s = &mut self.watchers[watcher];
        if s.reading || s.at.is_none() || s.observer {
            return;
        }
        s.reading = true;
        let (at, generation) = (self.now + s.pace, s.generation);
        self.schedule(at, Event::Read { watcher, generation });
    }

    pub(crate) fn read(&mut self, watcher: usize) {
        let Some((host, boot, id)) = self.watchers[watcher].at else { return };
        if self.hosts[host].boot != boot || self.hosts[host].paused() {
            return;
        }
        let batch = self.watchers[watcher].batch;
        let time = self.hosts[host].time(self.now);
        let Some(node) = self.hosts[host].node.as_mut() else { return };
        let mut events = Vec::new();
        let more = node.take(time, id, batch, &mut events);
        self.watchers[watcher].drained = !more;
        self.trace.event(self.now, 7, watcher as u64, events.len() as u64);
        for event in events {
            if self.stream_event(watcher, event) == Next::Resume {
                // The token was of no use, the versions are: the SDK reconnects at once.
                self.watcher_connect(watcher, host, Return::Token);
                return;
            }
        }
        if self.violation.is_none() && !more {
            self.check(|invariant, world, found| invariant.drained(world, watcher, found));
        }
        if more {
            self.schedule_read(watcher);
        }
    }

    fn stream_event(&mut self, watcher: usize, event: StreamEvent) -> Next {
        self.fold_decision(watcher, &event);
        if self.trace.verbose && !matches!(&event, StreamEvent::Mark(_)) {
            self.note(format!("watcher {watcher} gets {event:?}"));
        }
        if matches!(event, StreamEvent::Reset(ResetReason::Overflow)) {
            self.faults.count(crate::faults::Fault::SlowWatcher);
        }
        self.check(|invariant, world, found| invariant.stream_event(world, watcher, &event, found));
        let s = &mut self.watchers[watcher];
        if s.observer {
            s.apply(&event);
            return Next::Read;
        }
        let before = event.clone();
        let (next, problem) = s.pass_on(event);
        if next == Next::Read {
            s.apply(&before);
        }
        if let Some(problem) = problem {
            let message = format!("watcher {watcher} at {:?}: {problem}", s.at);
            self.violate(Violation::new("streams", self.now, message));
        }
        next
    }

    /// Folds the visible result, without wall-clock values (`clocks_irrelevant`).
    fn fold_decision(&mut self, watcher: usize, event: &StreamEvent) {
        let fold = &mut self.trace.decisions;
        fold.word(self.now);
        fold.word(watcher as u64);
        match event {
            StreamEvent::Snapshot(m)
            | StreamEvent::Registered(m)
            | StreamEvent::Updated(m)
            | StreamEvent::StatusChanged(m)
            | StreamEvent::OwnerChanged(m) => {
                fold.text(m.id());
                fold.text(m.status().as_str());
                fold.text(m.owner().node);
                fold.word(m.version().claim);
                fold.word(m.version().seq);
            }
            StreamEvent::Unregistered { id, version } => {
                fold.text(id);
                fold.word(version.claim);
            }
            StreamEvent::Reset(reason) => fold.word(*reason as u64),
            StreamEvent::CaughtUp | StreamEvent::Mark(_) => fold.word(1),
        }
    }

    /// The checker's own view of a node, kept up to date after every input.
    pub(crate) fn read_observer(&mut self, host: usize) {
        if self.hosts[host].serving().is_none() {
            return;
        }
        let index = match self.hosts[host].observer {
            Some(index) => index,
            None => {
                let mut watcher = Watcher::new(Space::Member, Filter::all(), 0, 512);
                watcher.observer = true;
                self.watchers.push(watcher);
                let index = self.watchers.len() - 1;
                self.hosts[host].observer = Some(index);
                index
            }
        };
        if self.watchers[index].at.is_none() {
            self.watcher_connect(index, host, Return::Fresh);
        }
        loop {
            self.read(index);
            let s = &self.watchers[index];
            if s.drained || s.at.is_none() || self.violation.is_some() {
                return;
            }
        }
    }
}
