//! Transactions of Consul on the log: read what is named, evaluate it, and commit under the condition that nothing that was
//! read has changed (CK2).

use super::grab::{Grabbed, NotGrabbed, free, grab};
use crate::access::{Caller, Use};
use crate::consul::Failure;
use crate::consul::session::{find, holders_of};
use crate::http::in_open_session;
use crate::log::read_txn;
use crate::surface::Surface;
use ::http::StatusCode;
use convoke_client::log::{Compare, Consistency, Kv, Op, OpResult, Query, Relation, Txn, TxnAnswer};
use convoke_consul::{KvOp, OpError, OpOutcome, Pair, PairView, Plan, TxnEntry, TxnInput, Verb, evaluate};
use convoke_log::Machine;
use convoke_log::command::LeaseId;
use convoke_proto::v1::txn_result;
use convoke_proto::{Error, ErrorCode, json, v1};
use convoke_replica::Consistency as Here;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often a transaction is evaluated again because a key was changed in the meantime.
const ATTEMPTS: usize = 32;

/// A transaction that was executed.
#[derive(Debug)]
pub(in crate::consul) struct Executed {
    outcomes: Vec<OpOutcome>,
    /// The keys with the prefixes that the transaction reads, in the order of its outcomes.
    trees: Vec<Vec<Pair>>,
    sessions: BTreeMap<u64, String>,
    pub(in crate::consul) revision: u64,
}

/// Why a transaction was not executed.
#[derive(Debug)]
pub(in crate::consul) enum NotExecuted {
    /// Conditions that do not hold, of all operations.
    Conditions(Vec<OpError>),
    Failure(Failure),
}

impl From<Failure> for NotExecuted {
    fn from(failure: Failure) -> NotExecuted {
        NotExecuted::Failure(failure)
    }
}

impl From<Error> for NotExecuted {
    fn from(error: Error) -> NotExecuted {
        NotExecuted::Failure(error.into())
    }
}

/// The keys that a transaction names, at one revision.
#[derive(Debug)]
struct Observed {
    pairs: BTreeMap<String, Pair>,
    revision: u64,
}

/// Returns the state of the own replica, or `None` if the leader must be asked.
pub(in crate::consul) async fn state_here(surface: &Surface, consistency: Consistency) -> Option<Arc<Machine>> {
    match consistency {
        Consistency::Local => surface.read_log(Here::Local).await.ok(),
        Consistency::Linearizable => surface.read_log(Here::Linearizable).await.ok(),
        Consistency::Barrier => None,
    }
}

/// How much of a transaction its caller wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::consul) enum Wants {
    Results,
    /// Whether it was executed. A plain write then depends on the holder of its key only, so writers of one key do not
    /// hinder each other.
    Success,
}

/// Returns the consistency of a read that the log answers. A node without a replica has no local state.
pub(in crate::consul) fn from_log(surface: &Surface, consistency: Consistency) -> Result<Consistency, Error> {
    match consistency {
        Consistency::Local if surface.log()?.handle.local().is_err() => Ok(Consistency::Linearizable),
        other => Ok(other),
    }
}

