use super::*;
use convoke_proto::v1::watch_event::{CaughtUp, Event as Wire, Mark, Reset, Snapshot};

fn member(id: &str, version: &str) -> v1::Member {
    v1::Member {
        id: id.into(),
        service: "s".into(),
        status: v1::Status::Up.into(),
        version: version.into(),
        weight: 1,
        owner: Some(v1::Owner { node: "n1".into(), since: 0 }),
        ..v1::Member::default()
    }
}

/// Applies events and returns the resulting events in short form: kind and id:version.
fn apply_all(state: &mut WatchState, events: Vec<Wire>) -> Vec<String> {
    let mut out = Vec::new();
    for event in events {
        assert_eq!(state.apply(WatchEvent { event: Some(event) }, &mut out), Next::Read);
    }
    short(&out)
}

fn short(events: &[Event]) -> Vec<String> {
    let letter = |event: &Event| match event {
        Event::Snapshot(m) => format!("snapshot {}:{}", m.id, m.version),
        Event::CaughtUp => "caught up".to_owned(),
        Event::Registered(m) => format!("registered {}:{}", m.id, m.version),
        Event::Updated(m) => format!("updated {}:{}", m.id, m.version),
        Event::StatusChanged(m) => format!("status {}:{}", m.id, m.version),
        Event::OwnerChanged(m) => format!("owner {}:{}", m.id, m.version),
        Event::Unregistered { member, version } => format!("gone {}:{version}", member.id),
        Event::Reset(reason) => format!("reset {reason:?}"),
    };
    events.iter().map(letter).collect()
}

fn snapshot(members: &[(&str, &str)]) -> Wire {
    Wire::Snapshot(Snapshot { members: members.iter().map(|(id, version)| member(id, version)).collect() })
}

fn caught_up() -> Wire {
    Wire::CaughtUp(CaughtUp {})
}

fn mark(token: &str) -> Wire {
    Wire::Mark(Mark { token: token.into() })
}

fn gone(id: &str, version: &str) -> Wire {
    Wire::Unregistered(Versioned { id: id.into(), version: version.into() })
}

fn reset(reason: Reason) -> Wire {
    Wire::Reset(Reset { reason: reason.into() })
}

/// A state that contains `a` and `b` with the mark `t1`.
fn complete() -> WatchState {
    let mut state = WatchState::default();
    assert_eq!(state.resume(&mut Vec::new()), None);
    let events = apply_all(&mut state, vec![snapshot(&[("a", "1"), ("b", "1")]), caught_up(), mark("t1")]);
    assert_eq!(events, ["snapshot a:1", "snapshot b:1", "caught up"]);
    state
}

#[test]
fn a_watch_resumes_by_token_and_the_versions_after_it() {
    let mut state = complete();
    apply_all(&mut state, vec![Wire::Updated(member("a", "2")), gone("b", "2")]);
    let mut out = Vec::new();
    let resume = state.resume(&mut out).unwrap();
    assert_eq!(resume.token, b"t1");
    assert_eq!(resume.recent, [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "2".to_owned())].into());
    assert!(resume.known.is_none() && out.is_empty());
}

#[test]
fn after_resuming_only_differences_are_reported_with_their_kind() {
    let mut state = complete();
    state.resume(&mut Vec::new()).unwrap();
    let moved = v1::Member { owner: Some(v1::Owner { node: "n2".into(), since: 0 }), ..member("a", "2") };
    let down = v1::Member { status: v1::Status::Down.into(), ..moved.clone() };
    let events = apply_all(
        &mut state,
        vec![
            snapshot(&[("a", "1")]),
            Wire::Snapshot(Snapshot { members: vec![moved, v1::Member { version: "3".into(), ..down }] }),
            snapshot(&[("c", "1")]),
            gone("b", "2"),
            gone("never-seen", "1"),
            caught_up(),
            mark("t2"),
        ],
    );
    assert_eq!(events, ["owner a:2", "status a:3", "registered c:1", "gone b:2"]);
}

#[test]
fn a_token_that_is_too_old_is_replaced_by_a_comparison_of_versions() {
    let mut state = complete();
    state.resume(&mut Vec::new()).unwrap();
    let mut out = Vec::new();
    let event = WatchEvent { event: Some(reset(Reason::TooOld)) };
    assert_eq!(state.apply(event, &mut out), Next::Resume);
    let resume = state.resume(&mut out).unwrap();
    assert!(resume.token.is_empty() && out.is_empty());
    assert_eq!(resume.known.unwrap().versions.len(), 2);
    assert_eq!(apply_all(&mut state, vec![gone("b", "1"), caught_up(), mark("t2")]), ["gone b:1"]);
}

#[test]
fn a_reset_is_reported_and_no_member_vanishes_during_the_new_snapshot() {
    let mut state = complete();
    assert_eq!(apply_all(&mut state, vec![reset(Reason::Overflow)]), ["reset SlowReader"]);
    assert_eq!(state.members().len(), 2, "the members are still readable");
    assert_eq!(apply_all(&mut state, vec![snapshot(&[("a", "1")])]), ["snapshot a:1"], "reported again");
    assert_eq!(state.members().len(), 2);
    assert_eq!(apply_all(&mut state, vec![caught_up()]), ["caught up"]);
    assert_eq!(state.members().keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_token_from_before_a_reset_is_not_used() {
    let mut state = complete();
    apply_all(&mut state, vec![reset(Reason::Ahead), snapshot(&[("a", "1")])]);
    let mut out = Vec::new();
    assert_eq!(state.resume(&mut out), None);
    assert_eq!(short(&out), ["reset Interrupted"]);
}

#[test]
fn an_interrupted_snapshot_is_reset() {
    let mut state = WatchState::default();
    let mut out = Vec::new();
    assert_eq!(state.resume(&mut out), None);
    assert!(out.is_empty(), "there is nothing to forget yet");
    apply_all(&mut state, vec![snapshot(&[("a", "1")])]);
    assert_eq!(state.resume(&mut out), None);
    assert_eq!(short(&out), ["reset Interrupted"]);
    assert_eq!(apply_all(&mut state, vec![snapshot(&[("b", "1")]), caught_up()]), ["snapshot b:1", "caught up"]);
    assert_eq!(state.members().keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn changes_during_a_snapshot_are_reported_relative_to_the_applications_state() {
    let mut state = WatchState::default();
    state.resume(&mut Vec::new());
    let events = apply_all(
        &mut state,
        vec![
            snapshot(&[("a", "1")]),
            Wire::Updated(member("a", "2")),
            Wire::Registered(member("b", "1")),
            gone("c", "1"),
            gone("a", "3"),
            caught_up(),
        ],
    );
    assert_eq!(events, ["snapshot a:1", "updated a:2", "snapshot b:1", "gone a:3", "caught up"]);
}
