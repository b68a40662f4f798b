//! One copy of the map: a causal map with client-like writes that exchanges encoded items only.

use crate::config::Limits;
use crate::map::{CausalMap, Delta, ItemRef, Outcome, Standing, Stored};
use crate::member::{Health, Metadata, Record, RecordKind, Space, Status};
use crate::mutant::Mutation;
use crate::time::{Clock, Duration, Time};
use crate::version::{Incarnation, NodeId, OriginId};
use crate::wire::{Context, Item, Items, ItemsWriter, Reader, Writer};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rank in a form that does not borrow; compares as [`crate::version::Rank`] does.
pub(super) type OwnedRank = (u64, u64, NodeId, Incarnation, u64);
pub(super) type Key = (Space, String);

/// The state that two copies in agreement share: everything but their own numbering of origins and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotState {
    pub(super) rank: OwnedRank,
    pub(super) stated: Status,
    pub(super) predecessor: (u32, u64),
    pub(super) client: (String, u64),
    pub(super) drain: u32,
    pub(super) metadata: Metadata,
}

/// Precedence of an inferred record, and its basis.
pub(super) type InferredState = ((u64, OriginId, u64, NodeId, OriginId, u64), u64);

#[derive(Debug)]
pub(super) struct MapCopy {
    pub(super) map: CausalMap,
    pub(super) now: Time,
}

pub(super) fn member(id: &str) -> Key {
    (Space::Member, id.to_owned())
}

pub(super) fn name(id: &str) -> Key {
    (Space::Name, id.to_owned())
}

pub(super) fn rank_of(record: &Record) -> OwnedRank {
    let rank = record.rank();
    (rank.claim, rank.seq, rank.node.clone(), rank.incarnation, rank.n)
}

impl MapCopy {
    pub(super) fn new(node: &str) -> Self {
        Self::incarnation(node, 1)
    }

    /// The n-th incarnation of a node. Hash seeds differ between copies, as they do between nodes.
    pub(super) fn incarnation(node: &str, number: u64) -> Self {
        let me = OriginId { node: NodeId::new(node).unwrap(), incarnation: Incarnation { number, nonce: 7 * number } };
        let limits = Limits { push_backlog: 8, ..Limits::default() };
        let seed = node.bytes().map(u64::from).sum::<u64>() + number;
        MapCopy { map: CausalMap::new(me, &limits, seed, Clock::default(), Mutation::none()), now: Time::from_secs(1) }
    }

    /// Retires the outlived incarnations of a node.
    pub(super) fn retire(&mut self, node: &NodeId) -> Vec<OriginId> {
        let clock = self.clock();
        self.map.origins.retire(node, clock, |_, outlived| outlived)
    }

    pub(super) fn clock(&self) -> Clock {
        Clock { now: self.now, lost: Duration::ZERO }
    }

    pub(super) fn origin(&self) -> OriginId {
        self.map.origins.entry(self.map.origins.me()).origin.id.clone()
    }

    pub(super) fn context(&self) -> Context {
        self.map.context()
    }

    /// How many writes this copy made.
    pub(super) fn written(&self) -> u64 {
        self.map.origins.entry(self.map.origins.me()).seen
    }

