//! The model of transactions.

use super::reference::{Map, Model, ModelResult, Rec, rec_bytes};
use convoke_log::command::{Compare, LeaseId, LockName, Op, Relation, Test, Txn};
use convoke_log::keys::{Content, Order, Query, Selection, SortBy};
use convoke_log::machine::{Field, Reason, TxnOutcome};

impl Model {
    pub(super) fn txn(&mut self, txn: &Txn) -> Result<(TxnOutcome, Vec<ModelResult>), Reason> {
        check_form(txn)?;
        let succeeded = self.holds(txn)?;
        let before = self.map.clone();
        let executed = self.operations(txn.branch(succeeded)).and_then(|results| {
            let held = |map: &Map, lease| map.values().filter(|record| record.3[1] == lease).count() as u64;
            let limit = self.limits.coordination.keys_per_lease;
            let over = |lease: &u64| held(&self.map, *lease) > limit.max(held(&before, *lease));
            if self.leases.keys().any(over) {
                return Err(Reason::Full { field: Field::KeysOfLease, limit });
            }
            Ok(results)
        });
        let changes = self.changes.len() as u64;
        match executed {
            Ok(results) => {
                if changes > 0 {
                    self.revise();
                }
                Ok((TxnOutcome { succeeded, changes }, results))
            }
            Err(reason) => {
                self.map = before;
                self.changes.clear();
                Err(reason)
            }
        }
    }

    fn operations(&mut self, ops: &[Op]) -> Result<Vec<ModelResult>, Reason> {
        let revision = self.revision + 1;
        let limit = self.limits.coordination.answer_bytes;
        let mut used = 0;
        let mut charge = |record: &Rec| {
            used += rec_bytes(record);
            if used > limit { Err(Reason::TooLarge { field: Field::Answer, found: used, limit }) } else { Ok(()) }
        };
        let mut results = Vec::new();
        for op in ops {
            results.push(match op {
                Op::Put(put) => {
                    self.check_put(&put.key, &put.value)?;
                    let lease = put.lease.map_or(0, |lease| lease.0);
                    if lease > 0 && !self.leases.contains_key(&lease) {
                        return Err(Reason::NoLease(LeaseId(lease)));
                    }
                    let extras = [put.flags, lease, put.lock_index];
                    let previous = self.put(revision, &put.key, &put.value, extras).filter(|_| put.previous);
                    previous.iter().try_for_each(&mut charge)?;
                    ModelResult::Put(previous)
                }
                Op::Delete { selection, previous } => {
                    let keys: Vec<_> = self.selected(selection).into_iter().map(|record| record.0).collect();
                    if let Selection::Key(key) = selection {
                        self.check_key(key)?;
                    } else if keys.len() as u64 > self.limits.range_keys {
                        return Err(Reason::TooMany { field: Field::Range, limit: self.limits.range_keys });
                    }
                    let records: Vec<Rec> = keys.iter().filter_map(|key| self.delete(revision, key)).collect();
                    if *previous {
                        records.iter().try_for_each(&mut charge)?;
                    }
                    ModelResult::Deleted(records.len() as u64, if *previous { records } else { Vec::new() })
                }
                Op::Read(query) => self.read(query, &mut charge)?,
            });
        }
        Ok(results)
    }

    fn selected(&self, selection: &Selection) -> Vec<Rec> {
        self.map.values().filter(|record| selection.contains(&record.0)).cloned().collect()
    }

