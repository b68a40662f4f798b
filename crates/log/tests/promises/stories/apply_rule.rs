//! A3, step by step.

use crate::script::{Script, TTL, applied};
use convoke_log::command::{Body, Expire, Open, Put, Request};
use convoke_log::machine::{ApplyRejection, Fate, Field, Outcome, Reason, Reply, Response};
use convoke_log::{Command, Entry, LogLimits, LogSessionId, LogTime, Position};
use std::time::Duration;

#[test]
fn a1_entries_come_in_index_order_without_gaps() {
    let mut log = Script::new();
    log.open();
    let command = Command::Open(Open::new(log.epoch, TTL, 0));
    for index in [0, 1, 3] {
        let entry = Entry { index, epoch: log.epoch, stamp: LogTime::ZERO, command: command.clone() };
        let error = log.machine.apply(&entry).unwrap_err();
        assert_eq!((error.found, error.expected), (index, 2));
    }
    // An entry of the engine only advances the index.
    let hash = log.machine.keys().revision();
    log.machine.skip(Position { index: 2, epoch: log.epoch }).unwrap();
    assert_eq!((log.machine.applied().index, log.machine.keys().revision()), (2, hash));
    assert_eq!(log.open(), LogSessionId(3), "the id of a session is its index");
}

#[test]
fn a2_malformed_requests_are_rejected_and_name_the_field() {
    let mut log = Script::new();
    let client = log.open();
    let good = log.request(client, 3, Body::put("A", "1"));
    let mut check = |request: Request, field| {
        let entry = Entry {
            index: log.machine.applied().index + 1,
            epoch: log.epoch,
            stamp: log.now,
            command: Command::Request(request),
        };
        let Reply::Request(answer) = log.machine.apply(&entry).unwrap().reply else { panic!() };
        assert_eq!(answer.verdict, Err(ApplyRejection::Invalid { field }));
    };
    check(Request { number: 0, ..good.clone() }, Field::Number);
    check(Request { number: u64::MAX, ..good.clone() }, Field::Number);
    check(Request { abandon_below: 0, ..good.clone() }, Field::AbandonBelow);
    check(Request { abandon_below: 4, ..good.clone() }, Field::AbandonBelow);
    check(Request { previous: 3, ..good }, Field::Previous);
}

#[test]
fn step_1_log_time_never_falls() {
    let mut log = Script::new();
    log.now = LogTime::from_micros(500);
    log.open();
    log.now = LogTime::from_micros(400);
    log.open();
    assert_eq!(log.machine.log_time(), LogTime::from_micros(500));
}

#[test]
fn step_2_an_unknown_session_executes_nothing() {
    let mut log = Script::new();
    let answer = log.submit(LogSessionId(77), 1, Body::put("A", "1"));
    assert_eq!((answer.verdict, log.value("A")), (Err(ApplyRejection::SessionUnknown), None));
}

#[test]
fn step_3_copies_get_the_outcome_of_the_first_whatever_their_epoch() {
    let mut log = Script::new();
    let client = log.open();
    let request = log.request(client, 1, Body::put("A", "1"));
    let first = applied(&log.deliver(&request)).clone();
    assert_eq!(
        *first,
        Outcome::Applied {
            index: 2,
            revision: 1,
            response: Response::Changed(convoke_log::keys::Changed { keys: 1, ..Default::default() })
        }
    );
    log.elect(2);
    for epoch in [request.epoch, log.epoch] {
        assert_eq!(applied(&log.deliver(&Request { epoch, ..request.clone() })), &first);
    }
    assert_eq!(log.machine.keys().revision(), 1);
}

#[test]
fn step_4_beyond_the_horizon_it_is_too_old_and_not_executed() {
    let mut log = Script::new();
    let client = log.open();
    let oldest = log.request(client, 1, Body::put("A", "0"));
    applied(&log.deliver(&oldest));
    let skipped = log.request(client, 2, Body::put("A", "x"));
    for number in 3..=18 {
        applied(&log.submit(client, number, Body::put("A", number.to_string())));
    }
    // Number 18 abandoned the sixteen before it: they and it are kept, including number 1.
    assert!(log.deliver(&oldest).verdict.is_ok());
    assert_eq!(log.deliver(&skipped).verdict, Err(ApplyRejection::Superseded));
    for number in [19, 20] {
        applied(&log.submit(client, number, Body::put("A", number.to_string())));
    }
    assert_eq!(log.deliver(&oldest).verdict, Err(ApplyRejection::TooOld));
    assert_eq!(log.deliver(&skipped).verdict, Err(ApplyRejection::TooOld));
    assert_eq!(log.machine.session(client).unwrap().horizon, 3);
    assert_eq!(log.value("A").as_deref(), Some("20"));
}

