//! A few copies, the transfers between them, and an oracle that keeps every write.

use super::map_copy::{InferredState, Key, MapCopy, OwnedRank, member, rank_of};
use super::steps::{Rules, Step, keys};
use crate::map::{Delta, ItemRef};
use crate::member::{Space, Status};
use crate::time::{Clock, Duration};
use crate::version::OriginId;
use crate::wire::Context;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Transfer {
    from: usize,
    to: usize,
    items: Vec<ItemRef>,
    next: usize,
    full: bool,
    /// The sender's context at the start, which the receiver may join at the end.
    context: Context,
    /// The receiver's context when it sent the request.
    receiver: Context,
    /// Frames sent so far.
    frames: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) origin: OriginId,
    pub(super) n: u64,
    pub(super) rank: OwnedRank,
    /// As sent by its writer at once.
    pub(super) frame: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct InferredWrite {
    pub(super) id: String,
    pub(super) origin: OriginId,
    pub(super) n: u64,
    pub(super) state: InferredState,
    pub(super) frame: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) copies: Vec<MapCopy>,
    transfers: Vec<Transfer>,
    /// Own writes a copy has sent to another, once an exchange showed the position of that one (D5).
    sent: BTreeMap<(usize, usize), u64>,
    pub(super) writes: Vec<Write>,
    pub(super) inferred: Vec<InferredWrite>,
    /// Per copy: ranks of each key that were collected there, or by the sender of a full merge.
    collected: Vec<BTreeMap<Key, Vec<OwnedRank>>>,
    /// The claim of each key's client, where it has one only.
    claims: BTreeMap<Key, u64>,
    rules: Rules,
    away: Option<usize>,
    incarnations: u64,
    pub(super) full_merges: usize,
}

impl World {
    pub(super) fn new(rules: Rules) -> Self {
        World {
            copies: ["a", "b", "c"].map(MapCopy::new).into(),
            transfers: Vec::new(),
            sent: BTreeMap::new(),
            writes: Vec::new(),
            inferred: Vec::new(),
            collected: vec![BTreeMap::new(); 3],
            claims: BTreeMap::new(),
            rules,
            away: None,
            incarnations: 1,
            full_merges: 0,
        }
    }

