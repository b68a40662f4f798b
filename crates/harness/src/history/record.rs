//! A history of operations, as the clients observed them.

use super::key;
use std::collections::BTreeMap;
use std::fmt;

/// A value of a key. Tests are strongest if every write has a unique value.
pub type Value = u64;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Get,
    /// Sets the key to `new` (`None` deletes it). With `if_value`, only if the key has that value (`Some(None)`: does
    /// not exist).
    Write {
        if_value: Option<Option<Value>>,
        new: Option<Value>,
    },
}

impl Call {
    pub fn put(value: Value) -> Self {
        Call::Write { if_value: None, new: Some(value) }
    }

    pub fn delete() -> Self {
        Call::Write { if_value: None, new: None }
    }

    pub fn compare_and_set(expected: Option<Value>, new: Option<Value>) -> Self {
        Call::Write { if_value: Some(expected), new }
    }
}

/// An answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Got(Option<Value>),
    /// The write happened. `previous` is the value before, if the answer contains it.
    Written {
        previous: Option<Option<Value>>,
    },
    /// The compare failed. `found` is the current value, if the answer contains it.
    Mismatch {
        found: Option<Option<Value>>,
    },
}

impl Answer {
    pub fn written() -> Self {
        Answer::Written { previous: None }
    }

    pub fn mismatch() -> Self {
        Answer::Mismatch { found: None }
    }
}

/// Identifies an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(usize);

/// One operation of one client: by default on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<K, C = Call, A = Answer> {
    pub client: u64,
    pub key: K,
    pub call: C,
    pub called: u64,
    /// `None`: unknown. It may have happened at any time since the call, or never.
    pub answer: Option<(u64, A)>,
}

/// All operations of a run.
#[derive(Clone, Debug)]
pub struct CallHistory<K, C = Call, A = Answer> {
    /// `None`: known not to have happened.
    operations: Vec<Option<Operation<K, C, A>>>,
}

impl<K, C, A> Default for CallHistory<K, C, A> {
    fn default() -> Self {
        CallHistory { operations: Vec::new() }
    }
}

impl<K, C, A> CallHistory<K, C, A> {
    pub fn new() -> Self {
        CallHistory::default()
    }

    /// Records the call of an operation. Times need only be comparable with each other; equal times count as
    /// overlapping.
    pub fn call(&mut self, client: u64, key: K, call: C, at: u64) -> CallId {
        self.operations.push(Some(Operation { client, key, call, called: at, answer: None }));
        CallId(self.operations.len() - 1)
    }

    /// Records the answer. A later answer to the same operation (from a resolve) is ignored: the first one counts.
    pub fn answer(&mut self, id: CallId, at: u64, answer: A) {
        if let Some(Some(operation)) = self.operations.get_mut(id.0)
            && operation.answer.is_none()
        {
            operation.answer = Some((at, answer));
        }
    }

    /// Records that the operation never happened and never will.
    pub fn never(&mut self, id: CallId) {
        if let Some(operation) = self.operations.get_mut(id.0) {
            *operation = None;
        }
    }

    pub fn len(&self) -> usize {
        self.operations.iter().flatten().count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of operations with an unknown outcome.
    pub fn unknown(&self) -> usize {
        self.operations.iter().flatten().filter(|operation| operation.answer.is_none()).count()
    }

    /// Returns the operations that happened or may have happened.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation<K, C, A>> {
        self.operations.iter().flatten()
    }
}

impl<K: Ord + Clone> CallHistory<K> {
    /// Checks whether the history is linearizable. Aborts the search of a key after a few million states.
    pub fn check(&self) -> Result<(), HistoryViolation<K>> {
        self.check_within(4_000_000)
    }

    /// The same with a bound on the states examined for each key.
    pub fn check_within(&self, states: usize) -> Result<(), HistoryViolation<K>> {
        let mut by_key: BTreeMap<&K, Vec<&Operation<K>>> = BTreeMap::new();
        for operation in self.operations() {
            by_key.entry(&operation.key).or_default().push(operation);
        }
        for (name, operations) in by_key {
            let verdict = key::check(&operations, states);
            if !matches!(verdict, Verdict::Linearizable) {
                let operations = operations.into_iter().cloned().collect();
                return Err(HistoryViolation { key: name.clone(), verdict, operations });
            }
        }
        Ok(())
    }
}

/// The checker's result for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// There is no valid order. At best, all operations but these (positions in the list) could be ordered, and one of
    /// them had to come next.
    NotLinearizable {
        stuck: Vec<usize>,
    },
    /// Too many orders to try.
    Exhausted,
}

/// A key whose operations have no valid order, or too many to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryViolation<K, C = Call, A = Answer> {
    pub key: K,
    pub verdict: Verdict,
    /// All operations on that key, in the order of their calls as recorded.
    pub operations: Vec<Operation<K, C, A>>,
}

impl<K: fmt::Debug, C: fmt::Debug, A: fmt::Debug> fmt::Display for HistoryViolation<K, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict::NotLinearizable { stuck } = &self.verdict else {
            return write!(f, "key {:?}: search aborted after too many states", self.key);
        };
        writeln!(f, "key {:?} is not linearizable; none of the marked operations can come next:", self.key)?;
        for (at, operation) in self.operations.iter().enumerate() {
            let mark = if stuck.contains(&at) { '>' } else { ' ' };
            let Operation { client, call, called, .. } = operation;
            write!(f, "{mark} client {client} {called:>6}")?;
            match &operation.answer {
                Some((at, answer)) => writeln!(f, "..{at:<6} {call:?} -> {answer:?}")?,
                None => writeln!(f, "..?      {call:?} -> unknown")?,
            }
        }
        Ok(())
    }
}

impl<K: fmt::Debug, C: fmt::Debug, A: fmt::Debug> std::error::Error for HistoryViolation<K, C, A> {}
