//! Decoding never panics, and never trusts a length or count, whatever arrives.

use super::samples::{self, Plain, Sample};
use super::{push_of, walk};
use crate::wire::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn config() -> ProptestConfig {
    ProptestConfig { cases: convoke_fuzz::cases_u32(64), failure_persistence: None, ..ProptestConfig::default() }
}

/// Decodes and reads everything in the frame.
fn survive(frame: &[u8]) -> Result<usize, CodecError> {
    Message::decode(frame).map(|message| walk(&message))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = survive(&bytes);
    }

    /// With a valid beginning, more of the decoder is reached.
    #[test]
    fn arbitrary_bytes_after_a_message_type_do_not_panic(
        tag in 0..13u8,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..4u8], 0..400),
    ) {
        let _ = survive(&[&[tag], &bytes[..]].concat());
    }

    #[test]
    fn every_truncation_is_rejected(sample in samples::sample()) {
        let frame = sample.encode();
        for len in 0..frame.len() {
            prop_assert!(survive(&frame[..len]).is_err(), "{} of {} bytes were accepted", len, frame.len());
        }
    }

    #[test]
    fn trailing_bytes_are_rejected(sample in samples::sample(), extra in prop::collection::vec(any::<u8>(), 1..20)) {
        let frame = [sample.encode(), extra.clone()].concat();
        prop_assert_eq!(survive(&frame), Err(CodecError::Trailing(extra.len())));
    }

    #[test]
    fn single_byte_mutations_do_not_panic(
        sample in samples::sample(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = sample.encode();
        let at = at.index(frame.len());
        frame[at] = byte;
        let _ = survive(&frame);
    }

    #[test]
    fn every_bit_of_a_frame_may_flip(sample in samples::sample(), bit in 0..8u32, start in 0..4usize) {
        let frame = sample.encode();
        for at in (start..frame.len()).step_by(4) {
            let mut flipped = frame.clone();
            flipped[at] ^= 1 << bit;
            let _ = survive(&flipped);
        }
    }
}

#[test]
fn fuzz_frames() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut sample = || samples::sample().new_tree(&mut runner).expect("a sample").current().encode();
    let corpus: Vec<Vec<u8>> = (0..200).map(|_| sample()).collect();
    convoke_fuzz::bytes(&corpus, |frame| {
        let _ = survive(frame);
    });
}

