//! Tests of snapshots: golden bytes and hostile input.

use super::*;
use crate::command::{Body, Command, Delete, DurableClient, GroupChange, Open, ReplicaLocation, Request};
use crate::id::{Epoch, LogSessionId, ReplicaId, RequestId};
use crate::limits::LogLimits;
use crate::machine::Entry;
use crate::time::LogTime;
use proptest::prelude::*;
use std::time::Duration;

const EPOCH: Epoch = Epoch { term: 2, leader: ReplicaId(1) };

fn apply(machine: &mut Machine, command: Command) {
    let index = machine.applied().index + 1;
    machine.apply(&Entry { index, epoch: EPOCH, stamp: LogTime::from_micros(index * 300), command }).unwrap();
}

fn request(session: u64, number: u64, body: Body) -> Command {
    Command::Request(Request::new(LogSessionId(session), number, EPOCH, body))
}

fn open(nonce: u64, name: Option<&str>) -> Command {
    let client = name.map(|name| DurableClient { name: name.into(), replaces: Some(LogSessionId(1)) });
    Command::Open(Open { client, ..Open::new(EPOCH, Duration::from_secs(1), nonce.into()) })
}

/// A machine with every kind of content.
fn machine() -> Machine {
    let mut machine = Machine::new(LogLimits { sessions: 3, ended_sessions: 2, ..LogLimits::default() }).unwrap();
    apply(&mut machine, open(1, Some("job")));
    apply(&mut machine, request(1, 1, Body::put("k", "v")));
    apply(&mut machine, open(2, Some("job")));
    let delete = Delete { key: "k".into(), if_revision: None, previous: true };
    apply(&mut machine, request(3, 1, Body::Delete(delete.clone())));
    apply(&mut machine, request(3, 4, Body::compare_and_set("k", "w", 9)));
    apply(&mut machine, request(3, 5, Body::put("l", "w")));
    apply(&mut machine, request(3, 6, Body::put("", "w")));
    apply(&mut machine, request(3, 7, Body::Delete(delete)));
    apply(&mut machine, request(3, 8, Body::Fence(RequestId::new(LogSessionId(1), 9))));
    let voters = [(ReplicaId(1), ReplicaLocation { node: "a".into(), address: "h:1".into() })].into();
    apply(&mut machine, request(3, 9, Body::Membership(GroupChange { replaces: 0, voters, learners: [].into() })));
    apply(&mut machine, open(3, None));
    machine
}

fn frames(machine: &Machine) -> Vec<Vec<u8>> {
    machine.snapshot().frames().collect()
}

/// A frame with this content and a correct checksum.
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&u32::try_from(content.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

#[test]
fn lh1_the_whole_state_is_restored() {
    let machine = machine();
    let restored = Machine::from_snapshot(&machine.snapshot().to_bytes()).unwrap();
    assert_eq!(restored.state_hash(), machine.state_hash());
    assert_eq!(format!("{restored:?}"), format!("{machine:?}"));
}

/// Detects format changes. These are the bytes of versions without levels, so they never change (V4).
#[test]
fn lh3_the_format_is_fixed_byte_for_byte() {
    assert_eq!((SNAPSHOT_VERSION_FIRST_LEVEL, machine().level()), (2, Level::FIRST));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let found: Vec<String> = frames(&machine()).iter().map(|frame| hex(frame)).collect();
    let golden: Vec<String> =
        include_str!("tests/golden.txt").lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(found, golden);
}

#[test]
fn lh3_a_large_state_round_trips_in_many_frames() {
    let mut machine = Machine::new(LogLimits::default()).unwrap();
    apply(&mut machine, open(1, None));
    for number in 1..=2_000 {
        apply(&mut machine, request(1, number, Body::put(format!("key-{number:05}"), vec![7; 500])));
    }
    let frames = frames(&machine);
    assert!(frames.len() > 8, "{}", frames.len());
    assert!(frames.iter().all(|frame| frame.len() < 2 * FRAME_CONTENT_BYTES));
    let restored = Machine::from_snapshot(&frames.concat()).unwrap();
    assert_eq!(restored.state_hash(), machine.state_hash());
}

#[test]
fn lh5_applying_continues_while_a_snapshot_is_written() {
    let mut machine = machine();
    let snapshot = machine.snapshot();
    let before = snapshot.to_bytes();
    let mut slow = snapshot.frames();
    let first = slow.next().unwrap();
    apply(&mut machine, request(3, 20, Body::put("later", "x")));
    let rest: Vec<u8> = slow.flatten().collect();
    assert_eq!([first, rest].concat(), before);
}

#[test]
fn every_flipped_bit_is_detected() {
    let bytes = machine().snapshot().to_bytes();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Machine::from_snapshot(&flipped).is_err(), "byte {at}");
    }
}

