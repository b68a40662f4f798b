//! Restores the sections of level 2: leases, locks and history.

use super::{Section, SnapshotError};
use crate::codec::coordination_state::{self as state, Linked, StoredChange, StoredEvent};
use crate::codec::{CodecError, Reader};
use crate::history::{Event, EventChange, EventPosition};
use crate::keys::KeyRecord;
use crate::level::Level;
use crate::machine::Machine;
use bytes::Bytes;
use convoke_base::codec::COUNTER_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the sections of level 2 must contain, and what was found so far.
#[derive(Debug, Default)]
pub(super) struct Coordination {
    /// Counts of leases, locks, places and events from the first frame.
    expected: [u64; 4],
    last_event: EventPosition,
    /// The record after the last event of each key.
    records: BTreeMap<Bytes, Arc<KeyRecord>>,
}

impl Coordination {
    pub(super) fn head(r: &mut Reader<'_>, machine: &Machine) -> Result<Self, CodecError> {
        if machine.level == Level::FIRST {
            return Ok(Coordination::default());
        }
        let limits = &machine.limits.coordination;
        let expected = [
            r.bounded("leases", limits.leases)?,
            r.bounded("locks", limits.places.saturating_mul(2))?,
            r.bounded("places", limits.places)?,
            r.bounded("events", COUNTER_MAX)?,
        ];
        Ok(Coordination { expected, ..Coordination::default() })
    }

    pub(super) fn take(
        &mut self,
        machine: &mut Machine,
        section: Section,
        r: &mut Reader<'_>,
    ) -> Result<(), SnapshotError> {
        match section {
            Section::Leases => lease(machine, r),
            Section::Locks => lock(machine, r),
            Section::Places => place(machine, r),
            _ => self.event(machine, r),
        }?;
        let counts = found(machine);
        if counts.iter().zip(&self.expected).any(|(found, expected)| found > expected) {
            return Err(SnapshotError::Contradiction { what: "the number of leases, locks or events" });
        }
        Ok(())
    }

    pub(super) fn end(&mut self, machine: &mut Machine) -> Result<(), SnapshotError> {
        if found(machine) != self.expected {
            return Err(SnapshotError::Contradiction { what: "the number of leases, locks or events" });
        }
        let keys = machine.keys.clone();
        if !machine.leases.restore_keys(&keys) {
            return Err(SnapshotError::Contradiction { what: "the lease of a key" });
        }
        Ok(())
    }

    fn event(&mut self, machine: &mut Machine, r: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let StoredEvent { position, time, change } = state::decode_event(r)?;
        let last = self.last_event;
        let follows =
            if position.revision == last.revision { last.next() } else { EventPosition::start_of(position.revision) };
        let known = machine.history.compacted() + 1..=machine.keys.revision();
        if position != follows || position < last || !known.contains(&position.revision) {
            return Err(SnapshotError::Order("events"));
        }
        self.last_event = position;
        let change = match change {
            StoredChange::Lock(event) => EventChange::Lock(event),
            StoredChange::Key { key, record, previous } => {
                let previous = self.previous(machine, &key, previous)?;
                let record = current(machine, &key, position, record)?;
                match (&record, &previous) {
                    (Some(record), _) => drop(self.records.insert(key, record.clone())),
                    (None, Some(_)) => drop(self.records.remove(&key)),
                    (None, None) => return Err(CodecError::Invalid("event").into()),
                }
                EventChange::of(crate::keys::KeyChange { record, previous }).ok_or(CodecError::Invalid("event"))?
            }
        };
        machine.history.push(Event { position, time, change });
        Ok(())
    }

    /// Returns the record before an event: that of the previous event of the key, if history has it.
    fn previous(
        &self,
        machine: &Machine,
        key: &Bytes,
        previous: Linked,
    ) -> Result<Option<Arc<KeyRecord>>, SnapshotError> {
        let wrong = SnapshotError::Contradiction { what: "the previous record of an event" };
        match previous {
            Linked::None => Ok(None),
            Linked::Elsewhere => self.records.get(key).cloned().map(Some).ok_or(wrong),
            Linked::Inline(record) if record.modify_revision > machine.history.compacted() => Err(wrong),
            Linked::Inline(record) if record.key() != key => Err(wrong),
            Linked::Inline(record) => Ok(Some(Arc::new(record))),
        }
    }
}

/// Returns the record after an event: the current one of the key, if it is the same.
fn current(
    machine: &Machine,
    key: &Bytes,
    position: EventPosition,
    record: Linked,
) -> Result<Option<Arc<KeyRecord>>, SnapshotError> {
    let wrong = SnapshotError::Contradiction { what: "the record of an event" };
    let held = machine.keys.get(key).filter(|held| held.modify_revision == position.revision);
    match (record, held) {
        (Linked::None, _) => Ok(None),
        (Linked::Elsewhere, Some(held)) => Ok(Some(held.clone())),
        (Linked::Inline(record), None) if record.modify_revision == position.revision => Ok(Some(Arc::new(record))),
        _ => Err(wrong),
    }
}

fn found(machine: &Machine) -> [u64; 4] {
    let counts = [machine.leases.len(), machine.locks.len(), machine.locks.place_count(), machine.history.len()];
    counts.map(|count| count as u64)
}

fn lease(machine: &mut Machine, r: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let lease = state::decode_lease(r)?;
    if lease.id.0 == 0 || lease.id.0 > machine.applied.index {
        return Err(SnapshotError::Contradiction { what: "the index of a lease" });
    }
    if machine.leases.iter_from(lease.id).next().is_some() {
        return Err(SnapshotError::Order("leases"));
    }
    machine.leases.insert(lease);
    Ok(())
}

fn lock(machine: &mut Machine, r: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let lock = state::decode_lock(r)?;
    if machine.locks.iter_from(&lock.name).next().is_some() {
        return Err(SnapshotError::Order("locks"));
    }
    machine.locks.restore(lock);
    Ok(())
}

fn place(machine: &mut Machine, r: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let place = state::decode_place(r)?;
    if machine.locks.places_from(&place.key).next().is_some() {
        return Err(SnapshotError::Order("places"));
    }
    let doubled = machine.locks.place(place.name(), place.lease).is_some();
    let mut leases = [Some(place.lease), place.waits_with].into_iter().flatten();
    if doubled || !leases.all(|lease| machine.leases.contains(lease)) || !machine.locks.add(place) {
        return Err(SnapshotError::Contradiction { what: "the lease or lock of a place" });
    }
    Ok(())
}
