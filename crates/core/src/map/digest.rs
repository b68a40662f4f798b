//! The digest of the contents, which nodes with equal contexts compare (D16).

use super::CausalMap;
use crate::member::Record;
use crate::mutant::seam;
use foldhash::quality::FixedState;
use std::hash::BuildHasher;

/// Fixed, so that two nodes compute the same digest of the same records.
const SEED: u64 = 0x636f_6e76_6f6b_6532;

/// The sum of the hashes of all live records that are not written off. A sum does not depend on an order, and a record
/// can be taken out of it again.
#[derive(Debug, Default)]
pub(super) struct Digest(u64);

impl Digest {
    fn add(&mut self, record: &Record) {
        self.0 = self.0.wrapping_add(hash(record));
    }

    fn remove(&mut self, record: &Record) {
        self.0 = self.0.wrapping_sub(hash(record));
    }
}

impl CausalMap {
    /// The digest of the contents. `None` while a record is held beyond the context: it may have replaced a record that
    /// the context covers, and the context does not tell.
    pub(crate) fn contents_digest(&self) -> Option<u64> {
        self.origins.iter().all(|(_, entry)| entry.last() <= entry.seen).then_some(self.digest.0)
    }

    pub(super) fn add_to_digest(&mut self, record: &Record) {
        if self.is_in_digest(record) {
            self.digest.add(record);
        }
    }

    pub(super) fn remove_from_digest(&mut self, record: &Record) {
        if self.is_in_digest(record) {
            self.digest.remove(record);
        }
    }

    /// Whether every node with this context holds the record. Tombstones are collected at different times. A record that
    /// was written off is kept by nodes that admit its origin.
    pub(super) fn is_in_digest(&self, record: &Record) -> bool {
        seam!(self, WrittenOffCompared => return record.is_live());
        record.is_live() && record.n > self.origins.entry(record.origin.index).written_off
    }

    /// Records that writes of an origin up to `n` were written off (D10).
    pub(super) fn write_off(&mut self, index: u32, n: u64) {
        let entry = self.origins.entry(index);
        let newly = entry.stated.range(entry.written_off + 1..).take_while(|(at, _)| *at <= n);
        for (_, slot) in newly {
            let record = self.slots.get(*slot).filter(|record| record.is_live());
            seam!(self, WrittenOffCompared => continue);
            record.into_iter().for_each(|record| self.digest.remove(record));
        }
        self.origins.write_off(index, n);
    }
}

/// The hash of everything that is replicated of a record. The pattern names every field, so that a new one is not forgotten.
fn hash(record: &Record) -> u64 {
    let Record {
        id,
        origin,
        slot: _,
        drain,
        space,
        kind,
        status,
        health,
        weight,
        n,
        claim,
        seq,
        predecessor,
        client,
        deployment,
        created,
        since,
        address,
        endpoints,
        metadata,
        checks,
        maintenance,
    } = record;
    let written = (&origin.id, n, claim, seq, predecessor);
    let state = (*space as u8, *kind as u8, *status as u8, *health as u8, drain, weight, created, since);
    let data = (id.as_str(), client, deployment, address.as_str(), endpoints, metadata, checks, maintenance);
    FixedState::with_seed(SEED).hash_one((written, state, data))
}

#[cfg(test)]
impl CausalMap {
    /// The same, computed from the records.
    pub(super) fn recomputed_digest(&self) -> u64 {
        let counted = self.iter().filter(|record| self.is_in_digest(record));
        counted.fold(0, |sum: u64, record| sum.wrapping_add(hash(record)))
    }

    pub(super) fn incremental_digest(&self) -> u64 {
        self.digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{
        Check, Checks, ClientProcess, Deployment, Drain, Health, Maintenance, Metadata, Origin, Probe, RecordKind,
        Space, Status,
    };
    use crate::time::Clock;
    use crate::version::{Incarnation, NodeId, OriginId};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn client(nonce: u64, principal: &str) -> Arc<ClientProcess> {
        Arc::new(ClientProcess { id: "c".into(), nonce, principal: principal.into() })
    }

    fn origin(number: u64) -> Arc<Origin> {
        let id = OriginId { node: NodeId::new("a").unwrap(), incarnation: Incarnation { number, nonce: 5 } };
        Arc::new(Origin { id, index: 0, tag: 0 })
    }

    fn deployment(service: &str) -> Arc<Deployment> {
        Arc::new(Deployment { service: service.into(), locality: "eu".into(), revision: "1".into() })
    }

    fn maintenance(reason: &str) -> Option<Arc<Maintenance>> {
        let drain = Drain { reason: reason.into(), ..Drain::default() };
        drain.begin(Clock::default()).map(Arc::new)
    }

    fn record() -> Record {
        Record {
            id: "m".into(),
            origin: origin(1),
            slot: 3,
            drain: 0,
            space: Space::Member,
            kind: RecordKind::Live,
            status: Status::Up,
            health: Health::Passing,
            weight: 1,
            n: 1,
            claim: 1,
            seq: 1,
            predecessor: (0, 0),
            client: client(1, ""),
            deployment: deployment("s"),
            created: 1,
            since: 1,
            address: "h:1".into(),
            endpoints: Metadata::default(),
            metadata: Metadata::default(),
            checks: None,
            maintenance: None,
        }
    }

    #[test]
    fn every_replicated_field_counts() {
        let pair = || Metadata::from_map(&BTreeMap::from([("k".to_owned(), "v".to_owned())]));
        let changes: [fn(&mut Record, Metadata); 22] = [
            |record, _| record.id = "other".into(),
            |record, _| record.origin = origin(2),
            |record, _| record.drain = 1,
            |record, _| record.space = Space::Name,
            |record, _| record.kind = RecordKind::Left,
            |record, _| record.status = Status::Down,
            |record, _| record.weight = 2,
            |record, _| record.n = 2,
            |record, _| record.claim = 2,
            |record, _| record.seq = 2,
            |record, _| record.predecessor = (1, 1),
            |record, _| record.client = client(2, ""),
            |record, _| record.client = client(1, "token/a"),
            |record, _| record.deployment = deployment("other"),
            |record, _| record.created = 2,
            |record, _| record.since = 2,
            |record, _| record.address = "h:2".into(),
            |record, pair| record.endpoints = pair,
            |record, pair| record.metadata = pair,
            |record, _| record.health = Health::Critical,
            |record, _| record.checks = Checks::registered(&[Check::new("c", Probe::default())], None, 1),
            |record, _| record.maintenance = maintenance("disk"),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut changed = record();
            change(&mut changed, pair());
            assert_ne!(hash(&changed), hash(&record()), "change {at}");
        }
        assert_eq!(hash(&Record { slot: 9, ..record() }), hash(&record()), "the slot is local");
    }
}
