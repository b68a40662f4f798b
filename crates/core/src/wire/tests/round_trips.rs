//! Every message round-trips.

use super::samples::{self, Plain, Sample};
use super::{assert_same_items, walk};
use crate::wire::*;
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() }
}

/// Compares what was decoded with what was encoded.
#[track_caller]
fn assert_decoded(decoded: &Message<'_>, plain: &Plain) {
    match (decoded, plain) {
        (Message::Hello(found), Plain::Hello(sent)) | (Message::Welcome(found), Plain::Welcome(sent)) => {
            assert_eq!(found, sent);
        }
        (Message::Reject { reason, known_incarnation, address, .. }, Plain::Reject(sent, of, at)) => {
            assert_eq!((reason, known_incarnation, address), (sent, of, at));
        }
        (Message::Ping(found), Plain::Ping(sent)) => assert_eq!(found, sent),
        (Message::Want { exchange, context, evidence }, Plain::Want(number, sent, expected)) => {
            assert_eq!((exchange, context, evidence), (number, sent, expected));
        }
        (Message::ChunkAck { exchange, index }, Plain::ChunkAck(number, at)) => {
            assert_eq!((exchange, index), (number, at));
        }
        (Message::ChunkAbort { exchange }, Plain::ChunkAbort(number)) => assert_eq!(exchange, number),
        (Message::HealthQuery { query, about }, Plain::HealthQuery(number, node)) => {
            assert_eq!((query, about), (number, node));
        }
        (
            Message::HealthReport { query, about, state, evidence },
            Plain::HealthReport(number, node, seen, expected),
        ) => {
            assert_eq!((query, about, state, evidence), (number, node, seen, expected));
        }
        (Message::Drain { id, drain, maintenance: None }, Plain::Drain(member, mark)) => {
            assert_eq!((*id, drain), (member.as_str(), mark));
        }
        (Message::CheckReport { id, check, status, output }, Plain::CheckReport(member, sent)) => {
            assert_eq!((*id, *check, status, *output), (member.as_str(), "c", sent, "fine"));
        }
        (Message::Drain { id, drain, maintenance: Some(found) }, Plain::Maintenance(member, mark, sent)) => {
            assert_eq!((*id, drain, *found), (member.as_str(), mark, samples::maintenance(sent)));
        }
        (Message::Goodbye { leaving }, Plain::Goodbye(sent)) => assert_eq!(leaving, sent),
        (Message::Search { query, dots }, Plain::Search(number, sent)) => assert_eq!((query, dots), (number, sent)),
        (Message::SearchReport { query, covered, linked }, Plain::SearchReport(number, has, link)) => {
            assert_eq!((query, covered, linked), (number, has, link));
        }
        (Message::Received { n }, Plain::Received(sent)) => assert_eq!(n, sent),
        (Message::Revoke(found), Plain::Revoke(sent)) => assert_eq!(*found, super::samples::revocations(sent)),
        _ => panic!("{decoded:?} was sent as {plain:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn messages_without_items_round_trip(plain in samples::plain()) {
        let frame = plain.message().encode();
        let decoded = Message::decode(&frame).unwrap();
        assert_decoded(&decoded, &plain);
        prop_assert_eq!(decoded.encode(), frame);
    }

    #[test]
    fn pushes_round_trip(sample in samples::push()) {
        let frame = sample.encode();
        let Message::Push { origin, from, to, receipt, items, evidence: found } = Message::decode(&frame).unwrap() else {
            panic!("a push was decoded as something else");
        };
        let Sample::Push { origin: sent, from: after, to: until, contents, evidence } = &sample else { unreachable!() };
        prop_assert_eq!((&origin, &from, &to, receipt), (sent, after, until, *until % 2 == 0));
        prop_assert_eq!(&found, evidence);
        assert_same_items(&items, contents);
    }

    #[test]
    fn chunks_round_trip(sample in samples::chunk()) {
        let frame = sample.encode();
        let Message::Chunk(found) = Message::decode(&frame).unwrap() else {
            panic!("a chunk was decoded as something else");
        };
        let Sample::Chunk { exchange, index, full, contents, end, reply, evidence } = &sample else { unreachable!() };
        prop_assert_eq!((&found.exchange, &found.index, &found.full), (exchange, index, full));
        prop_assert_eq!((&found.end, &found.reply, &found.evidence), (end, reply, evidence));
        assert_same_items(&found.items, contents);
    }

    /// Items can be read more than once: first to be checked, then to be applied.
    #[test]
    fn items_can_be_read_again_and_again(contents in samples::contents()) {
        let mut w = Writer::default();
        samples::written(&contents).finish(&mut w);
        let mut reader = Reader::new(w.bytes());
        let items = Items::decode(&mut reader).unwrap();
        prop_assert_eq!(reader.end(), Ok(()));
        assert_same_items(&items, &contents);
        assert_same_items(&items, &contents);
    }

    #[test]
    fn numbers_take_one_form(value in any::<u64>(), shift in 0..64u32) {
        let value = value >> shift;
        let mut w = Writer::default();
        w.varint(value);
        let mut reader = Reader::new(w.bytes());
        prop_assert_eq!(reader.varint("value"), Ok(value));
        prop_assert_eq!(reader.end(), Ok(()));
        prop_assert_eq!(w.len(), (64 - value.leading_zeros()).div_ceil(7).max(1) as usize);
    }
}

/// The table of clients and origins of one frame is shared by its items, however they are interleaved.
#[test]
fn a_frame_names_each_origin_and_client_once() {
    let [mut first, mut second] = [samples::record("x"), samples::record("y")];
    first.client =
        std::sync::Arc::new(crate::member::ClientProcess { id: "other".into(), nonce: 1, principal: "token/a".into() });
    second.n = 2;
    let once = samples::Content::Stated(Box::new(first));
    let twice = samples::Content::Stated(Box::new(second));
    let contents: Vec<_> = (0..10).flat_map(|_| [once.clone(), twice.clone()]).collect();
    let mut w = Writer::default();
    samples::written(&contents).finish(&mut w);
    let text = String::from_utf8_lossy(w.bytes()).into_owned();
    assert_eq!((text.matches("other").count(), text.matches("client").count()), (1, 1));
    assert_same_items(&Items::decode(&mut Reader::new(w.bytes())).unwrap(), &contents);
}

#[test]
fn the_longest_texts_and_the_most_pairs_round_trip() {
    let mut record = samples::record(&"i".repeat(64 * 1024));
    record.deployment = samples::deployment(&"s".repeat(64 * 1024), "", "");
    let pairs: std::collections::BTreeMap<String, String> =
        (0..4096).map(|i| (format!("{i:04}"), "v".to_owned())).collect();
    record.metadata = crate::member::Metadata::from_map(&pairs);
    let contents = [samples::Content::Stated(Box::new(record))];
    let frame = Message::encode_push(&samples::origin("a"), (0, 1), false, &samples::written(&contents), &[]);
    let decoded = Message::decode(&frame).unwrap();
    assert!(walk(&decoded) > 64 * 1024);
    let Message::Push { items, .. } = decoded else { panic!("a push was decoded as something else") };
    assert_same_items(&items, &contents);
}
