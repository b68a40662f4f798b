//! Crashes and errors at every write, sync, rename and removal of a scripted log.

use super::fake_disk::{FakeDisk, Fault, Unsynced};
use super::sizes;
use crate::raft::{Entry, LeaderId, LogId, Payload, Proposal, SnapshotMeta, Types, Vote};
use crate::state::Image;
use crate::store::disk::Disk;
use crate::store::{LogStore, snapshot_file};
use bytes::Bytes;
use convoke_log::{LogLimits, LogTime, Machine, Position};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use std::io;
use std::sync::Arc;

/// Small, so that the script fills several segments.
const SEGMENT_BYTES: u64 = 4096;

pub(super) fn at(term: u64, index: u64) -> LogId {
    LogId { leader_id: LeaderId { term, node_id: 1 }, index }
}

pub(super) fn entry(term: u64, index: u64, bytes: usize) -> Entry {
    // Zeros too: a sector of zeros must not be mistaken for a lost one.
    let fill = if index.is_multiple_of(3) { 0 } else { index as u8 };
    let proposal = Proposal::encoded(LogTime::from_micros(index), Bytes::from(vec![fill; bytes]));
    Entry { log_id: at(term, index), payload: Payload::Normal(proposal) }
}

fn vote(term: u64) -> Vote {
    Vote { leader_id: LeaderId { term, node_id: 1 }, committed: true }
}

/// Expected content of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expected {
    entries: Vec<Entry>,
    vote: Option<Vote>,
    purged: Option<u64>,
}

impl Expected {
    fn of(store: &LogStore) -> Expected {
        Expected { entries: store.entries(), vote: store.vote(), purged: store.purged().map(|purged| purged.index) }
    }
}

/// One operation of the engine.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append { term: u64, from: u64, until: u64, bytes: usize },
    Vote(u64),
    Truncate(u64),
    Snapshot(u64),
    Purge(u64),
}

fn script() -> Vec<Act> {
    vec![
        Act::Vote(1),
        Act::Append { term: 1, from: 0, until: 3, bytes: 40 },
        Act::Append { term: 1, from: 3, until: 5, bytes: 1500 },
        Act::Append { term: 1, from: 5, until: 9, bytes: 700 },
        Act::Vote(2),
        Act::Truncate(7),
        Act::Append { term: 2, from: 7, until: 8, bytes: 2500 },
        Act::Append { term: 2, from: 8, until: 12, bytes: 900 },
        Act::Snapshot(6),
        Act::Purge(6),
        Act::Append { term: 2, from: 12, until: 14, bytes: 1200 },
        Act::Vote(3),
        Act::Snapshot(11),
        Act::Purge(11),
        Act::Append { term: 3, from: 14, until: 16, bytes: 100 },
    ]
}

fn open(disk: &FakeDisk) -> Result<LogStore, String> {
    LogStore::open(Arc::new(disk.clone()), sizes(SEGMENT_BYTES), Arc::default()).map_err(|error| error.to_string())
}

pub(super) fn image(index: u64) -> Image {
    let mut machine = Machine::new(LogLimits::default()).unwrap();
    for index in 1..=index + 1 {
        machine.skip(Position { index, epoch: convoke_log::Epoch::new(1, 1) }).unwrap();
    }
    let meta = SnapshotMeta { last_log_id: Some(at(1, index)), ..SnapshotMeta::default() };
    Image { meta, machine: Arc::new(machine) }
}

async fn perform(store: &mut LogStore, disk: &FakeDisk, act: Act) -> io::Result<()> {
    match act {
        Act::Append { term, from, until, bytes } => {
            let (done, flushed) = Types::oneshot();
            let entries: Vec<Entry> = (from..until).map(|index| entry(term, index, bytes)).collect();
            store.append(entries, IOFlushed::<Types>::signal(done)).await?;
            flushed.await.unwrap_or_else(|_| Err(io::Error::other("no answer")))
        }
        Act::Vote(term) => store.save_vote(&vote(term)).await,
        Act::Truncate(from) => store.truncate_after(Some(at(1, from - 1))).await,
        Act::Snapshot(index) => snapshot_file::save(disk, &image(index)),
        Act::Purge(index) => store.purge(at(1, index)).await,
    }
}

/// Runs the script until an error. Returns what was acknowledged, and what might have been written beyond it.
async fn live(disk: &FakeDisk) -> (Vec<Expected>, bool) {
    let Ok(mut store) = open(disk) else { return (vec![Expected::default()], false) };
    let mut before = Expected::of(&store);
    for act in script() {
        if perform(&mut store, disk, act).await.is_err() {
            // It may have succeeded, but was not acknowledged.
            let mut maybe = vec![before.clone()];
            let mut shadow = Shadow(before);
            shadow.perform(act);
            maybe.push(shadow.0);
            return (maybe, false);
        }
        // A truncation is not acknowledged by itself; it is durable as soon as a later operation is.
        if !matches!(act, Act::Truncate(_)) {
            before = Expected::of(&store);
        }
    }
    (vec![before], true)
}

/// Computes the log after an operation.
struct Shadow(Expected);

impl Shadow {
    fn perform(&mut self, act: Act) {
        let expected = &mut self.0;
        match act {
            Act::Append { term, from, until, bytes } => {
                expected.entries.retain(|entry| entry.log_id.index < from);
                expected.entries.extend((from..until).map(|index| entry(term, index, bytes)));
            }
            Act::Vote(term) => expected.vote = Some(vote(term)),
            Act::Purge(upto) => {
                expected.entries.retain(|entry| entry.log_id.index > upto);
                expected.purged = Some(upto);
            }
            Act::Truncate(_) | Act::Snapshot(_) => {}
        }
    }
}