#[test]
fn step_6_a_pipelined_request_waits_for_the_one_before_it() {
    let mut log = Script::new();
    let client = log.open();
    let pipelined = |number: u64, log: &Script| Request {
        abandon_below: 1,
        ..log.request(client, number, Body::put("A", number.to_string()))
    };
    let (first, second, third) = (pipelined(1, &log), pipelined(2, &log), pipelined(3, &log));
    let early = log.deliver(&third);
    assert_eq!(early.verdict, Err(ApplyRejection::Gap { missing: 2 }));
    assert_eq!(early.previous.unwrap().1, Fate::Open);
    applied(&log.deliver(&first));
    assert_eq!(log.deliver(&third).verdict, Err(ApplyRejection::Gap { missing: 2 }));
    applied(&log.deliver(&second));
    applied(&log.deliver(&third));
    assert_eq!(log.value("A").as_deref(), Some("3"));
}

#[test]
fn step_6_an_abandoned_request_is_not_waited_for() {
    let mut log = Script::new();
    let client = log.open();
    let given_up = Request { abandon_below: 1, ..log.request(client, 1, Body::put("A", "1")) };
    let next = log.request(client, 2, Body::put("A", "2"));
    assert_eq!((next.previous, next.abandon_below), (1, 2));
    applied(&log.deliver(&next));
    assert_eq!(log.deliver(&given_up).verdict, Err(ApplyRejection::Superseded));
}

#[test]
fn step_7_a_request_after_its_deadline_has_the_outcome_not_applied() {
    let mut log = Script::new();
    let client = log.open();
    let deadline = Some(LogTime::from_micros(100));
    let (in_time, late) = [1, 2]
        .map(|number| Request { deadline, ..log.request(client, number, Body::put("A", number.to_string())) })
        .into();
    log.now = LogTime::from_micros(100);
    applied(&log.deliver(&in_time));
    log.now = LogTime::from_micros(101);
    let expected = Outcome::NotApplied { index: 3, reason: Reason::Expired };
    assert_eq!(*log.deliver(&late).verdict.unwrap(), expected);
    // The answer does not change when a copy arrives later.
    log.now = LogTime::from_micros(999);
    assert_eq!(*log.deliver(&late).verdict.unwrap(), expected);
    assert_eq!(log.value("A").as_deref(), Some("1"));
}

#[test]
fn f5_a_client_that_never_abandons_is_rejected() {
    let mut log = Script::with(LogLimits { window: 3, ..LogLimits::default() });
    let client = log.open();
    let wanting = |log: &Script, number: u64, from: u64| Request {
        abandon_below: from,
        ..log.request(client, number, Body::put("A", "1"))
    };
    for number in 1..=3 {
        applied(&log.deliver(&wanting(&log, number, 1)));
    }
    assert_eq!(log.deliver(&wanting(&log, 4, 1)).verdict, Err(ApplyRejection::WindowFull { limit: 3 }));
    applied(&log.deliver(&wanting(&log, 4, 2)));
    assert!(matches!(log.peek(client, 1), Fate::Done(_)), "no longer wanted, still kept");
}

#[test]
fn f3_f5_large_outcomes_are_bounded_in_bytes() {
    let limits = LogLimits { outcome_bytes: 2_000, response_bytes: 1_500, ..LogLimits::default() };
    let mut log = Script::with(limits);
    let client = log.open();
    let put = |log: &Script, number: u64, from: u64| {
        let body = Body::Put(Put { key: "A".into(), value: vec![7; 1_000].into(), if_revision: None, previous: true });
        Request { abandon_below: from, ..log.request(client, number, body) }
    };
    for number in 1..=3 {
        applied(&log.deliver(&put(&log, number, 1)));
    }
    assert_eq!(log.deliver(&put(&log, 4, 1)).verdict, Err(ApplyRejection::WindowFull { limit: 2_000 }));
    for number in 4..=9 {
        applied(&log.deliver(&put(&log, number, number)));
    }
    let known: Vec<u64> = (1..=9).filter(|number| matches!(log.peek(client, *number), Fate::Done(_))).collect();
    assert_eq!(known, [8, 9], "the newest unwanted one always stays");
    assert_eq!(log.peek(client, 7), Fate::TooOld);
}

#[test]
fn ls6_expiry_is_checked_when_it_is_applied() {
    use convoke_log::machine::NotExpired;
    let mut log = Script::new();
    let client = log.open();
    let (epoch, activity) = (log.epoch, log.machine.session(client).unwrap().activity);
    assert_eq!(log.expire(client, activity, epoch), Err(NotExpired::TooEarly));
    log.now = log.now + TTL;
    log.elect(2);
    assert_eq!(log.expire(client, activity, epoch), Err(NotExpired::StaleEpoch { current: log.epoch }));
    applied(&log.submit(client, 1, Body::put("A", "1")));
    log.now = log.now + TTL;
    assert_eq!(log.expire(client, activity, log.epoch), Err(NotExpired::Active), "a request was applied");
    let activity = log.machine.session(client).unwrap().activity;
    assert_eq!(log.expire(client, activity, log.epoch), Ok(()));
    assert_eq!(log.expire(client, activity, log.epoch), Err(NotExpired::NotOpen));
    assert!(log.machine.session(client).is_none());
    let expire = Expire { epoch: log.epoch, session: client, activity };
    assert_eq!(log.apply(&Command::Expire(expire)).log_time, LogTime::ZERO + TTL + TTL);
    assert_eq!(Duration::from_secs(20), log.machine.log_time().since(LogTime::ZERO));
}
