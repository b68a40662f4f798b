//! What happened, as the clients saw it.

use super::checker;
use std::collections::BTreeMap;
use std::fmt;

/// A value of a key. Tests that give every write a value of its own see the most.
pub type Value = u64;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Get,
    /// Sets the key to `new` (None: deletes it), if it has the value `if_value` (None inside: does not exist), where
    /// that is said.
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

/// What it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Got(Option<Value>),
    /// The write happened. `previous` is what was there before, if the answer said so.
    Written {
        previous: Option<Option<Value>>,
    },
    /// The compare failed. `found` is what was there, if the answer said so.
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

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(usize);

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<K> {
    pub client: u64,
    pub key: K,
    pub call: Call,
    pub called: u64,
    /// None: unknown. It may have happened at any time since, or never.
    pub answer: Option<(u64, Answer)>,
}

/// All operations of a run.
#[derive(Clone, Debug)]
pub struct History<K> {
    /// None: known not to have happened.
    operations: Vec<Option<Operation<K>>>,
}

impl<K> Default for History<K> {
    fn default() -> Self {
        History { operations: Vec::new() }
    }
}

impl<K: Ord + Clone> History<K> {
    pub fn new() -> Self {
        History::default()
    }

    /// An operation begins. Times need only be comparable with each other; equal times count as overlapping.
    pub fn call(&mut self, client: u64, key: K, call: Call, at: u64) -> CallId {
        self.operations.push(Some(Operation { client, key, call, called: at, answer: None }));
        CallId(self.operations.len() - 1)
    }

    /// It is answered. A later answer to the same operation (from a resolve) does not count: the first one told so.
    pub fn answer(&mut self, id: CallId, at: u64, answer: Answer) {
        if let Some(Some(operation)) = self.operations.get_mut(id.0)
            && operation.answer.is_none()
        {
            operation.answer = Some((at, answer));
        }
    }

    /// It is known that it never happened and never will.
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

    /// Operations whose outcome is not known.
    pub fn unknown(&self) -> usize {
        self.operations.iter().flatten().filter(|operation| operation.answer.is_none()).count()
    }

    /// Whether the history is linearizable. Gives up on a key after a few million states.
    pub fn check(&self) -> Result<(), HistoryViolation<K>> {
        self.check_within(4_000_000)
    }

    /// The same with a bound on the states that are looked at for each key.
    pub fn check_within(&self, states: usize) -> Result<(), HistoryViolation<K>> {
        let mut by_key: BTreeMap<&K, Vec<&Operation<K>>> = BTreeMap::new();
        for operation in self.operations.iter().flatten() {
            by_key.entry(&operation.key).or_default().push(operation);
        }
        for (key, operations) in by_key {
            let verdict = checker::check(&operations, states);
            if !matches!(verdict, Verdict::Linearizable) {
                let operations = operations.into_iter().cloned().collect();
                return Err(HistoryViolation { key: key.clone(), verdict, operations });
            }
        }
        Ok(())
    }
}

/// What the checker found for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// In no order. At best, all but these (positions in the list of operations) could be put in one, and one of them
    /// had to come next.
    NotLinearizable {
        stuck: Vec<usize>,
    },
    /// Too many orders to try.
    Exhausted,
}

/// A key whose operations cannot be put in an order, or not be shown to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryViolation<K> {
    pub key: K,
    pub verdict: Verdict,
    /// All operations on that key, in the order of their calls as recorded.
    pub operations: Vec<Operation<K>>,
}

impl<K: fmt::Debug> fmt::Display for HistoryViolation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict::NotLinearizable { stuck } = &self.verdict else {
            return write!(f, "key {:?}: gave up after too many states", self.key);
        };
        writeln!(f, "key {:?} is not linearizable; none of the marked operations can come next:", self.key)?;
        for (at, operation) in self.operations.iter().enumerate() {
            let mark = if stuck.contains(&at) { '>' } else { ' ' };
            let (client, call, called) = (operation.client, operation.call, operation.called);
            write!(f, "{mark} client {client} {called:>6}")?;
            match &operation.answer {
                Some((at, answer)) => writeln!(f, "..{at:<6} {call:?} -> {answer:?}")?,
                None => writeln!(f, "..?      {call:?} -> unknown")?,
            }
        }
        Ok(())
    }
}

impl<K: fmt::Debug> std::error::Error for HistoryViolation<K> {}
