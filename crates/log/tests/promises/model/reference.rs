//! The model: a second, simple statement of the rules that keeps the whole history.

use super::sessions::{History, Session};
use super::steps::{RecordParts, parts};
use convoke_log::command::{Body, GroupChange, Request};
use convoke_log::machine::{ApplyRejection, Configuration, EndReason, Fate, Outcome, Reason, Response};
use convoke_log::{Command, Entry, LogLimits, RequestId};
use std::collections::{BTreeMap, BTreeSet};

/// An outcome with decomposed records: (index, revision and response) or (index, reason).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelOutcome {
    Applied(u64, u64, ModelResponse),
    NotApplied(u64, Reason),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelResponse {
    Fenced,
    Ended,
    Changed { keys: u64, previous: Vec<RecordParts>, omitted: u64 },
    Configured(u64),
}

impl ModelOutcome {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::NotApplied { index, reason } => ModelOutcome::NotApplied(*index, *reason),
            Outcome::Applied { index, revision, response } => {
                let response = match response {
                    Response::Fenced => ModelResponse::Fenced,
                    Response::Ended => ModelResponse::Ended,
                    Response::Configured(number) => ModelResponse::Configured(*number),
                    Response::Changed(changed) => ModelResponse::Changed {
                        keys: changed.keys,
                        previous: changed.previous.iter().map(|record| parts(record)).collect(),
                        omitted: changed.omitted,
                    },
                    other => panic!("the log is at level 1: {other:?}"),
                };
                ModelOutcome::Applied(*index, *revision, response)
            }
        }
    }

    /// Bytes as the protocol counts them: 128 per outcome, 112 per record.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            ModelOutcome::Applied(_, _, ModelResponse::Changed { previous, .. }) => {
                128 + previous.iter().map(record_bytes).sum::<u64>()
            }
            _ => 128,
        }
    }
}

fn record_bytes(record: &RecordParts) -> u64 {
    (record.0.len() + record.1.len()) as u64 + 112
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelFate {
    Done(ModelOutcome),
    Never,
    Open,
    TooOld,
}

impl ModelFate {
    pub(super) fn of(fate: &Fate) -> Self {
        match fate {
            Fate::Done(outcome) => ModelFate::Done(ModelOutcome::of(outcome)),
            Fate::Never => ModelFate::Never,
            Fate::Open => ModelFate::Open,
            Fate::TooOld => ModelFate::TooOld,
        }
    }
}

/// Answer of an entry, in a form that both sides can produce.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelReply {
    Opened(Result<(u64, Option<u64>), ApplyRejection>),
    Request(Result<ModelOutcome, ApplyRejection>, Option<(RequestId, ModelFate)>),
    Expired(bool),
}

/// Keys as a plain map.
#[derive(Debug, Default)]
pub(super) struct ModelKeys {
    map: BTreeMap<Vec<u8>, (Vec<u8>, u64, u64, u64)>,
    pub(super) revision: u64,
}

impl ModelKeys {
    pub(super) fn records(&self) -> Vec<RecordParts> {
        self.map.iter().map(|(key, (value, c, m, v))| (key.clone(), value.clone(), *c, *m, *v)).collect()
    }

    fn bytes(&self) -> u64 {
        self.records().iter().map(record_bytes).sum()
    }

    fn found(&self, key: &[u8]) -> u64 {
        self.map.get(key).map_or(0, |(_, _, modified, _)| *modified)
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) limits: LogLimits,
    pub(super) log_time: u64,
    /// All sessions ever opened.
    pub(super) sessions: BTreeMap<u64, Session>,
    /// Sessions in order of ending.
    pub(super) ended: Vec<(u64, EndReason)>,
    pub(super) applied: u64,
    pub(super) keys: ModelKeys,
    pub(super) configuration: Configuration,
    replica_ids: BTreeSet<u64>,
}

