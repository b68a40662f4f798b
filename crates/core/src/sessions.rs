//! Sessions of the clients attached to this node, and which of its members belongs to which (C2, C6).

use crate::member::{Client, Liveness};
use crate::node::{ConnId, SessionId};
use crate::time::{Duration, Heard, Time};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) claim: u64,
    pub(crate) liveness: Liveness,
    pub(crate) timeout: Duration,
    pub(crate) heard: Heard,
    /// Number of the last request executed (C5).
    pub(crate) last_seq: u64,
    pub(crate) conn: Option<ConnId>,
    /// With `fast` liveness: when the connection was lost.
    pub(crate) cut_at: Option<Time>,
    pub(crate) down: bool,
    /// A newer session of the same client took over; what it did not name keeps this one's timers (C4).
    pub(crate) superseded: bool,
    /// Asked to move to another node (N6).
    pub(crate) handed_over: bool,
    /// When it is looked at next; timers set for other moments are stale.
    pub(crate) check_at: Time,
    /// Slots of its members.
    pub(crate) members: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_client: BTreeMap<SmolStr, u32>,
    by_conn: BTreeMap<ConnId, Vec<u32>>,
    /// Session of each slot, `NONE` if it is not fed by a session here.
    of_slot: Vec<u32>,
    len: usize,
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    session: Option<Session>,
}

const NONE: u32 = u32::MAX;

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds the session as its client's current one.
    pub(crate) fn insert(&mut self, session: Session) -> SessionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        self.by_client.insert(session.client.id.clone(), index);
        if let Some(conn) = session.conn {
            self.by_conn.entry(conn).or_default().push(index);
        }
        self.len += 1;
        let entry = &mut self.entries[index as usize];
        entry.session = Some(session);
        SessionId { index, generation: entry.generation }
    }

    /// The session of a handle, unless it ended.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation == id.generation { entry.session.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation == id.generation { entry.session.as_mut() } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let id = SessionId { index: index as u32, generation: entry.generation };
            entry.session.as_ref().map(|session| (id, session))
        })
    }

    fn id(&self, index: u32) -> SessionId {
        SessionId { index, generation: self.entries[index as usize].generation }
    }

    /// The current session of a client.
    pub(crate) fn of_client(&self, client: &str) -> Option<SessionId> {
        self.by_client.get(client).map(|index| self.id(*index))
    }

    /// The session that feeds a slot.
    pub(crate) fn of_slot(&self, slot: u32) -> Option<SessionId> {
        match self.of_slot.get(slot as usize) {
            None | Some(&NONE) => None,
            Some(index) => Some(self.id(*index)),
        }
    }

    pub(crate) fn of_conn(&self, conn: ConnId) -> Vec<SessionId> {
        self.by_conn.get(&conn).into_iter().flatten().map(|index| self.id(*index)).collect()
    }

    /// Gives a slot to a session, taking it from whichever had it.
    pub(crate) fn give(&mut self, id: SessionId, slot: u32) {
        match self.of_slot(slot) {
            Some(owner) if owner == id => return,
            Some(_) => self.take(slot),
            None => {}
        }
        if slot as usize >= self.of_slot.len() {
            self.of_slot.resize(slot as usize + 1, NONE);
        }
        self.of_slot[slot as usize] = id.index;
        if let Some(session) = self.get_mut(id) {
            session.members.push(slot);
        }
    }

    /// Takes a slot from the session that feeds it.
    pub(crate) fn take(&mut self, slot: u32) {
        let Some(id) = self.of_slot(slot) else { return };
        self.of_slot[slot as usize] = NONE;
        if let Some(session) = self.get_mut(id)
            && let Some(at) = session.members.iter().position(|member| *member == slot)
        {
            session.members.swap_remove(at);
        }
    }

    /// The session is no longer its client's current one; its handle and connection are dead, its timers go on.
    pub(crate) fn supersede(&mut self, id: SessionId) -> Option<ConnId> {
        let session = self.get_mut(id)?;
        session.superseded = true;
        let conn = session.conn.take();
        let client = session.client.id.clone();
        self.unlink(id.index, conn, &client);
        conn
    }

    /// Detaches the session from its connection.
    pub(crate) fn detach(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id) else { return };
        if let Some(conn) = session.conn.take() {
            self.unlink_conn(id.index, conn);
        }
    }

    /// Removes the session; its members must have been dealt with.
    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let session = entry.session.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.len -= 1;
        self.free.push(id.index);
        for slot in &session.members {
            self.of_slot[*slot as usize] = NONE;
        }
        self.unlink(id.index, session.conn, &session.client.id);
        Some(session)
    }

    fn unlink(&mut self, index: u32, conn: Option<ConnId>, client: &SmolStr) {
        if self.by_client.get(client) == Some(&index) {
            self.by_client.remove(client);
        }
        if let Some(conn) = conn {
            self.unlink_conn(index, conn);
        }
    }

    fn unlink_conn(&mut self, index: u32, conn: ConnId) {
        if let Some(sessions) = self.by_conn.get_mut(&conn) {
            sessions.retain(|other| *other != index);
            if sessions.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
    }
}
