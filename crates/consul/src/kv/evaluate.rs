//! What a transaction does to the keys that were read (CK2).
//!
//! The caller reads all keys that the transaction names, evaluates it here, and commits the result under the condition that
//! nothing that was read has changed.

use super::operation::{KvOp, TxnEntry, Verb};
use super::pair::Pair;
use std::collections::{BTreeMap, BTreeSet};

/// What was read for a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TxnInput<'a> {
    /// All keys that the operations name, and all keys with the prefixes that they name.
    pub pairs: &'a BTreeMap<String, Pair>,
    /// The lease of each session that a lock names, or the error of its lookup.
    pub sessions: &'a BTreeMap<String, Result<u64, String>>,
    /// The session of each lease that holds one of the keys.
    pub holders: &'a BTreeMap<u64, String>,
    /// Keys that no session can acquire now although none holds them.
    pub blocked: &'a BTreeMap<String, Blocked>,
}

/// Why a key cannot be acquired although no session holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The session that held it has ended a short time ago.
    Delay,
    /// Another session is acquiring it.
    Taken,
}

/// An operation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError {
    pub operation: usize,
    pub what: String,
}

/// The result of an operation. Not every operation has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    Pair {
        pair: Pair,
        with_value: bool,
    },
    /// All keys with a prefix, as earlier operations of the transaction left them.
    Tree {
        prefix: String,
        changed: BTreeMap<String, Option<Pair>>,
    },
}

/// What a transaction changes, and what must not have changed for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The modify index that each key must still have, 0 for none.
    pub expected: BTreeMap<String, u64>,
    /// Prefixes in which no key may have been written after the read.
    pub unwritten: BTreeSet<String>,
    /// Final states of the keys that change. `None` deletes.
    pub changes: BTreeMap<String, Option<Pair>>,
    /// Prefixes whose keys are all deleted.
    pub deleted: BTreeSet<String>,
    /// Keys that a session acquires that did not hold them, with the lease of the session.
    pub acquired: Vec<(String, u64)>,
    /// Keys that stop being held, with the lease of the session that held them.
    pub freed: BTreeMap<String, u64>,
    pub outcomes: Vec<OpOutcome>,
}

impl Plan {
    pub fn is_read_only(&self) -> bool {
        self.changes.is_empty() && self.deleted.is_empty()
    }
}

/// Evaluates a transaction. All operations are examined, so that the errors are complete.
pub fn evaluate(operations: &[TxnEntry], world: TxnInput<'_>) -> Result<Plan, Vec<OpError>> {
    let mut evaluation = Evaluation { world, plan: Plan::default(), held: BTreeMap::new() };
    let mut errors = Vec::new();
    for (operation, found) in operations.iter().enumerate() {
        let result = match found {
            TxnEntry::Kv(op) => evaluation.operation(op),
            TxnEntry::Other(what) => {
                Err(format!("transactions of {what} are not supported; use the requests of /v1/catalog and /v1/agent"))
            }
        };
        if let Err(what) = result {
            errors.push(OpError { operation, what });
        }
    }
    if errors.is_empty() { Ok(evaluation.finish()) } else { Err(errors) }
}

struct Evaluation<'a> {
    world: TxnInput<'a>,
    plan: Plan,
    /// Leases that held keys before the transaction changed them.
    held: BTreeMap<String, u64>,
}