impl Model {
    pub(super) fn new(limits: LogLimits) -> Self {
        Model {
            limits,
            log_time: 0,
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            applied: 0,
            keys: ModelKeys::default(),
            configuration: Configuration::default(),
            replica_ids: BTreeSet::new(),
        }
    }

    pub(super) fn apply(&mut self, entry: &Entry) -> ModelReply {
        self.applied = entry.index;
        self.log_time = self.log_time.max(entry.stamp.as_micros());
        match &entry.command {
            Command::Open(open) => ModelReply::Opened(self.open(entry, open)),
            Command::Expire(expire) => ModelReply::Expired(self.expire(entry, expire)),
            Command::Request(request) => {
                let verdict = self.request(entry, request);
                let about = match request.body {
                    Body::Fence(id) => Some(id),
                    _ => Some(RequestId::new(request.session, request.previous)).filter(|id| id.number > 0),
                };
                ModelReply::Request(verdict, about.map(|id| (id, self.fate(id.session.0, id.number))))
            }
            other => panic!("the log is at level 1: {other:?}"),
        }
    }

    fn request(&mut self, entry: &Entry, request: &Request) -> Result<ModelOutcome, ApplyRejection> {
        let (id, number) = (request.session.0, request.number);
        match self.fate(id, number) {
            ModelFate::Done(outcome) => return Ok(outcome),
            ModelFate::TooOld if !self.remembered(id) => return Err(ApplyRejection::SessionUnknown),
            ModelFate::TooOld => return Err(ApplyRejection::TooOld),
            ModelFate::Never if self.end_of(id).is_some() => {
                return Err(ApplyRejection::SessionEnded(self.end_of(id).unwrap()));
            }
            ModelFate::Never => return Err(ApplyRejection::Superseded),
            ModelFate::Open if !self.is_open(id) => return Err(ApplyRejection::SessionUnknown),
            ModelFate::Open => {}
        }
        if request.epoch != entry.epoch {
            return Err(ApplyRejection::StaleEpoch { current: entry.epoch });
        }
        let history = &self.sessions[&id].history;
        // A predecessor is missing if it is wanted and may still take effect.
        if request.previous >= request.abandon_below && history.may_come(request.previous) {
            return Err(ApplyRejection::Gap { missing: request.previous });
        }
        history.room(request.abandon_below, &self.limits)?;
        let expired = request.deadline.is_some_and(|deadline| self.log_time > deadline.as_micros());
        let result = if expired { Err(Reason::Expired) } else { self.execute(entry.index, request) };
        let outcome = match result {
            Ok(response) => ModelOutcome::Applied(entry.index, self.keys.revision, response),
            Err(reason) => ModelOutcome::NotApplied(entry.index, reason),
        };
        let log_time = self.log_time;
        let session = self.sessions.get_mut(&id).unwrap();
        session.active(entry.index, log_time);
        session.history.outcomes.push((number, request.abandon_below, outcome.clone()));
        if request.last || request.body == Body::End(request.session) && !expired {
            self.end(id, EndReason::Requested);
        }
        Ok(outcome)
    }

    fn execute(&mut self, index: u64, request: &Request) -> Result<ModelResponse, Reason> {
        match &request.body {
            Body::Fence(id) if id.session.0 >= index => Err(Reason::NoSession),
            Body::Fence(id) => {
                if self.is_open(id.session.0) {
                    let history: &mut History = &mut self.sessions.get_mut(&id.session.0).unwrap().history;
                    history.fenced.push(id.number);
                }
                Ok(ModelResponse::Fenced)
            }
            Body::End(id) if *id == request.session => Ok(ModelResponse::Ended),
            Body::End(id) if self.is_open(id.0) => {
                self.end(id.0, EndReason::Requested);
                Ok(ModelResponse::Ended)
            }
            Body::End(_) => Err(Reason::NoSession),
            Body::Membership(change) => self.configure(index, change),
            body => self.change_keys(body),
        }
    }

