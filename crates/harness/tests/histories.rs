//! Valid histories are accepted, invalid ones are rejected, and large ones are checked quickly.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_harness::history::{Answer, Call, CallHistory, Verdict};

/// Client, call, called, answered (0: unknown), answer.
type Line = (u64, Call, u64, u64, Answer);

fn history(lines: &[Line]) -> CallHistory<&'static str> {
    let mut history = CallHistory::new();
    for (client, call, called, answered, answer) in lines {
        let id = history.call(*client, "k", *call, *called);
        if *answered > 0 {
            history.answer(id, *answered, *answer);
        }
    }
    history
}

const DONE: Answer = Answer::Written { previous: None };

fn got(value: u64) -> Answer {
    Answer::Got(Some(value).filter(|value| *value > 0))
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

#[test]
fn one_after_the_other() {
    good(&[]);
    good(&[(1, Call::Get, 1, 2, got(0)), (1, Call::put(7), 3, 4, DONE), (2, Call::Get, 5, 6, got(7))]);
    good(&[(1, Call::put(7), 1, 2, DONE), (1, Call::delete(), 3, 4, DONE), (2, Call::Get, 5, 6, got(0))]);
}

#[test]
fn a_stale_read_is_detected() {
    bad(&[(1, Call::put(1), 1, 2, DONE), (1, Call::put(2), 3, 4, DONE), (2, Call::Get, 5, 6, got(1))]);
    bad(&[(1, Call::put(1), 1, 2, DONE), (2, Call::Get, 3, 4, got(0))]);
    bad(&[(1, Call::Get, 1, 2, got(9))]);
}

#[test]
fn overlapping_operations_may_be_in_any_order_but_in_one() {
    // A long put: a read may see it or not, but not see it and then miss it.
    let put = (1, Call::put(1), 1, 10, DONE);
    good(&[put, (2, Call::Get, 2, 3, got(0)), (2, Call::Get, 4, 5, got(1))]);
    bad(&[put, (2, Call::Get, 2, 3, got(1)), (2, Call::Get, 4, 5, got(0))]);
    bad(&[put, (2, Call::Get, 2, 3, got(1)), (3, Call::Get, 4, 5, got(0))]);
    // At the same time they overlap.
    good(&[(1, Call::put(1), 1, 5, DONE), (2, Call::Get, 5, 6, got(0))]);
}

#[test]
fn two_readers_may_not_disagree_about_the_order_of_two_writes() {
    let writes = [(1, Call::put(1), 1, 10, DONE), (2, Call::put(2), 1, 10, DONE)];
    let reads = |a, b| [(3, Call::Get, 11, 12, got(a)), (4, Call::Get, 13, 14, got(b))];
    good(&[writes, reads(1, 1)].concat());
    good(&[writes, reads(2, 2)].concat());
    bad(&[writes, reads(1, 2)].concat());
}

#[test]
fn a_lost_update_is_detected() {
    let swap = |old: Option<u64>, new| Call::compare_and_set(old, Some(new));
    good(&[(1, swap(None, 1), 1, 2, DONE), (2, swap(Some(1), 2), 3, 4, DONE)]);
    bad(&[(1, swap(None, 1), 1, 5, DONE), (2, swap(None, 2), 1, 5, DONE)]);
    good(&[(1, swap(None, 1), 1, 5, DONE), (2, swap(None, 2), 1, 5, Answer::mismatch())]);
    bad(&[(1, swap(None, 1), 1, 5, Answer::mismatch()), (2, swap(None, 2), 1, 5, Answer::mismatch())]);
}

#[test]
fn a_reported_previous_value_must_be_correct() {
    let previous = |value| Answer::Written { previous: Some(value) };
    good(&[(1, Call::put(1), 1, 2, previous(None)), (1, Call::put(2), 3, 4, previous(Some(1)))]);
    bad(&[(1, Call::put(1), 1, 2, previous(None)), (1, Call::put(2), 3, 4, previous(None))]);
    let swap = Call::compare_and_set(Some(9), Some(2));
    good(&[(1, Call::put(1), 1, 2, DONE), (1, swap, 3, 4, Answer::Mismatch { found: Some(Some(1)) })]);
    bad(&[(1, Call::put(1), 1, 2, DONE), (1, swap, 3, 4, Answer::Mismatch { found: Some(None) })]);
    bad(&[(1, Call::Get, 1, 2, DONE)]);
    bad(&[(1, Call::put(1), 1, 2, Answer::mismatch())]);
}

#[test]
fn an_unknown_write_may_have_happened_at_any_time_or_never() {
    let unknown = (1, Call::put(1), 1, 0, DONE);
    good(&[unknown, (2, Call::Get, 2, 3, got(0)), (2, Call::Get, 90, 91, got(0))]);
    good(&[unknown, (2, Call::Get, 2, 3, got(0)), (2, Call::Get, 90, 91, got(1))]);
    bad(&[unknown, (2, Call::Get, 2, 3, got(1)), (2, Call::Get, 90, 91, got(0))]);
    // Once, not twice; not before its call.
    let over = (2, Call::put(2), 4, 5, DONE);
    bad(&[unknown, (2, Call::Get, 2, 3, got(1)), over, (2, Call::Get, 6, 7, got(1))]);
    bad(&[(2, Call::Get, 2, 3, got(1)), (1, Call::put(1), 5, 0, DONE)]);
}

#[test]
fn an_unobserved_unknown_write_explains_a_failed_compare() {
    let swap = (2, Call::compare_and_set(None, Some(2)), 5, 6, Answer::mismatch());
    bad(&[swap]);
    good(&[(1, Call::put(1), 1, 0, DONE), swap]);
}

#[test]
fn a_write_resolved_as_never_must_not_have_happened() {
    let mut history: CallHistory<&str> = CallHistory::new();
    let put = history.call(1, "k", Call::put(1), 1);
    let get = history.call(2, "k", Call::Get, 2);
    history.answer(get, 3, got(1));
    assert_eq!((history.len(), history.unknown()), (2, 1));
    assert!(history.check().is_ok(), "it may have happened");
    history.never(put);
    assert!(history.check().is_err(), "it was resolved as never");
    assert_eq!((history.len(), history.unknown()), (1, 0));
}

#[test]
fn keys_do_not_influence_each_other() {
    let mut history = CallHistory::new();
    let put = history.call(1, "a", Call::put(1), 1);
    history.answer(put, 2, DONE);
    let get = history.call(1, "b", Call::Get, 3);
    history.answer(get, 4, got(0));
    assert!(history.check().is_ok());
    let get = history.call(1, "a", Call::Get, 5);
    history.answer(get, 6, got(0));
    let violation = history.check().unwrap_err();
    assert_eq!((violation.key, violation.verdict), ("a", Verdict::NotLinearizable { stuck: vec![1] }));
    assert_eq!(history.check_within(0).unwrap_err().verdict, Verdict::Exhausted);
}