impl Evaluation<'_> {
    fn operation(&mut self, op: &KvOp) -> Result<(), String> {
        if let Verb::Unknown(verb) = &op.verb {
            return Err(format!("unknown KV verb {verb:?}"));
        }
        if op.key.is_empty() && op.verb != Verb::DeleteTree {
            return Err("Must provide key".to_owned());
        }
        let key = &op.key;
        match op.verb {
            Verb::Set => self.set(op),
            Verb::Cas => {
                let is_current = match self.current(key) {
                    None => op.index == 0,
                    Some(pair) => op.index != 0 && op.index == pair.modify_index,
                };
                if !is_current {
                    return Err(format!("failed to set key {key:?}, index is stale"));
                }
                self.set(op)
            }
            Verb::Lock => self.lock(op),
            Verb::Unlock => self.unlock(op),
            Verb::Get => {
                let pair = self.current(key).cloned().ok_or_else(|| format!("key {key:?} doesn't exist"))?;
                self.show(pair, true);
                Ok(())
            }
            Verb::GetTree => {
                let changed = self.plan.changes.iter().filter(|(name, _)| name.starts_with(key));
                let changed = changed.map(|(name, pair)| (name.clone(), pair.clone())).collect();
                self.plan.outcomes.push(OpOutcome::Tree { prefix: key.clone(), changed });
                Ok(())
            }
            Verb::CheckIndex => {
                let found = self.current(key).cloned();
                let pair = found.ok_or_else(|| format!("failed to check index, key {key:?} doesn't exist"))?;
                let (found, wanted) = (pair.modify_index, op.index);
                if found == 0 || found != wanted {
                    return Err(format!(
                        "failed index check for key {key:?}, current modify index {found} != {wanted}"
                    ));
                }
                self.show(pair, false);
                Ok(())
            }
            Verb::CheckSession => self.check_session(op),
            Verb::CheckNotExists => match self.current(key) {
                Some(_) => Err(format!("key {key:?} exists")),
                None => Ok(()),
            },
            Verb::Delete => {
                if self.current(key).is_some() {
                    self.write(key, None);
                }
                Ok(())
            }
            Verb::DeleteCas => match self.current(key) {
                None => Ok(()),
                Some(pair) if op.index != 0 && pair.modify_index == op.index => {
                    self.write(key, None);
                    Ok(())
                }
                Some(_) => Err(format!("failed to delete key {key:?}, index is stale")),
            },
            Verb::DeleteTree => {
                self.delete_tree(key);
                Ok(())
            }
            Verb::Unknown(_) => Ok(()),
        }
    }

    /// A plain write keeps the session that holds the key, and counts its acquisitions again from 0.
    fn set(&mut self, op: &KvOp) -> Result<(), String> {
        let lease = self.current(&op.key).map_or(0, |pair| pair.lease);
        self.put(op, lease, 0);
        Ok(())
    }

    fn lock(&mut self, op: &KvOp) -> Result<(), String> {
        let (key, lease) = (&op.key, self.session(op)?);
        let found = self.current(key);
        let (holder, lock_index) = found.map_or((0, 0), |pair| (pair.lease, pair.lock_index));
        if holder != 0 && holder != lease {
            return Err(format!("failed to lock key {key:?}, lock is already held"));
        }
        if holder == lease {
            self.put(op, lease, lock_index);
            return Ok(());
        }
        match self.world.blocked.get(key) {
            Some(Blocked::Delay) => return Err(format!("failed to lock key {key:?} due to lock delay")),
            Some(Blocked::Taken) => return Err(format!("failed to lock key {key:?}, lock is already held")),
            None => {}
        }
        self.plan.acquired.push((key.clone(), lease));
        self.put(op, lease, lock_index + 1);
        Ok(())
    }

    fn unlock(&mut self, op: &KvOp) -> Result<(), String> {
        let key = &op.key;
        if op.session.is_empty() {
            return Err("missing session".to_owned());
        }
        let (lease, lock_index) = self.current(key).map_or((0, 0), |pair| (pair.lease, pair.lock_index));
        if self.holder(lease) != op.session {
            return Err(format!("failed to unlock key {key:?}, lock isn't held, or is held by another session"));
        }
        self.put(op, 0, lock_index);
        Ok(())
    }

    fn check_session(&mut self, op: &KvOp) -> Result<(), String> {
        let key = &op.key;
        let found = self.current(key).cloned();
        let pair = found.ok_or_else(|| format!("failed to check session, key {key:?} doesn't exist"))?;
        let holder = self.holder(pair.lease);
        if holder != op.session {
            return Err(format!(
                "failed session check for key {key:?}, current session {holder:?} != {:?}",
                op.session
            ));
        }
        self.show(pair, false);
        Ok(())
    }

    /// Returns the session of a lease, or nothing if the key is not held.
    fn holder(&self, lease: u64) -> &str {
        self.world.holders.get(&lease).map_or("", String::as_str)
    }

    fn session(&self, op: &KvOp) -> Result<u64, String> {
        match self.world.sessions.get(&op.session) {
            _ if op.session.is_empty() => Err("missing session".to_owned()),
            Some(found) => found.clone(),
            None => Err(format!("invalid session {:?}", op.session)),
        }
    }

    fn put(&mut self, op: &KvOp, lease: u64, lock_index: u64) {
        let existing = self.current(&op.key).cloned();
        let create_index = existing.as_ref().map_or(0, |pair| pair.create_index);
        let (key, value, flags) = (op.key.clone(), op.value.clone(), op.flags);
        let pair = Pair { key, value, flags, lock_index, lease, create_index, modify_index: 0 };
        match existing.filter(|found| found.is_like(&pair)) {
            Some(unchanged) => self.show(unchanged, false),
            None => {
                self.show(pair.clone(), false);
                self.write(&op.key, Some(pair));
            }
        }
    }

    fn delete_tree(&mut self, prefix: &str) {
        let found = self.world.pairs.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let mut keys: BTreeSet<String> = found.map(|(key, _)| key.clone()).collect();
        keys.extend(self.plan.changes.keys().filter(|key| key.starts_with(prefix)).cloned());
        for key in keys {
            if self.peek(&key).is_some() {
                self.write(&key, None);
            }
        }
        self.plan.deleted.insert(prefix.to_owned());
    }

    fn show(&mut self, pair: Pair, with_value: bool) {
        self.plan.outcomes.push(OpOutcome::Pair { pair, with_value });
    }

    fn peek(&self, key: &str) -> Option<&Pair> {
        match self.plan.changes.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.world.pairs.get(key),
        }
    }

    /// Returns a key. The transaction then depends on it.
    fn current(&mut self, key: &str) -> Option<&Pair> {
        let index = self.world.pairs.get(key).map_or(0, |pair| pair.modify_index);
        self.plan.expected.insert(key.to_owned(), index);
        self.peek(key)
    }

    fn write(&mut self, key: &str, pair: Option<Pair>) {
        let before = self.world.pairs.get(key).map_or(0, |pair| pair.lease);
        self.held.insert(key.to_owned(), before);
        self.plan.changes.insert(key.to_owned(), pair);
    }

    /// The log writes a key once per transaction: a prefix that a later operation wrote into is deleted key by key.
    fn finish(mut self) -> Plan {
        let plan = &mut self.plan;
        let written: Vec<&String> =
            plan.changes.iter().filter(|(_, pair)| pair.is_some()).map(|(key, _)| key).collect();
        let (split, whole): (BTreeSet<String>, BTreeSet<String>) = std::mem::take(&mut plan.deleted)
            .into_iter()
            .partition(|prefix| written.iter().any(|key| key.starts_with(prefix.as_str())));
        plan.unwritten.extend(split);
        for (key, before) in std::mem::take(&mut self.held) {
            let after = plan.changes.get(&key).and_then(|pair| pair.as_ref()).map_or(0, |pair| pair.lease);
            if before != 0 && before != after {
                plan.freed.insert(key, before);
            }
        }
        // What was created and deleted in the same transaction was never there.
        let pairs = self.world.pairs;
        plan.changes.retain(|key, pair| {
            pair.is_some() || (pairs.contains_key(key) && !whole.iter().any(|prefix| key.starts_with(prefix.as_str())))
        });
        plan.deleted = whole;
        self.plan
    }
}
