//! Numbers that cannot be reached by counting, inconsistent items, settings that the format cannot encode.

use super::push_of;
use super::samples::{self, Content, Plain, Sample};
use crate::config::Config;
use crate::member::{Metadata, Origin, Record};
use crate::version::{Incarnation, OriginId};
use crate::wire::*;
use std::sync::Arc;

#[track_caller]
fn assert_rejected(sample: &Sample, expected: &CodecError) {
    assert_eq!(Message::decode(&sample.encode()).map(|_| ()), Err(*expected));
}

#[track_caller]
fn assert_accepted(sample: &Sample) {
    assert!(Message::decode(&sample.encode()).is_ok());
}

fn pushed(contents: Vec<Content>) -> Sample {
    Sample::Push { origin: samples::origin("a"), from: 0, to: 1, contents, evidence: Vec::new() }
}

fn record(change: impl FnOnce(&mut Record)) -> Sample {
    let mut record = samples::record("x");
    change(&mut record);
    pushed(vec![Content::Stated(Box::new(record))])
}

fn numbered(number: u64) -> OriginId {
    OriginId { incarnation: Incarnation { number, nonce: 1 }, ..samples::origin("a") }
}

/// The highest number is accepted, one more is rejected and named.
#[track_caller]
fn assert_bound(what: &'static str, limit: u64, sample: impl Fn(u64) -> Sample) {
    assert_accepted(&sample(limit));
    assert_rejected(&sample(limit + 1), &CodecError::TooLarge { what, found: limit + 1, limit });
}

#[test]
fn claims_and_counters_of_records_are_bounded() {
    assert_bound("claim", MAX_CLAIM, |claim| record(|r| r.claim = claim));
    assert_bound("n", COUNTER_MAX, |n| record(|r| r.n = n));
    assert_bound("seq", SEQ_MAX, |seq| record(|r| r.seq = seq));
    assert_bound("predecessor", COUNTER_MAX, |n| record(|r| r.predecessor = (9, n)));
    assert_bound("drain", u64::from(u32::MAX / 2), |drain| record(|r| r.drain = drain as u32));
}

#[test]
fn claims_and_counters_of_inferred_records_are_bounded() {
    let inferred = |change: &dyn Fn(&mut crate::liveness::Inferred)| {
        let mut inferred = samples::inferred();
        change(&mut inferred);
        pushed(vec![Content::Inferred("x".to_owned(), Box::new(inferred))])
    };
    assert_bound("claim", MAX_CLAIM, |claim| inferred(&|i| i.claim = claim));
    assert_bound("n", COUNTER_MAX, |n| inferred(&|i| i.n = n));
    assert_bound("n", COUNTER_MAX, |n| inferred(&|i| i.about_n = n));
    assert_bound("liveness counter", COUNTER_MAX, |liveness_counter| {
        inferred(&|i| i.liveness_counter = liveness_counter)
    });
}

