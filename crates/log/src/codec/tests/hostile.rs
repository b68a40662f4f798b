//! Decoding of arbitrary bytes neither panics nor accepts invalid commands.

use super::samples;
use crate::codec::{COMMAND_VERSION, CodecError, Writer};
use crate::command::{Body, Command, DurableClient, Op, Open, Put, Request, TXN_OPERATIONS_MAX, Txn, TxnPut};
use crate::id::{Epoch, LogSessionId, RequestId};
use bytes::Bytes;
use convoke_base::codec::COUNTER_MAX;
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<Command, CodecError> {
    Command::decode(&Bytes::copy_from_slice(bytes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: convoke_fuzz::cases_u32(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_round_trip(command in samples::command()) {
        let encoded = command.encode();
        prop_assert_eq!(command.encode_checked(), Ok((Bytes::copy_from_slice(&encoded), command.clone())));
        prop_assert_eq!(decode(&encoded), Ok(command));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(tags in (0..8u8, 0..13u8), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode(&[&[COMMAND_VERSION, tags.0], &bytes[..]].concat());
        // A valid prefix reaches the bodies.
        let _ = decode(&[&[COMMAND_VERSION, 1, 7, 9, 0, 1, 1, 1, 0, tags.1], &bytes[..]].concat());
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_rejected(command in samples::command(), extra in 1..9usize) {
        let bytes = command.encode();
        for len in 0..bytes.len() {
            prop_assert!(decode(&bytes[..len]).is_err(), "{} of {} bytes were accepted", len, bytes.len());
        }
        prop_assert_eq!(decode(&[&bytes[..], &vec![0; extra]].concat()), Err(CodecError::Trailing(extra)));
    }

    /// One encoding per value: a decoded command encodes to the same bytes.
    #[test]
    fn a_changed_byte_is_rejected_or_another_command(command in samples::command(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = command.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(decoded) = decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }
}

#[test]
fn other_versions_and_tags_are_rejected() {
    assert_eq!(decode(&[1, 0]), Err(CodecError::Version { what: "command", found: 1, known: 2 }));
    assert_eq!(decode(&[2, 9]), Err(CodecError::Invalid("command")));
    assert_eq!(decode(&[]), Err(CodecError::Truncated("command")));
}

fn request(number: u64, abandoned: u64, previous: u64) -> Writer {
    let mut w = Writer::default();
    w.raw(&[2, 1, 7]);
    w.varint(number);
    w.varint(abandoned);
    w.varint(previous);
    crate::codec::put_epoch(&mut w, Epoch::new(1, 1));
    w.flag(false);
    w
}

/// If memory were allocated for these lengths, the test would not end.
#[test]
fn absurd_lengths_and_counts_are_rejected_before_anything_is_allocated() {
    let absurd = 1u64 << 60;
    for (what, beginning) in [("key", &[2u8][..]), ("from", &[4]), ("voters", &[5, 1]), ("learners", &[5, 1, 0])] {
        let mut w = request(3, 0, 1);
        w.raw(beginning);
        w.varint(absurd);
        w.raw(&[0; 64]);
        let error = decode(w.bytes()).unwrap_err();
        assert!(matches!(error, CodecError::TooLarge { what: found, .. } if found == what), "{what}: {error}");
    }
}

#[test]
fn a2_malformed_numbers_are_rejected() {
    let end = |mut w: Writer| {
        w.raw(&[1, 7]);
        decode(w.bytes())
    };
    assert!(end(request(3, 0, 1)).is_ok());
    assert_eq!(end(request(0, 0, 0)), Err(CodecError::Invalid("number")));
    assert_eq!(end(request(3, 3, 1)), Err(CodecError::Invalid("abandon_below")));
    assert_eq!(end(request(3, 0, 0)), Err(CodecError::Invalid("previous")));
    assert_eq!(end(request(3, 4, 1)), Err(CodecError::TooLarge { what: "abandon_below", found: 4, limit: 3 }));
    assert!(matches!(end(request(u64::MAX, 0, 1)), Err(CodecError::TooLarge { what: "number", .. })));
}

#[test]
fn t1_a_transaction_with_too_many_operations_is_not_appended() {
    let put = |number: usize| Op::Put(TxnPut::new(format!("k{number}"), "v"));
    let txn = |operations: usize| Txn { then: (0..operations).map(put).collect(), ..Txn::default() };
    let command = |txn| Command::Request(Request::new(LogSessionId(7), 3, Epoch::new(1, 1), Body::Txn(txn)));
    assert!(command(txn(TXN_OPERATIONS_MAX)).encode_checked().is_ok());
    for (part, txn) in [
        ("then", txn(TXN_OPERATIONS_MAX + 1)),
        ("operations", Txn { otherwise: vec![put(1)], ..txn(TXN_OPERATIONS_MAX) }),
        ("operations", Txn::default()),
        ("key", Txn { then: vec![put(1), put(1)], ..Txn::default() }),
    ] {
        let error = command(txn).encode_checked().unwrap_err();
        assert_eq!(error.part(), Some(part), "{error}");
    }
}

/// A client can send these, and no replica could decode them: in the log they would stop all replicas, after every
/// restart again.
#[test]
fn a1_an_undecodable_command_is_not_appended() {
    let epoch = Epoch::new(1, 1);
    let request = |body| Request::new(LogSessionId(7), 3, epoch, body);
    let put = |key: Vec<u8>, if_revision| {
        Body::Put(Put { key: key.into(), value: Bytes::new(), if_revision, previous: false })
    };
    let open = |ttl, name: &str, replaces| {
        let client = Some(DurableClient { name: name.into(), replaces });
        Command::Open(Open { client, ..Open::new(epoch, std::time::Duration::from_micros(ttl), 1) })
    };
    let over = COUNTER_MAX + 1;
    for (part, command) in [
        ("if_revision", Command::Request(request(put(vec![1], Some(over))))),
        ("key", Command::Request(request(put(vec![1; 65 * 1024], None)))),
        ("fence.number", Command::Request(request(Body::Fence(RequestId::new(LogSessionId(7), over))))),
        ("number", Command::Request(Request { number: 0, ..request(put(vec![1], None)) })),
        ("abandon_below", Command::Request(Request { abandon_below: 4, ..request(put(vec![1], None)) })),
        ("previous", Command::Request(Request { previous: 3, ..request(put(vec![1], None)) })),
        ("ttl", open(over, "a", None)),
        ("client.name", open(1, &"a".repeat(5_000), None)),
        ("client.replaces", open(1, "a", Some(LogSessionId(over)))),
    ] {
        let error = command.encode_checked().unwrap_err();
        assert_eq!(error.part(), Some(part), "{error}");
    }
    assert!(Command::Request(request(put(vec![1], Some(COUNTER_MAX)))).encode_checked().is_ok());
}
