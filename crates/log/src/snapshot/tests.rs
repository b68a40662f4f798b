//! Tests of snapshots: golden bytes and hostile input.

mod arbitrary;

use super::*;
use crate::command::{
    Acquire, Body, Command, Delete, DurableClient, EndBehavior, GrantLease, GroupChange, LeaseId, LeaseTerm, LockName,
    MemberBinding, Op, Open, Opener, Place, Proclaim, Raise, Release, ReplicaLocation, Request, Txn, TxnPut,
};
use crate::id::{Epoch, LogSessionId, ReplicaId, RequestId};
use crate::limits::LogLimits;
use crate::machine::Entry;
use crate::time::LogTime;
use proptest::prelude::*;
use std::sync::Arc;
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

/// A machine at level 2 with every kind of content.
fn coordinated() -> Machine {
    let limits = LogLimits { sessions: 3, ended_sessions: 2, ..LogLimits::default() };
    let mut machine = Machine::new(limits).unwrap();
    apply(&mut machine, open(1, None));
    apply(&mut machine, request(1, 1, Body::put("old", "0")));
    let limits = crate::CoordinationLimits::default();
    let configuration = machine.configuration().number;
    apply(&mut machine, Command::Raise(Raise { epoch: EPOCH, level: Level::COORDINATION, configuration, limits }));
    let grant = |term, end| Body::Grant(GrantLease { term, end });
    apply(&mut machine, request(1, 2, grant(LeaseTerm::Ttl(Duration::from_secs(10)), EndBehavior::Delete)));
    let bound = MemberBinding { member: "m".into(), client: "c".into(), registration: "r".into() };
    apply(&mut machine, request(1, 3, grant(LeaseTerm::Member(bound), EndBehavior::Release)));
    let [timed, member] = [LeaseId(4), LeaseId(5)];
    let attached = TxnPut { lease: Some(timed), flags: 7, lock_index: 9, previous: true, ..TxnPut::new("k", "v") };
    let then = vec![Op::Put(attached), Op::Put(TxnPut::new("old", "1")), Op::Put(TxnPut::new("l", "w"))];
    apply(&mut machine, request(1, 4, Body::Txn(Txn { then, ..Txn::default() })));
    apply(&mut machine, request(1, 5, Body::put("l", "x")));
    apply(&mut machine, request(1, 6, Body::delete("old")));
    let election = LockName::election("e");
    let acquire = |name: &LockName, lease| Acquire { value: "here".into(), ..Acquire::new(name.clone(), lease) };
    let delayed = Acquire { delay: Duration::from_secs(5), permits: 2, ..acquire(&LockName::lock("l"), timed) };
    apply(&mut machine, request(1, 7, Body::Acquire(delayed)));
    apply(&mut machine, request(1, 8, Body::Acquire(acquire(&election, member))));
    apply(&mut machine, request(1, 9, Body::Acquire(acquire(&election, timed))));
    let proclaim = Proclaim { name: election.clone(), fence: machine.keys().revision(), value: "now".into() };
    apply(&mut machine, request(1, 10, Body::Proclaim(proclaim)));
    apply(&mut machine, request(1, 11, Body::Acquire(Acquire { wait: false, ..acquire(&election, LeaseId(1)) })));
    apply(&mut machine, request(1, 12, Body::Revoke(timed)));
    let other = LockName::lock("m");
    apply(&mut machine, request(1, 13, Body::Acquire(acquire(&other, member))));
    apply(&mut machine, request(1, 14, Body::Release(Release { name: other, place: Place::Lease(member) })));
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
    for machine in [machine(), coordinated()] {
        let restored = Machine::from_snapshot(&machine.snapshot().to_bytes()).unwrap();
        assert_eq!(restored.state_hash(), machine.state_hash());
        assert_eq!(format!("{restored:?}"), format!("{machine:?}"));
    }
}

/// Detects format changes. These are the bytes of versions without levels, so they never change (V4).
#[test]
fn lh3_the_format_is_fixed_byte_for_byte() {
    assert_eq!((SNAPSHOT_VERSION_FIRST_LEVEL, machine().level()), (2, Level::FIRST));
    assert_golden(&machine(), include_str!("tests/golden.txt"));
}

#[track_caller]
fn assert_golden(machine: &Machine, golden: &str) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let found: Vec<String> = frames(machine).iter().map(|frame| hex(frame)).collect();
    let golden: Vec<String> = golden.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(found, golden);
}

/// Detects format changes. If this has to change, raise [`SNAPSHOT_VERSION`] and keep a reader for the old format.
#[test]
fn v4_level_two_has_its_own_format() {
    assert_eq!((SNAPSHOT_VERSION, coordinated().level()), (3, Level::COORDINATION));
    assert_golden(&coordinated(), include_str!("tests/golden_level_2.txt"));
}

