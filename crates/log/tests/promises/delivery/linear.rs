//! The same run as a history of operations on keys, for the linearizability checker.

use super::bodies::KEYS;
use super::reads::ReadRequest;
use super::{Check, Violation};
use convoke_harness::history::{Answer, Call, CallHistory, CallId};
use convoke_log::RequestId;
use convoke_log::command::{Body, Request};
use convoke_log::keys::{KeyRecord, Keys};
use convoke_log::machine::{Fate, Outcome, Reason, Response};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Linear {
    history: CallHistory<&'static str>,
    operations: BTreeMap<RequestId, CallId>,
    reads: BTreeMap<u64, u64>,
}

fn value(record: &KeyRecord) -> u64 {
    String::from_utf8_lossy(record.value()).parse().expect("values are numbers")
}

impl Linear {
    pub(super) fn submitted(&mut self, client: u64, request: &Request, seen: Option<&Keys>, at: u64) {
        let seen = |key: &[u8]| seen.and_then(|keys| keys.get(key)).map(|record| value(record));
        let (key, call) = match &request.body {
            Body::Put(put) => {
                let new = String::from_utf8_lossy(&put.value).parse().ok();
                (&put.key, Call::Write { if_value: put.if_revision.map(|_| seen(&put.key)), new })
            }
            Body::Delete(delete) => (&delete.key, Call::delete()),
            _ => return,
        };
        let Some(key) = KEYS.iter().find(|known| known.as_bytes() == &key[..]) else { return };
        let id = self.history.call(client, key, call, at);
        self.operations.insert(request.id(), id);
    }

    pub(super) fn fate(&mut self, id: RequestId, fate: &Fate, at: u64) {
        let Some(operation) = self.operations.get(&id).copied() else { return };
        match fate {
            Fate::Never => self.history.never(operation),
            Fate::Done(outcome) => match &**outcome {
                Outcome::Applied { response: Response::Changed(changed), .. } => {
                    let previous = changed.previous.first().map(|record| Some(value(record)));
                    self.history.answer(operation, at, Answer::Written { previous });
                }
                Outcome::NotApplied { reason: Reason::Precondition { revision }, .. } => {
                    let found = (*revision == 0).then_some(None);
                    self.history.answer(operation, at, Answer::Mismatch { found });
                }
                _ => self.history.never(operation),
            },
            Fate::Open | Fate::TooOld => {}
        }
    }

    pub(super) fn read_started(&mut self, read: &ReadRequest, at: u64) {
        self.reads.insert(read.id, at);
    }

    pub(super) fn read_done(&mut self, read: &ReadRequest, keys: &Keys, at: u64) {
        let Some(started) = self.reads.remove(&read.id) else { return };
        for key in KEYS {
            let get = self.history.call(read.client as u64, key, Call::Get, started);
            let found = keys.get(key.as_bytes()).map(|record| value(record));
            self.history.answer(get, at, Answer::Got(found));
        }
    }

    pub(super) fn check(&self) -> Check {
        self.history.check().map_err(|violation| Violation::new("linearizable", violation.to_string()))
    }
}
