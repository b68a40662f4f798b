//! Watchers: the selection of each, and the events it has not received yet (W1–W6).
//!
//! Each has a bounded queue of changes; snapshots and catch-ups are walked at the watcher's own pace and never copied.

mod token;
mod walk;

pub(crate) use token::{Resumption, Token};
pub(crate) use walk::Walk;

use crate::map::CausalMap;
use crate::member::{ChangeKind, Member, Record, Space, Status};
use crate::mutant::{Mutation, seam};
use crate::node::{Effect, Output, ResetReason, StreamEvent, WatchSelection, WatcherId};
use crate::time::{Duration, Time};
use crate::version::Version;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Slots that one call of a walk examines.
const STEPS_MAX: usize = 4_096;

#[derive(Debug)]
struct Watcher {
    selection: WatchSelection,
    stage: Stage,
    queue: VecDeque<StreamEvent>,
    /// Sent to the watcher before anything else.
    reset: Option<ResetReason>,
    /// The shell has been notified that there is something to take.
    notified: bool,
    marked_at: Option<Time>,
    /// Gets a mark whenever it has received everything.
    eager: bool,
    /// Stamp of the state at the last mark.
    marked: u64,
}

#[derive(Debug)]
enum Stage {
    /// The token is ahead of this node (W4).
    Waiting {
        resumption: Box<Resumption>,
        until: Time,
    },
    Walking(Walk),
    /// Known ids that this node does not have; not yet reported as absent (N3).
    Grace {
        missing: BTreeMap<String, Version>,
        until: Time,
    },
    Live,
}

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    entries: Vec<(u32, Option<Watcher>)>,
    free: Vec<u32>,
    by_service: BTreeMap<String, Vec<u32>>,
    /// Watchers of members of any service.
    general: Vec<u32>,
    names: Vec<u32>,
    len: usize,
    /// Raised with every change that a mark would reflect.
    pub(crate) stamp: u64,
    last_token: LastToken,
}

/// The resume token of the last mark. It is the same for all watchers at one stamp, so it is encoded once.
#[derive(Debug, Default)]
struct LastToken(Option<(u64, Bytes)>);

impl LastToken {
    /// Returns the token at a stamp. Every change that a token reflects raises the stamp.
    fn at(&mut self, stamp: u64, map: &CausalMap) -> Bytes {
        match &self.0 {
            Some((at, token)) if *at == stamp => token.clone(),
            _ => {
                let token = Bytes::from(Token::of(map).encode());
                self.0 = Some((stamp, token.clone()));
                token
            }
        }
    }
}

/// The result of a watcher's request to resume.
#[derive(Debug)]
pub(crate) enum Begin {
    Walk { walk: Walk, reset: Option<ResetReason> },
    Wait { resumption: Resumption, until: Time },
}

/// A change of one slot as shown: before and after; `None` = not shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) slot: u32,
    pub(crate) before: Option<&'a Member>,
    pub(crate) after: Option<&'a Member>,
    /// The slot itself is gone: a walk will not reach it.
    pub(crate) freed: bool,
    /// The version of the change if the member is no longer shown: that of its tombstone.
    pub(crate) gone: Option<Version>,
}

impl Watchers {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn longest_queue(&self) -> usize {
        self.entries.iter().filter_map(|(_, s)| s.as_ref()).map(|s| s.queue.len()).max().unwrap_or(0)
    }

