//! Transactions of clients over a few keys of their own, which no other request uses.

use crate::record::Recorder;
use convoke_client::log::{Compare, KeyValue, Kv, Op, OpResult, Relation, Txn, TxnAnswer};
use convoke_client::{Error, ErrorCode};
use convoke_harness::history::CallId;
use convoke_harness::history::coordination::{self as history, Reply, Request};
use std::collections::BTreeMap;

/// Few keys, so that transactions overlap.
const KEYS: u8 = 3;

/// What a client saw last.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    seen: BTreeMap<u8, u64>,
}

fn key_name(key: u8) -> String {
    format!("shared/{key}")
}

fn decode(record: &KeyValue) -> Option<u64> {
    std::str::from_utf8(&record.value).ok()?.parse().ok()
}

impl Transactions {
    /// If a key has the value that this client saw last, sets it and another key and reads the third one. Otherwise
    /// reads all.
    pub(crate) async fn commit(&mut self, recorder: &Recorder, client: u64, kv: &Kv, random: &mut fastrand::Rng) {
        let first = random.u8(0..KEYS);
        let [first, second, third] = [first, (first + 1) % KEYS, (first + 2) % KEYS];
        let [one, two, three] = [first, second, third].map(key_name);
        let (expected, value) = (self.seen.get(&first).copied(), recorder.value());
        let compare = match expected {
            Some(expected) => Compare::value(one.clone(), Relation::Equal, expected.to_string()),
            None => Compare::missing(one.clone()),
        };
        let mut txn = Txn::new()
            .compare(compare)
            .then(Op::put(one.clone(), value.to_string()))
            .then(Op::put(two.clone(), value.to_string()))
            .then(Op::get(three.clone()));
        for key in 0..KEYS {
            txn = txn.otherwise(Op::get(key_name(key)));
        }
        let mut request = history::Txn::default().if_value(one.clone(), expected).put(one, value).put(two, value);
        request = request.get(three);
        for key in 0..KEYS {
            request = request.else_get(key_name(key));
        }
        let operation = recorder.request(client, Request::Txn(request));
        let answer = kv.commit(txn).await;
        let Some((succeeded, read)) = decided(recorder, operation, answer) else { return };
        if succeeded {
            self.seen.extend([(first, value), (second, value)]);
        } else {
            self.seen = (0..KEYS).zip(read).filter_map(|(key, value)| Some((key, value?))).collect();
        }
    }
}

/// Records the answer. Returns it if it is complete.
fn decided(
    recorder: &Recorder,
    operation: CallId,
    answer: Result<TxnAnswer, Error>,
) -> Option<(bool, Vec<Option<u64>>)> {
    match answer {
        Ok(TxnAnswer { succeeded, results, .. }) => {
            recorder.count(if succeeded { "transactions" } else { "transactions, else branch" });
            recorder.lock().transactions += u64::from(succeeded);
            // Without its results the answer shows too little.
            let read: Vec<Option<u64>> = results.ok()?.iter().filter_map(value_read).collect();
            recorder.replied(operation, Reply::Decided { succeeded, read: read.clone() });
            Some((succeeded, read))
        }
        Err(error) if matches!(error.code, ErrorCode::OutcomeUnknown | ErrorCode::Compacted) => {
            recorder.outcome_unknown(error.log.and_then(|log| log.request));
            None
        }
        // Not sent, or not appended: it did nothing.
        Err(_) => {
            recorder.not_executed(operation);
            None
        }
    }
}

fn value_read(result: &OpResult) -> Option<Option<u64>> {
    match result {
        OpResult::Read { records, .. } => Some(records.first().and_then(decode)),
        OpResult::Put { .. } | OpResult::Delete { .. } => None,
    }
}
