//! Histories of transactions, locks and guarded writes.
//!
//! An operation can use several keys and locks. Objects that an operation uses together are checked together, because
//! their operations must have one common order.
//!
//! A client that loses a lock does not learn when. The recorder therefore adds a release without an answer
//! ([`CallHistory::may_end`]) at the last moment at which the client was certain: the lock may end at any time after it.
//!
//! ```
//! use convoke_harness::history::coordination::{CoordinationHistory, Reply, Request, Txn};
//!
//! let mut history = CoordinationHistory::new();
//! let acquire = history.request(0, Request::acquire("jobs"), 10);
//! history.answer(acquire, 12, Reply::Granted { fence: 7 });
//! history.may_end(0, "jobs", 7, 20);
//! let other = history.request(1, Request::acquire("jobs"), 30);
//! history.answer(other, 31, Reply::Granted { fence: 9 });
//! assert!(history.check().is_ok());
//!
//! let late = history.request(0, Request::Txn(Txn::guarded("jobs", 7).put("state", 1)), 40);
//! history.answer(late, 41, Reply::Decided { succeeded: true, read: vec![] });
//! assert!(history.check().is_err());
//! ```

use super::checker::{self, Sequential};
use super::record::{CallHistory, CallId, HistoryViolation, Operation, Value, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// A fencing token.
pub type Fence = u64;

/// A key or a lock. They have separate names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object<K> {
    Key(K),
    Lock(K),
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare<K> {
    /// The key has this value; `None`: it does not exist.
    Value { key: K, value: Option<Value> },
    /// The lock is held with this fence.
    Held { lock: K, fence: Fence },
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access<K> {
    Get(K),
    /// Sets the key to `new`; `None` deletes it.
    Write {
        key: K,
        new: Option<Value>,
    },
}

/// A transaction: if all compares hold, `then`, else `otherwise`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn<K> {
    pub compares: Vec<Compare<K>>,
    pub then: Vec<Access<K>>,
    pub otherwise: Vec<Access<K>>,
}

impl<K> Default for Txn<K> {
    fn default() -> Self {
        Txn { compares: Vec::new(), then: Vec::new(), otherwise: Vec::new() }
    }
}

impl<K> Txn<K> {
    /// Requires that a lock is held.
    pub fn guarded(lock: K, fence: Fence) -> Self {
        Txn { compares: vec![Compare::Held { lock, fence }], ..Txn::default() }
    }

    /// Requires the value of a key.
    #[must_use]
    pub fn if_value(mut self, key: K, value: Option<Value>) -> Self {
        self.compares.push(Compare::Value { key, value });
        self
    }

    #[must_use]
    pub fn put(mut self, key: K, value: Value) -> Self {
        self.then.push(Access::Write { key, new: Some(value) });
        self
    }

    #[must_use]
    pub fn get(mut self, key: K) -> Self {
        self.then.push(Access::Get(key));
        self
    }

    /// Reads a key if the compares do not hold.
    #[must_use]
    pub fn else_get(mut self, key: K) -> Self {
        self.otherwise.push(Access::Get(key));
        self
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<K> {
    Txn(Txn<K>),
    Acquire { lock: K, permits: u64 },
    Release { lock: K, fence: Fence },
}

impl<K> Request<K> {
    /// Acquires a lock with one permit.
    pub fn acquire(lock: K) -> Self {
        Request::Acquire { lock, permits: 1 }
    }
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The transaction executed one of its branches. `read` contains the values of the reads of that branch.
    Decided {
        succeeded: bool,
        read: Vec<Option<Value>>,
    },
    Granted {
        fence: Fence,
    },
    /// No permit was free.
    Held,
    Released,
    /// Nobody held the lock with that fence.
    NotHeld,
}

/// A history of transactions and locks.
pub type CoordinationHistory<K> = CallHistory<Vec<Object<K>>, Request<K>, Reply>;
/// Operations on objects that are used together and have no valid order.
pub type CoordinationViolation<K> = HistoryViolation<Vec<Object<K>>, Request<K>, Reply>;

type Recorded<K> = Operation<Vec<Object<K>>, Request<K>, Reply>;

impl<K: Ord + Clone> CoordinationHistory<K> {
    /// Records a request.
    pub fn request(&mut self, client: u64, request: Request<K>, at: u64) -> CallId {
        self.call(client, objects(&request), request, at)
    }

    /// Records that a holder can lose its lock at any time from `at` on.
    pub fn may_end(&mut self, client: u64, lock: K, fence: Fence, at: u64) {
        self.request(client, Request::Release { lock, fence }, at);
    }

    /// Checks whether the history is linearizable. Aborts the search of a group of objects after a few million states.
    pub fn check(&self) -> Result<(), CoordinationViolation<K>> {
        self.check_within(4_000_000)
    }

    /// The same with a bound on the states examined for each group of objects.
    pub fn check_within(&self, states: usize) -> Result<(), CoordinationViolation<K>> {
        let operations: Vec<&Recorded<K>> = self.operations().collect();
        for (objects, operations) in groups(&operations) {
            let refused: BTreeSet<&K> = operations.iter().filter_map(|operation| refused(operation)).collect();
            let verdict = checker::check(&operations, |unknown| matters(unknown, &refused), states);
            if !matches!(verdict, Verdict::Linearizable) {
                let operations = operations.into_iter().cloned().collect();
                return Err(HistoryViolation { key: objects, verdict, operations });
            }
        }
        Ok(())
    }
}

fn objects<K: Ord + Clone>(request: &Request<K>) -> Vec<Object<K>> {
    let found: BTreeSet<Object<K>> = match request {
        Request::Acquire { lock, .. } | Request::Release { lock, .. } => [Object::Lock(lock.clone())].into(),
        Request::Txn(Txn { compares, then, otherwise }) => {
            let compared = compares.iter().map(|compare| match compare {
                Compare::Value { key, .. } => Object::Key(key.clone()),
                Compare::Held { lock, .. } => Object::Lock(lock.clone()),
            });
            let used = then.iter().chain(otherwise).map(|access| match access {
                Access::Get(key) | Access::Write { key, .. } => Object::Key(key.clone()),
            });
            compared.chain(used).collect()
        }
    };
    found.into_iter().collect()
}

/// Objects that are checked together, and their operations in the recorded order.
type Group<'a, K> = (Vec<Object<K>>, Vec<&'a Recorded<K>>);

/// Returns groups of objects that no operation connects.
fn groups<'a, K: Ord + Clone>(operations: &[&'a Recorded<K>]) -> Vec<Group<'a, K>> {
    let mut groups: Vec<BTreeSet<&Object<K>>> = Vec::new();
    for operation in operations {
        let mut joined: BTreeSet<&Object<K>> = operation.key.iter().collect();
        groups.retain(|group| {
            let separate = group.is_disjoint(&joined);
            if !separate {
                joined.extend(group.iter().copied());
            }
            separate
        });
        groups.push(joined);
    }
    let of = |group: &BTreeSet<&Object<K>>| {
        let used = |operation: &&&Recorded<K>| operation.key.iter().any(|object| group.contains(object));
        operations.iter().filter(used).copied().collect()
    };
    groups.iter().map(|group| (group.iter().copied().cloned().collect(), of(group))).collect()
}

