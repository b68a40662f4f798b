//! V, T, H, LE, LO, EL, Q: named scenarios of level 2.

use crate::script::{Script, applied};
use convoke_log::command::{
    Acquire, Body, Compare, EndBehavior, GrantLease, LeaseId, LeaseTerm, LockName, Op, OpResult, Place, Proclaim,
    Raise, Relation, Release, Test, Txn, TxnPut,
};
use convoke_log::history::{EventChange, EventPosition, LockChange, WatchFilter};
use convoke_log::keys::{Content, KeyRange, Order, Query, Selection, SortBy};
use convoke_log::machine::{ApplyRejection, Field, LockAnswer, Outcome, Reason, RequestAnswer, Response, TxnOutcome};
use convoke_log::{Command, CoordinationLimits, Level, LogLimits, LogSessionId};
use std::time::Duration;

fn with(limits: CoordinationLimits) -> (Script, LogSessionId) {
    let mut log = Script::with(LogLimits { coordination: limits.clone(), ..LogLimits::default() });
    log.apply(&Command::Raise(Raise { epoch: log.epoch, level: Level::COORDINATION, configuration: 0, limits }));
    assert_eq!(log.machine.level(), Level::COORDINATION);
    let client = log.open();
    (log, client)
}

fn level_two() -> (Script, LogSessionId) {
    with(CoordinationLimits::default())
}

fn put(key: &str, value: &str) -> Op {
    Op::Put(TxnPut { previous: true, ..TxnPut::new(key.to_owned(), value.to_owned()) })
}

fn then(operations: Vec<Op>) -> Body {
    Body::Txn(Txn { then: operations, ..Txn::default() })
}

fn response(answer: &RequestAnswer) -> Response {
    match &**applied(answer) {
        Outcome::Applied { response, .. } => response.clone(),
        other => panic!("{other:?}"),
    }
}

fn reason(answer: &RequestAnswer) -> Reason {
    match &**answer.verdict.as_ref().unwrap() {
        Outcome::NotApplied { reason, .. } => *reason,
        other => panic!("{other:?}"),
    }
}