    fn configure(&mut self, index: u64, change: &GroupChange) -> Result<ModelResponse, Reason> {
        if change.replaces != self.configuration.number {
            return Err(Reason::Replaced { current: self.configuration.number });
        }
        let ids: Vec<u64> = change.voters.keys().chain(change.learners.keys()).map(|id| id.0).collect();
        assert!(!change.voters.is_empty() && ids.len() <= 3, "the generator makes no other");
        if let Some(both) = change.learners.keys().find(|id| change.voters.contains_key(id)) {
            assert!(both.0 > 0);
            return Err(Reason::Invalid { field: convoke_log::machine::Field::Learners });
        }
        let highest = self.replica_ids.last().copied().unwrap_or(0);
        for id in &ids {
            let held = self.configuration.replica(convoke_log::ReplicaId(*id)).is_some();
            if !held && *id <= highest {
                return Err(Reason::ReplicaIdUsed(convoke_log::ReplicaId(*id)));
            }
        }
        self.replica_ids.extend(ids);
        self.configuration =
            Configuration { number: index, voters: change.voters.clone(), learners: change.learners.clone() };
        Ok(ModelResponse::Configured(index))
    }

    fn change_keys(&mut self, body: &Body) -> Result<ModelResponse, Reason> {
        use convoke_log::machine::Field;
        let (limits, keys) = (&self.limits, &mut self.keys);
        let before = keys.records();
        let (affected, wanted): (Vec<Vec<u8>>, bool) = match body {
            Body::Put(put) => (vec![put.key.to_vec()], put.previous),
            Body::Delete(delete) => (vec![delete.key.to_vec()], delete.previous),
            Body::DeleteRange(delete) => {
                let within = before.iter().filter(|record| delete.range.contains(&record.0));
                (within.map(|record| record.0.clone()).collect(), delete.previous)
            }
            other => panic!("{other:?}"),
        };
        if affected.len() as u64 > limits.range_keys {
            return Err(Reason::TooMany { field: Field::Range, limit: limits.range_keys });
        }
        if affected.iter().any(Vec::is_empty) {
            return Err(Reason::Invalid { field: Field::Key });
        }
        let mut changed = affected.len() as u64;
        match body {
            Body::Put(put) => {
                let found = put.value.len() as u64;
                if found > limits.value_bytes {
                    return Err(Reason::TooLarge { field: Field::Value, found, limit: limits.value_bytes });
                }
                let revision = keys.found(&put.key);
                if put.if_revision.is_some_and(|expected| expected != revision) {
                    return Err(Reason::Precondition { revision });
                }
                let next = keys.revision + 1;
                let held = keys.map.get(&put.key[..]).cloned();
                let (created, version) =
                    held.as_ref().map_or((next, 1), |(_, created, _, version)| (*created, version + 1));
                let bytes = keys.bytes();
                keys.map.insert(put.key.to_vec(), (put.value.to_vec(), created, next, version));
                let total = keys.bytes();
                if total > limits.store_bytes && total > bytes {
                    match held {
                        Some(held) => keys.map.insert(put.key.to_vec(), held),
                        None => keys.map.remove(&put.key[..]),
                    };
                    return Err(Reason::TooLarge { field: Field::Store, found: total, limit: limits.store_bytes });
                }
            }
            Body::Delete(delete) => {
                let revision = keys.found(&delete.key);
                if delete.if_revision.is_some_and(|expected| expected != revision) {
                    return Err(Reason::Precondition { revision });
                }
                changed = u64::from(keys.map.remove(&delete.key[..]).is_some());
            }
            _ => keys.map.retain(|key, _| !affected.contains(key)),
        }
        keys.revision += u64::from(changed > 0);
        let (mut previous, mut omitted, mut bytes) = (Vec::new(), 0, 0);
        for record in before.into_iter().filter(|record| wanted && affected.contains(&record.0)) {
            if bytes + record_bytes(&record) > limits.response_bytes {
                omitted += 1;
            } else {
                bytes += record_bytes(&record);
                previous.push(record);
            }
        }
        Ok(ModelResponse::Changed { keys: changed, previous, omitted })
    }
}
