//! A few replicas, the transfers between them, and an oracle that keeps every write.

use super::replica::{InferredState, Key, OwnedRank, Replica, member, rank_of};
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
    pub(super) replicas: Vec<Replica>,
    transfers: Vec<Transfer>,
    /// Own writes a replica has sent to another, once an exchange showed the position of that one (D5).
    sent: BTreeMap<(usize, usize), u64>,
    pub(super) writes: Vec<Write>,
    pub(super) inferred: Vec<InferredWrite>,
    /// Per replica: ranks of each key that were collected there, or by the sender of a full merge.
    collected: Vec<BTreeMap<Key, Vec<OwnedRank>>>,
    /// The claim of each key's client, where it has one only.
    claims: BTreeMap<Key, u64>,
    rules: Rules,
    away: Option<usize>,
    runs: u64,
    pub(super) full_merges: usize,
}

impl World {
    pub(super) fn new(rules: Rules) -> Self {
        World {
            replicas: ["a", "b", "c"].map(Replica::new).into(),
            transfers: Vec::new(),
            sent: BTreeMap::new(),
            writes: Vec::new(),
            inferred: Vec::new(),
            collected: vec![BTreeMap::new(); 3],
            claims: BTreeMap::new(),
            rules,
            away: None,
            runs: 1,
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
                self.replicas[*at].register(&key, claim, &client);
                self.note(*at, &key);
            }
            Step::Repeat { at, key } => {
                let key = keys()[*key].clone();
                let claim = self.next_claim(*at, &key);
                let client = self.client(*at);
                self.claims.insert(key.clone(), claim);
                self.replicas[*at].unregister_with(&key, claim, &client);
                self.note(*at, &key);
            }
            Step::Update { at, key } => self.change(*at, *key, |replica, key| replica.update(key, |r| r.drain += 1)),
            Step::Down { at, key } => {
                self.change(*at, *key, |replica, key| replica.update(key, |r| r.status = Status::Down));
            }
            Step::Unregister { at, key } => self.change(*at, *key, Replica::unregister),
            Step::Infer { at, key } => self.infer(*at, *key),
            Step::Life { at, of } => {
                let origin = self.replicas[*of].origin();
                let replica = &mut self.replicas[*at];
                let index = replica.map.admit_origin(&origin, replica.clock()).expect("few incarnations");
                let liveness_counter = replica.map.origins.entry(index).evidence.liveness_counter;
                replica.set_liveness_counter(&origin, liveness_counter + 1);
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
        let known = self.replicas[at].map.known_claim(key.0, &key.1);
        if self.rules == Rules::AnyClaims {
            known + 1
        } else {
            known.max(self.claims.get(key).copied().unwrap_or(0)) + 1
        }
    }

    fn client(&self, at: usize) -> String {
        if self.rules == Rules::AnyClaims { format!("client-{at}") } else { "client".to_owned() }
    }

    fn change(&mut self, at: usize, key: usize, change: impl FnOnce(&mut Replica, &Key) -> crate::map::Stored) {
        let key = keys()[key].clone();
        if self.replicas[at].owns(&key) {
            change(&mut self.replicas[at], &key);
            self.note(at, &key);
        }
    }

    /// The oracle keeps the write that a replica just made.
    fn note(&mut self, at: usize, key: &Key) {
        let replica = &self.replicas[at];
        let record = replica.record(key).expect("just written");
        assert_eq!((&record.origin.id, record.n), (&replica.origin(), replica.written()));
        self.writes.push(Write {
            key: key.clone(),
            origin: record.origin.id.clone(),
            n: record.n,
            rank: rank_of(&record),
            frame: replica.encode_key(key),
        });
    }

    fn infer(&mut self, at: usize, key: usize) {
        let key = keys()[key].clone();
        let replica = &mut self.replicas[at];
        if key.0 != Space::Member || !replica.is_live(&key) || replica.owns(&key) {
            return;
        }
        let before = replica.inferred().remove(&key);
        replica.infer_left(&key.1);
        let state = replica.inferred().remove(&key).expect("just written");
        // An existing inference of higher precedence stays; then there is nothing new to keep.
        if before.as_ref() != Some(&state) {
            self.inferred.push(InferredWrite {
                id: key.1.clone(),
                origin: replica.origin(),
                n: replica.written(),
                state,
                frame: replica.encode_inferred(&key.1),
            });
        }
    }

    fn split(&mut self, away: usize) {
        self.away = (away < self.replicas.len()).then_some(away);
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

    /// Whether a replica receives only from the sender of a full merge.
    fn in_full_merge(&self, to: usize) -> bool {
        self.rules == Rules::Collection && self.transfers.iter().any(|transfer| transfer.to == to && transfer.full)
    }

    fn push(&mut self, from: usize, to: usize, lost: bool) {
        if !self.linked(from, to) || self.exchanging(from, to) || self.in_full_merge(to) {
            return;
        }
        let Some(sent) = self.sent.get(&(from, to)).copied() else { return };
        let (origin, written) = (self.replicas[from].origin(), self.replicas[from].written());
        let Some(frame) = self.replicas[from].push(sent) else {
            self.sent.remove(&(from, to));
            return;
        };
        self.sent.insert((from, to), written);
        if lost {
            return;
        }
        let receiver = &mut self.replicas[to];
        let clock = receiver.clock();
        let index = receiver.map.admit_origin(&origin, clock).expect("few incarnations");
        let seen = receiver.map.origins.entry(index).seen;
        receiver.apply(&frame);
        let joined = receiver.map.join_push(index, sent, written);
        assert_eq!(joined, seen >= sent, "a push from {sent} on raised the context of a replica that has seen {seen}");
    }

    fn begin(&mut self, from: usize, to: usize, full: bool) {
        if !self.linked(from, to) || self.exchanging(from, to) || self.in_full_merge(to) {
            return;
        }
        let receiver = self.replicas[to].context();
        let delta = self.replicas[from].map.delta(&receiver);
        let full = full || delta == Delta::Full;
        if full && (self.replicas[to].map.is_merging() || self.rules == Rules::Collection && self.is_addressed(to)) {
            return;
        }
        let items = match delta {
            Delta::Items(items) if !full => items,
            _ => self.replicas[from].everything(),
        };
        if full {
            self.replicas[to].admit_only_self();
            self.replicas[to].map.begin_full_merge();
        }
        let (context, written) = (self.replicas[from].context(), self.replicas[from].written());
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
        let frame = self.replicas[from].encode(&transfer.items[transfer.next..end]);
        transfer.next = end;
        transfer.frames.push(frame.clone());
        self.apply_items(to, full, &frame);
        if end < self.transfers[at].items.len() {
            return;
        }
        let transfer = self.transfers.remove(at);
        if full {
            let (sender, receiver) = two(&mut self.replicas, from, to);
            receiver.admit_only_self();
            receiver.finish_full(&transfer.context, sender);
            self.finished_full(from, to, &transfer.context);
        } else if self.replicas[from].map.below_floor(&transfer.receiver) {
            self.sent.remove(&(from, to));
        } else {
            let clock = self.replicas[to].clock();
            self.replicas[to].map.join(&transfer.context, clock);
        }
    }

    fn apply_items(&mut self, to: usize, full: bool, frame: &[u8]) {
        if full {
            self.replicas[to].apply_merging(frame);
        } else {
            self.replicas[to].apply(frame);
        }
    }

    fn cut(&mut self, at: usize) {
        let transfer = self.transfers.remove(at);
        if transfer.full {
            self.replicas[transfer.to].map.abort_full_merge();
        }
        self.sent.remove(&(transfer.from, transfer.to));
    }

    fn restart(&mut self, at: usize) {
        while let Some(transfer) = self.transfers.iter().position(|t| t.from == at || t.to == at) {
            self.cut(transfer);
        }
        self.sent.retain(|(from, to), _| *from != at && *to != at);
        self.runs += 1;
        let node = self.replicas[at].origin().node;
        self.replicas[at] = Replica::run(node.as_str(), self.runs);
    }

    /// Collects tombstones long after they were received. By then sessions that were left behind have timed out (C6),
    /// so their owner has written `left` too, and every replica has received from all replicas it can reach.
    fn collect(&mut self, at: usize, all: bool) {
        for owner in 0..self.replicas.len() {
            for key in keys() {
                if self.replicas[owner].owns(&key) && self.claims[&key] > self.replicas[owner].rank(&key).unwrap().0 {
                    self.replicas[owner].unregister(&key);
                    self.note(owner, &key);
                }
            }
        }
        // An isolated replica receives from no other; what the others do meanwhile does not affect it.
        if self.away != Some(at) {
            self.exchange_all();
        }
        // Pushes are made at once: none waits for as long as a tombstone is kept.
        self.sent.clear();
        let before = self.replicas[at].slots();
        if all {
            self.replicas[at].collect_all();
        } else {
            let replica = &mut self.replicas[at];
            let oldest = replica.map.next_collection(replica.clock(), Duration::ZERO).unwrap_or(replica.now);
            replica.map.collect(Clock { now: oldest, ..replica.clock() }, Duration::ZERO);
            replica.now = replica.now + Duration::from_secs(1);
        }
        let after = self.replicas[at].slots();
        for (key, state) in before.into_iter().filter(|(key, _)| !after.contains_key(key)) {
            self.collected[at].entry(key).or_default().push(state.rank);
        }
    }

    fn ranks_collected(&self, at: usize, key: &Key) -> &[OwnedRank] {
        self.collected[at].get(key).map_or(&[], Vec::as_slice)
    }

    /// Checks D4 at every replica, and that all derived data matches its source.
    #[track_caller]
    pub(super) fn check(&self) {
        for (at, replica) in self.replicas.iter().enumerate() {
            replica.check_indexes();
            let context = replica.context();
            for write in self.writes.iter().filter(|write| context.clock.covers(&write.origin, write.n)) {
                let held = replica.rank(&write.key).is_some_and(|rank| rank >= write.rank);
                let collected = self.ranks_collected(at, &write.key).iter().any(|rank| *rank >= write.rank);
                assert!(
                    held || collected,
                    "{:?} covers {:?}:{} of {:?} (rank {:?}) but holds {:?}",
                    replica.origin(),
                    write.origin,
                    write.n,
                    write.key,
                    write.rank,
                    replica.rank(&write.key)
                );
            }
            let inferred = replica.inferred();
            for write in self.inferred.iter().filter(|write| context.clock.covers(&write.origin, write.n)) {
                let held = inferred.get(&member(&write.id)).is_some_and(|state| state.0 >= write.state.0);
                assert!(held, "{:?} covers an inference of {:?} but holds {inferred:?}", replica.origin(), write.id);
            }
        }
    }

    /// After a full merge the receiver shows nothing that the sender covered and had collected, except its own
    /// records.
    #[track_caller]
    fn check_nothing_came_back(&self, from: usize, to: usize, context: &Context) {
        for (key, state) in self.replicas[to].live_slots() {
            let record = self.replicas[to].record(&key).expect("just listed");
            let covered = context.covers(&record.origin.id, record.n);
            // Records that the sender collected while it was sending are left to the next exchange.
            let gone = |rank: &OwnedRank| *rank >= state.rank && covers(context, rank);
            let gone = self.ranks_collected(from, &key).iter().any(gone);
            let own = record.origin.id == self.replicas[to].origin();
            assert!(!covered || !gone || own, "{key:?} came back to {:?}: {record:?}", self.replicas[to].origin());
        }
    }

    /// Ends the split; all replicas exchange until nothing changes any more.
    pub(super) fn heal(&mut self) {
        while !self.transfers.is_empty() {
            self.cut(0);
        }
        self.sent.clear();
        self.away = None;
        self.exchange_all();
        let hash = self.replicas[0].map.origins.context_hash();
        let agreed = self.replicas.iter().all(|replica| replica.map.origins.context_hash() == hash);
        assert!(agreed, "the replicas did not converge");
    }

    /// Every replica exchanges with all it can reach, in addition to the transfers in progress.
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
        let context = self.replicas[from].context();
        let (sender, receiver) = two(&mut self.replicas, from, to);
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

fn two(replicas: &mut [Replica], from: usize, to: usize) -> (&Replica, &mut Replica) {
    let [sender, receiver] = replicas.get_disjoint_mut([from, to]).expect("two different replicas");
    (sender, receiver)
}