/// Executes a transaction. `consistency` is that of a transaction that only reads.
pub(in crate::consul) async fn execute(
    surface: &Surface,
    caller: &Caller,
    operations: &[TxnEntry],
    consistency: Consistency,
    wants: Wants,
) -> Result<Executed, NotExecuted> {
    let kv = surface.log()?.session_of(caller)?;
    let writes = operations.iter().any(|operation| matches!(operation, TxnEntry::Kv(op) if op.verb.writes()));
    // The commit compares everything that was read, so a write can begin with what this node has. What it refuses, it
    // refuses on a current state.
    let mut read_at = if writes { Consistency::Local } else { consistency };
    let mut grabbed = Grabbed::default();
    let mut blocked = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        let observed = observe(surface, operations, read_at).await?;
        let mut holders = holders_of(surface, observed.pairs.values().map(|pair| pair.lease).collect()).await?;
        let sessions = named_sessions(surface, operations, read_at).await?;
        // A later operation may name a session that an earlier one locks with.
        holders.extend(sessions.iter().filter_map(|(name, found)| Some((found.as_ref().ok()?.0, name.clone()))));
        let leases = sessions.iter().map(|(name, found)| (name.clone(), found.clone().map(|(lease, _)| lease)));
        let leases = leases.collect();
        let world = TxnInput { pairs: &observed.pairs, sessions: &leases, holders: &holders, blocked: &blocked };
        let may_be_old = writes && read_at == Consistency::Local;
        let plan = match evaluate(operations, world) {
            Err(_) if may_be_old => {
                read_at = Consistency::Linearizable;
                continue;
            }
            Err(errors) => {
                grabbed.release(&kv).await;
                return Err(NotExecuted::Conditions(errors));
            }
            Ok(plan) if plan.is_read_only() && may_be_old => {
                read_at = Consistency::Linearizable;
                continue;
            }
            Ok(plan) => plan,
        };
        if plan.is_read_only() {
            let trees = trees_of(&plan, &observed.pairs);
            let revision = observed.revision;
            return Ok(Executed { outcomes: plan.outcomes, trees, sessions: holders, revision });
        }
        let attached: Vec<Use> = plan.acquired.iter().map(|(_, lease)| Use::Lease(LeaseId(*lease))).collect();
        surface.log()?.check_uses(caller, &attached).await?;
        let delays = sessions.values().filter_map(|found| found.as_ref().ok().copied()).collect();
        match grab(&kv, &plan.acquired, &delays, read_at, &mut grabbed).await {
            Ok(()) => {}
            // The session ended in the meantime, or the state was not current.
            Err(NotGrabbed::Again) => {
                read_at = Consistency::Linearizable;
                continue;
            }
            Err(NotGrabbed::Blocked(key, why)) => {
                blocked.insert(key, why);
                read_at = Consistency::Linearizable;
                continue;
            }
            Err(NotGrabbed::Failed(error)) => {
                grabbed.release(&kv).await;
                return Err(error.into());
            }
        }
        let is_plain = matches!(operations, [TxnEntry::Kv(op)] if op.verb == Verb::Set) && wants == Wants::Success;
        let txn = native(&plan, &observed, &grabbed, is_plain)?;
        let answer = match in_open_session(|| commit(&kv, txn.clone())).await {
            // The lease of a session ended after it was read.
            Err(error) if error.code == ErrorCode::NotFound => {
                read_at = Consistency::Linearizable;
                continue;
            }
            answer => answer?,
        };
        if !answer.succeeded {
            read_at = Consistency::Linearizable;
            continue;
        }
        free(&kv, &plan.freed).await;
        let trees = read_trees(answer.results).unwrap_or_else(|| trees_of(&plan, &observed.pairs));
        return Ok(Executed { outcomes: plan.outcomes, trees, sessions: holders, revision: answer.revision });
    }
    grabbed.release(&kv).await;
    Err(Failure::server("the keys were changed by others again and again; try again").into())
}

async fn commit(kv: &Kv, txn: Txn) -> Result<TxnAnswer, Error> {
    kv.commit(txn).await
}

/// Returns the lease and the lock delay of each session that an operation locks with, or the error of its lookup.
async fn named_sessions(
    surface: &Surface,
    operations: &[TxnEntry],
    consistency: Consistency,
) -> Result<BTreeMap<String, Result<(u64, std::time::Duration), String>>, Error> {
    let mut sessions = BTreeMap::new();
    for operation in operations {
        let TxnEntry::Kv(KvOp { verb: Verb::Lock, session, .. }) = operation else { continue };
        if !session.is_empty() && !sessions.contains_key(session) {
            let found = find(surface, session, consistency).await?;
            sessions.insert(session.clone(), found.map(|found| (found.lease, found.description.lock_delay())));
        }
    }
    Ok(sessions)
}

/// Reads all keys that the operations name, at one revision.
async fn observe(surface: &Surface, operations: &[TxnEntry], consistency: Consistency) -> Result<Observed, Error> {
    let mut named: BTreeSet<(&str, bool)> = BTreeSet::new();
    for operation in operations {
        if let TxnEntry::Kv(op) = operation
            && !(op.key.is_empty() || matches!(op.verb, Verb::Unknown(_)))
        {
            named.insert((&op.key, op.verb.is_tree()));
        }
    }
    if named.is_empty() {
        return Ok(Observed { pairs: BTreeMap::new(), revision: 0 });
    }
    let mut reads = v1::Txn::default();
    for (key, is_tree) in named {
        let key = key.to_owned();
        let query = if is_tree { Query::prefix(key) } else { Query::key(key) };
        let operation = Some(v1::txn_operation::Operation::Read(query.into()));
        reads.then.push(v1::TxnOperation { operation });
    }
    let (revision, found) = match state_here(surface, consistency).await {
        Some(machine) => {
            let (_, revision, results) = read_txn(&machine, reads)?;
            let records = results.results.into_iter().filter_map(|result| match result.result {
                Some(txn_result::Result::Read(read)) => Some(read.records),
                _ => None,
            });
            (revision, records.flatten().collect::<Vec<_>>())
        }
        None => {
            let consistency = from_log(surface, consistency)?;
            let answer = surface.log()?.kv.read_txn(reads.into(), consistency).await?;
            (answer.revision, read_records(answer.results?).into_iter().flatten().collect())
        }
    };
    let pairs = found.into_iter().filter_map(pair).map(|pair| (pair.key.clone(), pair)).collect();
    Ok(Observed { pairs, revision })
}