async fn steps_of_the_whole_script() -> usize {
    let disk = FakeDisk::default();
    let (_, whole) = live(&disk).await;
    assert!(whole, "without a fault the script completes");
    disk.steps()
}

const FATES: [Unsynced; 5] =
    [Unsynced::Lost, Unsynced::Kept, Unsynced::Short, Unsynced::Holes(true), Unsynced::Holes(false)];

#[tokio::test]
async fn acknowledged_writes_survive_a_crash_at_every_step() {
    let steps = steps_of_the_whole_script().await;
    assert!(steps > 50, "{steps} steps");
    let (mut opened, mut cut) = (0, 0);
    for at in 0..steps {
        let disk = FakeDisk::default().with_fault(at, Fault::Crash);
        let (maybe, _) = live(&disk).await;
        for unsynced in FATES {
            for names_kept in [false, true] {
                let found = disk.after_crash(unsynced, names_kept);
                let context = format!("step {at}, unsynced bytes {unsynced:?}, names kept: {names_kept}");
                let image = snapshot_file::load(&found).unwrap_or_else(|error| panic!("{context}: {error}"));
                let before = found.files();
                let store = open(&found).unwrap_or_else(|error| panic!("{context}: {error}"));
                let log = Expected::of(&store);
                assert!(maybe.contains(&log), "{context}: found {log:?}, expected one of {maybe:?}");
                let covered = image.and_then(|image| image.meta.last_log_id).map(|last| last.index);
                assert!(log.purged <= covered, "{context}: purged up to {:?}, snapshot of {covered:?}", log.purged);
                opened += 1;
                drop(store);
                cut += usize::from(found.files() != before);
                // Opening again gives the same result.
                let again = open(&found).unwrap_or_else(|error| panic!("{context}, opened again: {error}"));
                assert_eq!(Expected::of(&again), log, "{context}, opened again");
            }
        }
    }
    assert!(opened > 500 && cut > 50, "opened {opened}, {cut} of them truncated");
}

#[tokio::test]
async fn a_crash_while_opening_the_log_changes_nothing() {
    let steps = steps_of_the_whole_script().await;
    let mut interrupted = 0;
    for at in 0..steps {
        let disk = FakeDisk::default().with_fault(at, Fault::Crash);
        let (maybe, _) = live(&disk).await;
        for unsynced in FATES {
            for opening in 0..6 {
                let found = disk.after_crash(unsynced, true).with_fault(opening, Fault::Crash);
                interrupted += usize::from(open(&found).is_err());
                for unsynced_again in FATES {
                    let again = found.after_crash(unsynced_again, true);
                    let context = format!("step {at}, {unsynced:?}, opening {opening}, {unsynced_again:?}");
                    let log = Expected::of(&open(&again).unwrap_or_else(|error| panic!("{context}: {error}")));
                    assert!(maybe.contains(&log), "{context}: found {log:?}, expected one of {maybe:?}");
                }
            }
        }
    }
    assert!(interrupted > 100, "{interrupted}");
}

#[tokio::test]
async fn a_failed_log_is_not_written_any_more_and_keeps_acknowledged_entries() {
    let steps = steps_of_the_whole_script().await;
    let mut failed = 0;
    for at in 0..steps {
        let disk = FakeDisk::default().with_fault(at, Fault::Fail);
        let Ok(mut store) = open(&disk) else { continue };
        let (mut before, mut after_failure) = (Expected::of(&store), None);
        for act in script() {
            let before_act = disk.steps();
            let done = perform(&mut store, &disk, act).await;
            match (&done, after_failure) {
                (Ok(()), None) => {
                    if !matches!(act, Act::Truncate(_)) {
                        before = Expected::of(&store);
                    }
                }
                // A failed snapshot does not affect the log; in a node it stops the replica nevertheless.
                (Err(_), None) if matches!(act, Act::Snapshot(_)) => break,
                (Err(_), None) => {
                    failed += 1;
                    after_failure = Some(disk.steps());
                }
                (_, Some(_)) => {
                    let log_act = !matches!(act, Act::Snapshot(_));
                    assert!(
                        !log_act || done.is_err() || matches!(act, Act::Truncate(_)),
                        "step {at}: {act:?} was executed"
                    );
                    assert!(!log_act || disk.steps() == before_act, "step {at}: the disk was used after it had failed");
                }
            }
        }
        drop(store);
        if after_failure.is_some() {
            let found = disk.after_crash(Unsynced::Lost, false);
            let store = open(&found).unwrap_or_else(|error| panic!("step {at}: {error}"));
            let log = Expected::of(&store);
            for entry in &before.entries {
                let kept = log.entries.contains(entry) || log.purged >= Some(entry.log_id.index);
                assert!(kept, "step {at}: entry {} was acknowledged but is missing", entry.log_id);
            }
            assert!(log.vote.map(|vote| vote.leader_id.term) >= before.vote.map(|vote| vote.leader_id.term));
        }
    }
    assert!(failed > 30, "{failed}");
}

#[tokio::test]
async fn segments_are_removed_as_a_whole_when_they_are_purged() {
    let disk = FakeDisk::default();
    let (_, whole) = live(&disk).await;
    assert!(whole);
    let segments = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).count();
    assert!(segments < 4, "{:?}", disk.list());
}
