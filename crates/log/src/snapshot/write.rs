//! Creates the frames of a snapshot.

use super::{
    FRAME_CONTENT_BYTES, FRAME_HEAD_BYTES, MAGIC, SECTIONS, SNAPSHOT_VERSION, SNAPSHOT_VERSION_FIRST_LEVEL, Section,
};
use crate::codec::{Writer, coordination_state, state};
use crate::history::Event;
use crate::keys::KeyRecord;
use crate::leases::Lease;
use crate::level::Level;
use crate::locks::{Lock, LockPlace};
use crate::machine::{Ended, Machine, Session};
use crate::mutant::seam;
use crate::tree;
use std::sync::Arc;

/// Iterator over the frames of a snapshot.
pub struct Frames<'a> {
    machine: &'a Machine,
    next: Option<Section>,
    sessions: tree::Iter<'a, Session>,
    ended: Box<dyn Iterator<Item = &'a Arc<Ended>> + Send + 'a>,
    keys: tree::Iter<'a, KeyRecord>,
    leases: tree::Iter<'a, Lease>,
    locks: tree::Iter<'a, Lock>,
    places: tree::Iter<'a, LockPlace>,
    history: tree::Iter<'a, Event>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(machine: &'a Machine) -> Self {
        Frames {
            machine,
            next: Some(Section::Head),
            sessions: machine.sessions.open.iter(),
            ended: Box::new(machine.sessions.ended_in_order()),
            keys: machine.keys.iter(),
            leases: machine.leases.iter(),
            locks: machine.locks.iter(),
            places: machine.locks.places(),
            history: machine.history.iter(),
        }
    }
}

impl Iterator for Frames<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let section = self.next?;
            let mut w = Writer::default();
            w.raw(&[0; FRAME_HEAD_BYTES]);
            w.byte(section as u8);
            let empty = w.len();
            match section {
                Section::Head => head(&mut w, self.machine),
                Section::Sessions => fill(&mut w, &mut self.sessions, state::encode_session),
                Section::Ended => fill(&mut w, &mut self.ended, state::encode_ended),
                Section::Keys => fill(&mut w, &mut self.keys, state::encode_record),
                Section::Leases => fill(&mut w, &mut self.leases, coordination_state::encode_lease),
                Section::Locks => fill(&mut w, &mut self.locks, coordination_state::encode_lock),
                Section::Places => fill(&mut w, &mut self.places, coordination_state::encode_place),
                Section::History => {
                    let (keys, compacted) = (&self.machine.keys, self.machine.history.compacted());
                    let encode = |w: &mut Writer, event: &Event| {
                        coordination_state::encode_event(w, event, keys, compacted);
                    };
                    fill(&mut w, &mut self.history, encode);
                }
                Section::End => w.fixed128(self.machine.state_hash()),
            }
            let whole = matches!(section, Section::Head | Section::End);
            if whole || w.len() < FRAME_CONTENT_BYTES {
                self.next = after(section);
            }
            if w.len() > empty {
                return Some(close(w));
            }
        }
    }
}

impl std::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").field("next", &self.next).finish_non_exhaustive()
    }
}

fn after(section: Section) -> Option<Section> {
    SECTIONS.get(section.place() + 1).copied()
}

fn head(w: &mut Writer, machine: &Machine) {
    w.raw(MAGIC);
    let has_level = machine.level > Level::FIRST;
    w.byte(if has_level { SNAPSHOT_VERSION } else { SNAPSHOT_VERSION_FIRST_LEVEL });
    state::encode_head(w, machine);
    w.count(machine.sessions.open.len());
    w.count(machine.sessions.ended.len());
    w.count(machine.keys.len());
    if has_level {
        let (leases, locks) = (machine.leases.len(), machine.locks.len());
        for count in [leases, locks, machine.locks.place_count(), machine.history.len()] {
            w.count(count);
        }
    }
}

fn fill<'a, T: 'a>(w: &mut Writer, items: &mut impl Iterator<Item = &'a Arc<T>>, encode: impl Fn(&mut Writer, &T)) {
    while w.len() < FRAME_CONTENT_BYTES {
        let Some(item) = items.next() else { return };
        encode(w, item);
    }
}

/// Prepends length and checksum to the content.
fn close(w: Writer) -> Vec<u8> {
    let mut frame = w.into_bytes();
    let content = &frame[FRAME_HEAD_BYTES..];
    let len = u32::try_from(content.len()).expect("frames are within FRAME_CONTENT_BYTES_MAX");
    let checksum = crc32c::crc32c(content);
    frame[..4].copy_from_slice(&len.to_le_bytes());
    frame[4..FRAME_HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Returns the state to write: all of it, unless a mutant removes a part (LH1).
pub(super) fn as_written(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    seam!(machine, SnapshotWithoutOutcomes => drop_outcomes(&mut machine));
    machine
}

fn drop_outcomes(machine: &mut Machine) {
    let sessions: Vec<Arc<Session>> = machine.sessions.open.iter().cloned().collect();
    for session in sessions {
        machine.sessions.open.insert(Arc::new(Session { outcomes: Default::default(), ..(*session).clone() }));
    }
}
