//! the update of an abandoned request is never applied after the update of a later one.

use crate::script::{Script, applied};
use convoke_log::command::{Body, Request};
use convoke_log::machine::{ApplyRejection, Fate};

/// The motivating example: remove A, abandon, retry, add A again; then the first copy arrives.
#[test]
fn the_first_copy_of_a_removal_arrives_after_a_was_added_again() {
    let mut log = Script::new();
    let client = log.open();
    applied(&log.submit(client, 1, Body::put("A", "node")));
    let first_attempt = log.request(client, 2, Body::delete("A"));
    let retry = log.submit(client, 3, Body::delete("A"));
    assert_eq!(retry.previous.unwrap().1, Fate::Never, "the fate of the first attempt is final");
    applied(&log.submit(client, 4, Body::put("A", "node again")));

    let answer = log.deliver(&first_attempt);
    assert_eq!(answer.verdict, Err(ApplyRejection::Superseded));
    assert_eq!(log.value("A").as_deref(), Some("node again"));
}

/// The delayed copy crosses two leaders, a snapshot and a restart, and arrives after the first leader was re-elected.
#[test]
fn a_delayed_copy_crosses_leaders_snapshots_and_restarts() {
    let mut log = Script::new();
    let client = log.open();
    let delayed = log.request(client, 1, Body::delete("A"));
    log.elect(2);
    applied(&log.submit(client, 2, Body::put("A", "1")));
    log.restart();
    log.elect(3);
    assert_eq!(log.deliver(&delayed).verdict, Err(ApplyRejection::Superseded));
    log.restart();
    log.elect(1);
    // Even with the current epoch, which no client would send.
    let stamped = Request { epoch: log.epoch, ..delayed };
    assert_eq!(log.deliver(&stamped).verdict, Err(ApplyRejection::Superseded));
    assert_eq!(log.value("A").as_deref(), Some("1"));
}

/// A3.5, E1: the same node deposed and re-elected leads in another epoch.
#[test]
fn a_request_of_the_same_leader_in_an_earlier_term_is_rejected() {
    let mut log = Script::new();
    let client = log.open();
    let early = log.request(client, 1, Body::put("A", "1"));
    log.elect(2);
    log.elect(1);
    assert_eq!(log.deliver(&early).verdict, Err(ApplyRejection::StaleEpoch { current: log.epoch }));
    assert_eq!((log.value("A"), log.peek(client, 1)), (None, Fate::Open), "nothing is stored");
    // a retry keeps everything except the epoch.
    applied(&log.deliver(&Request { epoch: log.epoch, ..early }));
    assert_eq!(log.value("A").as_deref(), Some("1"));
}

/// F1: a later request that failed counts as well.
#[test]
fn a_later_request_supersedes_even_if_it_did_nothing() {
    let mut log = Script::new();
    let client = log.open();
    let early = log.request(client, 1, Body::put("A", "1"));
    let later = log.submit(client, 2, Body::compare_and_set("A", "2", 77));
    assert!(!later.verdict.unwrap().is_applied());
    assert_eq!(later.previous.unwrap().1, Fate::Never);
    assert_eq!(log.deliver(&early).verdict, Err(ApplyRejection::Superseded));
}

/// F1: the numbers of a session take effect in rising order, abandoned or not.
#[test]
fn a_request_without_a_waiting_client_is_not_executed_out_of_order() {
    let mut log = Script::new();
    let client = log.open();
    let skipped = Request { abandon_below: 1, ..log.request(client, 2, Body::put("A", "2")) };
    let careless = Request { abandon_below: 1, previous: 0, ..log.request(client, 3, Body::put("A", "3")) };
    applied(&log.deliver(&careless));
    assert_eq!(log.deliver(&skipped).verdict, Err(ApplyRejection::Superseded));
    assert_eq!(log.value("A").as_deref(), Some("3"));
}

/// LS4: an abandoned end does not end a session that continued.
#[test]
fn an_abandoned_end_of_session_comes_too_late() {
    let mut log = Script::new();
    let client = log.open();
    let end = log.request(client, 1, Body::End(client));
    applied(&log.submit(client, 2, Body::put("A", "1")));
    assert_eq!(log.deliver(&end).verdict, Err(ApplyRejection::Superseded));
    assert!(log.machine.session(client).is_some());
}

/// LR3: any later request is a fence for a read.
#[test]
fn a_read_after_a_fence_sees_what_an_abandoned_request_can_no_longer_change() {
    let mut log = Script::new();
    let client = log.open();
    applied(&log.submit(client, 1, Body::put("A", "1")));
    let abandoned = log.request(client, 2, Body::delete("A"));
    let fence = log.submit(client, 3, Body::Fence(abandoned.id()));
    assert_eq!(fence.previous, Some((abandoned.id(), Fate::Never)));
    let read = log.value("A");
    log.deliver(&abandoned);
    assert_eq!(log.value("A"), read);
}