    /// The state after a whole history, with every invariant checked after every step.
    pub(super) fn after(rules: Rules, steps: &[Step]) -> Self {
        let mut world = World::new(rules);
        for step in steps {
            world.step(step);
            world.check();
        }
        world
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Register { at, key, ahead } => {
                let key = keys()[*key].clone();
                let claim = self.next_claim(*at, &key) + ahead;
                let client = self.client(*at);
                self.claims.insert(key.clone(), claim);
                self.copies[*at].register(&key, claim, &client);
                self.note(*at, &key);
            }
            Step::Repeat { at, key } => {
                let key = keys()[*key].clone();
                let claim = self.next_claim(*at, &key);
                let client = self.client(*at);
                self.claims.insert(key.clone(), claim);
                self.copies[*at].unregister_with(&key, claim, &client);
                self.note(*at, &key);
            }
            Step::Update { at, key } => self.change(*at, *key, |copy, key| copy.update(key, |r| r.drain += 1)),
            Step::Down { at, key } => {
                self.change(*at, *key, |copy, key| copy.update(key, |r| r.status = Status::Down));
            }
            Step::Unregister { at, key } => self.change(*at, *key, MapCopy::unregister),
            Step::Infer { at, key } => self.infer(*at, *key),
            Step::Life { at, of } => {
                let origin = self.copies[*of].origin();
                let copy = &mut self.copies[*at];
                let index = copy.map.admit_origin(&origin, copy.clock()).expect("few incarnations");
                let liveness_counter = copy.map.origins.entry(index).evidence.liveness_counter;
                copy.set_liveness_counter(&origin, liveness_counter + 1);
            }
            Step::Push { from, to, lost } => self.push(*from, *to, *lost),
            Step::Begin { from, to, full } => self.begin(*from, *to, *full),
            Step::Continue { transfer, items } => {
                if !self.transfers.is_empty() {
                    self.proceed(transfer % self.transfers.len(), *items);
                }
            }
            Step::Cut { transfer } => {
                if !self.transfers.is_empty() {
                    self.cut(transfer % self.transfers.len());
                }
            }
            Step::Again { transfer } => {
                if !self.transfers.is_empty() {
                    let transfer = &self.transfers[transfer % self.transfers.len()];
                    let (to, full, frames) = (transfer.to, transfer.full, transfer.frames.clone());
                    for frame in frames {
                        self.apply_items(to, full, &frame);
                    }
                }
            }
            Step::Restart { at } => self.restart(*at),
            Step::Collect { at, all } => self.collect(*at, *all),
            Step::Split { away } => self.split(*away),
        }
    }

    /// Any client picks a claim above the one its node knows; a key's only client picks one above its last.
    fn next_claim(&self, at: usize, key: &Key) -> u64 {
        let known = self.copies[at].map.known_claim(key.0, &key.1);
        if self.rules == Rules::AnyClaims {
            known + 1
        } else {
            known.max(self.claims.get(key).copied().unwrap_or(0)) + 1
        }
    }

    fn client(&self, at: usize) -> String {
        if self.rules == Rules::AnyClaims { format!("client-{at}") } else { "client".to_owned() }
    }

    fn change(&mut self, at: usize, key: usize, change: impl FnOnce(&mut MapCopy, &Key) -> crate::map::Stored) {
        let key = keys()[key].clone();
        if self.copies[at].owns(&key) {
            change(&mut self.copies[at], &key);
            self.note(at, &key);
        }
    }

    /// The oracle keeps the write that a copy just made.
    fn note(&mut self, at: usize, key: &Key) {
        let copy = &self.copies[at];
        let record = copy.record(key).expect("just written");
        assert_eq!((&record.origin.id, record.n), (&copy.origin(), copy.written()));
        self.writes.push(Write {
            key: key.clone(),
            origin: record.origin.id.clone(),
            n: record.n,
            rank: rank_of(&record),
            frame: copy.encode_key(key),
        });
    }

    fn infer(&mut self, at: usize, key: usize) {
        let key = keys()[key].clone();
        let copy = &mut self.copies[at];
        if key.0 != Space::Member || !copy.is_live(&key) || copy.owns(&key) {
            return;
        }
        let before = copy.inferred().remove(&key);
        copy.infer_left(&key.1);
        let state = copy.inferred().remove(&key).expect("just written");
        // An existing inference of higher precedence stays; then there is nothing new to keep.
        if before.as_ref() != Some(&state) {
            self.inferred.push(InferredWrite {
                id: key.1.clone(),
                origin: copy.origin(),
                n: copy.written(),
                state,
                frame: copy.encode_inferred(&key.1),
            });
        }
    }

    fn split(&mut self, away: usize) {
        self.away = (away < self.copies.len()).then_some(away);
        while let Some(cut) = self.transfers.iter().position(|transfer| !self.linked(transfer.from, transfer.to)) {
            self.cut(cut);
        }
        let apart: Vec<(usize, usize)> =
            self.sent.keys().copied().filter(|(from, to)| !self.linked(*from, *to)).collect();
        for pair in apart {
            self.sent.remove(&pair);
        }
    }

    fn linked(&self, from: usize, to: usize) -> bool {
        from != to && self.away.is_none_or(|away| from != away && to != away)
    }

    fn exchanging(&self, from: usize, to: usize) -> bool {
        self.transfers.iter().any(|transfer| transfer.from == from && transfer.to == to)
    }

    /// Whether a copy receives only from the sender of a full merge.
    fn in_full_merge(&self, to: usize) -> bool {
        self.rules == Rules::Collection && self.transfers.iter().any(|transfer| transfer.to == to && transfer.full)
    }

    fn push(&mut self, from: usize, to: usize, lost: bool) {
        if !self.linked(from, to) || self.exchanging(from, to) || self.in_full_merge(to) {
            return;
        }
        let Some(sent) = self.sent.get(&(from, to)).copied() else { return };
        let (origin, written) = (self.copies[from].origin(), self.copies[from].written());
        let Some(frame) = self.copies[from].push(sent) else {
            self.sent.remove(&(from, to));
            return;
        };
        self.sent.insert((from, to), written);
        if lost {
            return;
        }
        let receiver = &mut self.copies[to];
        let clock = receiver.clock();
        let index = receiver.map.admit_origin(&origin, clock).expect("few incarnations");
        let seen = receiver.map.origins.entry(index).seen;
        receiver.apply(&frame);
        let joined = receiver.map.join_push(index, sent, written);
        assert_eq!(joined, seen >= sent, "a push from {sent} on raised the context of a copy that has seen {seen}");
    }

    fn begin(&mut self, from: usize, to: usize, full: bool) {
        if !self.linked(from, to) || self.exchanging(from, to) || self.in_full_merge(to) {
            return;
        }
        let receiver = self.copies[to].context();
        let delta = self.copies[from].map.delta(&receiver);
        let full = full || delta == Delta::Full;
        if full && (self.copies[to].map.is_merging() || self.rules == Rules::Collection && self.is_addressed(to)) {
            return;
        }
        let items = match delta {
            Delta::Items(items) if !full => items,
            _ => self.copies[from].everything(),
        };
        if full {
            self.copies[to].admit_only_self();
            self.copies[to].map.begin_full_merge();
        }
        let (context, written) = (self.copies[from].context(), self.copies[from].written());
        self.sent.insert((from, to), written);
        self.transfers.push(Transfer { from, to, items, next: 0, full, context, receiver, frames: Vec::new() });
    }

    fn is_addressed(&self, to: usize) -> bool {
        self.transfers.iter().any(|transfer| transfer.to == to)
    }

    fn proceed(&mut self, at: usize, count: usize) {
        let transfer = &mut self.transfers[at];
        let (from, to, full) = (transfer.from, transfer.to, transfer.full);
        let end = transfer.items.len().min(transfer.next + count);
        // Each item is sent in its state at the time it is sent.
        let frame = self.copies[from].encode(&transfer.items[transfer.next..end]);
        transfer.next = end;
        transfer.frames.push(frame.clone());
        self.apply_items(to, full, &frame);
        if end < self.transfers[at].items.len() {
            return;
        }
        let transfer = self.transfers.remove(at);
        if full {
            let (sender, receiver) = two(&mut self.copies, from, to);
            receiver.admit_only_self();
            receiver.finish_full(&transfer.context, sender);
            self.finished_full(from, to, &transfer.context);
        } else if self.copies[from].map.below_floor(&transfer.receiver) {
            self.sent.remove(&(from, to));
        } else {
            let clock = self.copies[to].clock();
            self.copies[to].map.join(&transfer.context, clock);
        }
    }

    fn apply_items(&mut self, to: usize, full: bool, frame: &[u8]) {
        if full {
            self.copies[to].apply_merging(frame);
        } else {
            self.copies[to].apply(frame);
        }
    }

    fn cut(&mut self, at: usize) {
        let transfer = self.transfers.remove(at);
        if transfer.full {
            self.copies[transfer.to].map.abort_full_merge();
        }
        self.sent.remove(&(transfer.from, transfer.to));
    }

    fn restart(&mut self, at: usize) {
        while let Some(transfer) = self.transfers.iter().position(|t| t.from == at || t.to == at) {
            self.cut(transfer);
        }
        self.sent.retain(|(from, to), _| *from != at && *to != at);
        self.incarnations += 1;
        let node = self.copies[at].origin().node;
        self.copies[at] = MapCopy::incarnation(node.as_str(), self.incarnations);
    }

    /// Collects tombstones long after they were received. By then sessions that were left behind have timed out (C6),
    /// so their owner has written `left` too, and every copy has received from all copies it can reach.
    fn collect(&mut self, at: usize, all: bool) {
        for owner in 0..self.copies.len() {
            for key in keys() {
                if self.copies[owner].owns(&key) && self.claims[&key] > self.copies[owner].rank(&key).unwrap().0 {
                    self.copies[owner].unregister(&key);
                    self.note(owner, &key);
                }
            }
        }
        // An isolated copy receives from no other; what the others do meanwhile does not affect it.
        if self.away != Some(at) {
            self.exchange_all();
        }
        // Pushes are made at once: none waits for as long as a tombstone is kept.
        self.sent.clear();
        let before = self.copies[at].slots();
        if all {
            self.copies[at].collect_all();
        } else {
            let copy = &mut self.copies[at];
            let oldest = copy.map.next_collection(copy.clock(), Duration::ZERO).unwrap_or(copy.now);
            copy.map.collect(Clock { now: oldest, ..copy.clock() }, Duration::ZERO);
            copy.now = copy.now + Duration::from_secs(1);
        }
        let after = self.copies[at].slots();
        for (key, state) in before.into_iter().filter(|(key, _)| !after.contains_key(key)) {
            self.collected[at].entry(key).or_default().push(state.rank);
        }
    }

    fn ranks_collected(&self, at: usize, key: &Key) -> &[OwnedRank] {
        self.collected[at].get(key).map_or(&[], Vec::as_slice)
    }

    /// Checks D4 at every copy, and that all derived data matches its source.
    #[track_caller]
    pub(super) fn check(&self) {
        self.check_contents_of_equal_contexts();
        for (at, copy) in self.copies.iter().enumerate() {
            copy.check_indexes();
            let context = copy.context();
            for write in self.writes.iter().filter(|write| context.clock.covers(&write.origin, write.n)) {
                let held = copy.rank(&write.key).is_some_and(|rank| rank >= write.rank);
                let collected = self.ranks_collected(at, &write.key).iter().any(|rank| *rank >= write.rank);
                assert!(
                    held || collected,
                    "{:?} covers {:?}:{} of {:?} (rank {:?}) but holds {:?}",
                    copy.origin(),
                    write.origin,
                    write.n,
                    write.key,
                    write.rank,
                    copy.rank(&write.key)
                );
            }
            let inferred = copy.inferred();
            for write in self.inferred.iter().filter(|write| context.clock.covers(&write.origin, write.n)) {
                let held = inferred.get(&member(&write.id)).is_some_and(|state| state.0 >= write.state.0);
                assert!(held, "{:?} covers an inference of {:?} but holds {inferred:?}", copy.origin(), write.id);
            }
        }
    }

    /// Copies with equal contexts hold the same live records (D16).
    #[track_caller]
    fn check_contents_of_equal_contexts(&self) {
        for (one, other) in [(0, 1), (1, 2), (2, 0)] {
            let (one, other) = (&self.copies[one], &self.copies[other]);
            let (Some(digest), Some(others)) = (one.map.contents_digest(), other.map.contents_digest()) else {
                continue;
            };
            let equal = one.map.origins.context_hash() == other.map.origins.context_hash();
            assert!(
                !equal || digest == others,
                "{:?} holds {:#?}, {:?} {:#?}",
                one.origin(),
                one.slots(),
                other.origin(),
                other.slots()
            );
        }
    }

    /// After a full merge the receiver shows nothing that the sender covered and had collected, except its own
    /// records.
    #[track_caller]
    fn check_nothing_came_back(&self, from: usize, to: usize, context: &Context) {
        for (key, state) in self.copies[to].live_slots() {
            let record = self.copies[to].record(&key).expect("just listed");
            let covered = context.covers(&record.origin.id, record.n);
            // Records that the sender collected while it was sending are left to the next exchange.
            let gone = |rank: &OwnedRank| *rank >= state.rank && covers(context, rank);
            let gone = self.ranks_collected(from, &key).iter().any(gone);
            let own = record.origin.id == self.copies[to].origin();
            assert!(!covered || !gone || own, "{key:?} came back to {:?}: {record:?}", self.copies[to].origin());
        }
    }

    /// Ends the split; all copies exchange until nothing changes any more.
    pub(super) fn heal(&mut self) {
        while !self.transfers.is_empty() {
            self.cut(0);
        }
        self.sent.clear();
        self.away = None;
        self.exchange_all();
        let hash = self.copies[0].map.origins.context_hash();
        let agreed = self.copies.iter().all(|copy| copy.map.origins.context_hash() == hash);
        assert!(agreed, "the copies did not converge");
    }

    /// Every copy exchanges with all it can reach, in addition to the transfers in progress.
    fn exchange_all(&mut self) {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2), (0, 1), (1, 2)] {
            if self.linked(from, to) {
                self.exchange(from, to);
            }
        }
        self.check();
    }

    fn exchange(&mut self, from: usize, to: usize) {
        if let Some(merging) = self.transfers.iter().position(|transfer| transfer.to == to && transfer.full) {
            self.cut(merging);
        }
        let context = self.copies[from].context();
        let (sender, receiver) = two(&mut self.copies, from, to);
        receiver.admit_only_self();
        if receiver.exchange_from(sender) {
            self.finished_full(from, to, &context);
        }
    }

    /// The receiver of a full merge has dropped the records that the sender had collected.
    fn finished_full(&mut self, from: usize, to: usize, context: &Context) {
        self.full_merges += 1;
        for (key, ranks) in self.collected[from].clone() {
            self.collected[to].entry(key).or_default().extend(ranks);
        }
        self.check_nothing_came_back(from, to, context);
    }
}

/// Whether the write of this rank is covered.
fn covers(context: &Context, (_, _, node, incarnation, n): &OwnedRank) -> bool {
    context.clock.covers(&OriginId { node: node.clone(), incarnation: *incarnation }, *n)
}

fn two(copies: &mut [MapCopy], from: usize, to: usize) -> (&MapCopy, &mut MapCopy) {
    let [sender, receiver] = copies.get_disjoint_mut([from, to]).expect("two different copies");
    (sender, receiver)
}
