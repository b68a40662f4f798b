//! Valid histories of transactions, locks and guarded writes are accepted. A broken one of each kind is rejected.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_harness::history::Verdict;
use convoke_harness::history::coordination::{Compare, CoordinationHistory, Object, Reply, Request, Txn};
use fastrand::Rng;
use std::collections::BTreeMap;

/// Client, request, called, answered (0: unknown), reply.
type Line = (u64, Request<&'static str>, u64, u64, Reply);

fn history(lines: &[Line]) -> CoordinationHistory<&'static str> {
    let mut history = CoordinationHistory::new();
    for (client, request, called, answered, reply) in lines {
        let id = history.request(*client, request.clone(), *called);
        if *answered > 0 {
            history.answer(id, *answered, reply.clone());
        }
    }
    history
}

#[track_caller]
fn good(lines: &[Line]) {
    if let Err(violation) = history(lines).check() {
        panic!("{violation}");
    }
}

#[track_caller]
fn bad(lines: &[Line]) {
    let violation = history(lines).check().unwrap_err();
    assert!(matches!(violation.verdict, Verdict::NotLinearizable { .. }));
    assert!(violation.to_string().contains("none of the marked operations can come next"));
}

fn txn(txn: Txn<&'static str>) -> Request<&'static str> {
    Request::Txn(txn)
}

fn new() -> Txn<&'static str> {
    Txn::default()
}

const DONE: Reply = Reply::Decided { succeeded: true, read: Vec::new() };
const FAILED: Reply = Reply::Decided { succeeded: false, read: Vec::new() };

fn read(values: &[u64]) -> Reply {
    Reply::Decided {
        succeeded: true,
        read: values.iter().map(|value| Some(*value).filter(|value| *value > 0)).collect(),
    }
}

fn granted(fence: u64) -> Reply {
    Reply::Granted { fence }
}

fn acquire() -> Request<&'static str> {
    Request::acquire("l")
}

fn release(fence: u64) -> Request<&'static str> {
    Request::Release { lock: "l", fence }
}

#[test]
fn a_torn_transaction_is_rejected() {
    let write = |value| txn(new().put("a", value).put("b", value));
    let both = || txn(new().get("a").get("b"));
    let first = (1, write(1), 1, 2, DONE);
    let second = (1, write(2), 3, 9, DONE);
    good(&[first.clone(), second.clone(), (2, both(), 4, 5, read(&[1, 1])), (2, both(), 6, 7, read(&[2, 2]))]);
    bad(&[first.clone(), second.clone(), (2, both(), 4, 5, read(&[2, 1]))]);
    bad(&[first.clone(), second.clone(), (2, both(), 4, 5, read(&[1, 2]))]);
    // Two reads of one key each see the two halves in an impossible order.
    let one = |key| txn(new().get(key));
    good(&[first.clone(), second.clone(), (2, one("a"), 4, 5, read(&[1])), (2, one("b"), 6, 7, read(&[2]))]);
    bad(&[first, second, (2, one("a"), 4, 5, read(&[2])), (2, one("b"), 6, 7, read(&[1]))]);
}

#[test]
fn a_lost_update_of_a_transaction_is_rejected() {
    let transfer = |a, b| txn(new().if_value("a", Some(1)).if_value("b", None).put("a", a).put("b", b));
    let start = (1, txn(new().put("a", 1)), 1, 2, DONE);
    good(&[start.clone(), (1, transfer(2, 3), 3, 9, DONE), (2, transfer(4, 5), 3, 9, FAILED)]);
    bad(&[start.clone(), (1, transfer(2, 3), 3, 9, DONE), (2, transfer(4, 5), 3, 9, DONE)]);
    bad(&[start.clone(), (1, transfer(2, 3), 3, 9, FAILED), (2, transfer(4, 5), 3, 9, FAILED)]);
    // An unknown one may have happened.
    good(&[start.clone(), (1, transfer(2, 3), 3, 0, DONE), (2, transfer(4, 5), 5, 9, FAILED)]);
    bad(&[start, (2, transfer(4, 5), 5, 9, FAILED), (1, transfer(2, 3), 10, 0, DONE)]);
}

