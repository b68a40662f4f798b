#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use super::*;
use convoke_core::node::{Attach, Attached, ConnId, OperationResult, Start};
use convoke_core::version::{NodeId, Version};
use convoke_core::{Config, Node, Output, Time};
use std::time::Duration;

/// Attaches a client at a node without peers. The result is the same for each call.
fn attached_client() -> Attached {
    let config = Config::new(NodeId::new("n1").unwrap());
    let mut node = Node::new(config, Start { nonce: 1, ..Start::default() }, Time::ZERO).unwrap();
    let mut out = Output::default();
    node.begin(Time::ZERO, &mut out);
    node.wake(Time::from_secs(60), &mut out);
    let attach = Attach { client: "c".into(), claim: 1, ..Attach::default() };
    node.attach(Time::from_secs(60), ConnId(1), &attach, &mut out).unwrap()
}

fn state() -> AttachState {
    AttachState::new("n1".into(), AttachSettings::new(10, 1_000))
}

fn attach(claim: u64, ids: &[&str], more: bool) -> ClientMessage {
    let member = |id: &&str| v1::MemberSpec { id: (*id).into(), service: "s".into(), ..v1::MemberSpec::default() };
    let members = ids.iter().map(|id| v1::Register { member: Some(member(id)), takeover: false }).collect();
    ClientMessage::Attach(v1::Attach { client: "c".into(), claim, members, more, ..v1::Attach::default() })
}

fn unregister(seqs: &[u64]) -> ClientMessage {
    let operation = |seq: &u64| Requested::Unregister(v1::Unregister { id: format!("m{seq}") });
    let requests = seqs.iter().map(|seq| v1::Request { seq: *seq, operation: Some(operation(seq)) }).collect();
    ClientMessage::Requests(v1::Requests { requests })
}

fn pass(state: &mut AttachState, message: ClientMessage) -> Result<Calls, Error> {
    let mut calls = Calls::default();
    state.message(v1::ClientMessage { message: Some(message) }, &mut calls).map(|()| calls)
}

fn sent(state: &mut AttachState) -> Vec<ServerMessage> {
    std::iter::from_fn(|| state.next_message()).collect()
}

fn accepted(ids: &[&str]) -> OperationResult {
    let version: Version = "1.2.00000003".parse().unwrap();
    OperationResult::Attached(Ok(Attached {
        heartbeat_interval: Duration::from_secs(1),
        timeout: Duration::from_secs(20),
        versions: ids.iter().map(|id| ((*id).to_owned(), version)).collect(),
        rejected: Vec::new(),
        ..attached_client()
    }))
}

/// A stream on which a session is attached.
fn attached() -> AttachState {
    let mut state = state();
    pass(&mut state, attach(1, &[], false)).unwrap();
    state.answered(vec![accepted(&[])]);
    assert_eq!(sent(&mut state).len(), 1);
    state
}

fn gone() -> Rejection {
    Rejection::new(ErrorCode::SessionGone, "gone")
}

fn full() -> Rejection {
    Rejection::new(ErrorCode::ResourceExhausted, "full")
}

#[test]
fn a_stream_starts_with_an_attach() {
    for message in [unregister(&[1]), ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 })] {
        assert_eq!(pass(&mut state(), message).unwrap_err().code, ErrorCode::InvalidArgument);
    }
    let unknown = state().message(v1::ClientMessage { message: None }, &mut Calls::default());
    assert_eq!(unknown.unwrap_err().code, ErrorCode::InvalidArgument);
}

#[test]
fn an_attach_in_parts_is_one_operation_and_is_not_interrupted() {
    let mut state = attached();
    assert!(pass(&mut state, attach(2, &["a"], true)).unwrap().operations.is_empty());
    assert!(pass(&mut state.clone(), unregister(&[1])).is_err());
    let calls = pass(&mut state, attach(2, &["b"], false)).unwrap();
    let [ClientOperation::Attach(attach)] = &calls.operations[..] else { panic!("{calls:?}") };
    assert_eq!(attach.members.len(), 2);
    assert!(!state.is_reading(), "the outcome decides how the next message is handled");
}

