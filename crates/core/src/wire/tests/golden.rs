//! Frames fixed byte for byte, so that the format cannot change unnoticed.
//!
//! A frame that has to change here is another format: raise [`PROTOCOL_VERSION`] with it, so that nodes of the two
//! versions reject each other instead of misreading.

use super::samples::{self, Content, Plain, Sample};
use super::{assert_same_items, hex};
use crate::member::{Metadata, RecordKind, Space, Status};
use crate::version::{Dot, Incarnation, VectorClock};
use crate::wire::*;

#[track_caller]
fn assert_golden(sample: &Sample, golden: &str) {
    let spaced: String = golden.split_whitespace().collect();
    assert_eq!(hex(&sample.encode()), spaced);
}

fn context() -> Context {
    let clock: VectorClock = [(samples::origin("a"), 3), (samples::origin("b"), 300)].into_iter().collect();
    let retired = [(samples::node("c"), Incarnation { number: 2, nonce: 1 })].into();
    let written_off = [(samples::origin("b"), 2)].into_iter().collect();
    Context { clock, retired, written_off, claim_floor: 301, agentless_floor: 302, grace_ms: 5 }
}

fn evidence() -> EvidenceItem {
    EvidenceItem { origin: samples::origin("b"), liveness_counter: 42, written: 8, age_ms: 1500 }
}

#[test]
fn the_golden_frames_are_of_this_protocol_version() {
    assert_eq!(PROTOCOL_VERSION, 6);
}

/// Origin `a` as encoded in the frames below: name, number, nonce.
const A: &str = "0161 01 0807060504030201";
const B: &str = "0162 01 0807060504030201";

#[test]
fn hello_and_welcome() {
    let hello = Hello {
        version: 1,
        cluster: "prod".to_owned(),
        origin: samples::origin("a"),
        region: "eu".to_owned(),
        peer_address: "h:1".to_owned(),
        client_address: "h:2".to_owned(),
        serving: true,
        known_incarnation: Some(Incarnation { number: 2, nonce: 5 }),
        nodes: vec![(samples::node("c"), "us".to_owned(), "i:1".to_owned())],
    };
    // Version, cluster, origin, region, addresses, serving, known incarnation of the receiver, other nodes.
    let rest = format!(
        "01 0470726f64 {A} 026575 03683a31 03683a32 01 01020500000000000000 \
         01 0163 027573 03693a31"
    );
    assert_golden(&Sample::Plain(Plain::Hello(hello.clone())), &format!("00 {rest}"));
    assert_golden(&Sample::Plain(Plain::Welcome(hello)), &format!("01 {rest}"));
}

#[test]
fn reject() {
    let known_incarnation = Some(Incarnation { number: 300, nonce: 1 });
    let reasons = [
        (RejectReason::Cluster, "00"),
        (RejectReason::Version, "01"),
        (RejectReason::Identity, "02"),
        (RejectReason::Oneself, "03"),
        (RejectReason::Full, "04"),
        (RejectReason::Linked, "05"),
        (RejectReason::Incarnations, "06"),
    ];
    for (reason, code) in reasons {
        assert_golden(&Sample::Plain(Plain::Reject(reason, None, String::new())), &format!("02 {code} 0172 00"));
    }
    assert_golden(
        &Sample::Plain(Plain::Reject(RejectReason::Identity, known_incarnation, String::new())),
        "02 02 0172 01 ac02 0100000000000000",
    );
    assert_golden(
        &Sample::Plain(Plain::Reject(RejectReason::Identity, known_incarnation, "h:1".to_owned())),
        "02 07 0172 01 ac02 0100000000000000 03683a31",
    );
}

#[test]
fn ping() {
    let ping = Ping {
        seq: 300,
        echo: 299,
        liveness_counter: 7,
        written: 9,
        context_hash: 0x1122_3344_5566_7788,
        contents: Some(0x0102_0304_0506_0708),
        serving: true,
        sessions: 300,
        regions: vec!["us".to_owned()],
        ask: vec![samples::origin("b")],
        evidence: vec![evidence()],
    };
    let golden =
        format!("03 ac02 ab02 07 09 8877665544332211 01 0807060504030201 01 ac02 01 027573 01 {B} 01 {B} 2a 08 dc0b");
    assert_golden(&Sample::Plain(Plain::Ping(ping)), &golden);
}

