//! Opening, renewing, losing and ending sessions.

use super::super::Body;
use super::world::World;
use crate::ErrorCode;
use crate::log::Options;
use convoke_log::LogSessionId;
use convoke_proto::v1;
use convoke_proto::v1::submit_request::Message as SubmitMessage;
use std::time::Duration;

/// Ends the session as an expiry does.
fn expire(world: &mut World, session: u64) {
    let log_time = world.machine.log_time();
    let activity = world.machine.session(LogSessionId(session)).unwrap().activity;
    let expire = convoke_log::command::Expire { epoch: world.epoch, session: LogSessionId(session), activity };
    let entry = convoke_log::Entry {
        index: world.machine.applied().index + 1,
        epoch: world.epoch,
        stamp: log_time + Duration::from_secs(3600),
        command: convoke_log::Command::Expire(expire),
    };
    world.machine.apply(&entry).unwrap();
    assert!(world.machine.session(LogSessionId(session)).is_none());
}

#[test]
fn after_its_session_expired_a_handle_goes_on_with_another_one() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue(lane, "a").unwrap();
    world.settle();
    let first = world.core.session(lane).unwrap();
    expire(&mut world, first);
    // In flight when the session ended, so it was not applied.
    let lost = world.issue(lane, "b").unwrap();
    let queued = world.issue(lane, "c").unwrap();
    world.settle();
    let error = world.done[&lost].as_ref().unwrap_err();
    assert_eq!((error.code, error.about().map(|request| request.session)), (ErrorCode::SessionGone, Some(first)));
    assert_eq!(world.done[&queued].as_ref().unwrap_err().code, ErrorCode::SessionGone);
    let next = world.issue(lane, "d").unwrap();
    world.settle();
    assert!(world.done[&next].is_ok());
    assert_ne!(world.core.session(lane), Some(first));
    assert_eq!((world.puts("b"), world.puts("c"), world.puts("d")), (0, 0, 1));
}

#[test]
fn a_call_applied_before_its_session_ended_reports_success() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue(lane, "a").unwrap();
    world.settle();
    let session = world.core.session(lane).unwrap();
    let applied = world.issue(lane, "b").unwrap();
    world.arrive();
    world.link_down();
    expire(&mut world, session);
    world.settle();
    assert!(world.done[&applied].is_ok(), "{:?}", world.done[&applied]);
    let next = world.issue(lane, "c").unwrap();
    world.settle();
    assert!(world.done[&next].is_ok(), "{:?}", world.done[&next]);
    assert_eq!((world.puts("b"), world.puts("c")), (1, 1));
}

#[test]
fn an_idle_session_is_kept_alive_and_a_lost_one_is_noticed() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().ttl(Duration::from_secs(9)));
    world.issue(lane, "a").unwrap();
    world.settle();
    for _ in 0..3 {
        world.tick(Duration::from_secs(3));
        assert!(matches!(world.wire.front().unwrap().message, Some(SubmitMessage::KeepAlive(_))));
        assert_eq!(world.wire.len(), 1);
        world.arrive();
        world.deliver_answer();
    }
    let session = world.core.session(lane).unwrap();
    expire(&mut world, session);
    world.tick(Duration::from_secs(3));
    world.arrive();
    world.deliver_answer();
    let next = world.issue(lane, "b").unwrap();
    world.settle();
    assert!(world.done[&next].is_ok(), "nothing was on its way: the next call has a new session");
}

#[test]
fn a_restarted_client_fences_its_predecessor_for_good() {
    let mut world = World::new(1);
    let named = || Options::default().client_name("shop");
    let old = world.lane(named());
    world.issue(old, "a").unwrap();
    world.settle();
    let session = world.core.session(old).unwrap();
    let new = world.lane(named());
    world.issue(new, "b").unwrap();
    world.settle();
    assert_ne!(world.core.session(new), Some(session));
    assert!(world.machine.session(LogSessionId(session)).is_none(), "fenced");
    let late = world.issue(old, "c").unwrap();
    world.settle();
    assert_eq!(world.done[&late].as_ref().unwrap_err().code, ErrorCode::SessionGone);
    let later = world.issue(old, "d").unwrap();
    world.settle();
    assert_eq!(world.done[&later].as_ref().unwrap_err().code, ErrorCode::Superseded);
    assert_eq!(world.issue(old, "e").unwrap_err().code, ErrorCode::Superseded);
    let alive = world.issue(new, "f").unwrap();
    world.settle();
    assert!(world.done[&alive].is_ok());
    assert_eq!((world.puts("c"), world.puts("d")), (0, 0));
}

