//! Checks frames and builds a machine from them.

use super::restore_coordination::Coordination;
use super::{
    FRAME_CONTENT_BYTES_MAX, FRAME_HEAD_BYTES, MAGIC, SECTIONS, SNAPSHOT_VERSION, SNAPSHOT_VERSION_FIRST_LEVEL,
    Section, SnapshotError,
};
use crate::codec::{CodecError, Reader, state};
use crate::machine::{Machine, Session};
use convoke_base::codec::COUNTER_MAX;
use std::sync::Arc;

/// Returns the length of the content that follows a frame header. Call it before you allocate memory for the content.
pub fn frame_bytes(head: &[u8; FRAME_HEAD_BYTES]) -> Result<usize, SnapshotError> {
    let [a, b, c, d, ..] = *head;
    let found = u32::from_le_bytes([a, b, c, d]) as usize;
    if found > FRAME_CONTENT_BYTES_MAX {
        return Err(SnapshotError::FrameTooLarge { found, limit: FRAME_CONTENT_BYTES_MAX });
    }
    Ok(found)
}

/// A machine under construction from frames. Not visible before it is complete.
#[derive(Debug, Default)]
pub struct Restore {
    frames: u64,
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    section: Section,
    /// Counts of sessions, ended sessions and keys from the first frame.
    expected: [u64; 3],
    last_key: Vec<u8>,
    last_ending: u64,
    coordination: Coordination,
}

impl Restore {
    pub fn new() -> Self {
        Restore::default()
    }

    /// Adds the next frame, including its header. After an error the snapshot is unusable.
    pub fn frame(&mut self, frame: &[u8]) -> Result<(), SnapshotError> {
        let content = self.content(frame)?;
        let mut r = Reader::new(content);
        let section = r.byte("section")?;
        let out_of_place = SnapshotError::OutOfPlace { frame: self.frames };
        self.frames += 1;
        match &mut self.state {
            None if section == Section::Head as u8 => self.state = Some(head(&mut r)?),
            None => return Err(SnapshotError::Magic),
            Some(state) => {
                let section = SECTIONS[1..]
                    .iter()
                    .copied()
                    .find(|known| *known as u8 == section)
                    .filter(|section| section.place() >= state.section.place() && state.section != Section::End)
                    .filter(|section| section.is_of_level(state.machine.level))
                    .ok_or(out_of_place)?;
                state.section = section;
                state.take(section, &mut r)?;
            }
        }
        Ok(r.end()?)
    }

    /// Returns the machine if the last frame was valid.
    pub fn finish(self) -> Result<Machine, SnapshotError> {
        match self.state {
            Some(state) if state.section == Section::End => Ok(state.machine),
            _ => Err(SnapshotError::Incomplete),
        }
    }

    fn content<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], SnapshotError> {
        let (head, content) = frame.split_first_chunk::<FRAME_HEAD_BYTES>().ok_or(SnapshotError::Incomplete)?;
        let len = frame_bytes(head)?;
        if content.len() < len {
            return Err(SnapshotError::Incomplete);
        }
        if content.len() > len {
            return Err(CodecError::Trailing(content.len() - len).into());
        }
        let [.., a, b, c, d] = *head;
        if crc32c::crc32c(content) != u32::from_le_bytes([a, b, c, d]) {
            return Err(SnapshotError::Checksum { frame: self.frames });
        }
        Ok(content)
    }
}

fn head(r: &mut Reader<'_>) -> Result<State, SnapshotError> {
    if r.raw("magic", MAGIC.len())? != MAGIC {
        return Err(SnapshotError::Magic);
    }
    let version = r.byte("version")?;
    if version != SNAPSHOT_VERSION && version != SNAPSHOT_VERSION_FIRST_LEVEL {
        return Err(CodecError::Version { what: "snapshot", found: version, known: SNAPSHOT_VERSION }.into());
    }
    let machine = state::decode_head(r, version == SNAPSHOT_VERSION)?;
    let expected = [
        r.bounded("sessions", machine.limits.sessions)?,
        r.bounded("ended sessions", machine.limits.ended_sessions)?,
        r.bounded("keys", COUNTER_MAX)?,
    ];
    let coordination = Coordination::head(r, &machine)?;
    Ok(State { machine, section: Section::Head, expected, last_key: Vec::new(), last_ending: 0, coordination })
}

impl State {
    fn take(&mut self, section: Section, r: &mut Reader<'_>) -> Result<(), SnapshotError> {
        match section {
            Section::End => return self.end(r.fixed128("hash")?),
            _ if r.is_empty() => return Err(CodecError::Truncated("frame").into()),
            _ => {}
        }
        while !r.is_empty() {
            match section {
                Section::Sessions => self.session(state::decode_session(r)?)?,
                Section::Ended => {
                    let ended = state::decode_ended(r)?;
                    self.check_session(&ended.session)?;
                    if self.machine.sessions.open.contains(&ended.session.id) {
                        return Err(SnapshotError::Contradiction { what: "a session that is open and ended" });
                    }
                    if ended.order <= self.last_ending || ended.order > self.machine.sessions.endings {
                        return Err(SnapshotError::Order("ended sessions"));
                    }
                    self.last_ending = ended.order;
                    self.machine.sessions.restore_ended(ended);
                    self.count("ended sessions", self.machine.sessions.ended.len(), self.expected[1])?;
                }
                Section::Keys => self.record(state::decode_record(r)?)?,
                _ => self.coordination.take(&mut self.machine, section, r)?,
            }
        }
        Ok(())
    }

    fn session(&mut self, session: Session) -> Result<(), SnapshotError> {
        self.check_session(&session)?;
        let sessions = &mut self.machine.sessions;
        let last = sessions.open.iter_from(&session.id).next();
        if last.is_some() {
            return Err(SnapshotError::Order("sessions"));
        }
        if session.client.as_ref().is_some_and(|name| sessions.holder(name).is_some()) {
            return Err(SnapshotError::Contradiction { what: "a client name that two sessions hold" });
        }
        sessions.insert(Arc::new(session));
        self.count("sessions", self.machine.sessions.open.len(), self.expected[0])
    }

    fn check_session(&self, session: &Session) -> Result<(), SnapshotError> {
        let applied = self.machine.applied.index;
        if session.id.0 == 0 || session.id.0 > session.activity || session.activity > applied {
            return Err(SnapshotError::Contradiction { what: "the index of a session" });
        }
        Ok(())
    }

    fn record(&mut self, record: crate::keys::KeyRecord) -> Result<(), SnapshotError> {
        if record.key() <= &*self.last_key {
            return Err(SnapshotError::Order("keys"));
        }
        if record.modify_revision > self.machine.keys.revision() {
            return Err(SnapshotError::Contradiction { what: "the revision of a key" });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(record.key());
        self.machine.keys.restore(record);
        self.count("keys", self.machine.keys.len(), self.expected[2])
    }

    fn count(&self, what: &'static str, found: usize, expected: u64) -> Result<(), SnapshotError> {
        if found as u64 > expected { Err(SnapshotError::Contradiction { what }) } else { Ok(()) }
    }

    fn end(&mut self, hash: u128) -> Result<(), SnapshotError> {
        self.coordination.end(&mut self.machine)?;
        let machine = &self.machine;
        let found = [machine.sessions.open.len(), machine.sessions.ended.len(), machine.keys.len()];
        if found.map(|count| count as u64) != self.expected {
            return Err(SnapshotError::Contradiction { what: "the number of sessions or keys" });
        }
        if machine.state_hash() != hash {
            return Err(SnapshotError::Hash);
        }
        Ok(())
    }
}