#[test]
fn push() {
    let mut record = samples::record("m");
    record.status = Status::Down;
    record.n = 5;
    record.claim = 300;
    record.seq = 2;
    record.predecessor = (0x0a0b_0c0d, 9);
    record.drain = 3;
    record.weight = 10;
    record.deployment = samples::deployment("s", "eu.a", "r1");
    (record.created, record.since) = (1, 2);
    record.address = "h:1".into();
    record.endpoints = Metadata::from_sorted([("g", "h:2")].into_iter());
    record.metadata = Metadata::from_sorted([("k", ""), ("z", "1")].into_iter());
    let contents =
        vec![Content::Stated(Box::new(record)), Content::Inferred("m".to_owned(), Box::new(samples::inferred()))];
    let sample = Sample::Push {
        origin: samples::origin("a"),
        from: 4,
        to: 6,
        contents: contents.clone(),
        evidence: vec![evidence()],
    };
    let tables = format!("02 {A} {B} 01 06636c69656e74 0700000000000000");
    let stated = "0c 00 05 016d ac02 02 0d0c0b0a 09 03 0a 00 0173 0465752e61 027231 01 02 03683a31 \
                  01 0167 03683a32 02 016b 00 017a 0131";
    let inferred = "10 01 02 016d 01 00 01 09 01";
    let golden = format!("04 {A} 04 06 01 {tables} 02 {stated} {inferred} 01 {B} 2a 08 dc0b");
    assert_golden(&sample, &golden);
    let frame = sample.encode();
    let Message::Push { items, .. } = Message::decode(&frame).unwrap() else { panic!("not a push") };
    assert_same_items(&items, &contents);
}

#[test]
fn want_and_chunk() {
    let context = context();
    let encoded = format!("02 {A} 03 {B} ac02 01 0163 02 0100000000000000 01 {B} 02 ad02 ae02 05");
    let want = Sample::Plain(Plain::Want(7, context.clone(), vec![evidence()]));
    assert_golden(&want, &format!("05 07 {encoded} 01 {B} 2a 08 dc0b"));

    let mut tombstone = samples::record("m");
    (tombstone.space, tombstone.kind, tombstone.since) = (Space::Name, RecordKind::Left, 300);
    let floor: VectorClock = [(samples::origin("a"), 2)].into_iter().collect();
    let chunk = Sample::Chunk {
        exchange: 1,
        index: 0,
        full: true,
        contents: vec![Content::Stated(Box::new(tombstone))],
        end: Some((context.clone(), floor)),
        reply: Some(context),
        evidence: Vec::new(),
    };
    let tables = format!("01 {A} 01 06636c69656e74 0700000000000000");
    let stated = "0b 00 01 016d 01 01 00000000 00 00 00 00 0173 00 00 00 ac02 00 00 00 ac02";
    assert_golden(&chunk, &format!("06 01 00 01 {tables} 01 {stated} 01 {encoded} 01 {A} 02 01 {encoded} 00"));

    assert_golden(&Sample::Plain(Plain::ChunkAck(7, 300)), "07 07 ac02");
    assert_golden(&Sample::Plain(Plain::ChunkAbort(300)), "08 ac02");
}

#[test]
fn health_query_and_report() {
    let about = samples::node("b");
    assert_golden(&Sample::Plain(Plain::HealthQuery(3, about.clone())), "09 03 0162");
    for (state, code) in [(LinkState::Unknown, "00"), (LinkState::Up, "01"), (LinkState::Lost, "02")] {
        let report = Plain::HealthReport(3, about.clone(), state, None);
        assert_golden(&Sample::Plain(report), &format!("0a 03 0162 {code} 00"));
    }
    let report = Plain::HealthReport(3, about, LinkState::Lost, Some(evidence()));
    assert_golden(&Sample::Plain(report), &format!("0a 03 0162 02 01 {B} 2a 08 dc0b"));
}

#[test]
fn drain_and_goodbye() {
    assert_golden(&Sample::Plain(Plain::Drain("orders-1".to_owned(), 301)), "0b 086f72646572732d31 ad02 00");
    let maintenance = Plain::Maintenance("orders-1".to_owned(), 301, ("disk".to_owned(), 1_000, 7, 300));
    assert_golden(&Sample::Plain(maintenance), "0b 086f72646572732d31 ad02 01 046469736b e807 07 ac02");
    assert_golden(&Sample::Plain(Plain::Revoke(vec![("t/a".to_owned(), 1, 301)])), "10 01 03742f61 01 ad02");
    assert_golden(&Sample::Plain(Plain::Goodbye(true)), "0c 01");
    assert_golden(&Sample::Plain(Plain::Goodbye(false)), "0c 00");
}

#[test]
fn search_report_and_receipt() {
    let dots = vec![Dot { origin: samples::origin("a"), n: 300 }, Dot { origin: samples::origin("b"), n: 1 }];
    assert_golden(&Sample::Plain(Plain::Search(3, dots)), &format!("0d 03 02 {A} ac02 {B} 01"));
    assert_golden(&Sample::Plain(Plain::SearchReport(3, true, false)), "0e 03 01 00");
    assert_golden(&Sample::Plain(Plain::Received(300)), "0f ac02");
}