    pub(crate) fn insert(&mut self, selection: WatchSelection, begin: Begin, out: &mut Output) -> WatcherId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() as u32 - 1
        });
        self.list(&selection).push(index);
        let (stage, reset) = match begin {
            Begin::Walk { walk, reset } => (Stage::Walking(walk), reset),
            Begin::Wait { resumption, until } => (Stage::Waiting { resumption: Box::new(resumption), until }, None),
        };
        let entry = &mut self.entries[index as usize];
        let notified = !matches!(stage, Stage::Waiting { .. });
        entry.1 = Some(Watcher {
            selection,
            stage,
            queue: VecDeque::new(),
            reset,
            notified,
            marked_at: None,
            eager: false,
            marked: 0,
        });
        let id = WatcherId { index, generation: entry.0 };
        self.len += 1;
        if notified {
            out.effects.push(Effect::Readable { watcher: id });
        }
        id
    }

    pub(crate) fn mark_eagerly(&mut self, id: WatcherId) {
        if let Some((generation, Some(watcher))) = self.entries.get_mut(id.index as usize)
            && *generation == id.generation
        {
            watcher.eager = true;
        }
    }

    pub(crate) fn remove(&mut self, id: WatcherId) {
        let Some(entry) = self.entries.get_mut(id.index as usize).filter(|entry| entry.0 == id.generation) else {
            return;
        };
        let Some(watcher) = entry.1.take() else { return };
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(id.index);
        self.len -= 1;
        self.list(&watcher.selection).retain(|index| *index != id.index);
        if let Some(service) = watcher.selection.filter.service_literal()
            && self.by_service.get(service).is_some_and(Vec::is_empty)
        {
            self.by_service.remove(service);
        }
    }

    pub(crate) fn remove_all(&mut self) {
        for (index, (generation, watcher)) in self.entries.iter_mut().enumerate() {
            if watcher.take().is_some() {
                *generation = generation.wrapping_add(1);
                self.free.push(index as u32);
            }
        }
        self.by_service.clear();
        self.general.clear();
        self.names.clear();
        self.len = 0;
    }

    fn list(&mut self, selection: &WatchSelection) -> &mut Vec<u32> {
        match (selection.space, selection.filter.service_literal()) {
            (Space::Name, _) => &mut self.names,
            (Space::Member, None) => &mut self.general,
            (Space::Member, Some(service)) => self.by_service.entry(service.to_owned()).or_default(),
        }
    }

    /// Adds a change to the queues of all watchers that see it.
    pub(crate) fn route(&mut self, change: Change<'_>, limit: usize, mutation: Mutation, out: &mut Output) -> u64 {
        self.stamp += 1;
        let Some(member) = change.after.or(change.before) else { return 0 };
        let mut audience: Vec<u32> = Vec::new();
        if member.record.space == Space::Name {
            audience.extend(&self.names);
        } else {
            audience.extend(&self.general);
            let of = |m: &Member| self.by_service.get(m.service()).into_iter().flatten();
            audience.extend(of(member));
            if let (Some(before), Some(after)) = (change.before, change.after)
                && before.service() != after.service()
            {
                audience.extend(of(before));
            }
        }
        let mut delivered = 0;
        for index in audience {
            let (generation, Some(watcher)) = &mut self.entries[index as usize] else { continue };
            if watcher.offer(change, limit, mutation) {
                delivered += 1;
                watcher.notify(WatcherId { index, generation: *generation }, out);
            }
        }
        delivered
    }

    /// Tombstones were collected. Watchers whose walk has yet to reach one get it now: the walk will not reach it.
    /// There are hardly any, so they are searched once, not for each tombstone.
    pub(crate) fn collected(
        &mut self,
        collected: &[(u32, Arc<Record>)],
        limit: usize,
        mutation: Mutation,
        out: &mut Output,
    ) {
        for (index, (generation, watcher)) in self.entries.iter_mut().enumerate() {
            let Some(watcher) = watcher.as_mut() else { continue };
            if !matches!(&watcher.stage, Stage::Walking(walk) if walk.is_of_changes()) {
                continue;
            }
            let space = watcher.selection.space;
            for (slot, record) in collected.iter().filter(|(_, record)| record.space == space) {
                let Stage::Walking(walk) = &mut watcher.stage else { break };
                let gone = Member { record: record.clone(), status: Status::Left };
                let (id, version) = (gone.id().to_owned(), gone.version());
                let change =
                    Change { slot: *slot, before: Some(&gone), after: None, freed: false, gone: Some(version) };
                if walk.will_meet(change) {
                    walk.forget_known(change);
                    watcher.enqueue(StreamEvent::Unregistered { id, version }, limit, mutation);
                    watcher.notify(WatcherId { index: index as u32, generation: *generation }, out);
                }
            }
        }
    }

    /// Takes events for one watcher. Returns whether there is more right now.
    pub(crate) fn take(
        &mut self,
        id: WatcherId,
        context: &TakeContext<'_>,
        max: usize,
        events: &mut Vec<StreamEvent>,
    ) -> bool {
        let stamp = self.stamp;
        let Some((generation, Some(watcher))) = self.entries.get_mut(id.index as usize) else { return false };
        if *generation != id.generation {
            return false;
        }
        let more = watcher.take(context, stamp, &mut self.last_token, max, events);
        watcher.notified = more;
        more
    }

    /// Wakes watchers whose wait is over or whose mark is due.
    pub(crate) fn tick(&mut self, now: Time, map: &CausalMap, mark_interval: Duration, alone: bool, out: &mut Output) {
        let stamp = self.stamp;
        for (index, (generation, watcher)) in self.entries.iter_mut().enumerate() {
            let Some(watcher) = watcher else { continue };
            let due = match &watcher.stage {
                Stage::Waiting { resumption, until } => {
                    (now >= *until && !alone) || resumption.reached(&watcher.selection, map)
                }
                Stage::Grace { missing, until } => !alone && (missing.is_empty() || now >= *until),
                Stage::Walking(_) => false,
                Stage::Live => watcher.marked != stamp && watcher.marked_at.is_none_or(|at| now >= at + mark_interval),
            };
            if due {
                watcher.notify(WatcherId { index: index as u32, generation: *generation }, out);
            }
        }
    }
}