/// Returns a key as Consul knows it. A key that is not text does not exist for Consul's clients.
pub(in crate::consul) fn pair(found: v1::KeyValue) -> Option<Pair> {
    let v1::KeyValue { key, value, create_revision, mod_revision, lease, flags, lock_index, .. } = found;
    let key = String::from_utf8(key.into()).ok()?;
    Some(Pair { key, value, flags, lock_index, lease, create_index: create_revision, modify_index: mod_revision })
}

/// Returns the transaction of the log for a plan.
fn native(plan: &Plan, observed: &Observed, grabbed: &Grabbed, is_plain: bool) -> Result<Txn, Failure> {
    let mut txn = Txn::new();
    let mut count = 0;
    let mut add = |next: &dyn Fn(Txn) -> Txn| {
        count += 1;
        txn = next(std::mem::take(&mut txn));
    };
    for (key, index) in &plan.expected {
        let holder = observed.pairs.get(key).map_or(0, |pair| pair.lease);
        add(&|txn| {
            txn.compare(match is_plain {
                true => Compare::lease(key.clone(), Relation::Equal, holder),
                false => Compare::mod_revision(key.clone(), Relation::Equal, *index),
            })
        });
    }
    for prefix in &plan.unwritten {
        let written_before = Compare::mod_revision(prefix.clone(), Relation::Less, observed.revision + 1).prefix();
        add(&|txn| txn.compare(written_before.clone()));
    }
    for (key, _) in &plan.acquired {
        if let Some((name, fence)) = grabbed.of(key) {
            add(&|txn| txn.compare(Compare::lock(name.clone(), fence)));
        }
    }
    // Reads come first: the changes of earlier operations are added to their results.
    for prefix in tree_prefixes(plan) {
        add(&|txn| txn.then(Op::read(Query::prefix(prefix.clone()))));
    }
    for (key, change) in &plan.changes {
        add(&|txn| match change {
            Some(pair) => {
                let put = Op::put(key.clone(), pair.value.clone()).flags(pair.flags);
                txn.then(put.lease(pair.lease).lock_index(pair.lock_index))
            }
            None => txn.then(Op::delete(key.clone())),
        });
    }
    for prefix in &plan.deleted {
        add(&|txn| txn.then(Op::delete_prefix(prefix.clone())));
    }
    let limit = json::TXN_OPERATIONS_MAX;
    if count > limit {
        let text = format!("The transaction needs {count} comparisons and operations of the log; the limit is {limit}");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Ok(txn)
}

fn tree_prefixes(plan: &Plan) -> impl Iterator<Item = &String> {
    plan.outcomes.iter().filter_map(|outcome| match outcome {
        OpOutcome::Tree { prefix, .. } => Some(prefix),
        OpOutcome::Pair { .. } => None,
    })
}

/// Returns the keys of each prefix that the plan reads, from what was read before it.
fn trees_of(plan: &Plan, pairs: &BTreeMap<String, Pair>) -> Vec<Vec<Pair>> {
    let below = |prefix: &String| {
        let found = pairs.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(prefix.as_str()));
        found.map(|(_, pair)| pair.clone()).collect()
    };
    tree_prefixes(plan).map(below).collect()
}

/// Returns the keys that the transaction read itself. `None` if they are no longer kept.
fn read_trees(results: Result<Vec<OpResult>, Error>) -> Option<Vec<Vec<Pair>>> {
    Some(
        read_records(results.ok()?).into_iter().map(|records| records.into_iter().filter_map(pair).collect()).collect(),
    )
}

fn read_records(results: Vec<OpResult>) -> Vec<Vec<v1::KeyValue>> {
    let records = results.into_iter().filter_map(|result| match result {
        OpResult::Read { records, .. } => Some(records),
        OpResult::Put { .. } | OpResult::Delete { .. } => None,
    });
    records.collect()
}

impl Executed {
    /// Returns the results as Consul shows them. Keys with a prefix are shown if `may_read` allows it.
    pub(in crate::consul) fn views(self, may_read: impl Fn(&str) -> bool) -> Vec<PairView> {
        let Executed { outcomes, trees, sessions, revision } = self;
        let session = |lease: u64| sessions.get(&lease).cloned().unwrap_or_default();
        let mut trees = trees.into_iter();
        let mut views = Vec::new();
        for outcome in outcomes {
            match outcome {
                OpOutcome::Pair { pair, with_value } => {
                    let view = PairView::new(&pair.at(revision), session(pair.lease));
                    views.push(if with_value { view } else { view.without_value() });
                }
                OpOutcome::Tree { changed, .. } => {
                    let found = trees.next().unwrap_or_default();
                    let mut found: BTreeMap<String, Option<Pair>> =
                        found.into_iter().map(|pair| (pair.key.clone(), Some(pair))).collect();
                    found.extend(changed);
                    let shown = found.into_values().flatten().filter(|pair| may_read(&pair.key));
                    views.extend(shown.map(|pair| PairView::new(&pair.at(revision), session(pair.lease))));
                }
            }
        }
        views
    }
}
