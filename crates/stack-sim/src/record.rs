//! What happened in a run: the clients' history, what is known of every write, the trace.

use crate::faults::Fault;
use crate::stats::Stats;
use convoke_client::log::RequestId;
use convoke_harness::history::{Answer, Call, CallId, History};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines of the trace that are kept for a report.
const LINES_KEPT: usize = 60;

/// Keys that clients work on.
pub(crate) type Key = u8;

/// A write that took effect, as its client was told.
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

/// Copies are the same record.
#[derive(Clone, Debug)]
pub(crate) struct Book(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) history: History<Key>,
    /// The same, as it was before anything was resolved.
    pub(crate) unresolved: History<Key>,
    pub(crate) writes: Vec<AcknowledgedWrite>,
    /// Writes of which nobody can tell any more whether they took effect.
    pub(crate) untold: u64,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<String>,
    /// When everything was mended, and when the next write was answered.
    pub(crate) healed: Option<u64>,
    pub(crate) recovered: Option<u64>,
    /// Clients are to finish.
    pub(crate) closing: bool,
    pub(crate) workers_left: u64,
    pub(crate) orders_left: u64,
    /// Nodes that are out of the group for good.
    pub(crate) removed: Vec<usize>,
    pub(crate) answered: u64,
    values: u64,
    pub(crate) trace: Trace,
}

/// What a run looked like from outside. Equal hashes: equal runs.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: DefaultHasher,
    pub(crate) lines: VecDeque<String>,
    pub(crate) aloud: bool,
}

impl Trace {
    fn note(&mut self, at: u64, line: &str) {
        self.hash.write_u64(at);
        self.hash.write(line.as_bytes());
        let line = format!("{:>10.3} s  {line}", at as f64 / 1e6);
        if self.aloud {
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

/// Simulated time of the host that asks, in microseconds.
pub(crate) fn now() -> u64 {
    micros(turmoil::sim_elapsed().unwrap_or_default())
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Book {
    pub(crate) fn new(workers: u64, aloud: bool) -> Book {
        let trace = Trace { aloud, ..Trace::default() };
        Book(Arc::new(Mutex::new(Record { workers_left: workers, trace, ..Record::default() })))
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

    /// A value that nobody else writes.
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

    /// A client was told by whoever it asked.
    pub(crate) fn told(&self, id: CallId, answer: Answer) {
        let (mut record, at) = (self.lock(), now());
        record.unresolved.answer(id, at, answer);
        record.history.answer(id, at, answer);
        record.answered = at;
    }

    /// It is certain that it did not and will not take effect.
    pub(crate) fn never(&self, id: CallId) {
        let mut record = self.lock();
        record.unresolved.never(id);
        record.history.never(id);
    }

    /// A request without an answer was resolved: it was over by `at`.
    pub(crate) fn resolved(&self, id: CallId, at: u64, answer: Option<Answer>) {
        let mut record = self.lock();
        match answer {
            Some(answer) => record.history.answer(id, at, answer),
            None => record.history.never(id),
        }
    }

    pub(crate) fn wrote(&self, write: AcknowledgedWrite) {
        self.lock().writes.push(write);
    }

    /// Nobody can tell any more.
    pub(crate) fn untold(&self, request: Option<RequestId>) {
        let mut record = self.lock();
        record.untold += 1;
        let request = request.map_or("a request".to_owned(), |request| request.to_string());
        record.trace.note(now(), &format!("{request} is too long ago to be known"));
    }
}