    fn read(&self, query: &Query, charge: &mut impl FnMut(&Rec) -> Result<(), Reason>) -> Result<ModelResult, Reason> {
        let mut records = self.selected(&query.selection);
        let is_scan = query.content == Content::Count || query.order != Order::default();
        if is_scan && records.len() as u64 > self.limits.range_keys {
            return Err(Reason::TooMany { field: Field::Range, limit: self.limits.range_keys });
        }
        if query.content == Content::Count {
            return Ok(ModelResult::Read(Vec::new(), records.len() as u64, false));
        }
        match query.order.by {
            SortBy::Key => {}
            SortBy::Version => records.sort_by_key(|record| record.2[2]),
            SortBy::CreateRevision => records.sort_by_key(|record| record.2[0]),
            SortBy::ModifyRevision => records.sort_by_key(|record| record.2[1]),
            SortBy::Value => records.sort_by_key(|record| record.1.clone()),
        }
        if query.order.descending {
            records.reverse();
        }
        let limit = query.limit.map_or(records.len(), |limit| limit as usize);
        let more = records.len() > limit;
        records.truncate(limit);
        for record in &mut records {
            if query.content == Content::Keys {
                record.1.clear();
            }
            charge(record)?;
        }
        let count = records.len() as u64;
        Ok(ModelResult::Read(records, count, more))
    }

    fn holds(&self, txn: &Txn) -> Result<bool, Reason> {
        let mut all = true;
        for compare in &txn.compares {
            all &= match compare {
                Compare::Lock { name, fence } => self.is_held(name, *fence),
                Compare::Keys { selection: Selection::Key(key), test } => passes(test, self.map.get(&key[..])),
                Compare::Keys { selection, test: Test::Exists(exists) } => {
                    self.selected(selection).is_empty() != *exists
                }
                Compare::Keys { selection, test } => {
                    let records = self.selected(selection);
                    let limit = self.limits.range_keys;
                    let failed = records.iter().position(|record| !passes(test, Some(record)));
                    let examined = failed.map_or(records.len(), |at| at + 1) as u64;
                    if examined > limit {
                        return Err(Reason::TooMany { field: Field::Range, limit });
                    }
                    failed.is_none()
                }
            };
        }
        Ok(all)
    }

    fn is_held(&self, name: &LockName, fence: u64) -> bool {
        self.locks.0.get(name).is_some_and(|lock| lock.holders.iter().any(|holder| holder.fence == fence))
    }
}

fn check_form(txn: &Txn) -> Result<(), Reason> {
    let operations = txn.compares.len() + txn.then.len() + txn.otherwise.len();
    if operations == 0 || operations > 128 {
        return Err(Reason::Invalid { field: Field::Operations });
    }
    for branch in [&txn.then, &txn.otherwise] {
        for (at, op) in branch.iter().enumerate() {
            let Op::Put(put) = op else { continue };
            let clashes = |(other, op): (usize, &Op)| match op {
                Op::Put(same) => other != at && same.key == put.key,
                Op::Delete { selection, .. } => selection.contains(&put.key),
                Op::Read(_) => false,
            };
            if branch.iter().enumerate().any(clashes) {
                return Err(Reason::Invalid { field: Field::Key });
            }
        }
    }
    Ok(())
}

fn passes(test: &Test, record: Option<&Rec>) -> bool {
    fn is<T: Ord + ?Sized>(relation: Relation, found: &T, wanted: &T) -> bool {
        match relation {
            Relation::Equal => found == wanted,
            Relation::NotEqual => found != wanted,
            Relation::Less => found < wanted,
            Relation::Greater => found > wanted,
        }
    }
    let number = |of: &dyn Fn(&Rec) -> u64| record.map_or(0, of);
    match test {
        Test::Exists(exists) => record.is_some() == *exists,
        Test::Value(relation, value) => match record {
            None => *relation == Relation::NotEqual,
            Some(record) => is(*relation, &record.1[..], &value[..]),
        },
        Test::CreateRevision(relation, wanted) => is(*relation, &number(&|record| record.2[0]), wanted),
        Test::ModifyRevision(relation, wanted) => is(*relation, &number(&|record| record.2[1]), wanted),
        Test::Version(relation, wanted) => is(*relation, &number(&|record| record.2[2]), wanted),
        Test::Lease(relation, wanted) => is(*relation, &number(&|record| record.3[1]), wanted),
    }
}