#[test]
fn counters_of_messages_are_bounded() {
    let ping = |change: &dyn Fn(&mut Ping)| {
        let mut ping = Ping {
            seq: 1,
            echo: 1,
            liveness_counter: 1,
            written: 1,
            context_hash: 1,
            contents: None,
            serving: true,
            sessions: 1,
            regions: Vec::new(),
            ask: Vec::new(),
            evidence: vec![EvidenceItem { origin: samples::origin("a"), liveness_counter: 1, written: 1, age_ms: 1 }],
        };
        change(&mut ping);
        Sample::Plain(Plain::Ping(ping))
    };
    assert_bound("seq", COUNTER_MAX, |n| ping(&|p| p.seq = n));
    assert_bound("echo", COUNTER_MAX, |n| ping(&|p| p.echo = n));
    assert_bound("liveness counter", COUNTER_MAX, |n| ping(&|p| p.liveness_counter = n));
    assert_bound("written", COUNTER_MAX, |n| ping(&|p| p.written = n));
    assert_bound("liveness counter", COUNTER_MAX, |n| ping(&|p| p.evidence[0].liveness_counter = n));
    assert_bound("age", COUNTER_MAX, |n| ping(&|p| p.evidence[0].age_ms = n));
    assert_bound("incarnation", COUNTER_MAX, |n| ping(&|p| p.ask = vec![numbered(n)]));
    assert_bound("incarnation", COUNTER_MAX, |n| {
        Sample::Plain(Plain::Reject(RejectReason::Identity, Some(numbered(n).incarnation), String::new()))
    });
    let push =
        |from, to| Sample::Push { origin: samples::origin("a"), from, to, contents: Vec::new(), evidence: Vec::new() };
    assert_bound("to", COUNTER_MAX, |n| push(0, n));
    assert_rejected(
        &push(COUNTER_MAX + 1, COUNTER_MAX + 1),
        &CodecError::TooLarge { what: "from", found: COUNTER_MAX + 1, limit: COUNTER_MAX },
    );
    assert_bound("n", COUNTER_MAX, |n| {
        let context = Context { clock: [(samples::origin("a"), n)].into_iter().collect(), ..Context::default() };
        Sample::Plain(Plain::Want(1, context, Vec::new()))
    });
    assert_bound("claim floor", MAX_CLAIM, |claim_floor| {
        Sample::Plain(Plain::Want(1, Context { claim_floor, ..Context::default() }, Vec::new()))
    });
    assert_bound("drain", u64::from(u32::MAX / 2), |n| Sample::Plain(Plain::Drain("x".to_owned(), n as u32)));
}

#[test]
fn writes_are_counted_from_one_and_ids_are_not_empty() {
    assert_rejected(&record(|r| r.n = 0), &CodecError::Invalid("n"));
    assert_rejected(&record(|r| r.id = "".into()), &CodecError::Invalid("id"));
    let mut inferred = samples::inferred();
    inferred.n = 0;
    assert_rejected(&pushed(vec![Content::Inferred("x".into(), Box::new(inferred))]), &CodecError::Invalid("n"));
}

#[test]
fn a_weight_above_its_type_is_rejected() {
    let body = samples::record_body(&samples::record("x"));
    // The weight follows the drain counter, 13 bytes into the body of the plain record.
    let mut w = Writer::default();
    w.raw(&body[..13]);
    w.varint(u64::from(u16::MAX) + 1);
    w.raw(&body[14..]);
    let rejected = Message::decode(&push_of(w.bytes())).map(|_| ());
    assert_eq!(rejected, Err(CodecError::TooLarge { what: "weight", found: 65_536, limit: 65_535 }));
}

#[test]
fn items_cannot_name_origins_or_clients_that_the_frame_does_not() {
    let mut body = samples::record_body(&samples::record("x"));
    assert!(Message::decode(&push_of(&body)).is_ok());
    body[1] = 1;
    assert_eq!(Message::decode(&push_of(&body)).map(|_| ()), Err(CodecError::Invalid("origin")));
    body[1] = 0;
    body[14] = 1;
    assert_eq!(Message::decode(&push_of(&body)).map(|_| ()), Err(CodecError::Invalid("client")));
}

#[test]
fn items_of_unknown_kind_are_rejected() {
    let mut body = samples::record_body(&samples::record("x"));
    // A record may contain checks, and the maintenance of its member.
    let record = |tag: &u8| (0b1000..=0b1111).contains(&(tag & !0b110_0000));
    for tag in (0..=255u8).filter(|tag| !record(tag) && !(0b1_0000..=0b1_0001).contains(tag)) {
        body[0] = tag;
        assert_eq!(Message::decode(&push_of(&body)).map(|_| ()), Err(CodecError::Invalid("item")), "{tag:#b}");
    }
}