fn grant(log: &mut Script, client: LogSessionId, number: u64) -> LeaseId {
    let grant = GrantLease { term: LeaseTerm::Ttl(Duration::from_secs(10)), end: EndBehavior::Delete };
    match response(&log.submit(client, number, Body::Grant(grant))) {
        Response::Granted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn fence(answer: &RequestAnswer) -> u64 {
    match response(answer) {
        Response::Lock(LockAnswer::Held { fence }) => fence,
        other => panic!("{other:?}"),
    }
}

/// The rejection is not final: a client that gives up abandons the request like any other.
#[test]
fn v1_a_request_below_its_level_takes_effect_only_after_the_raise() {
    let mut log = Script::new();
    let client = log.open();
    let request = log.request(client, 1, then(vec![put("a", "1")]));
    let rejected = ApplyRejection::Level { needed: Level::COORDINATION, current: Level::FIRST };
    assert_eq!(log.deliver(&request).verdict, Err(rejected));
    assert!(!rejected.is_final());
    assert!(!log.peek(client, 1).is_final());
    let limits = CoordinationLimits::default();
    log.apply(&Command::Raise(Raise { epoch: log.epoch, level: Level::COORDINATION, configuration: 0, limits }));
    applied(&log.deliver(&request));
    assert_eq!(log.value("a").as_deref(), Some("1"));
}

#[test]
fn t4_a_transaction_has_one_revision_and_changes_no_key_twice() {
    let (mut log, client) = level_two();
    applied(&log.submit(client, 1, Body::put("old", "0")));
    let body = then(vec![
        put("a", "1"),
        put("b", "2"),
        Op::Delete { selection: Selection::Key("old".into()), previous: false },
    ]);
    let answer = log.submit(client, 2, body);
    assert_eq!(response(&answer), Response::Txn(TxnOutcome { succeeded: true, changes: 3 }));
    assert_eq!(log.machine.keys().revision(), 2);
    let revisions: Vec<u64> =
        log.machine.keys().records(&KeyRange::all()).map(|record| record.modify_revision).collect();
    assert_eq!(revisions, [2, 2]);
    // The codec rejects these as well, so they are applied without it.
    let twice = Txn { then: vec![put("a", "1"), put("a", "2")], ..Txn::default() };
    assert_eq!(log.machine.read_txn(&twice), Err(Reason::Invalid { field: Field::Key }));
    let within = Op::Delete { selection: Selection::Range(KeyRange::prefix("a")), previous: false };
    let overlap = Txn { otherwise: vec![within, put("ab", "2")], ..Txn::default() };
    assert_eq!(log.machine.read_txn(&overlap), Err(Reason::Invalid { field: Field::Key }));
}

#[test]
fn t5_results_beyond_the_limit_apply_nothing() {
    let (mut log, client) = with(CoordinationLimits { answer_bytes: 300, ..CoordinationLimits::default() });
    for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
        applied(&log.submit(client, number as u64 + 1, Body::put(key, "v")));
    }
    let hash = log.machine.keys().clone();
    let answer = log.submit(client, 4, then(vec![put("d", "1"), Op::Read(Query::prefix(""))]));
    assert!(matches!(reason(&answer), Reason::TooLarge { field: Field::Answer, limit: 300, .. }), "{answer:?}");
    assert_eq!(reason(&answer).code(), convoke_base::ErrorCode::TooLarge);
    assert_eq!(log.machine.keys().revision(), hash.revision());
    assert!(log.machine.keys().get(b"d").is_none());
    let small = Query { content: Content::Count, ..Query::prefix("") };
    applied(&log.submit(client, 5, then(vec![put("d", "1"), Op::Read(small)])));
}

#[test]
fn t6_a_read_only_transaction_needs_no_entry() {
    let (mut log, client) = level_two();
    applied(&log.submit(client, 1, Body::put("a", "1")));
    let txn = Txn {
        compares: vec![Compare::key("a", Test::Value(Relation::Equal, "1".into()))],
        then: vec![Op::Read(Query::key("a"))],
        otherwise: Vec::new(),
    };
    assert!(txn.is_read_only());
    let before = log.machine.applied();
    let answer = log.machine.read_txn(&txn).unwrap();
    assert_eq!((answer.succeeded, answer.revision, log.machine.applied()), (true, 1, before));
    let OpResult::Read(read) = &answer.results[0] else { panic!("{answer:?}") };
    assert_eq!(read.records[0].value(), b"1");
    let writes = Txn { then: vec![put("a", "2")], ..Txn::default() };
    assert!(!writes.is_read_only());
    assert_eq!(log.machine.read_txn(&writes), Err(Reason::Invalid { field: Field::Operations }));
}

#[test]
fn t7_reads_select_sort_and_count() {
    let (mut log, client) = level_two();
    for (number, (key, value)) in [("a", "3"), ("b", "1"), ("c", "2")].into_iter().enumerate() {
        applied(&log.submit(client, number as u64 + 1, Body::put(key, value)));
    }
    let machine = &log.machine;
    let keys = |query: &Query| -> Vec<String> {
        let found = machine.query(query, None, 1_000_000).unwrap();
        found.records.iter().map(|record| String::from_utf8(record.key().to_vec()).unwrap()).collect()
    };
    let all = Query::prefix("");
    assert_eq!(keys(&Query { order: Order { by: SortBy::Value, descending: false }, ..all.clone() }), ["b", "c", "a"]);
    assert_eq!(keys(&Query { order: Order { by: SortBy::Key, descending: true }, ..all.clone() }), ["c", "b", "a"]);
    assert_eq!(keys(&Query::of(Selection::Range(KeyRange::new("a", "c")))), ["a", "b"]);
    let limited = machine.query(&Query { limit: Some(2), ..all.clone() }, None, 1_000_000).unwrap();
    assert_eq!((limited.count, limited.more), (2, true));
    let only_keys = machine.query(&Query { content: Content::Keys, ..all.clone() }, None, 1_000_000).unwrap();
    assert!(only_keys.records.iter().all(|record| record.value().is_empty()));
    let count = machine.query(&Query { content: Content::Count, ..all.clone() }, None, 1).unwrap();
    assert_eq!((count.count, count.records.len()), (3, 0));
    let page = machine.query(&all, None, 1).unwrap();
    assert_eq!((page.count, page.more), (1, true), "a page has at least one record");
    let past = machine.query(&all, Some(1), 1_000_000).unwrap();
    assert_eq!(past.count, 1);
    assert_eq!(machine.query(&all, Some(9), 1).unwrap_err().code(), convoke_base::ErrorCode::InvalidArgument);
}

#[test]
fn t8_a_copy_reads_its_results_from_history() {
    let limits = CoordinationLimits { history_bytes: 2_000, ..CoordinationLimits::default() };
    let (mut log, client) = with(limits);
    applied(&log.submit(client, 1, Body::put("a", "0")));
    let body = then(vec![Op::Read(Query::prefix("")), put("a", "1"), Op::Read(Query::prefix("")), put("b", "2")]);
    let request = log.request(client, 2, body);
    let first = log.deliver(&request);
    assert!(matches!(&first.results, Some(Ok(results)) if results.len() == 4));
    log.restart();
    // Another session changes the same keys.
    let other = log.open();
    applied(&log.submit(other, 1, Body::put("a", "9")));
    applied(&log.submit(other, 2, Body::delete("b")));
    assert_eq!(log.deliver(&request), first);
    for number in 3..20 {
        applied(&log.submit(other, number, Body::put("a", "x")));
    }
    let late = log.deliver(&request);
    assert_eq!(late.verdict, first.verdict);
    let oldest = log.machine.history().oldest();
    assert_eq!(late.results, Some(Err(convoke_log::history::Compacted { oldest })));
}

/// 10,000 deleted keys have one revision; a watcher reads them in pages, also from another replica.
#[test]
fn h5_a_watch_continues_inside_of_a_large_revision() {
    let (mut log, client) = level_two();
    let mut number = 0;
    for batch in 0..100u32 {
        number += 1;
        let puts = (0..100u32).map(|at| put(&format!("k/{:05}", batch * 100 + at), "v")).collect();
        applied(&log.submit(client, number, then(puts)));
    }
    let revision = log.machine.keys().revision() + 1;
    applied(&log.submit(client, number + 1, Body::delete_range(KeyRange::prefix("k/"))));
    assert_eq!(log.machine.keys().revision(), revision);
    let filter = WatchFilter::keys(Selection::Range(KeyRange::prefix("k/")));
    let (mut position, mut seen) = (EventPosition::start_of(revision), Vec::new());
    loop {
        if seen.len() % 3_000 < 700 {
            log.restart();
        }
        let page = log.machine.watch(&filter, position, 700, u64::MAX).unwrap();
        for event in &page.events {
            let EventChange::Delete { previous } = &event.event.change else { panic!("{event:?}") };
            seen.push((previous.key().to_vec(), event.last));
        }
        position = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen.len(), 10_000);
    assert!(seen.is_sorted(), "in order, each once");
    assert_eq!(seen.iter().filter(|(_, last)| *last).count(), 1, "only the last one ends the revision");
    assert_eq!(position, EventPosition::start_of(revision + 1));
}

#[test]
fn le1_the_end_of_a_session_does_not_end_a_lease() {
    let (mut log, client) = level_two();
    let lease = grant(&mut log, client, 1);
    let attached = TxnPut { lease: Some(lease), ..TxnPut::new("k", "v") };
    applied(&log.submit(client, 2, then(vec![Op::Put(attached)])));
    applied(&log.submit(client, 3, Body::End(client)));
    log.restart();
    assert!(log.machine.lease(lease).is_some());
    assert_eq!(log.value("k").as_deref(), Some("v"));
}

#[test]
fn lo4_the_end_of_a_lease_hands_its_lock_over_in_the_same_entry() {
    let (mut log, client) = level_two();
    let name = LockName::lock("job");
    let [holder, waiter] = [1, 2].map(|number| grant(&mut log, client, number));
    let first = fence(&log.submit(client, 3, Body::Acquire(Acquire::new(name.clone(), holder))));
    let waits = log.submit(client, 4, Body::Acquire(Acquire::new(name.clone(), waiter)));
    assert_eq!(response(&waits), Response::Lock(LockAnswer::Waiting));
    let attached = TxnPut { lease: Some(holder), ..TxnPut::new("k", "v") };
    applied(&log.submit(client, 5, then(vec![Op::Put(attached)])));
    let revision = log.machine.keys().revision();
    applied(&log.submit(client, 6, Body::Revoke(holder)));
    let place = log.machine.place(&name, waiter).unwrap();
    assert_eq!(place.fence(), Some(revision + 1), "the key vanished at the same revision");
    assert!(place.fence().unwrap() > first);
    assert_eq!(log.value("k"), None);
    let events = log.machine.history().events_from(EventPosition::start_of(revision + 1));
    assert_eq!(events.count(), 3, "deleted, released, granted");
}

#[test]
fn lo10_a_waiter_ends_with_its_second_lease_and_a_holder_does_not() {
    let (mut log, client) = level_two();
    let name = LockName::lock("job");
    let [holder, waiter, next, second] = [1, 2, 3, 4].map(|number| grant(&mut log, client, number));
    let acquire = |lease, with| Body::Acquire(Acquire { waits_with: with, ..Acquire::new(name.clone(), lease) });
    let missing = log.submit(client, 5, acquire(holder, Some(LeaseId(999))));
    assert_eq!(reason(&missing), Reason::NoLease(LeaseId(999)));
    fence(&log.submit(client, 6, acquire(holder, Some(second))));
    applied(&log.submit(client, 7, acquire(waiter, None)));
    // Asking again makes the waiter depend on another lease.
    applied(&log.submit(client, 8, acquire(waiter, Some(second))));
    applied(&log.submit(client, 9, acquire(next, Some(holder))));
    log.restart();
    let revision = log.machine.keys().revision();
    applied(&log.submit(client, 10, Body::Revoke(second)));
    assert!(log.machine.place(&name, waiter).is_none(), "the waiter has left the queue");
    assert!(log.machine.lease(waiter).is_some(), "its own lease lives");
    assert!(log.machine.place(&name, holder).unwrap().fence().is_some(), "a holder does not depend on it");
    assert_eq!(log.machine.keys().revision(), revision, "observers see no change");
    // The entry that ends the lease of the holder does not hand the lock over to a waiter that it removes.
    applied(&log.submit(client, 11, acquire(waiter, None)));
    applied(&log.submit(client, 12, Body::Revoke(holder)));
    assert!(log.machine.place(&name, next).is_none());
    assert!(log.machine.place(&name, waiter).unwrap().fence().is_some());
}

/// A waiter is dropped: its cancel is the next request of the handle, whatever happened to the acquire.
#[test]
fn lo5_a_cancelled_acquire_never_holds_the_lock_afterwards() {
    for acquired in [true, false] {
        let (mut log, client) = level_two();
        let name = LockName::lock("job");
        let lease = grant(&mut log, client, 1);
        let acquire = log.request(client, 2, Body::Acquire(Acquire::new(name.clone(), lease)));
        if acquired {
            log.deliver(&acquire);
        }
        let release = Release { name: name.clone(), place: Place::Lease(lease) };
        let cancelled = log.submit(client, 3, Body::Release(release));
        assert_eq!(applied_or_not_held(&cancelled), acquired);
        let late = log.deliver(&acquire);
        let superseded = late.verdict == Err(ApplyRejection::Superseded);
        assert_eq!(superseded, !acquired);
        assert!(log.machine.lock(&name).is_none());
    }
}

fn applied_or_not_held(answer: &RequestAnswer) -> bool {
    let outcome = answer.verdict.as_ref().unwrap();
    outcome.is_applied() || reason(answer) != Reason::NotHeld
}

#[test]
fn lo8_a_restored_log_ends_locks_and_jumps_ahead_of_their_fences() {
    let (mut log, client) = level_two();
    let name = LockName::lock("job");
    let lease = grant(&mut log, client, 1);
    let held = fence(&log.submit(client, 2, Body::Acquire(Acquire::new(name.clone(), lease))));
    let attached = TxnPut { lease: Some(lease), ..TxnPut::new("k", "v") };
    applied(&log.submit(client, 3, then(vec![Op::Put(attached), put("stays", "1")])));
    let backup = log.machine.clone();
    let again = backup.clone().begun_again();
    assert!(again.lock(&name).is_none() && again.lease(lease).is_none() && again.keys().get(b"k").is_none());
    assert!(again.keys().get(b"stays").is_some());
    assert!(again.keys().revision() > held + (1 << 39));
    let old = again.watch(&WatchFilter::lock(name), EventPosition::start_of(held), 1, 1);
    assert_eq!(old.unwrap_err().oldest, again.keys().revision() + 1);
    let restored = convoke_log::Machine::from_snapshot(&again.snapshot().to_bytes()).unwrap();
    assert_eq!(restored.state_hash(), again.state_hash());
    let first_level = Script::new().machine;
    assert_eq!(first_level.clone().begun_again().state_hash(), first_level.state_hash());
}

#[test]
fn el1_an_observer_sees_every_change_of_leader_and_value_once() {
    let (mut log, client) = level_two();
    let name = LockName::election("primary");
    let [one, two] = [1, 2].map(|number| grant(&mut log, client, number));
    let campaign = |lease, value: &'static str| {
        Body::Acquire(Acquire { value: value.into(), ..Acquire::new(name.clone(), lease) })
    };
    let from = EventPosition::start_of(log.machine.keys().revision() + 1);
    let first = fence(&log.submit(client, 3, campaign(one, "one")));
    applied(&log.submit(client, 4, campaign(two, "two")));
    let proclaim =
        |fence, value: &'static str| Body::Proclaim(Proclaim { name: name.clone(), fence, value: value.into() });
    applied(&log.submit(client, 5, proclaim(first, "uno")));
    applied(&log.submit(client, 6, proclaim(first, "uno")));
    applied(&log.submit(client, 7, Body::Revoke(one)));
    let stale = log.submit(client, 8, proclaim(first, "late"));
    assert_eq!(reason(&stale), Reason::NotHeld);
    log.restart();
    let page = log.machine.watch(&WatchFilter::lock(name.clone()), from, 100, u64::MAX).unwrap();
    let seen: Vec<(u64, LockChange)> = page
        .events
        .iter()
        .map(|event| match &event.event.change {
            EventChange::Lock(event) => (event.fence, event.change.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let second = log.machine.place(&name, two).unwrap().fence().unwrap();
    assert!(second > first);
    let granted = |lease, value: &'static str| LockChange::Granted { lease, value: value.into() };
    assert_eq!(
        seen,
        [
            (first, granted(one, "one")),
            (first, LockChange::Proclaimed { value: "uno".into() }),
            (first, LockChange::Released),
            (second, granted(two, "two")),
        ]
    );
}

#[test]
fn q1_a_full_store_accepts_everything_that_does_not_grow() {
    let limits = CoordinationLimits { keys: 2, leases: 1, keys_per_lease: 1, ..CoordinationLimits::default() };
    let (mut log, client) = with(limits);
    let lease = grant(&mut log, client, 1);
    let attached = |key: &'static str| Op::Put(TxnPut { lease: Some(lease), ..TxnPut::new(key, "v") });
    applied(&log.submit(client, 2, then(vec![attached("a"), put("b", "1")])));
    let full = log.submit(client, 3, Body::put("c", "1"));
    assert_eq!(reason(&full), Reason::Full { field: Field::Keys, limit: 2 });
    assert_eq!(reason(&full).code(), convoke_base::ErrorCode::ResourceExhausted);
    assert_eq!(
        reason(&log.submit(client, 4, then(vec![attached("b")]))),
        Reason::Full { field: Field::KeysOfLease, limit: 1 }
    );
    let term = LeaseTerm::Ttl(Duration::from_secs(10));
    let another = Body::Grant(GrantLease { term, end: EndBehavior::Delete });
    assert_eq!(reason(&log.submit(client, 5, another)), Reason::Full { field: Field::Leases, limit: 1 });
    applied(&log.submit(client, 6, Body::put("b", "22")));
    applied(&log.submit(client, 7, then(vec![attached("a")])));
    applied(&log.submit(client, 8, Body::delete("b")));
    applied(&log.submit(client, 9, Body::put("c", "1")));
    applied(&log.submit(client, 10, Body::Revoke(lease)));
    assert_eq!(log.machine.keys().len(), 1);
}
