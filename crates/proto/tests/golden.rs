//! Golden encodings: messages of released clients and nodes stay readable.
//!
//! `schema.rs` checks numbers and types; this file checks the resulting bytes. Cases are only added, never changed.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_proto::v1::{self, client_message, notice, request, server_message, watch_event};
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Debug;

#[track_caller]
fn assert_golden<M: Message + Default + PartialEq + Debug>(message: &M, golden: &str) {
    let golden: String = golden.split_whitespace().collect();
    assert_eq!(hex(&message.encode_to_vec()), golden);
    assert_eq!(M::decode(unhex(&golden).as_slice()).unwrap(), *message);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn from_client(message: client_message::Message) -> v1::ClientMessage {
    v1::ClientMessage { message: Some(message) }
}

fn from_node(message: server_message::Message) -> v1::ServerMessage {
    v1::ServerMessage { message: Some(message) }
}

fn event(event: watch_event::Event) -> v1::WatchEvent {
    v1::WatchEvent { event: Some(event) }
}

fn spec() -> v1::MemberSpec {
    v1::MemberSpec {
        id: "m".to_owned(),
        service: "s".to_owned(),
        locality: "eu.a".to_owned(),
        revision: "r1".to_owned(),
        created: Some(1_700_000_000_000),
        address: "h:1".to_owned(),
        endpoints: pairs(&[("g", "h:2")]),
        weight: 3,
        metadata: pairs(&[("k", "v")]),
        checks: Vec::new(),
    }
}

fn member() -> v1::Member {
    v1::Member {
        id: "m".to_owned(),
        service: "s".to_owned(),
        status: v1::Status::Up.into(),
        drained: true,
        owner: Some(v1::Owner { node: "n1".to_owned(), since: 5 }),
        version: "1.2.3".to_owned(),
        client: "c".to_owned(),
        weight: 1,
        ..Default::default()
    }
}

fn error() -> v1::Error {
    v1::Error {
        code: v1::error::Code::StaleClaim.into(),
        message: "no".to_owned(),
        field: Some("claim".to_owned()),
        limit: Some(0),
        known: Some(300),
        ..v1::Error::default()
    }
}

const SPEC: &str = "0a016d1201731a0465752e61220272312880d095ffbc313203683a313a080a01671203683a3240034a060a016b120176";
const MEMBER: &str = "0a016d12017340015001580162060a026e3110056a05312e322e33720163";
const ERROR: &str = "080d12026e6f1a05636c61696d200028ac02";

#[test]
fn shared_types() {
    assert_golden(&spec(), SPEC);
    assert_golden(&member(), MEMBER);
    assert_golden(&error(), ERROR);
}

#[test]
fn messages_from_clients() {
    let attach = v1::Attach {
        client: "c".to_owned(),
        nonce: 0x0102_0304_0506_0708,
        claim: 300,
        previous_claim: 299,
        liveness: v1::Liveness::Fast.into(),
        timeout_ms: 7_000,
        members: vec![v1::Register { member: Some(spec()), takeover: true }],
        unregistered: vec!["x".to_owned()],
        more: true,
    };
    assert_golden(
        &from_client(client_message::Message::Attach(attach)),
        "0a520a016311080706050403020118ac0220ab02280230d8363a340a300a016d1201731a0465752e61220272312880d095ffbc313203683a313a080a01671203683a3240034a060a016b12017610014201784801",
    );
    assert_golden(&from_client(client_message::Message::Heartbeat(v1::Heartbeat { sent: 300 })), "120308ac02");
    let update = v1::Update {
        id: "m".to_owned(),
        set: pairs(&[("k", "v")]),
        delete: vec!["d".to_owned()],
        replace: true,
        if_version: "1.2.3".to_owned(),
    };
    let operations = [
        request::Operation::Register(v1::Register { member: Some(spec()), takeover: false }),
        request::Operation::Update(update),
        request::Operation::Unregister(v1::Unregister { id: "m".to_owned() }),
    ];
    let requests =
        operations.into_iter().zip(1..).map(|(operation, seq)| v1::Request { seq, operation: Some(operation) });
    let requests = v1::Requests { requests: requests.collect() };
    assert_golden(
        &from_client(client_message::Message::Requests(requests)),
        "1a5e0a36080112320a300a016d1201731a0465752e61220272312880d095ffbc313203683a313a080a01671203683a3240034a060a016b1201760a1b08021a170a016d12060a016b1201761a016420012a05312e322e330a07080322030a016d",
    );
    assert_golden(&from_client(client_message::Message::Close(v1::Close {})), "2200");
    let resume = v1::Resume {
        token: vec![1, 2],
        recent: pairs(&[("m", "1.2.3")]),
        known: Some(v1::resume::Known { versions: pairs(&[("m", "1.2.3")]) }),
    };
    assert_golden(
        &v1::WatchRequest { filter: "f".to_owned(), resume: Some(resume) },
        "0a0166121e0a020102120a0a016d1205312e322e331a0c0a0a0a016d1205312e322e33",
    );
    assert_golden(
        &v1::ListRequest { filter: "f".to_owned(), limit: 10, cursor: "c".to_owned(), partial: true },
        "0a0166100a1a01632001",
    );
    assert_golden(&v1::GetRequest { id: "m".to_owned() }, "0a016d");
}

#[test]
fn messages_from_nodes() {
    let attached = v1::Attached {
        claim: 300,
        node: "n1".to_owned(),
        heartbeat_interval_ms: 5_000,
        timeout_ms: 20_000,
        versions: vec![v1::Versioned { id: "m".to_owned(), version: "1.2.3".to_owned() }],
        rejected: vec![v1::RejectedMember { id: "x".to_owned(), error: Some(error()) }],
        more: true,
        written: 7,
    };
    assert_golden(
        &from_node(server_message::Message::Attached(attached)),
        "0a3708ac0212026e3118882720a09c012a0a0a016d1205312e322e3332170a01781212080d12026e6f1a05636c61696d200028ac0238014007",
    );
    let rejected = v1::AttachRejected { claim: 300, error: Some(error()) };
    assert_golden(
        &from_node(server_message::Message::AttachRejected(rejected)),
        "121708ac021212080d12026e6f1a05636c61696d200028ac02",
    );
    let ack = v1::HeartbeatAck { sent: 300, replicated: 7, ..Default::default() };
    assert_golden(&from_node(server_message::Message::HeartbeatAck(ack)), "1a0508ac022007");
    let answers = v1::Answers {
        answers: vec![
            v1::Answer { seq: 1, version: "1.2.3".to_owned(), error: None, written: 0 },
            v1::Answer { seq: 2, version: String::new(), error: Some(error()), written: 7 },
        ],
    };
    assert_golden(
        &from_node(server_message::Message::Answers(answers)),
        "22250a0908011205312e322e330a1808021a12080d12026e6f1a05636c61696d200028ac022007",
    );
    assert_golden(&from_node(server_message::Message::Closed(v1::Closed { error: None, unreplicated: false })), "2a00");
    assert_golden(
        &from_node(server_message::Message::Closed(v1::Closed { error: None, unreplicated: true })),
        "2a021001",
    );
    let notices = [
        (notice::Notice::Lost(notice::Lost { known: 300 }), "32050a0308ac02"),
        (notice::Notice::Superseded(notice::Superseded { known: 300 }), "3205120308ac02"),
        (notice::Notice::TakenOver(notice::TakenOver { id: "m".to_owned() }), "32051a030a016d"),
        (
            notice::Notice::Handover(notice::Handover { node: "n2".to_owned(), address: "h:2".to_owned() }),
            "320b22090a026e321203683a32",
        ),
    ];
    for (notice, golden) in notices {
        assert_golden(&from_node(server_message::Message::Notice(v1::Notice { notice: Some(notice) })), golden);
    }
    assert_golden(
        &v1::ListResponse { members: vec![member()], next_cursor: "c".to_owned(), complete: false },
        "0a1e0a016d12017340015001580162060a026e3110056a05312e322e33720163120163",
    );
    assert_golden(
        &v1::GetResponse { member: Some(member()) },
        "0a1e0a016d12017340015001580162060a026e3110056a05312e322e33720163",
    );
}

#[test]
fn watch_events() {
    use watch_event::{CaughtUp, Event, Mark, Reset, Snapshot, reset::Reason};
    let gone = v1::Versioned { id: "m".to_owned(), version: "1.2.3".to_owned() };
    for (case, golden) in [
        (
            Event::Snapshot(Snapshot { members: vec![member()] }),
            "0a200a1e0a016d12017340015001580162060a026e3110056a05312e322e33720163",
        ),
        (Event::CaughtUp(CaughtUp {}), "1200"),
        (Event::Registered(member()), "1a1e0a016d12017340015001580162060a026e3110056a05312e322e33720163"),
        (Event::Updated(member()), "221e0a016d12017340015001580162060a026e3110056a05312e322e33720163"),
        (Event::StatusChanged(member()), "2a1e0a016d12017340015001580162060a026e3110056a05312e322e33720163"),
        (Event::OwnerChanged(member()), "321e0a016d12017340015001580162060a026e3110056a05312e322e33720163"),
        (Event::Unregistered(gone), "3a0a0a016d1205312e322e33"),
        (Event::Reset(Reset { reason: Reason::TooOld.into() }), "42020802"),
        (Event::Mark(Mark { token: vec![1, 2] }), "4a040a020102"),
    ] {
        assert_golden(&event(case), golden);
    }
}

/// A reader ignores additions of later releases.
#[test]
fn fields_and_values_of_later_releases_are_ignored() {
    let known = v1::GetRequest { id: "m".to_owned() };
    // Field 90, a text; field 91, a number.
    assert_eq!(v1::GetRequest::decode(unhex("0a016dd2050178d80501").as_slice()).unwrap(), known);
    let status = v1::Member::decode(unhex("0a016d5063").as_slice()).unwrap();
    assert_eq!((status.id.as_str(), status.status()), ("m", v1::Status::Unspecified));
    // A message type that does not exist yet.
    assert_eq!(v1::ClientMessage::decode(unhex("7a00").as_slice()).unwrap(), v1::ClientMessage::default());
}