#[test]
fn a_truncated_or_extended_snapshot_is_rejected() {
    let frames = frames(&machine());
    let bytes = frames.concat();
    for len in 0..bytes.len() {
        assert!(Machine::from_snapshot(&bytes[..len]).is_err(), "{len} bytes");
    }
    let last = frames.last().unwrap();
    let error = Machine::from_snapshot(&[&bytes[..], last].concat()).unwrap_err();
    assert_eq!(error, SnapshotError::OutOfPlace { frame: frames.len() as u64 });
}

#[test]
fn missing_duplicate_and_swapped_frames_are_rejected() {
    let frames = frames(&machine());
    assert_eq!(frames.len(), 5);
    for at in 0..frames.len() {
        let mut without = frames.clone();
        without.remove(at);
        assert!(Machine::from_snapshot(&without.concat()).is_err(), "without {at}");
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at].clone());
        assert!(Machine::from_snapshot(&doubled.concat()).is_err(), "{at} doubled");
        let mut swapped = frames.clone();
        swapped.swap(at, (at + 1) % frames.len());
        assert!(Machine::from_snapshot(&swapped.concat()).is_err(), "{at} swapped");
    }
}

#[test]
fn a_frame_too_large_is_rejected_before_allocation() {
    let mut head = [0xff; FRAME_HEAD_BYTES];
    let limit = FRAME_CONTENT_BYTES_MAX;
    assert_eq!(frame_bytes(&head), Err(SnapshotError::FrameTooLarge { found: u32::MAX as usize, limit }));
    head[3] = 0;
    assert_eq!(frame_bytes(&head), Ok(0x00ff_ffff));
}

#[test]
fn a_snapshot_of_another_version_is_rejected() {
    assert_eq!(Machine::from_snapshot(&[]).unwrap_err(), SnapshotError::Incomplete);
    assert_eq!(Machine::from_snapshot(&frame(b"\0convict\x01")).unwrap_err(), SnapshotError::Magic);
    let error = Machine::from_snapshot(&frame(b"\0convoke\x01")).unwrap_err();
    assert_eq!(error, CodecError::Version { what: "snapshot", found: 1, known: 3 }.into());
}

#[test]
fn contradictions_are_rejected_despite_correct_checksums() {
    let frames = frames(&machine());
    let keys = frames.iter().find(|frame| frame[FRAME_HEAD_BYTES] == Section::Keys as u8).unwrap();
    let content = &keys[FRAME_HEAD_BYTES..];
    let with = |content: &[u8]| {
        let changed: Vec<Vec<u8>> =
            frames.iter().map(|frame_| if frame_ == keys { frame(content) } else { frame_.clone() }).collect();
        Machine::from_snapshot(&changed.concat()).unwrap_err()
    };
    // Tag, key, value, revisions.
    assert_eq!(content, b"\x03\x01l\x01w\x03\x03\x01");
    assert_eq!(with(b"\x03\x01l\x01x\x03\x03\x01"), SnapshotError::Hash);
    assert_eq!(with(b"\x03\x01l\x01w\x03\x09\x01"), SnapshotError::Contradiction { what: "the revision of a key" });
    assert_eq!(with(b"\x03\x01l\x01w\x04\x03\x01"), CodecError::Invalid("record").into());
    assert_eq!(with(b"\x03\x01l\x01w\x03\x03\x01\x01l\x01w\x03\x03\x01"), SnapshotError::Order("keys"));
    assert_eq!(
        with(b"\x03\x01l\x01w\x03\x03\x01\x01m\x01w\x03\x03\x01"),
        SnapshotError::Contradiction { what: "keys" }
    );
    assert_eq!(with(b"\x03"), CodecError::Truncated("frame").into());
}

/// Checksums hide most of the decoder from mutated bytes, so contents are mutated before they are framed as well.
#[test]
fn fuzz_snapshots() {
    let original = machine();
    let frames = frames(&original);
    let check = |bytes: &[u8]| {
        if let Ok(restored) = Machine::from_snapshot(bytes) {
            assert_eq!(restored.state_hash(), original.state_hash(), "another state was accepted");
        }
    };
    convoke_fuzz::bytes(&[frames.concat()], check);
    let contents: Vec<Vec<u8>> = frames.iter().map(|frame| frame[FRAME_HEAD_BYTES..].to_vec()).collect();
    convoke_fuzz::bytes(&contents, |content| {
        for place in 0..frames.len() {
            let mut changed = frames.clone();
            changed[place] = frame(content);
            check(&changed.concat());
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A correct checksum does not make the content valid.
    #[test]
    fn arbitrary_content_does_not_panic(which in 0..5usize, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut frames = frames(&machine());
        let mut content = frames[which][FRAME_HEAD_BYTES..].to_vec();
        let at = at.index(content.len());
        let end = (at + bytes.len()).min(content.len());
        let unchanged = content[at..end] == bytes[..];
        content.splice(at..end, bytes);
        frames[which] = frame(&content);
        prop_assert_eq!(Machine::from_snapshot(&frames.concat()).is_ok(), unchanged);
    }
}
