//! The model of level 2: a second, simple statement of the rules. It keeps every state and every event for ever.

use super::locks::ModelLocks;
use bytes::Bytes;
use convoke_log::command::{Body, EndBehavior, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, Raise};
use convoke_log::history::{EventChange, EventPosition, LockEvent};
use convoke_log::keys::KeyRecord;
use convoke_log::machine::{Field, NotEnded, NotRaised, Reason, Response};
use convoke_log::{Epoch, Level, LogLimits};
use std::collections::BTreeMap;

/// A record: key, value, create revision, modify revision, version, and flags, lease and lock index.
pub(super) type Rec = (Vec<u8>, Vec<u8>, [u64; 3], [u64; 3]);

pub(super) fn rec(record: &KeyRecord) -> Rec {
    let extras = record.extras();
    (
        record.key().to_vec(),
        record.value().to_vec(),
        [record.create_revision, record.modify_revision, record.version],
        [extras.flags, extras.lease, extras.lock_index],
    )
}

pub(super) fn rec_bytes(record: &Rec) -> u64 {
    (record.0.len() + record.1.len()) as u64 + 112
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelChange {
    Key { after: Option<Rec>, before: Option<Rec> },
    Lock(LockEvent),
}

impl ModelChange {
    pub(super) fn of(change: &EventChange) -> Self {
        match change {
            EventChange::Put { record, previous } => {
                ModelChange::Key { after: Some(rec(record)), before: previous.as_deref().map(rec) }
            }
            EventChange::Delete { previous } => ModelChange::Key { after: None, before: Some(rec(previous)) },
            EventChange::Lock(event) => ModelChange::Lock(event.clone()),
        }
    }

    fn bytes(&self) -> u64 {
        let data = match self {
            ModelChange::Lock(event) => event.name.name.len() + event.change.value().map_or(0, Bytes::len),
            ModelChange::Key { after, before } => {
                let key = after.as_ref().or(before.as_ref()).map_or(0, |record| record.0.len());
                key + before.as_ref().map_or(0, |record| record.0.len() + record.1.len())
            }
        };
        256 + data as u64
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelResult {
    Put(Option<Rec>),
    Deleted(u64, Vec<Rec>),
    Read(Vec<Rec>, u64, bool),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelLease {
    pub(super) term: LeaseTerm,
    pub(super) end: EndBehavior,
    pub(super) granted_at: u64,
}

pub(super) type Map = BTreeMap<Vec<u8>, Rec>;

#[derive(Debug)]
pub(super) struct Model {
    pub(super) limits: LogLimits,
    pub(super) level: Level,
    pub(super) log_time: u64,
    pub(super) revision: u64,
    pub(super) map: Map,
    /// The keys after each revision.
    pub(super) states: BTreeMap<u64, Map>,
    /// All events ever, with their log time.
    pub(super) events: Vec<(EventPosition, u64, ModelChange)>,
    /// All revisions up to this one are dropped from history.
    pub(super) compacted: u64,
    pub(super) leases: BTreeMap<u64, ModelLease>,
    pub(super) locks: ModelLocks,
    pub(super) configuration: u64,
    /// Revision of the current entry, once it changed something.
    pub(super) entry_revision: Option<u64>,
    /// Changes of the current entry.
    pub(super) changes: Vec<(u64, ModelChange)>,
}

impl Model {
    pub(super) fn new(limits: LogLimits) -> Self {
        Model {
            limits,
            level: Level::FIRST,
            log_time: 0,
            revision: 0,
            map: Map::new(),
            states: [(0, Map::new())].into(),
            events: Vec::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            locks: ModelLocks::default(),
            configuration: 0,
            entry_revision: None,
            changes: Vec::new(),
        }
    }

    pub(super) fn begin_entry(&mut self, stamp: u64) {
        self.log_time = self.log_time.max(stamp);
        self.entry_revision = None;
        self.changes.clear();
    }

    /// Records the events of an entry, and drops whole revisions that are too old or do not fit.
    pub(super) fn end_entry(&mut self) {
        let mut last = EventPosition::default();
        for (revision, change) in std::mem::take(&mut self.changes) {
            last = if last.revision == revision { last.next() } else { EventPosition::start_of(revision) };
            if self.level >= Level::COORDINATION {
                self.events.push((last, self.log_time, change));
            }
        }
        self.states.insert(self.revision, self.map.clone());
        let limits = &self.limits.coordination;
        while self.level >= Level::COORDINATION {
            let kept: Vec<_> = self.kept().collect();
            let bytes: u64 = kept.iter().map(|(_, _, change)| change.bytes()).sum();
            let Some((oldest, time, _)) = kept.first() else { break };
            if self.log_time - time <= limits.history_age.as_micros() as u64 && bytes <= limits.history_bytes {
                break;
            }
            self.compacted = oldest.revision;
        }
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = &(EventPosition, u64, ModelChange)> {
        self.events.iter().filter(|(position, ..)| position.revision > self.compacted)
    }

    pub(super) fn revise(&mut self) -> u64 {
        if self.entry_revision.is_none() {
            self.revision += 1;
            self.entry_revision = Some(self.revision);
        }
        self.revision
    }

    pub(super) fn raise(&mut self, at: Epoch, raise: &Raise) -> Result<Level, NotRaised> {
        if raise.level <= self.level {
            return Ok(self.level);
        }
        if raise.epoch != at {
            return Err(NotRaised::StaleEpoch { current: at });
        }
        if raise.configuration != self.configuration {
            return Err(NotRaised::Reconfigured { current: self.configuration });
        }
        self.level = raise.level;
        self.limits.coordination = raise.limits.clone();
        self.compacted = self.revision;
        Ok(self.level)
    }

    /// Executes a body. Returns the outcome and the results of a transaction.
    pub(super) fn execute(&mut self, index: u64, body: &Body) -> (Result<Response, Reason>, Option<Vec<ModelResult>>) {
        match body {
            Body::Txn(txn) => match self.txn(txn) {
                Ok((outcome, results)) => (Ok(Response::Txn(outcome)), Some(results)),
                Err(reason) => (Err(reason), None),
            },
            Body::Grant(grant) => (self.grant(index, grant), None),
            Body::Revoke(lease) => {
                let ended = self.end_lease(*lease);
                (ended.map(|keys| Response::Revoked { keys }).ok_or(Reason::NoLease(*lease)), None)
            }
            Body::Acquire(acquire) => (self.acquire(index, acquire), None),
            Body::Release(release) => (self.release(release), None),
            Body::Proclaim(proclaim) => (self.proclaim(proclaim), None),
            other => panic!("{other:?}"),
        }
    }

    /// A put, delete or range delete of level 1. Only keys that exist are deleted.
    pub(super) fn plain(&mut self, puts: Option<(&[u8], &[u8])>, deleted: &[Vec<u8>]) -> Result<u64, Reason> {
        if let Some((key, value)) = puts {
            self.check_put(key, value)?;
            let revision = self.revise();
            self.put(revision, key, value, [0; 3]);
            return Ok(1);
        }
        let present: Vec<_> = deleted.iter().filter(|key| self.map.contains_key(*key)).cloned().collect();
        for key in &present {
            let revision = self.revise();
            self.delete(revision, key);
        }
        Ok(present.len() as u64)
    }

    pub(super) fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), Reason> {
        self.check_key(key)?;
        let (found, limit) = (value.len() as u64, self.limits.value_bytes);
        if found > limit {
            return Err(Reason::TooLarge { field: Field::Value, found, limit });
        }
        let limit = self.limits.coordination.keys;
        if self.level >= Level::COORDINATION && !self.map.contains_key(key) && self.map.len() as u64 >= limit {
            return Err(Reason::Full { field: Field::Keys, limit });
        }
        Ok(())
    }

    pub(super) fn check_key(&self, key: &[u8]) -> Result<(), Reason> {
        let (found, limit) = (key.len() as u64, self.limits.key_bytes);
        match found {
            0 => Err(Reason::Invalid { field: Field::Key }),
            _ if found > limit => Err(Reason::TooLarge { field: Field::Key, found, limit }),
            _ => Ok(()),
        }
    }

    pub(super) fn put(&mut self, revision: u64, key: &[u8], value: &[u8], extras: [u64; 3]) -> Option<Rec> {
        let before = self.map.get(key).cloned();
        let (created, version) = before.as_ref().map_or((revision, 1), |record| (record.2[0], record.2[2] + 1));
        let after = (key.to_vec(), value.to_vec(), [created, revision, version], extras);
        self.map.insert(key.to_vec(), after.clone());
        self.changes.push((revision, ModelChange::Key { after: Some(after), before: before.clone() }));
        before
    }

    pub(super) fn delete(&mut self, revision: u64, key: &[u8]) -> Option<Rec> {
        let before = self.map.remove(key)?;
        self.changes.push((revision, ModelChange::Key { after: None, before: Some(before.clone()) }));
        Some(before)
    }

    fn grant(&mut self, index: u64, grant: &GrantLease) -> Result<Response, Reason> {
        let limits = &self.limits.coordination;
        let range = |field, found, min, max| Reason::OutOfRange { field, found, min, max };
        match &grant.term {
            LeaseTerm::Ttl(ttl) => {
                let [found, min, max] =
                    [*ttl, limits.lease_ttl_min, limits.lease_ttl_max].map(|time| time.as_micros() as u64);
                if found < min || found > max {
                    return Err(range(Field::Ttl, found, min, max));
                }
            }
            LeaseTerm::Member(bound) => {
                for text in [&bound.member, &bound.client, &bound.registration] {
                    let (found, max) = (text.len() as u64, self.limits.client_name_bytes);
                    if found < 1 || found > max {
                        return Err(range(Field::Member, found, 1, max));
                    }
                }
            }
        }
        if self.leases.len() as u64 >= limits.leases {
            return Err(Reason::Full { field: Field::Leases, limit: limits.leases });
        }
        let lease = ModelLease { term: grant.term.clone(), end: grant.end, granted_at: self.log_time };
        self.leases.insert(index, lease);
        Ok(Response::Granted(LeaseId(index)))
    }

    pub(super) fn end_by_leader(&mut self, at: Epoch, end: &EndLease) -> Result<(), NotEnded> {
        let lease = self.leases.get(&end.lease.0).ok_or(NotEnded::NoLease)?;
        if end.epoch != at {
            return Err(NotEnded::StaleEpoch { current: at });
        }
        match (&lease.term, &end.cause) {
            (LeaseTerm::Ttl(ttl), LeaseCause::Expired) => {
                if self.log_time - lease.granted_at < ttl.as_micros() as u64 {
                    return Err(NotEnded::TooEarly);
                }
            }
            (LeaseTerm::Member(bound), LeaseCause::MemberGone { registration }) => {
                if bound.registration != *registration {
                    return Err(NotEnded::OtherRegistration);
                }
            }
            _ => return Err(NotEnded::OtherTerm),
        }
        self.end_lease(end.lease);
        Ok(())
    }

    pub(super) fn end_lease(&mut self, id: LeaseId) -> Option<u64> {
        let lease = self.leases.remove(&id.0)?;
        let keys: Vec<Rec> = self.map.values().filter(|record| record.3[1] == id.0).cloned().collect();
        for record in &keys {
            let revision = self.revise();
            match lease.end {
                EndBehavior::Delete => drop(self.delete(revision, &record.0)),
                EndBehavior::Release => {
                    self.put(revision, &record.0, &record.1, [record.3[0], 0, record.3[2]]);
                }
            }
        }
        self.end_places(id);
        Some(keys.len() as u64)
    }
}
