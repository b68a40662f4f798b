//! The record of a run: the clients' history, the known facts of every write, the trace.

use crate::coordination::{Observed, Watched};
use crate::faults::Fault;
use crate::lockers::{Belief, GuardedWrite};
use crate::members::MemberLeases;
use crate::outsiders::Received;
use crate::restores::Restoring;
use crate::stats::Stats;
use convoke_client::log::RequestId;
use convoke_harness::history::coordination::{CoordinationHistory, Reply, Request};
use convoke_harness::history::{Answer, Call, CallHistory, CallId};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines of the trace that are kept for a report.
const LINES_KEPT: usize = 60;

/// Keys that clients work on.
pub(crate) type Key = u8;

/// A write that took effect, according to the answer.
#[derive(Clone, Copy, Debug)]
pub struct AcknowledgedWrite {
    pub index: u64,
    pub revision: u64,
    /// Whether it changed anything.
    pub changed: bool,
    pub called: u64,
    /// It took effect before this.
    pub answered: u64,
}

/// Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) history: CallHistory<Key>,
    /// The same history, without resolved outcomes.
    pub(crate) unresolved: CallHistory<Key>,
    pub(crate) writes: Vec<AcknowledgedWrite>,
    /// Transactions and the use of locks.
    pub(crate) coordination: CoordinationHistory<String>,
    /// Acknowledged transactions that changed keys.
    pub(crate) transactions: u64,
    /// Writes whose outcome can no longer be determined.
    pub(crate) outcome_unknown: u64,
    /// What clients of locks were certain of, and their acknowledged writes.
    pub(crate) beliefs: Vec<Belief>,
    pub(crate) guarded: Vec<GuardedWrite>,
    /// Changes that the watch of all keys and the observer of the election received.
    pub(crate) watched: Vec<Watched>,
    pub(crate) observed: Vec<Observed>,
    /// Events that watches at nodes without a replica received.
    pub(crate) outside: Received,
    pub(crate) restoring: Restoring,
    pub(crate) members: MemberLeases,
    /// Times at which the clock of a node jumped.
    pub(crate) jumps: Vec<u64>,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<String>,
    /// When all faults had ended, and when the next write was answered.
    pub(crate) healed: Option<u64>,
    pub(crate) recovered: Option<u64>,
    /// When the leader was lost in a healthy cluster, and when the next write after that was answered.
    pub(crate) leader_lost: Option<u64>,
    pub(crate) leader_replaced: Option<u64>,
    /// Clients are to finish.
    pub(crate) closing: bool,
    pub(crate) workers_left: u64,
    pub(crate) orders_left: u64,
    /// Nodes that were permanently removed from the group.
    pub(crate) removed: Vec<usize>,
    pub(crate) answered: u64,
    values: u64,
    pub(crate) trace: Trace,
}

/// The observable trace of a run. Equal hashes mean equal runs.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: DefaultHasher,
    pub(crate) lines: VecDeque<String>,
    pub(crate) verbose: bool,
}

impl Trace {
    fn note(&mut self, at: u64, line: &str) {
        self.hash.write_u64(at);
        self.hash.write(line.as_bytes());
        let line = format!("{:>10.3} s  {line}", at as f64 / 1e6);
        if self.verbose {
            println!("{line}");
        }
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }
}

/// Simulated time of the calling host, in microseconds.
pub(crate) fn now() -> u64 {
    micros(turmoil::sim_elapsed().unwrap_or_default())
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Recorder {
    pub(crate) fn new(workers: u64, verbose: bool) -> Recorder {
        let trace = Trace { verbose, ..Trace::default() };
        Recorder(Arc::new(Mutex::new(Record { workers_left: workers, trace, ..Record::default() })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, at: u64, line: &str) {
        self.lock().trace.note(at, line);
    }

    pub(crate) fn fault(&self, at: u64, fault: Fault, line: &str) {
        let mut record = self.lock();
        *record.stats.faults.entry(fault).or_default() += 1;
        record.trace.note(at, line);
    }

    pub(crate) fn violated(&self, what: impl Into<String>) {
        self.lock().violation.get_or_insert(what.into());
    }

    pub(crate) fn count(&self, operation: &'static str) {
        *self.lock().stats.operations.entry(operation).or_default() += 1;
    }

    /// Returns a value that no other write uses.
    pub(crate) fn value(&self) -> u64 {
        let mut record = self.lock();
        record.values += 1;
        record.values
    }

    pub(crate) fn call(&self, client: u64, key: Key, call: Call) -> CallId {
        let (mut record, at) = (self.lock(), now());
        let id = record.unresolved.call(client, key, call, at);
        let same = record.history.call(client, key, call, at);
        assert_eq!(id, same, "both histories have the same operations");
        id
    }

    /// Records the answer to an operation.
    pub(crate) fn answered_with(&self, id: CallId, answer: Answer) {
        let (mut record, at) = (self.lock(), now());
        record.unresolved.answer(id, at, answer);
        record.history.answer(id, at, answer);
        record.answered = at;
    }

    /// Records that an operation did not and will not take effect.
    pub(crate) fn never(&self, id: CallId) {
        let mut record = self.lock();
        record.unresolved.never(id);
        record.history.never(id);
    }

    /// Records the resolved outcome of a request without an answer: it had ended by `at`.
    pub(crate) fn resolved(&self, id: CallId, at: u64, answer: Option<Answer>) {
        let mut record = self.lock();
        match answer {
            Some(answer) => record.history.answer(id, at, answer),
            None => record.history.never(id),
        }
    }

    /// Records a transaction or the use of a lock.
    pub(crate) fn request(&self, client: u64, request: Request<String>) -> CallId {
        self.lock().coordination.request(client, request, now())
    }

    pub(crate) fn replied(&self, id: CallId, reply: Reply) {
        self.lock().coordination.answer(id, now(), reply);
    }

    /// Records that a transaction or guarded write did not and will not take effect.
    pub(crate) fn not_executed(&self, id: CallId) {
        self.lock().coordination.never(id);
    }

    pub(crate) fn wrote(&self, write: AcknowledgedWrite) {
        self.lock().writes.push(write);
    }

    /// Records that the outcome of a request can no longer be determined.
    pub(crate) fn outcome_unknown(&self, request: Option<RequestId>) {
        let mut record = self.lock();
        record.outcome_unknown += 1;
        let request = request.map_or("a request".to_owned(), |request| request.to_string());
        record.trace.note(now(), &format!("the outcome of {request} is no longer kept"));
    }
}