#[test]
fn a_wrong_result_of_a_branch_is_rejected() {
    let lookup = || txn(new().if_value("a", Some(1)).get("b").else_get("a"));
    let start = (1, txn(new().put("a", 2).put("b", 3)), 1, 2, DONE);
    let otherwise = |value| Reply::Decided { succeeded: false, read: vec![Some(value)] };
    good(&[start.clone(), (2, lookup(), 3, 4, otherwise(2))]);
    bad(&[start.clone(), (2, lookup(), 3, 4, otherwise(3))]);
    bad(&[start.clone(), (2, lookup(), 3, 4, read(&[3]))]);
    bad(&[start, (2, lookup(), 3, 4, granted(3))]);
    // A read sees the earlier writes of its transaction.
    good(&[(1, txn(new().put("a", 7).get("a")), 1, 2, read(&[7]))]);
    bad(&[(1, txn(new().put("a", 7).get("a")), 1, 2, read(&[0]))]);
}

#[test]
fn two_holders_at_a_time_are_rejected() {
    let first = (1, acquire(), 1, 2, granted(5));
    let second = (2, acquire(), 3, 9, granted(7));
    bad(&[first.clone(), second.clone()]);
    good(&[first.clone(), second.clone(), (1, release(5), 4, 6, Reply::Released)]);
    bad(&[first.clone(), second.clone(), (1, release(5), 10, 11, Reply::Released)]);
    // A release without an answer, or a lease that may end from then on, explains the second grant; not before it began.
    good(&[first.clone(), second.clone(), (1, release(5), 4, 0, DONE)]);
    bad(&[first.clone(), second.clone(), (1, release(5), 10, 0, DONE)]);
    // A semaphore has more holders.
    let permit = |client, fence| (client, Request::Acquire { lock: "l", permits: 2 }, 1, 9, granted(fence));
    good(&[permit(1, 5), permit(2, 7)]);
    bad(&[permit(1, 5), permit(2, 7), permit(3, 9)]);
}

#[test]
fn a_fence_that_does_not_grow_is_rejected() {
    let ended = (1, release(5), 3, 4, Reply::Released);
    good(&[(1, acquire(), 1, 2, granted(5)), ended.clone(), (2, acquire(), 5, 6, granted(6))]);
    bad(&[(1, acquire(), 1, 2, granted(5)), ended.clone(), (2, acquire(), 5, 6, granted(5))]);
    bad(&[(1, acquire(), 1, 2, granted(5)), ended, (2, acquire(), 5, 6, granted(4))]);
}

#[test]
fn wrong_answers_of_locks_are_rejected() {
    let first = (1, acquire(), 1, 2, granted(5));
    good(&[first.clone(), (2, acquire(), 3, 4, Reply::Held)]);
    bad(&[(2, acquire(), 3, 4, Reply::Held)]);
    bad(&[(2, acquire(), 3, 4, Reply::Held), (1, acquire(), 5, 0, DONE)]);
    // A grant that nobody saw explains it, and hinders nobody later.
    good(&[(1, acquire(), 1, 0, DONE), (2, acquire(), 3, 4, Reply::Held), (2, acquire(), 5, 6, granted(9))]);
    good(&[first.clone(), (1, release(5), 3, 4, Reply::Released), (1, release(5), 5, 6, Reply::NotHeld)]);
    bad(&[first.clone(), (1, release(5), 3, 4, Reply::NotHeld)]);
    bad(&[first.clone(), (1, release(5), 3, 4, Reply::Released), (1, release(5), 5, 6, Reply::Released)]);
    bad(&[first, (1, release(4), 3, 4, Reply::Released)]);
    bad(&[(1, acquire(), 1, 2, DONE)]);
}

#[test]
fn a_guarded_write_of_a_former_holder_is_rejected() {
    let guarded = |fence, value| txn(Txn::guarded("l", fence).put("a", value));
    let handed_over = [(1, acquire(), 1, 2, granted(5)), (1, release(5), 3, 0, DONE), (2, acquire(), 4, 6, granted(8))];
    let with = |lines: &[Line]| [&handed_over[..], lines].concat();
    good(&with(&[(1, guarded(5, 1), 3, 5, DONE), (2, guarded(8, 2), 7, 8, DONE)]));
    good(&with(&[(1, guarded(5, 1), 7, 8, FAILED), (2, guarded(8, 2), 7, 8, DONE)]));
    bad(&with(&[(1, guarded(5, 1), 7, 8, DONE)]));
    bad(&with(&[(2, guarded(8, 2), 7, 8, FAILED)]));
    bad(&with(&[(2, guarded(9, 2), 7, 8, DONE)]));
    // One of unknown outcome had its effect before the hand-over, or never.
    let seen = |value, from| (3, txn(new().get("a")), from, from + 1, read(&[value]));
    good(&with(&[(1, guarded(5, 1), 3, 0, DONE), seen(1, 20)]));
    bad(&with(&[(1, guarded(5, 1), 7, 0, DONE), seen(1, 20)]));
    bad(&with(&[(1, guarded(5, 1), 3, 0, DONE), seen(0, 20), seen(1, 30)]));
}