    pub(super) fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.map.record(key.0, &key.1).cloned()
    }

    pub(super) fn rank(&self, key: &Key) -> Option<OwnedRank> {
        self.record(key).map(|record| rank_of(&record))
    }

    pub(super) fn is_live(&self, key: &Key) -> bool {
        self.record(key).is_some_and(|record| record.is_live())
    }

    pub(super) fn owns(&self, key: &Key) -> bool {
        self.record(key).is_some_and(|record| record.is_live() && record.origin.index == self.map.origins.me())
    }

    /// A client attaches with this claim and registers the key.
    pub(super) fn register(&mut self, key: &Key, claim: u64, client: &str) -> Stored {
        self.write(key, RecordKind::Live, claim, client)
    }

    /// A client attaches with this claim and repeats an unregistration (C3).
    pub(super) fn unregister_with(&mut self, key: &Key, claim: u64, client: &str) -> Stored {
        self.write(key, RecordKind::Left, claim, client)
    }

    fn write(&mut self, key: &Key, kind: RecordKind, claim: u64, client: &str) -> Stored {
        let held = self.record(key);
        // A few services, so that members share and leave them.
        let service = if claim.is_multiple_of(2) { "even" } else { "odd" };
        let draft = Record {
            id: SmolStr::new(&key.1),
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            slot: 0,
            drain: held.as_ref().map_or(0, |held| held.drain),
            space: key.0,
            kind,
            status: Status::Up,
            health: Health::Passing,
            weight: 0,
            n: 0,
            claim,
            seq: held.map_or(1, |held| held.seq + 1),
            predecessor: (0, 0),
            client: self.map.interner.client(client, 1, ""),
            deployment: self.map.interner.deployment(service, "", ""),
            created: claim,
            since: claim,
            address: SmolStr::default(),
            maintenance: None,
            endpoints: Metadata::default(),
            metadata: Metadata::default(),
            checks: None,
        };
        self.map.write(draft, self.clock())
    }

    /// The owner updates its member: same claim, next sequence.
    pub(super) fn update(&mut self, key: &Key, change: impl FnOnce(&mut Record)) -> Stored {
        let held = self.record(key).expect("only held records are updated");
        let mut draft = Record { seq: held.seq + 1, ..Record::clone(&held) };
        change(&mut draft);
        self.map.write(draft, self.clock())
    }

    pub(super) fn unregister(&mut self, key: &Key) -> Stored {
        self.update(key, |record| record.kind = RecordKind::Left)
    }

    /// This node is responsible for a silent owner: it infers that the member has left (L4).
    pub(super) fn infer_left(&mut self, id: &str) {
        self.infer_key_left(&member(id));
    }

    pub(super) fn infer_key_left(&mut self, key: &Key) {
        let basis = self.record(key).expect("only held records are judged");
        self.set_admitted(&basis.origin.id, false);
        let liveness_counter = self.map.origins.entry(basis.origin.index).evidence.liveness_counter;
        self.map.write_inferred(&basis, liveness_counter, self.clock());
    }

    pub(super) fn set_admitted(&mut self, origin: &OriginId, admitted: bool) {
        let index = self.map.admit_origin(origin, self.clock()).expect("few incarnations");
        let entry = self.map.origins.entry_mut(index);
        entry.standing = match entry.standing {
            _ if admitted => Standing::Admitted,
            Standing::Admitted => Standing::Silent { liveness_counter: entry.evidence.liveness_counter },
            silent => silent,
        };
    }

    /// A silent origin returns: its writes after `written` show (L8).
    pub(super) fn set_returning(&mut self, origin: &OriginId, written: u64) {
        let index = self.map.admit_origin(origin, self.clock()).expect("few incarnations");
        let entry = self.map.origins.entry_mut(index);
        let liveness_counter = entry.standing.judges(0).expect("only a silent origin returns");
        entry.standing = Standing::Returning { liveness_counter, written };
    }

    pub(super) fn set_liveness_counter(&mut self, origin: &OriginId, liveness_counter: u64) {
        let index = self.map.admit_origin(origin, self.clock()).expect("few incarnations");
        self.map.origins.entry_mut(index).evidence.liveness_counter = liveness_counter;
    }

    /// Only this node counts as alive.
    pub(super) fn admit_only_self(&mut self) {
        let me = self.origin();
        let others: Vec<OriginId> = self.map.origins.iter().map(|(_, entry)| entry.origin.id.clone()).collect();
        for other in others.iter().filter(|other| **other != me) {
            self.set_admitted(other, false);
        }
    }

    /// Collects every tombstone. Returns the number of slots dropped.
    pub(super) fn collect_all(&mut self) -> usize {
        self.now = self.now + Duration::from_secs(1);
        self.map.collect(self.clock(), Duration::ZERO).len()
    }

    pub(super) fn encode(&self, items: &[ItemRef]) -> Vec<u8> {
        let mut writer = ItemsWriter::at(self.clock());
        for item in items {
            self.map.encode(item, self.clock(), &mut writer);
        }
        finish(&writer)
    }

    pub(super) fn encode_key(&self, key: &Key) -> Vec<u8> {
        self.encode(&[ItemRef::Stated(self.map.slot_of(key.0, &key.1).expect("only held records are encoded"))])
    }

    pub(super) fn encode_inferred(&self, id: &str) -> Vec<u8> {
        self.encode(&[ItemRef::Inferred((Space::Member, SmolStr::new(id)))])
    }

    pub(super) fn push(&self, sent: u64) -> Option<Vec<u8>> {
        self.map.push_items(sent, self.clock()).map(|items| finish(&items))
    }

    /// All items, as a full merge sends them.
    pub(super) fn everything(&self) -> Vec<ItemRef> {
        let mut items = Vec::new();
        let mut cursor = crate::map::Cursor::Slot(0);
        while let Some((item, inferred, next)) = self.map.next_items(&cursor) {
            items.push(item);
            items.extend(inferred);
            cursor = next;
        }
        items
    }

    /// Applies encoded items; does not raise the context.
    pub(super) fn apply(&mut self, bytes: &[u8]) -> Vec<Outcome> {
        self.apply_items(bytes, CausalMap::apply)
    }

    /// Applies items from the sender of the full merge in progress.
    pub(super) fn apply_merging(&mut self, bytes: &[u8]) -> Vec<Outcome> {
        self.apply_items(bytes, CausalMap::apply_merging)
    }

    fn apply_items(&mut self, bytes: &[u8], apply: fn(&mut CausalMap, &Item<'_>, Clock) -> Outcome) -> Vec<Outcome> {
        let mut reader = Reader::new(bytes);
        let items = Items::decode(&mut reader).expect("a copy sends valid items");
        reader.end().expect("no trailing bytes");
        let clock = self.clock();
        items.iter().map(|item| apply(&mut self.map, &item, clock)).collect()
    }

    /// Applies everything that `from` has and this copy misses. Must not need a full merge.
    pub(super) fn pull(&mut self, from: &MapCopy) {
        let Delta::Items(items) = from.map.delta(&self.context()) else { panic!("a full merge is needed") };
        self.apply(&from.encode(&items));
        self.map.join(&from.context(), self.clock());
    }

    /// A full merge from `from` in one step. Returns the keys it removed.
    pub(super) fn pull_full(&mut self, from: &MapCopy) -> Vec<Key> {
        self.map.begin_full_merge();
        self.apply_merging(&from.encode(&from.everything()));
        self.finish_full(&from.context(), from)
    }

    pub(super) fn finish_full(&mut self, context: &Context, from: &MapCopy) -> Vec<Key> {
        let before = self.slots();
        let merge = self.map.finish_full_merge(context, &from.map.origins.floor(), self.clock());
        let after = self.slots();
        let removed: Vec<Key> = before.into_keys().filter(|key| !after.contains_key(key)).collect();
        assert_eq!(merge.removed.len(), removed.len(), "watchers get every removal");
        removed
    }

    /// An exchange as between peers: a delta, or a full merge where that is not enough. Returns whether it was full.
    pub(super) fn exchange_from(&mut self, from: &MapCopy) -> bool {
        let full = from.map.delta(&self.context()) == Delta::Full;
        if full {
            self.pull_full(from);
        } else {
            self.pull(from);
        }
        full
    }

    pub(super) fn slots(&self) -> BTreeMap<Key, SlotState> {
        let state = |record: &Arc<Record>| {
            let state = SlotState {
                rank: rank_of(record),
                stated: record.stated(),
                predecessor: record.predecessor,
                client: (record.client.id.to_string(), record.client.nonce),
                drain: record.drain,
                metadata: record.metadata.clone(),
            };
            ((record.space, record.id.to_string()), state)
        };
        self.map.iter().map(state).collect()
    }

    pub(super) fn live_slots(&self) -> BTreeMap<Key, SlotState> {
        self.slots().into_iter().filter(|(_, state)| state.stated != Status::Left).collect()
    }

    pub(super) fn inferred(&self) -> BTreeMap<Key, InferredState> {
        let states = self.map.inferred.iter().map(|((space, id), inferred)| {
            let (claim, about, liveness_counter, node, origin, n) = inferred.precedence();
            let precedence = (claim, about.clone(), liveness_counter, node.clone(), origin.clone(), n);
            ((*space, id.to_string()), (precedence, inferred.about_n))
        });
        states.collect()
    }

    /// Checks that every index equals the data it is computed from.
    #[track_caller]
    pub(super) fn check_indexes(&self) {
        let map = &self.map;
        let mut stated: BTreeMap<u32, BTreeMap<u64, u32>> = BTreeMap::new();
        let mut services: BTreeMap<SmolStr, BTreeSet<u32>> = BTreeMap::new();
        let mut clients: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let (mut members, mut names) = (0, 0);
        for slot in 0..map.slot_bound() {
            let Some(record) = map.try_at(slot) else { continue };
            let found = map.record(record.space, &record.id);
            assert!(found.is_some_and(|found| Arc::ptr_eq(found, record)), "{record:?} is not found under its key");
            assert_eq!(record.slot, slot, "{record:?}");
            assert_eq!(
                stated.entry(record.origin.index).or_default().insert(record.n, slot),
                None,
                "one dot in two slots"
            );
            clients.entry(&record.client.id).or_default();
            match (record.kind, record.space) {
                (RecordKind::Left, _) => {}
                (RecordKind::Live, Space::Name) => names += 1,
                (RecordKind::Live, Space::Member) => {
                    members += 1;
                    clients.entry(&record.client.id).or_default().insert(&record.id);
                    services.entry(record.deployment.service.clone()).or_default().insert(slot);
                }
            }
        }
        let mut inferred: BTreeMap<u32, BTreeMap<u64, (Space, SmolStr)>> = BTreeMap::new();
        for (key, record) in &map.inferred {
            inferred.entry(record.origin.index).or_default().insert(record.n, key.clone());
        }
        for (index, entry) in map.origins.iter() {
            let held = entry.stated.range(0..).map(|(n, slot)| (n, *slot));
            assert!(held.eq(stated.remove(&index).unwrap_or_default()), "{:?}", entry.origin);
            assert_eq!(entry.inferred, inferred.remove(&index).unwrap_or_default(), "{:?}", entry.origin);
        }
        assert!(stated.is_empty() && inferred.is_empty(), "records of origins that are not in the table");
        assert_eq!((map.live_members(), map.live_names()), (members, names));
        assert_eq!(*map.services(), services);
        for (client, ids) in clients {
            let listed: Vec<&str> = map.of_client(client).map(|record| record.id()).collect();
            assert_eq!(listed.len(), ids.len(), "{client} is listed with {listed:?}");
            assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), ids, "{client}");
        }
        assert_eq!(map.origins.context_hash(), self.hash_of_context());
        assert_eq!(map.incremental_digest(), map.recomputed_digest());
    }

    /// The hash another copy has once it has the same context.
    fn hash_of_context(&self) -> u64 {
        let mut other = MapCopy::new("hash");
        other.map.join(&self.context(), other.clock());
        other.map.origins.context_hash()
    }
}

fn finish(items: &ItemsWriter) -> Vec<u8> {
    let mut writer = Writer::default();
    items.finish(&mut writer);
    writer.into_bytes()
}