/// State of the node that taking events needs.
#[derive(Debug)]
pub(crate) struct TakeContext<'a> {
    pub(crate) map: &'a CausalMap,
    pub(crate) now: Time,
    pub(crate) mark_interval: Duration,
    /// Before this time, no member is reported as absent (N3).
    pub(crate) absence_from: Time,
    /// Until this node is no longer alone, it does not report a view as complete (N7).
    pub(crate) alone: bool,
    pub(crate) mutation: Mutation,
}

impl Watcher {
    fn notify(&mut self, id: WatcherId, out: &mut Output) {
        if !self.notified {
            self.notified = true;
            out.effects.push(Effect::Readable { watcher: id });
        }
    }

    /// Queues the change if this watcher should see it now.
    fn offer(&mut self, change: Change<'_>, limit: usize, mutation: Mutation) -> bool {
        let sees = |member: Option<&Member>| member.is_some_and(|m| self.selection.filter.matches(&m.subject()));
        let (before, after) = (sees(change.before), sees(change.after));
        if !before && !after {
            return false;
        }
        match &mut self.stage {
            Stage::Waiting { .. } => return false,
            Stage::Walking(walk) => {
                if walk.will_meet(change) {
                    return false;
                }
                seam!(in mutation, WatcherSkipsBehindCursor => return false);
                walk.forget_known(change);
            }
            Stage::Grace { missing, .. } => {
                if let Some(member) = change.after.or(change.before) {
                    missing.remove(member.id());
                }
            }
            Stage::Live => {}
        }
        if let Some(event) = event(change, before, after, mutation) {
            self.enqueue(event, limit, mutation);
        }
        true
    }

    /// Queues an event; if the queue is full, everything starts over (W5).
    fn enqueue(&mut self, event: StreamEvent, limit: usize, mutation: Mutation) {
        seam!(in mutation, WatcherQueueUnbounded => return self.queue.push_back(event));
        seam!(in mutation, SlowWatcherDropsSilently => if self.queue.len() >= limit { return });
        if self.queue.len() < limit {
            self.queue.push_back(event);
        } else {
            self.queue.clear();
            self.reset = Some(ResetReason::Overflow);
            self.stage = Stage::Walking(Walk::snapshot(&self.selection));
        }
    }

