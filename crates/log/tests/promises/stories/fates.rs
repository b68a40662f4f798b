//! Fates of requests (A5, F6, F7, LS8).

use crate::script::{Script, applied};
use convoke_log::command::{Body, Request};
use convoke_log::machine::{ApplyRejection, Fate, Outcome, Reason, Response};
use convoke_log::{LogLimits, LogSessionId, RequestId};

#[test]
fn a5_every_answer_carries_the_fate_of_the_previous_request() {
    let mut log = Script::new();
    let client = log.open();
    assert_eq!(log.submit(client, 1, Body::put("A", "1")).previous, None, "there is none");
    let first = log.peek(client, 1);
    assert!(matches!(first, Fate::Done(_)));
    let id = |number| RequestId::new(client, number);
    assert_eq!(log.submit(client, 2, Body::put("A", "2")).previous, Some((id(1), first)));
    assert_eq!(log.submit(client, 4, Body::put("A", "4")).previous, Some((id(3), Fate::Never)));
}

#[test]
fn f6_a_fence_makes_the_fate_of_an_own_request_final() {
    let mut log = Script::new();
    let client = log.open();
    let unknown = log.request(client, 1, Body::put("A", "1"));
    assert_eq!(log.peek(client, 1), Fate::Open);
    let fence = log.submit(client, 2, Body::Fence(unknown.id()));
    assert!(matches!(**applied(&fence), Outcome::Applied { response: Response::Fenced, .. }));
    assert_eq!(fence.previous, Some((unknown.id(), Fate::Never)));
    assert_eq!(log.deliver(&unknown).verdict, Err(ApplyRejection::Superseded));
}

/// An operator, or another node's endpoint, resolves for a client without using its numbers.
#[test]
fn f6_a_fence_may_name_a_request_of_another_session() {
    let mut log = Script::new();
    let (client, operator) = (log.open(), log.open());
    let (first, second) = (log.request(client, 1, Body::put("A", "1")), log.request(client, 2, Body::put("A", "2")));
    applied(&log.deliver(&first));
    let fence = log.submit(operator, 1, Body::Fence(first.id()));
    assert!(matches!(fence.previous, Some((_, Fate::Done(_)))), "{:?}", fence.previous);
    applied(&log.deliver(&second));
    let third = log.request(client, 3, Body::put("A", "3"));
    let fence = log.submit(operator, 2, Body::Fence(third.id()));
    assert_eq!(fence.previous, Some((third.id(), Fate::Never)));
    assert_eq!(log.deliver(&third).verdict, Err(ApplyRejection::Superseded));
    applied(&log.submit(client, 4, Body::put("A", "4")));
}

#[test]
fn f6_a_session_that_does_not_exist_yet_cannot_be_fenced() {
    let mut log = Script::new();
    let operator = log.open();
    let later = RequestId::new(LogSessionId(3), 1);
    let outcome = log.submit(operator, 1, Body::Fence(RequestId::new(LogSessionId(3), 1))).verdict.unwrap();
    assert_eq!(*outcome, Outcome::NotApplied { index: 2, reason: Reason::NoSession });
    assert_eq!(log.open(), later.session);
    applied(&log.submit(later.session, 1, Body::put("A", "1")));
}

#[test]
fn f7_final_fates_do_not_change_until_they_are_too_old() {
    let mut log = Script::with(LogLimits { outcomes: 3, ..LogLimits::default() });
    let client = log.open();
    applied(&log.submit(client, 1, Body::put("A", "1")));
    applied(&log.submit(client, 3, Body::put("A", "3")));
    let mut before = [log.peek(client, 1), log.peek(client, 2)];
    assert!(matches!(before, [Fate::Done(_), Fate::Never]));
    for number in 4..20 {
        applied(&log.submit(client, number, Body::put("A", "x")));
        log.restart();
        for (number, before) in [1, 2].into_iter().zip(&mut before) {
            let now = log.peek(client, number);
            assert!(now == *before || now == Fate::TooOld, "{before:?} became {now:?}");
            *before = now;
        }
    }
    assert_eq!(before, [Fate::TooOld, Fate::TooOld]);
}

#[test]
fn ls8_an_ended_session_keeps_its_outcomes_and_executes_nothing() {
    let mut log = Script::new();
    let client = log.open();
    let done = log.request(client, 1, Body::put("A", "1"));
    let first = applied(&log.deliver(&done)).clone();
    let open = log.request(client, 2, Body::put("A", "2"));
    let end = log.request(client, 3, Body::End(client));
    let ended = applied(&log.deliver(&end)).clone();
    assert_eq!(applied(&log.deliver(&done)), &first);
    assert_eq!(applied(&log.deliver(&end)), &ended, "including the outcome of the end");
    let reason = convoke_log::machine::EndReason::Requested;
    for request in [open, log.request(client, 4, Body::put("A", "4"))] {
        assert_eq!(log.deliver(&request).verdict, Err(ApplyRejection::SessionEnded(reason)));
        assert_eq!(log.machine.peek(request.id()), Fate::Never);
    }
    assert_eq!(log.value("A").as_deref(), Some("1"));
}

/// LS4: a request that is the last of its session ends it in the same entry, applied or not, and copies still get its outcome.
#[test]
fn ls4_the_last_request_ends_its_session() {
    let mut log = Script::new();
    for (value, if_revision, is_applied) in [("1", None, true), ("2", Some(99), false)] {
        let client = log.open();
        let put =
            Body::Put(convoke_log::command::Put { key: "A".into(), value: value.into(), if_revision, previous: false });
        let last = Request { last: true, ..log.request(client, 1, put) };
        let outcome = log.deliver(&last).verdict.unwrap();
        assert_eq!(outcome.is_applied(), is_applied);
        assert!(log.machine.session(client).is_none());
        assert_eq!(log.deliver(&last).verdict, Ok(outcome), "a copy changes nothing");
        let later = log.deliver(&log.request(client, 2, Body::put("A", "3"))).verdict;
        assert_eq!(later, Err(ApplyRejection::SessionEnded(convoke_log::machine::EndReason::Requested)));
    }
    assert_eq!(log.value("A").as_deref(), Some("1"));
}

#[test]
fn ls8_a_bounded_number_of_ended_sessions_is_kept() {
    let mut log = Script::with(LogLimits { ended_sessions: 2, ..LogLimits::default() });
    let sessions: Vec<LogSessionId> = (0..3)
        .map(|_| {
            let session = log.open();
            applied(&log.submit(session, 1, Body::End(session)));
            session
        })
        .collect();
    assert_eq!(log.peek(sessions[0], 1), Fate::TooOld);
    let copy: Request = log.request(sessions[0], 1, Body::End(sessions[0]));
    assert_eq!(log.deliver(&copy).verdict, Err(ApplyRejection::SessionUnknown));
    assert!(matches!(log.peek(sessions[1], 1), Fate::Done(_)));
    assert!(matches!(log.peek(sessions[2], 1), Fate::Done(_)));
    // A session above the applied index is open.
    assert_eq!(log.peek(LogSessionId(1_000), 1), Fate::Open);
}
