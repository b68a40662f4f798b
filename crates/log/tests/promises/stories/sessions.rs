//! LS: opening, names, limits.

use crate::script::{Script, TTL, applied};
use convoke_log::command::{Body, DurableClient, Open};
use convoke_log::machine::{ApplyRejection, EndReason, Fate, Field, Opened, Reply};
use convoke_log::{Command, Epoch, LogLimits, LogSessionId, LogTime};
use std::time::Duration;

#[test]
fn ls2_a_restarted_client_fences_its_predecessor() {
    let mut log = Script::new();
    let old = log.try_open(1, Some(("job", None))).unwrap().session;
    let delayed = log.request(old, 1, Body::put("A", "old"));
    // The new process does not know the old session; the answer names it.
    assert_eq!(log.try_open(2, Some(("job", None))), Err(ApplyRejection::NameHeld { holder: old }));
    let opened = log.try_open(2, Some(("job", Some(old)))).unwrap();
    assert_eq!(opened.replaced, Some(old));
    assert_eq!(log.ended, [(old, EndReason::Replaced)]);
    applied(&log.submit(opened.session, 1, Body::put("A", "new")));
    assert_eq!(log.deliver(&delayed).verdict, Err(ApplyRejection::SessionEnded(EndReason::Replaced)));
    assert_eq!(log.value("A").as_deref(), Some("new"));
}

#[test]
fn ls2_a_delayed_open_of_the_predecessor_does_not_fence_its_successor() {
    let mut log = Script::new();
    let first = log.try_open(1, Some(("job", None))).unwrap().session;
    let second = log.try_open(2, Some(("job", Some(first)))).unwrap().session;
    let third = log.try_open(3, Some(("job", Some(second)))).unwrap().session;
    for (nonce, replaces) in [(1, None), (2, Some(first))] {
        assert_eq!(log.try_open(nonce, Some(("job", replaces))), Err(ApplyRejection::NameHeld { holder: third }));
    }
    assert!(log.machine.session(third).is_some());
}

#[test]
fn ls2_a_copy_of_an_open_finds_the_session_that_is_open_already() {
    let mut log = Script::new();
    let session = log.try_open(1, Some(("job", None))).unwrap().session;
    assert_eq!(log.try_open(1, Some(("job", None))), Ok(Opened { session, replaced: None }));
    log.restart();
    assert_eq!(log.try_open(1, Some(("job", None))), Ok(Opened { session, replaced: None }));
    assert_eq!(log.machine.session_count(), 1);
    // Without a name nothing is fenced: a duplicate creates an unused session, which expires.
    assert_ne!(log.open(), log.open());
}

#[test]
fn ls2_a_name_is_free_once_its_session_has_ended() {
    let mut log = Script::new();
    let first = log.try_open(1, Some(("job", None))).unwrap().session;
    applied(&log.submit(first, 1, Body::End(first)));
    assert!(log.try_open(2, Some(("job", Some(first)))).is_ok());
}

#[test]
fn an_open_of_another_epoch_or_out_of_bounds_is_rejected() {
    let mut log = Script::new();
    let mut open = |epoch, ttl, name: Option<String>| {
        let client = name.map(|name| DurableClient { name: name.into(), replaces: None });
        match log.apply(&Command::Open(Open { epoch, ttl, nonce: 0, client })).reply {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    };
    let (current, other) = (Epoch::new(1, 1), Epoch::new(1, 2));
    assert_eq!(open(other, TTL, None), Err(ApplyRejection::StaleEpoch { current }));
    let short = open(current, Duration::from_millis(999), None);
    let (min, max) = (1_000_000, 86_400_000_000);
    assert_eq!(short, Err(ApplyRejection::OutOfRange { field: Field::Ttl, found: 999_000, min, max }));
    for (name, found) in [(String::new(), 0), ("x".repeat(257), 257)] {
        let rejected = ApplyRejection::OutOfRange { field: Field::ClientName, found, min: 1, max: 256 };
        assert_eq!(open(current, TTL, Some(name)), Err(rejected));
    }
    assert_eq!(log.machine.session_count(), 0);
}

#[test]
fn ls7_the_cap_is_hard_and_eviction_is_the_same_everywhere() {
    let mut log = Script::with(LogLimits { sessions: 3, ..LogLimits::default() });
    let sessions: Vec<LogSessionId> = (0..3)
        .map(|second| {
            log.now = LogTime::ZERO + Duration::from_secs(second);
            log.open()
        })
        .collect();
    assert_eq!(log.try_open(0, None), Err(ApplyRejection::SessionsFull { limit: 3 }), "no session is idle");
    // The first session becomes the most recently active one.
    log.now = LogTime::ZERO + Duration::from_secs(5);
    applied(&log.submit(sessions[0], 1, Body::put("A", "1")));
    log.now = LogTime::ZERO + TTL + Duration::from_secs(2);
    let hash = log.machine.state_hash();
    log.restart();
    assert_eq!(log.machine.state_hash(), hash);
    assert!(log.try_open(0, None).is_ok());
    assert_eq!(log.ended, [(sessions[1], EndReason::Evicted)]);
    assert_eq!(log.peek(sessions[1], 1), Fate::Never);
    assert!(log.try_open(0, None).is_ok());
    assert_eq!(log.ended[1..], [(sessions[2], EndReason::Evicted)]);
    assert_eq!(log.try_open(0, None), Err(ApplyRejection::SessionsFull { limit: 3 }));
}

#[test]
fn ls7_replacing_an_own_session_needs_no_room() {
    let mut log = Script::with(LogLimits { sessions: 1, ..LogLimits::default() });
    let first = log.try_open(1, Some(("job", None))).unwrap().session;
    assert!(log.try_open(2, Some(("job", Some(first)))).is_ok());
    assert_eq!(log.machine.session_count(), 1);
}