#[test]
fn pairs_are_sorted_and_unique() {
    let body = samples::record_body(&samples::record("x"));
    let with_keys = |keys: [&str; 2]| {
        let mut w = Writer::default();
        w.raw(&body[..body.len() - 1]);
        w.count(2);
        for key in keys {
            w.text(key);
            w.text("v");
        }
        push_of(w.bytes())
    };
    assert!(Message::decode(&with_keys(["a", "b"])).is_ok());
    for keys in [["b", "a"], ["a", "a"]] {
        assert_eq!(Message::decode(&with_keys(keys)).map(|_| ()), Err(CodecError::Invalid("pair")), "{keys:?}");
    }
}

#[test]
fn texts_longer_than_the_format_allows_are_rejected() {
    let long = "x".repeat(64 * 1024 + 1);
    for (what, change) in [
        ("id", &(|r: &mut Record| r.id = long.as_str().into()) as &dyn Fn(&mut Record)),
        ("service", &|r| r.deployment = samples::deployment(&long, "", "")),
        ("locality", &|r| r.deployment = samples::deployment("s", &long, "")),
        ("revision", &|r| r.deployment = samples::deployment("s", "", &long)),
        ("address", &|r| r.address = long.as_str().into()),
        ("pair", &|r| r.metadata = Metadata::from_sorted([("k", long.as_str())].into_iter())),
        ("pair", &|r| r.endpoints = Metadata::from_sorted([(long.as_str(), "v")].into_iter())),
    ] {
        let expected = CodecError::TooLarge { what, found: 64 * 1024 + 1, limit: 64 * 1024 };
        assert_rejected(&record(|r| change(r)), &expected);
    }
}

/// Peers must be able to decode whatever a configuration allows: otherwise one member would break every link.
#[test]
fn settings_that_the_format_cannot_carry_are_rejected_at_start() {
    let valid = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::new(samples::node("a"));
        config.limits.frame_bytes = 64 * 1024 * 1024;
        change(&mut config);
        config.validate().is_ok()
    };
    assert!(valid(&|_| ()));
    let long = 64 * 1024 + 1;
    assert!(!valid(&|c| c.limits.id_bytes = long), "ids");
    assert!(!valid(&|c| c.limits.attribute_bytes = long), "attributes");
    assert!(!valid(&|c| c.limits.metadata_pairs = 4097), "metadata pairs");
    assert!(!valid(&|c| c.limits.metadata_key_bytes = long), "metadata keys");
    assert!(!valid(&|c| c.limits.metadata_value_bytes = long), "metadata values");
    assert!(!valid(&|c| c.limits.endpoints = 4097), "endpoints");
    assert!(!valid(&|c| c.cluster = "c".repeat(1025)), "cluster");
    assert!(!valid(&|c| c.region = "r".repeat(1025)), "region");
    assert!(!valid(&|c| c.peer_address = "h".repeat(1025)), "peer address");
    assert!(!valid(&|c| c.client_address = "h".repeat(1025)), "client address");
}

/// The id of any member that can be registered also fits into the message that drains it.
#[test]
fn the_longest_id_that_a_configuration_allows_can_be_drained() {
    for id_bytes in [256, 1024, 1025, 64 * 1024] {
        let mut config = Config::new(samples::node("a"));
        config.limits.id_bytes = id_bytes;
        if config.validate().is_ok() {
            assert_accepted(&Sample::Plain(Plain::Drain("x".repeat(id_bytes), 1)));
        }
    }
}

/// The order in which a table lists origins is not part of the message's content.
#[test]
fn origins_are_compared_by_all_their_parts() {
    let mut copies = [samples::record("x"), samples::record("x")];
    copies[1].origin = Arc::new(Origin { id: numbered(2), index: 0, tag: 0 });
    let contents: Vec<Content> = copies.map(|record| Content::Stated(Box::new(record))).into();
    let frame = pushed(contents).encode();
    let Message::Push { items, .. } = Message::decode(&frame).unwrap() else { panic!("not a push") };
    let origins: Vec<OriginId> = items
        .iter()
        .map(|item| match item {
            Item::Record(record) => record.origin.clone(),
            Item::Inferred(inferred) => inferred.origin.clone(),
        })
        .collect();
    assert_eq!(origins, [samples::origin("a"), numbered(2)]);
}