/// A frame that is valid up to a count, which is absurd. If anything were allocated for it, the test would not end.
#[test]
fn absurd_counts_are_rejected_before_anything_is_allocated() {
    let absurd = 1u64 << 60;
    let mut frames: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut frame = |what: &'static str, build: &dyn Fn(&mut Writer)| {
        let mut w = Writer::default();
        build(&mut w);
        w.varint(absurd);
        // Enough bytes behind it for a few entries.
        w.raw(&[0; 64]);
        frames.push((what, w.into_bytes()));
    };
    let ping = |w: &mut Writer| {
        w.byte(3);
        w.raw(&[1, 1, 1, 1]);
        w.fixed64(0);
        w.flag(false);
        w.flag(true);
        w.varint(0);
    };
    let hello = |w: &mut Writer| {
        w.byte(0);
        w.varint(1);
        w.text("c");
        encode_origin(w, &samples::origin("a"));
        for _ in 0..3 {
            w.text("");
        }
        w.flag(true);
        w.flag(false);
    };
    let push = |w: &mut Writer| {
        w.byte(4);
        encode_origin(w, &samples::origin("a"));
        w.varint(0);
        w.varint(1);
        w.flag(false);
    };
    frame("regions", &ping);
    frame("ask", &|w| {
        ping(w);
        w.count(0);
    });
    frame("evidence", &|w| {
        ping(w);
        w.count(0);
        w.count(0);
    });
    frame("cluster", &|w| {
        w.byte(0);
        w.varint(1);
    });
    frame("nodes", &hello);
    frame("origins", &push);
    frame("clients", &|w| {
        push(w);
        w.count(0);
    });
    frame("items", &|w| {
        push(w);
        w.count(0);
        w.count(0);
    });
    frame("clock", &|w| {
        w.byte(5);
        w.varint(1);
    });
    frame("retired", &|w| {
        w.byte(5);
        w.varint(1);
        w.count(0);
    });
    for (what, frame) in &frames {
        match Message::decode(frame) {
            Err(CodecError::TooLarge { what: named, found, limit }) => {
                assert_eq!((named, found), (*what, absurd));
                assert!(limit <= 1024, "{what} may be up to {limit} although only 64 bytes are left");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_count_of_one_more_than_fits_is_rejected() {
    // Each entry of a clock takes at least 11 bytes: 33 bytes hold three.
    let body = |count: u64| {
        let mut w = Writer::default();
        w.byte(5);
        w.varint(1);
        w.varint(count);
        w.raw(&[0; 33]);
        w.into_bytes()
    };
    let rejected = Message::decode(&body(4)).map(|_| ());
    assert_eq!(rejected, Err(CodecError::TooLarge { what: "clock", found: 4, limit: 3 }));
    // Three entries are read, and are not node ids.
    assert_eq!(Message::decode(&body(3)).map(|_| ()), Err(CodecError::Invalid("node id")));
}

#[test]
fn absurd_lengths_inside_an_item_are_rejected() {
    let body = samples::record_body(&samples::record("x"));
    let end = body.len();
    for (what, at, named) in [("id", 3, "id"), ("service", 15, "service"), ("pairs", end - 2, "pairs")] {
        let mut w = Writer::default();
        w.raw(&body[..at]);
        w.varint(1 << 60);
        w.raw(&body[at..]);
        match Message::decode(&push_of(w.bytes())) {
            Err(CodecError::TooLarge { what: found, limit, .. }) => {
                assert_eq!(found, named, "{what}");
                assert!(limit <= 64 * 1024, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    // A number of pairs that the format allows and the frame does not hold.
    let mut w = Writer::default();
    w.raw(&body[..end - 2]);
    w.varint(4096);
    assert_eq!(Message::decode(&push_of(w.bytes())).map(|_| ()), Err(CodecError::Truncated("pair")));
}

#[test]
fn unknown_message_types_are_rejected() {
    for tag in 18..=255u8 {
        assert_eq!(Message::decode(&[tag, 0, 0]).map(|_| ()), Err(CodecError::UnknownMessage(tag)));
    }
    assert_eq!(Message::decode(&[]).map(|_| ()), Err(CodecError::Truncated("message type")));
}

#[test]
fn values_outside_their_enumeration_are_rejected() {
    let rejected = |frame: &[u8]| Message::decode(frame).map(|_| ()).unwrap_err();
    assert_eq!(rejected(&[12, 2]), CodecError::Invalid("leaving"));
    assert_eq!(rejected(&[2, 8, 0]), CodecError::Invalid("reason"));
    // The address of another process is not empty.
    assert_eq!(rejected(&[2, 7, 1, b'r', 0, 0]), CodecError::Invalid("peer address"));
    assert_eq!(rejected(&[2, 0, 1, b'r', 2]), CodecError::Invalid("known incarnation"));
    assert_eq!(rejected(&[10, 1, 1, b'a', 3, 0]), CodecError::Invalid("link state"));
    for name in ["", "a b", "ü", &"x".repeat(65)] {
        let mut w = Writer::default();
        w.byte(9);
        w.varint(1);
        w.text(name);
        assert!(Message::decode(w.bytes()).is_err(), "node id {name:?}");
    }
    assert_eq!(rejected(&[11, 1, 0xff, 0]), CodecError::Invalid("id"), "not UTF-8");
}

#[test]
fn a_health_report_carries_one_piece_of_evidence_at_most() {
    let evidence = EvidenceItem { origin: samples::origin("a"), liveness_counter: 3, written: 2, age_ms: 4 };
    let one = Plain::HealthReport(1, samples::node("a"), LinkState::Up, Some(evidence));
    let mut frame = Sample::Plain(one).encode();
    assert!(Message::decode(&frame).is_ok());
    // The count of evidence follows the state; the one entry is repeated.
    let count = 5;
    assert_eq!(frame[count], 1);
    frame[count] = 2;
    let entry = frame[count + 1..].to_vec();
    frame.extend(entry);
    assert_eq!(Message::decode(&frame).map(|_| ()), Err(CodecError::Invalid("evidence")));
}

#[test]
fn a_push_that_ends_before_it_begins_is_rejected() {
    let frame = Message::encode_push(&samples::origin("a"), (5, 4), false, &ItemsWriter::default(), &[]);
    assert_eq!(Message::decode(&frame).map(|_| ()), Err(CodecError::Invalid("to")));
}