/// The lock of an acquire that was refused.
fn refused<K>(operation: &Recorded<K>) -> Option<&K> {
    match (&operation.call, &operation.answer) {
        (Request::Acquire { lock, .. }, Some((_, Reply::Held))) => Some(lock),
        _ => None,
    }
}

/// Whether it matters if an unknown operation happened. A grant that nobody saw can explain only a refused acquire.
fn matters<K: Ord>(unknown: &Recorded<K>, refused: &BTreeSet<&K>) -> bool {
    match &unknown.call {
        Request::Txn(Txn { then, otherwise, .. }) => {
            then.iter().chain(otherwise).any(|access| matches!(access, Access::Write { .. }))
        }
        Request::Acquire { lock, .. } => refused.contains(lock),
        Request::Release { .. } => true,
    }
}

/// The state of a group of objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State<K> {
    keys: BTreeMap<K, Value>,
    locks: BTreeMap<K, Lock>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    holders: BTreeSet<Fence>,
    /// Grants whose client got no answer. They can have ended since, so they count as held and as free.
    unseen: u64,
    highest: Fence,
}

impl Lock {
    fn held(&self) -> u64 {
        self.holders.len() as u64
    }
}

impl<K> Default for State<K> {
    fn default() -> Self {
        State { keys: BTreeMap::new(), locks: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> State<K> {
    fn holds(&self, compare: &Compare<K>) -> bool {
        match compare {
            Compare::Value { key, value } => self.keys.get(key) == value.as_ref(),
            Compare::Held { lock, fence } => self.locks.get(lock).is_some_and(|lock| lock.holders.contains(fence)),
        }
    }

    /// Executes a transaction. A read sees the earlier writes of the same transaction. Returns whether the compares held,
    /// and the values that it read.
    fn execute(&mut self, txn: &Txn<K>) -> (bool, Vec<Option<Value>>) {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let mut read = Vec::new();
        for access in if succeeded { &txn.then } else { &txn.otherwise } {
            match access {
                Access::Get(key) => read.push(self.keys.get(key).copied()),
                Access::Write { key, new: Some(new) } => drop(self.keys.insert(key.clone(), *new)),
                Access::Write { key, new: None } => drop(self.keys.remove(key)),
            }
        }
        (succeeded, read)
    }

    fn acquire(&mut self, lock: &K, permits: u64, reply: Option<&Reply>) -> Option<()> {
        let lock = self.locks.entry(lock.clone()).or_default();
        match reply {
            Some(Reply::Granted { fence }) if lock.held() < permits && *fence > lock.highest => {
                lock.holders.insert(*fence);
                lock.highest = *fence;
                lock.unseen = lock.unseen.min(permits - lock.held());
                Some(())
            }
            Some(Reply::Held) => (lock.held() + lock.unseen >= permits).then_some(()),
            None if lock.held() + lock.unseen < permits => {
                lock.unseen += 1;
                Some(())
            }
            _ => None,
        }
    }

    fn release(&mut self, lock: &K, fence: Fence, reply: Option<&Reply>) -> Option<()> {
        let held = self.locks.get_mut(lock).is_some_and(|lock| lock.holders.remove(&fence));
        match reply {
            None | Some(Reply::Released) => held.then_some(()),
            Some(Reply::NotHeld) => (!held).then_some(()),
            Some(_) => None,
        }
    }
}

impl<K: Ord + Clone> Sequential for Recorded<K> {
    type State = State<K>;

    fn called(&self) -> u64 {
        self.called
    }

    fn answered(&self) -> Option<u64> {
        self.answer.as_ref().map(|(at, _)| *at)
    }

    fn step(&self, state: &State<K>) -> Option<State<K>> {
        let (mut next, reply) = (state.clone(), self.answer.as_ref().map(|(_, reply)| reply));
        match &self.call {
            Request::Acquire { lock, permits } => next.acquire(lock, *permits, reply)?,
            Request::Release { lock, fence } => next.release(lock, *fence, reply)?,
            Request::Txn(txn) => {
                let (succeeded, read) = next.execute(txn);
                let fits = match reply {
                    None => next != *state,
                    Some(reply) => *reply == Reply::Decided { succeeded, read },
                };
                fits.then_some(())?;
            }
        }
        Some(next)
    }

    fn same_effect(&self, other: &Self) -> bool {
        self.call == other.call
    }
}