#[test]
fn the_answer_to_a_large_attach_is_sent_in_parts() {
    let settings = AttachSettings { part_bytes: 1, ..AttachSettings::new(10, 1_000) };
    let mut state = AttachState::new("n1".into(), settings);
    pass(&mut state, attach(3, &["a", "b"], false)).unwrap();
    state.answered(vec![accepted(&["a", "b"])]);
    let parts: Vec<(u64, bool, usize)> = sent(&mut state)
        .into_iter()
        .map(|message| match message {
            ServerMessage::Attached(part) => (part.claim, part.more, part.versions.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(parts, [(3, true, 1), (3, false, 1)]);
    assert_eq!(state.session(), Some(attached_client().session));
}

#[test]
fn answers_have_the_order_of_the_messages() {
    let mut state = attached();
    assert_eq!(pass(&mut state, unregister(&[1, 2])).unwrap().operations.len(), 2);
    // This message needs no node, but its answer waits for the answers before it.
    let empty = v1::Request { seq: 3, operation: None };
    pass(&mut state, ClientMessage::Requests(v1::Requests { requests: vec![empty] })).unwrap();
    assert!(sent(&mut state).is_empty() && !state.is_settled());
    state.answered(vec![OperationResult::Unregistered(Ok(1)), OperationResult::Unregistered(Err(gone()))]);
    let [ServerMessage::Answers(first), ServerMessage::Answers(second)] = &sent(&mut state)[..] else {
        panic!("two answers were expected")
    };
    let errors = |answers: &v1::Answers| -> Vec<(u64, bool)> {
        answers.answers.iter().map(|answer| (answer.seq, answer.error.is_some())).collect()
    };
    assert_eq!((errors(first), errors(second)), (vec![(1, false), (2, true)], vec![(3, true)]));
    assert!(state.is_settled());
}

#[test]
fn operations_that_the_node_does_not_accept_are_answered_after_the_earlier_ones() {
    let mut state = attached();
    pass(&mut state, unregister(&[1])).unwrap();
    pass(&mut state, unregister(&[2])).unwrap();
    state.not_accepted(1, full()).unwrap();
    assert!(sent(&mut state).is_empty());
    state.answered(vec![OperationResult::Unregistered(Ok(1))]);
    assert_eq!(sent(&mut state).len(), 2);
    pass(&mut state, ClientMessage::Close(v1::Close {})).unwrap();
    state.not_accepted(1, full()).unwrap();
    assert!(state.is_reading() && state.session().is_some());
    pass(&mut state, unregister(&[3])).unwrap();
    let stopping = Rejection::new(ErrorCode::NotReady, "stopping");
    assert_eq!(state.not_accepted(1, stopping).unwrap_err().code, ErrorCode::NotReady);
}

#[test]
fn nothing_is_executed_after_a_close() {
    let mut state = attached();
    pass(&mut state, ClientMessage::Close(v1::Close {})).unwrap();
    state.answered(vec![OperationResult::Unregistered(Ok(1))]);
    sent(&mut state);
    for message in [unregister(&[1]), ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 })] {
        let calls = pass(&mut state, message).unwrap();
        assert!(calls.operations.is_empty() && calls.heartbeats.is_empty());
    }
    let codes: Vec<i32> = sent(&mut state)
        .into_iter()
        .map(|message| match message {
            ServerMessage::Answers(answers) => answers.answers[0].error.clone().unwrap().code,
            ServerMessage::HeartbeatAck(ack) => ack.error.unwrap().code,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, [v1::Error::from(session_gone()).code; 2]);
}

#[test]
fn heartbeats_report_the_time_over_which_clients_reconnect() {
    let mut state = attached();
    let calls = pass(&mut state, ClientMessage::Heartbeat(v1::Heartbeat { sent: 5 })).unwrap();
    assert_eq!(calls.heartbeats, [HeartbeatCall { session: attached_client().session, sent: 5 }]);
    state.heartbeat_answered(5, Ok(()), 10_000, Replicated::UpTo(7));
    let [ServerMessage::HeartbeatAck(ack)] = &sent(&mut state)[..] else { panic!("one answer was expected") };
    assert_eq!((ack.sent, ack.spread_ms, ack.replicated), (5, 8_000, 7));
}