#[test]
fn objects_that_no_operation_connects_are_checked_separately() {
    let mut history = history(&[
        (1, txn(new().put("a", 1).put("b", 1)), 1, 2, DONE),
        (1, txn(new().put("c", 1)), 1, 2, DONE),
        (1, acquire(), 1, 2, granted(3)),
    ]);
    assert!(history.check_within(2).is_ok(), "two states suffice for each group");
    let wrong = history.request(1, txn(new().get("b").get("c")), 3);
    history.answer(wrong, 4, read(&[1, 2]));
    let violation = history.check().unwrap_err();
    assert_eq!(violation.key, [Object::Key("a"), Object::Key("b"), Object::Key("c")]);
    assert_eq!(violation.operations.len(), 3);
    assert_eq!(history.check_within(0).unwrap_err().verdict, Verdict::Exhausted);
}

/// A correct store with one lock, used by concurrent clients. Each operation takes effect at a moment between call and
/// answer.
fn run(seed: u64, operations: usize, wrong_at: Option<usize>) -> CoordinationHistory<u64> {
    let mut rng = Rng::with_seed(seed);
    let mut planned: Vec<(u64, u64, u64, u64)> = Vec::new();
    let mut free = [0u64; 6];
    for _ in 0..operations {
        let client = (0..free.len()).min_by_key(|client| free[*client]).unwrap();
        let called = free[client] + rng.u64(1..5);
        let effect = called + rng.u64(1..20);
        free[client] = effect + rng.u64(1..20);
        planned.push((effect, called, free[client], client as u64));
    }
    planned.sort_unstable();
    let mut history = CoordinationHistory::new();
    let (mut keys, mut holder): (BTreeMap<u64, u64>, Option<(u64, u64)>) = Default::default();
    let mut wrong = wrong_at;
    for (number, (effect, called, answered, client)) in planned.into_iter().enumerate() {
        let (fence, value) = (effect * 10 + client, number as u64 + 1);
        let unknown = rng.u8(..100) < 2;
        let (request, mut reply) = match rng.u8(..10) {
            0..3 if holder.is_none() => {
                holder = Some((client, fence));
                (Request::acquire(0), granted(fence))
            }
            0..3 => (Request::acquire(0), Reply::Held),
            3..5 => match holder.take_if(|(who, _)| *who == client) {
                Some((_, fence)) => (Request::Release { lock: 0, fence }, Reply::Released),
                None => (Request::Release { lock: 0, fence }, Reply::NotHeld),
            },
            5..7 => {
                let (succeeded, fence) = match holder {
                    Some((who, held)) if who == client => (true, held),
                    _ => (false, fence),
                };
                if succeeded {
                    keys.insert(0, value);
                }
                (Request::Txn(Txn::guarded(0, fence).put(0, value)), Reply::Decided { succeeded, read: vec![] })
            }
            _ => {
                let (one, two) = (rng.u64(..3), rng.u64(..3));
                let (expected, before) = (keys.get(&one).copied(), keys.get(&two).copied());
                let txn = Txn::default().if_value(one, expected).get(two).put(one, value);
                keys.insert(one, value);
                (Request::Txn(txn), Reply::Decided { succeeded: true, read: vec![before] })
            }
        };
        if wrong.is_some_and(|at| number >= at)
            && let (Request::Txn(txn), Reply::Decided { succeeded, .. }) = (&request, &mut reply)
            && matches!(txn.compares[..], [Compare::Value { .. }])
        {
            *succeeded = false;
            wrong = None;
        }
        // Unknown outcomes of holders would need their releases.
        let unknown = unknown && matches!(request, Request::Txn(_));
        let id = history.request(client, request, called);
        if !unknown {
            history.answer(id, answered, reply);
        }
    }
    assert_eq!(wrong, None, "the wrong answer was given");
    history
}

#[test]
fn two_thousand_operations_on_one_group_are_checked() {
    for seed in 0..5 {
        if let Err(violation) = run(seed, 2_000, None).check() {
            panic!("seed {seed}: {:?}", violation.verdict);
        }
    }
}

#[test]
fn one_wrong_answer_among_many_operations_is_found() {
    for seed in 0..5 {
        let violation = run(seed, 300, Some(250)).check().unwrap_err();
        assert!(matches!(violation.verdict, Verdict::NotLinearizable { .. }), "seed {seed}: {:?}", violation.verdict);
    }
}