    fn take(
        &mut self,
        context: &TakeContext<'_>,
        stamp: u64,
        token: &mut LastToken,
        max: usize,
        events: &mut Vec<StreamEvent>,
    ) -> bool {
        let end = events.len() + max.max(2);
        if let Stage::Waiting { resumption, until } = &self.stage {
            if !resumption.reached(&self.selection, context.map) && (context.now < *until || context.alone) {
                return false;
            }
            self.start_after_wait(context);
        }
        if let Some(reason) = self.reset.take() {
            events.push(StreamEvent::Reset(reason));
        }
        while events.len() < end {
            let Some(event) = self.queue.pop_front() else { break };
            events.push(event);
        }
        if !self.queue.is_empty() {
            return true;
        }
        if let Stage::Walking(walk) = &mut self.stage {
            let mut steps = 0;
            while events.len() < end {
                // If few members match, a walk is long; other calls need their turn.
                steps += 1;
                if steps > STEPS_MAX {
                    return true;
                }
                if walk.step(&self.selection, context.map, context.mutation, events) {
                    continue;
                }
                let missing = walk.missing(context.map, &self.selection);
                self.stage = Stage::Grace { missing, until: context.absence_from };
                break;
            }
        }
        if let Stage::Grace { missing, until } = &mut self.stage {
            if context.alone || (!missing.is_empty() && context.now < *until) {
                return false;
            }
            while events.len() < end {
                let Some((id, had)) = missing.pop_first() else { break };
                let held = context.map.record(self.selection.space, &id).map(|record| context.map.member(record));
                let known = held.filter(|member| self.selection.may_know(member));
                let version = known.map_or(had.absent(), |member| member.version());
                events.push(StreamEvent::Unregistered { id, version });
            }
            if missing.is_empty() && events.len() < end {
                self.stage = Stage::Live;
                events.push(StreamEvent::CaughtUp);
                self.mark(context, stamp, token, events);
                return false;
            }
            return true;
        }
        let waited = self.marked_at.is_none_or(|at| context.now >= at + context.mark_interval);
        let due = self.marked != stamp && (waited || self.eager);
        match self.stage {
            Stage::Live if due && events.len() < end => {
                self.mark(context, stamp, token, events);
                false
            }
            Stage::Live => false,
            _ => true,
        }
    }

    /// The node caught up with the token, or the wait is over.
    fn start_after_wait(&mut self, context: &TakeContext<'_>) {
        let Stage::Waiting { resumption, .. } = std::mem::replace(&mut self.stage, Stage::Live) else { return };
        let (walk, reset) = if resumption.reached(&self.selection, context.map) {
            resumption.walk(&self.selection, context.map, context.mutation)
        } else {
            Walk::instead(&self.selection, None, ResetReason::Ahead)
        };
        self.stage = Stage::Walking(walk);
        self.reset = reset;
    }

    fn mark(&mut self, context: &TakeContext<'_>, stamp: u64, token: &mut LastToken, events: &mut Vec<StreamEvent>) {
        self.marked_at = Some(context.now);
        self.marked = stamp;
        events.push(StreamEvent::Mark(token.at(stamp, context.map)));
    }
}

/// The change as a watcher sees it, whose filter matches the member before it, after it, or both.
fn event(change: Change<'_>, before: bool, after: bool, mutation: Mutation) -> Option<StreamEvent> {
    seam!(in mutation, LeavingTheFilterIgnored => if !after && change.after.is_some() { return None });
    let (old, new) = (change.before.filter(|_| before), change.after.filter(|_| after));
    Some(match ChangeKind::between(old, new)? {
        ChangeKind::Registered => StreamEvent::Registered(new?.clone()),
        ChangeKind::Updated => StreamEvent::Updated(new?.clone()),
        ChangeKind::StatusChanged => StreamEvent::StatusChanged(new?.clone()),
        ChangeKind::OwnerChanged => StreamEvent::OwnerChanged(new?.clone()),
        ChangeKind::Unregistered => {
            let old = old?;
            let version = change.gone.or(change.after.map(Member::version)).unwrap_or(old.version().absent());
            StreamEvent::Unregistered { id: old.id().to_owned(), version }
        }
    })
}
