//! Mutated messages of a client, one after the other on one stream: the conversion rejects them or passes valid
//! operations on, and answers whatever the node answers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_convert::{AttachSettings, AttachState, Calls};
use convoke_core::node::{Attach, Attached, ConnId, OperationResult, Replicated, SessionId, Start};
use convoke_core::version::{Dot, Incarnation, NodeId, OriginId};
use convoke_core::{ErrorCode, Node, Output, Rejection, Time};
use convoke_proto::v1::{self, client_message, request};
use prost::Message;
use std::time::Duration;

fn member(id: &str) -> v1::Register {
    let pairs = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())];
    let member = v1::MemberSpec {
        id: id.to_owned(),
        service: "web".to_owned(),
        metadata: pairs.into_iter().collect(),
        ..v1::MemberSpec::default()
    };
    v1::Register { member: Some(member), ..v1::Register::default() }
}

fn corpus() -> Vec<Vec<u8>> {
    let attach = |more| v1::Attach {
        client: "shop".to_owned(),
        nonce: 7,
        claim: 3,
        timeout_ms: 20_000,
        members: vec![member("web-1"), member("web-2")],
        unregistered: vec!["web-3".to_owned()],
        more,
        ..v1::Attach::default()
    };
    let request = |seq, operation| v1::Request { seq, operation: Some(operation) };
    let update = v1::Update { id: "web-1".to_owned(), if_version: "1.2.0000000a".to_owned(), ..v1::Update::default() };
    let requests = vec![
        request(1, request::Operation::Register(member("web-4"))),
        request(2, request::Operation::Update(update)),
        request(3, request::Operation::Unregister(v1::Unregister { id: "web-2".to_owned() })),
    ];
    let messages = [
        client_message::Message::Attach(attach(true)),
        client_message::Message::Attach(attach(false)),
        client_message::Message::Heartbeat(v1::Heartbeat { sent: 99 }),
        client_message::Message::Requests(v1::Requests { requests }),
    ];
    messages.map(|message| v1::ClientMessage { message: Some(message) }.encode_to_vec()).to_vec()
}

#[test]
fn fuzz_client_messages() {
    let (corpus, session) = (corpus(), session());
    let mut random = convoke_fuzz::random();
    for case in 0..convoke_fuzz::cases(400) {
        let seed = random.u64(..);
        convoke_fuzz::reported(case, &format!("seed {seed}"), || stream(&corpus, session, seed));
    }
}

/// One stream. It ends with the first message that is rejected.
fn stream(corpus: &[Vec<u8>], session: SessionId, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = AttachState::new("n1".to_owned(), AttachSettings::new(100, 1 << 20));
    for step in 0..30 {
        let bytes = match random.choice(corpus) {
            Some(valid) if step == 0 || random.bool() => valid.clone(),
            _ => convoke_fuzz::mutated(corpus, &mut random),
        };
        let Ok(message) = v1::ClientMessage::decode(&bytes[..]) else { continue };
        let mut calls = Calls::default();
        let outcome = state.message(message, &mut calls);
        for heartbeat in calls.heartbeats {
            state.heartbeat_answered(heartbeat.sent, Ok(()), 7, Replicated::UpTo(3));
        }
        if random.u8(..8) == 0 && !calls.operations.is_empty() {
            let busy = Rejection::new(ErrorCode::ResourceExhausted, "busy");
            let _ = state.not_accepted(calls.operations.len(), busy);
        } else {
            let results =
                calls.operations.iter().map(|operation| answer(&operation.rejected(rejection()), session, &mut random));
            state.answered(results.collect());
        }
        while let Some(message) = state.next_message() {
            assert!(!v1::ServerMessage { message: Some(message) }.encode_to_vec().is_empty());
        }
        if outcome.is_err() {
            return;
        }
    }
}

/// The session of a client at a node.
fn session() -> SessionId {
    let config = convoke_core::Config::new(NodeId::new("n1").unwrap());
    let mut node = Node::new(config, Start::default(), Time::ZERO).unwrap();
    let mut out = Output::default();
    node.begin(Time::ZERO, &mut out);
    let attach = Attach { client: "shop".to_owned(), nonce: 7, claim: 1, ..Attach::default() };
    node.attach(Time::ZERO, ConnId(1), &attach, &mut out).unwrap().session
}

fn rejection() -> Rejection {
    Rejection::new(ErrorCode::NotReady, "not ready")
}

fn origin() -> OriginId {
    OriginId { node: NodeId::new("n1").unwrap(), incarnation: Incarnation { number: 1, nonce: 1 } }
}

/// A result of the right kind: mostly a success.
fn answer(rejected: &OperationResult, session: SessionId, random: &mut fastrand::Rng) -> OperationResult {
    if random.u8(..4) == 0 {
        return rejected.clone();
    }
    match rejected {
        OperationResult::Attached(_) => OperationResult::Attached(Ok(Attached {
            session,
            heartbeat_interval: Duration::from_secs(5),
            timeout: Duration::from_secs(20),
            versions: vec![("web-1".to_owned(), "1.2.0000000a".parse().unwrap())],
            last_write: Dot { origin: origin(), n: 3 },
            claims_kept: false,
            rejected: vec![("web-2".to_owned(), rejection())],
            taken_over: Vec::new(),
        })),
        OperationResult::Written(_) => OperationResult::Written(Ok("1.2.0000000a".parse().unwrap())),
        OperationResult::Unregistered(_) => OperationResult::Unregistered(Ok(1)),
        OperationResult::Heartbeat(_) => OperationResult::Heartbeat(Ok(())),
    }
}