#[test]
fn a_handle_that_is_dropped_ends_its_session() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue(lane, "a").unwrap();
    world.settle();
    let session = world.core.session(lane).unwrap();
    let mut out = super::super::Output::default();
    world.core.close(world.now, lane, None, &mut out);
    world.carry_out(out);
    world.settle();
    assert!(world.machine.session(LogSessionId(session)).is_none());
    assert_eq!(world.core.session(lane), None);
    assert_eq!(world.core.next_wake(), None, "no timer is left");
    assert!(!world.core.wants_link());
    assert_eq!(world.issue(lane, "b").unwrap_err().code, ErrorCode::FailedPrecondition);
}

/// Open and put: nothing else is committed, whether the answer arrives or is asked for over another link.
#[test]
fn a_handle_that_writes_once_commits_two_entries() {
    for lost in [false, true] {
        let mut world = World::new(1);
        let (before, lane) = (world.machine.applied().index, world.lane(Options::default()));
        let call = world.issue_last(lane, "a").unwrap();
        world.link_up();
        while lost && world.puts("a") == 0 {
            assert!(world.arrive() | world.deliver_answer());
        }
        if lost {
            world.link_down();
        }
        world.settle();
        assert!(world.done[&call].is_ok(), "{:?}", world.done[&call]);
        assert_eq!((world.machine.session_count(), world.puts("a")), (0, 1));
        assert_eq!(world.close(lane, Some(Duration::from_secs(2))), None, "there is nothing left to end");
        world.settle();
        assert_eq!(world.machine.applied().index - before, 2);
        assert!(!world.core.wants_link() && world.core.next_wake().is_none());
    }
}

#[test]
fn a_handle_goes_on_with_another_session_after_its_last_write() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue_last(lane, "a").unwrap();
    world.settle();
    let next = world.issue(lane, "b").unwrap();
    world.settle();
    assert!(world.done[&next].is_ok());
    assert_eq!((world.machine.session_count(), world.puts("a"), world.puts("b")), (1, 1, 1));
}

#[test]
fn an_open_that_was_lost_is_sent_again_and_opens_one_session_under_a_name() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().client_name("shop"));
    let call = world.issue(lane, "a").unwrap();
    world.link_up();
    world.arrive();
    world.link_down();
    world.settle();
    assert!(world.done[&call].is_ok());
    assert_eq!(world.machine.session_count(), 1);
}

/// The end of a session is retried across links, but not for ever.
#[test]
fn a_handle_that_is_closed_ends_its_session_over_the_next_link_or_gives_up() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue(lane, "a").unwrap();
    world.settle();
    let session = LogSessionId(world.core.session(lane).unwrap());
    let ending = world.close(lane, Some(Duration::from_secs(2))).unwrap();
    // The end is lost in transit.
    world.link_down();
    assert!(world.core.wants_link(), "the end is sent again");
    world.tick(Duration::from_secs(1));
    world.settle();
    assert!(world.done[&ending].is_ok(), "{:?}", world.done[&ending]);
    assert!(world.machine.session(session).is_none());
    assert!(!world.core.wants_link() && world.core.next_wake().is_none());

    let lane = world.lane(Options::default());
    world.issue(lane, "b").unwrap();
    world.settle();
    world.link_down();
    let ending = world.close(lane, Some(Duration::from_secs(2))).unwrap();
    world.tick(Duration::from_secs(2));
    assert!(world.done[&ending].is_err(), "no leader accepted it");
    assert!(!world.core.wants_link() && world.core.next_wake().is_none(), "and it is not retried");
    assert_eq!(world.core.waiting(), 0);
}

#[test]
fn a_timeout_may_be_endless() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().timeout(Duration::MAX));
    world.tick(Duration::from_secs(1));
    let call = world.issue(lane, "a").unwrap();
    world.settle();
    assert!(world.done[&call].is_ok());
    let ending = world.close(lane, Some(Duration::MAX)).unwrap();
    world.settle();
    assert!(world.done[&ending].is_ok(), "{:?}", world.done[&ending]);
}

/// The handle is dropped while its open is in flight, so the session must be ended.
#[test]
fn a_session_opened_after_its_handle_was_dropped_is_ended() {
    for timeout in [None, Some(Duration::from_secs(2))] {
        let mut world = World::new(1);
        let lane = world.lane(Options::default());
        let call = world.issue(lane, "a").unwrap();
        world.link_up();
        world.abandon(call);
        assert!(world.close(lane, timeout).is_some());
        world.settle();
        assert_eq!((world.machine.session_count(), world.puts("a")), (0, 0));
        assert_eq!(world.core.session(lane), None);
        assert!(!world.core.wants_link() && world.core.next_wake().is_none());
    }
}

