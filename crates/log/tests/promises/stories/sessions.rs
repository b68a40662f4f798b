//! LS: opening, names, limits.

use crate::script::{Script, TTL, applied};
use convoke_log::command::{Body, DurableClient, Open, Opener};
use convoke_log::machine::{ApplyRejection, EndReason, Field, Opened, Reply};
use convoke_log::{Command, Epoch, LogLimits, LogTime};
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
        match log.apply(&Command::Open(Open { client, ..Open::new(epoch, ttl, 0) })).reply {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    };
    let (current, other) = (Epoch::new(1, 1), Epoch::new(1, 2));
    assert_eq!(open(other, TTL, None), Err(ApplyRejection::StaleEpoch { current }));
    let short = open(current, Duration::from_millis(999), None);
    let (min, max) = (1_000_000, 600_000_000);
    assert_eq!(short, Err(ApplyRejection::OutOfRange { field: Field::Ttl, found: 999_000, min, max }));
    for (name, found) in [(String::new(), 0), ("x".repeat(257), 257)] {
        let rejected = ApplyRejection::OutOfRange { field: Field::ClientName, found, min: 1, max: 256 };
        assert_eq!(open(current, TTL, Some(name)), Err(rejected));
    }
    assert_eq!(log.machine.session_count(), 0);
}

fn by(log: &Script, name: &str, reserved: bool) -> Open {
    let opener = Opener { name: name.into(), reserved };
    Open { opener, ..Open::new(log.epoch, TTL, 0) }
}

#[test]
fn ls7_one_client_cannot_take_all_places() {
    let limits = LogLimits { sessions: 16, reserved_sessions: 8, sessions_per_client: 5, ..LogLimits::default() };
    let mut log = Script::with(limits);
    let open = |log: &mut Script, name, reserved| log.open_as(by(log, name, reserved));
    let greedy: Vec<_> = (0..5).map(|_| open(&mut log, "10.0.0.1", false).unwrap().session).collect();
    assert_eq!(open(&mut log, "10.0.0.1", false), Err(ApplyRejection::QuotaReached { limit: 5 }));
    for _ in 0..3 {
        open(&mut log, "10.0.0.2", false).unwrap();
    }
    // Places are left, but only for nodes and operators, and no node takes all of them.
    assert_eq!(open(&mut log, "10.0.0.3", false), Err(ApplyRejection::SessionsFull { limit: 8 }));
    for node in ["n1", "n2", "n3", "n4"] {
        open(&mut log, node, true).unwrap();
        open(&mut log, node, true).unwrap();
        let rejected = open(&mut log, node, true).unwrap_err();
        assert!(matches!(
            rejected,
            ApplyRejection::QuotaReached { limit: 2 } | ApplyRejection::SessionsFull { limit: 16 }
        ));
    }
    assert_eq!(open(&mut log, "n5", true), Err(ApplyRejection::SessionsFull { limit: 16 }));
    // A session that was silent for longer than its ttl is not ended for another one: its client may keep it alive.
    log.now = LogTime::ZERO + 2 * TTL;
    assert_eq!(open(&mut log, "10.0.0.3", false), Err(ApplyRejection::SessionsFull { limit: 16 }));
    // Counts survive a restart, and an ended session makes room.
    let hash = log.machine.state_hash();
    log.restart();
    assert_eq!(log.machine.state_hash(), hash);
    assert_eq!(open(&mut log, "n5", true), Err(ApplyRejection::SessionsFull { limit: 16 }));
    applied(&log.submit(greedy[0], 1, Body::End(greedy[0])));
    assert_eq!(open(&mut log, "n1", true), Err(ApplyRejection::QuotaReached { limit: 2 }));
    assert!(open(&mut log, "10.0.0.1", false).is_ok());
}

#[test]
fn ls7_replacing_an_own_session_needs_no_room() {
    let mut log = Script::with(LogLimits { sessions: 1, reserved_sessions: 0, ..LogLimits::default() });
    let first = log.try_open(1, Some(("job", None))).unwrap().session;
    assert!(log.try_open(2, Some(("job", Some(first)))).is_ok());
    assert_eq!(log.machine.session_count(), 1);
}