#[test]
fn v4_a_snapshot_of_an_unknown_level_is_rejected() {
    let mut machine = coordinated();
    machine.level = Level(Level::SUPPORTED.0 + 1);
    let error = Machine::from_snapshot(&machine.snapshot().to_bytes()).unwrap_err();
    let (found, limit) = (machine.level.0, Level::SUPPORTED.0);
    assert_eq!(error, CodecError::TooLarge { what: "feature level", found, limit }.into());
    // A snapshot of level 1 has no sections of level 2.
    let mut frames = frames(&self::machine());
    let leases =
        self::frames(&coordinated()).into_iter().find(|frame| frame[FRAME_HEAD_BYTES] == Section::Leases as u8);
    frames.insert(4, leases.unwrap());
    assert_eq!(Machine::from_snapshot(&frames.concat()).unwrap_err(), SnapshotError::OutOfPlace { frame: 4 });
}

/// The owner survives the session, and a difference in it is a divergence.
#[test]
fn le8_a_lease_keeps_the_principal_of_its_session() {
    let leased = |name: &str, reserved| {
        let mut machine = Machine::created(LogLimits::default(), Level::COORDINATION).unwrap();
        let opener = Opener { name: name.into(), reserved };
        apply(&mut machine, Command::Open(Open { opener, ..Open::new(EPOCH, Duration::from_secs(1), 1) }));
        let (term, end) = (LeaseTerm::Ttl(Duration::from_secs(10)), EndBehavior::Delete);
        apply(&mut machine, request(1, 1, Body::Grant(GrantLease { term, end })));
        apply(&mut machine, request(1, 2, Body::End(LogSessionId(1))));
        machine
    };
    let owner = |machine: &Machine| machine.lease(LeaseId(2)).unwrap().owner.clone();
    let (alice, bob) = (leased("token/alice", false), leased("token/bob", false));
    let restored = Machine::from_snapshot(&alice.snapshot().to_bytes()).unwrap();
    assert_eq!((owner(&alice).as_str(), owner(&restored).as_str()), ("token/alice", "token/alice"));
    assert_eq!(restored.opener(LogSessionId(1)).and_then(Opener::principal), Some("token/alice"));
    let without_session = |mut machine: Machine| {
        machine.sessions = Default::default();
        machine.state_hash()
    };
    assert_ne!(without_session(alice), without_session(bob));
    for (name, reserved) in [("10.0.0.1", false), ("2001:db8::/64", false), ("unknown", false), ("n1", true)] {
        assert_eq!(owner(&leased(name, reserved)), "", "{name}");
    }
}

/// An event shares its records with the keys and with other events, before and after a snapshot.
#[test]
fn h6_history_is_restored_and_shares_its_records() {
    let restored = Machine::from_snapshot(&coordinated().snapshot().to_bytes()).unwrap();
    let events = |key: &[u8]| {
        let mut events = restored.history().of_key(key, 9);
        events.reverse();
        events
    };
    let [first, second] = &events(b"l")[..] else { panic!("two events") };
    let shared = |a: Option<&Arc<crate::keys::KeyRecord>>, b: Option<&Arc<crate::keys::KeyRecord>>| {
        Arc::ptr_eq(a.unwrap(), b.unwrap())
    };
    assert!(shared(second.change.previous(), first.change.record()));
    assert!(shared(second.change.record(), restored.keys().get(b"l")));
    let [changed, deleted] = &events(b"old")[..] else { panic!("two events") };
    assert!(shared(deleted.change.previous(), changed.change.record()));
    assert_eq!(changed.change.previous().unwrap().value(), b"0", "a record from before history");
    assert_eq!(restored.history().oldest(), 2);
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
    for machine in [machine(), coordinated()] {
        let bytes = machine.snapshot().to_bytes();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(Machine::from_snapshot(&flipped).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_truncated_or_extended_snapshot_is_rejected() {
    for machine in [machine(), coordinated()] {
        let frames = frames(&machine);
        let bytes = frames.concat();
        for len in 0..bytes.len() {
            assert!(Machine::from_snapshot(&bytes[..len]).is_err(), "{len} bytes");
        }
        let last = frames.last().unwrap();
        let error = Machine::from_snapshot(&[&bytes[..], last].concat()).unwrap_err();
        assert_eq!(error, SnapshotError::OutOfPlace { frame: frames.len() as u64 });
    }
}

#[test]
fn missing_duplicate_and_swapped_frames_are_rejected() {
    for (machine, count) in [(machine(), 5), (coordinated(), 8)] {
        let frames = frames(&machine);
        assert_eq!(frames.len(), count);
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
    fuzz(&machine());
}

#[test]
fn fuzz_snapshots_of_level_two() {
    fuzz(&coordinated());
}

fn fuzz(original: &Machine) {
    let frames = frames(original);
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
    fn arbitrary_content_does_not_panic(which in 0..13usize, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let (machine, which) = if which < 5 { (machine(), which) } else { (coordinated(), which - 5) };
        let mut frames = frames(&machine);
        let mut content = frames[which][FRAME_HEAD_BYTES..].to_vec();
        let at = at.index(content.len());
        let end = (at + bytes.len()).min(content.len());
        let unchanged = content[at..end] == bytes[..];
        content.splice(at..end, bytes);
        frames[which] = frame(&content);
        prop_assert_eq!(Machine::from_snapshot(&frames.concat()).is_ok(), unchanged);
    }
}