/// An expired session is not opened again only to be ended.
#[test]
fn an_expired_session_is_not_opened_again_to_be_ended() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    world.issue(lane, "a").unwrap();
    world.settle();
    let session = world.core.session(lane).unwrap();
    world.link_down();
    expire(&mut world, session);
    let ending = world.close(lane, Some(Duration::from_secs(60))).unwrap();
    world.settle();
    assert!(world.done.contains_key(&ending));
    assert_eq!(world.machine.session_count(), 0);
    assert!(!world.core.wants_link() && world.core.next_wake().is_none());
}

#[test]
fn ls10_a_session_is_not_used_in_another_log() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().client_name("job"));
    world.issue(lane, "a").unwrap();
    world.settle();
    let (session, secret) = (world.core.session(lane).unwrap(), world.machine.sessions().next().unwrap().owner);
    let left = world.issue(lane, "b").unwrap();
    world.link_down();
    let unsent = world.issue(lane, "c").unwrap();
    // The log is restored from a backup: the session is still open there, and numbers and epochs coincide.
    world.log = 2;
    world.settle();
    let error = world.done[&left].as_ref().unwrap_err();
    assert_eq!(error.code, ErrorCode::OutcomeUnknown, "it may have been applied to the old log: {error}");
    assert_eq!(error.about().unwrap().log, Some(1.into()));
    let sent = world.done[&unsent].as_ref().unwrap();
    assert_eq!(sent.request.log, Some(2.into()));
    assert_ne!(world.core.session(lane), Some(session));
    assert_ne!(world.machine.sessions().next().unwrap().owner, secret);
    assert_eq!((world.puts("b"), world.puts("c")), (0, 1));
    // A late copy of a request to the old log does nothing.
    for copy in 0..world.copies.len() {
        world.arrive_late(copy);
    }
    assert_eq!((world.puts("a"), world.puts("b"), world.puts("c")), (1, 0, 1));
}

#[test]
fn ls7_without_room_for_a_session_calls_fail_at_once() {
    let mut world = World::new(1);
    let limit = 1_000;
    let lanes: Vec<_> = (0..=limit).map(|_| world.lane(Options::default())).collect();
    for lane in &lanes[..limit] {
        world.issue(*lane, "a").unwrap();
        world.settle();
    }
    let before = world.now;
    let calls = [world.issue(lanes[limit], "b").unwrap(), world.issue(lanes[limit], "c").unwrap()];
    world.settle();
    for call in calls {
        assert_eq!(world.done[&call].as_ref().unwrap_err().code, ErrorCode::ResourceExhausted);
    }
    assert_eq!(world.now, before);
    world.close(lanes[0], None);
    world.settle();
    let next = world.issue(lanes[limit], "d").unwrap();
    world.settle();
    assert!(world.done[&next].is_ok());
}

/// A leader that is cut off from the other replicas answers keep-alives, and no requests.
#[test]
fn answers_to_keep_alives_do_not_hide_unanswered_requests() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().ttl(Duration::from_secs(9)));
    world.issue(lane, "a").unwrap();
    world.settle();
    assert_eq!(world.core.unanswered_since(), None);
    let sent = world.now;
    world.issue(lane, "b").unwrap();
    world.wire.clear();
    world.tick(Duration::from_secs(4));
    let keep_alive = world.wire.iter().any(|sent| matches!(sent.message, Some(SubmitMessage::KeepAlive(_))));
    assert!(keep_alive, "{:?}", world.wire);
    let kept = world.now;
    assert_eq!(world.core.unanswered_since(), Some(sent));
    while world.arrive() && world.deliver_answer() {}
    assert_eq!(world.core.unanswered_since(), Some(sent), "the request still waits");
    // Without a request, a keep-alive that is not answered counts.
    world.link_down();
    world.settle();
    assert_eq!(world.core.unanswered_since(), None);
    world.tick(Duration::from_secs(4));
    assert!(world.core.unanswered_since() > Some(kept));
}

/// The log of this world has level 1. A request of a higher level fails instead of being sent again and again.
#[test]
fn a_request_above_the_level_of_the_log_fails() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    let first = world.issue(lane, "a").unwrap();
    let txn = world.issue_body(lane, Body::Txn(v1::Txn::default()), false).unwrap();
    let last = world.issue(lane, "b").unwrap();
    world.settle();
    let error = world.done[&txn].clone().unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::FailedPrecondition, Some("level")));
    assert!(world.done[&first].is_ok() && world.done[&last].is_ok());
}
