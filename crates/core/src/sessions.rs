//! Sessions of the clients attached to this node, and the members of each (C2, C6).

use crate::member::{ClientProcess, Liveness};
use crate::node::{ConnId, SessionId};
use crate::time::{Clock, Duration, ReceivedAt, Time};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Arc<ClientProcess>,
    pub(crate) claim: u64,
    pub(crate) liveness: Liveness,
    /// The client does not count claims, so this node chooses them (C8).
    pub(crate) restored: bool,
    pub(crate) timeout: Duration,
    pub(crate) received_at: ReceivedAt,
    /// Highest number of a request, executed or rejected (C5).
    pub(crate) last_seq: u64,
    pub(crate) unregistrations: Unregistrations,
    pub(crate) conn: Option<ConnId>,
    /// With `fast` liveness: when the connection was lost.
    pub(crate) cut_at: Option<Time>,
    pub(crate) down: bool,
    /// A newer session of the same client superseded this one; members it did not name keep this one's timers (C4).
    pub(crate) superseded: bool,
    /// Another node owns a member of the client process (C15). Only with `restored`.
    pub(crate) owned_elsewhere: bool,
    /// Members that it lost, and that its client may not know (C20). Only with `restored`.
    pub(crate) lost: LostMembers,
    /// It was sent a handover notice (N6).
    pub(crate) handed_over: bool,
    /// It was asked to move to a node with fewer sessions (N10).
    pub(crate) asked_to_move: bool,
    /// When it is checked next; timers set for other times are stale.
    pub(crate) check_at: Time,
    /// Slots of its members.
    pub(crate) members: Vec<u32>,
}

/// Unregistrations of a session that are remembered.
const UNREGISTRATIONS_MAX: usize = 64;

/// The latest unregistrations by numbered requests of an HTTP session. The tombstone of a member remembers its request too,
/// until another client registers the member (C19).
#[derive(Debug, Default)]
pub(crate) struct Unregistrations {
    latest: VecDeque<(String, u64)>,
    /// Requests up to this number may have been followed by an unregistration that is not known here.
    floor: u64,
}

impl Unregistrations {
    /// Begins a session with records that other nodes, or earlier sessions, wrote up to this request.
    pub(crate) fn after(request: u64) -> Self {
        Unregistrations { latest: VecDeque::new(), floor: request }
    }

    pub(crate) fn note(&mut self, id: &str, request: u64) {
        if request == 0 {
            return;
        }
        self.latest.retain(|(known, _)| known != id);
        self.latest.push_back((id.to_owned(), request));
        if self.latest.len() > UNREGISTRATIONS_MAX {
            self.floor = self.latest.pop_front().map_or(self.floor, |(_, request)| self.floor.max(request));
        }
    }

    /// The last request that unregistered the member here.
    pub(crate) fn known_of(&self, id: &str) -> Option<u64> {
        self.latest.iter().find(|(known, _)| known == id).map(|(_, request)| *request)
    }

    /// The last request after which a registration of the member is late.
    pub(crate) fn last_of(&self, id: &str) -> u64 {
        self.known_of(id).map_or(self.floor, |request| self.floor.max(request))
    }
}

/// Lost members of a session that are remembered.
const LOST_MAX: usize = 256;

/// Members of an HTTP session that other clients took over, or that expired at another node, until the client registers or
/// unregisters them (C20).
#[derive(Clone, Debug, Default)]
pub(crate) struct LostMembers(BTreeSet<SmolStr>);

impl LostMembers {
    /// Those beyond the limit are not remembered.
    pub(crate) fn note(&mut self, id: &str) {
        if self.0.len() < LOST_MAX {
            self.0.insert(id.into());
        }
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SmolStr> {
        self.0.iter()
    }
}

impl Session {
    fn has_stream(&self) -> bool {
        self.conn.is_some() && !self.restored
    }

    /// A session that waits for its client.
    pub(crate) fn waiting(client: Arc<ClientProcess>, claim: u64, timeout: Duration, clock: Clock) -> Self {
        Session {
            client,
            claim,
            liveness: Liveness::Normal,
            restored: true,
            timeout,
            received_at: ReceivedAt::now(clock),
            last_seq: 0,
            unregistrations: Unregistrations::default(),
            conn: None,
            cut_at: None,
            down: false,
            superseded: false,
            owned_elsewhere: false,
            lost: LostMembers::default(),
            handed_over: false,
            asked_to_move: false,
            check_at: Time::MAX,
            members: Vec::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_client: BTreeMap<SmolStr, u32>,
    /// The last session of a client that was superseded and has not ended.
    superseded: BTreeMap<SmolStr, u32>,
    by_conn: BTreeMap<ConnId, Vec<u32>>,
    /// The session that holds each slot.
    of_slot: Vec<Place>,
    len: usize,
    /// Attached sessions of clients with a stream.
    streams: usize,
}

/// The position of a slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// `NONE` if no session here holds it.
    session: u32,
    /// Its position among the members of the session, so that one of many is removed without a search.
    at: u32,
    /// The write with which the session got it.
    since: u64,
}

const NOWHERE: Place = Place { session: NONE, at: NONE, since: 0 };

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

    /// Attached sessions of clients with a stream: all but those of HTTP.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Up to `count` sessions that `may` accepts, from a position on.
    pub(crate) fn pick(&self, from: usize, count: usize, may: impl Fn(&Session) -> bool) -> Vec<SessionId> {
        let from = from % self.entries.len().max(1);
        let order = (from..self.entries.len()).chain(0..from);
        let chosen = order.filter(|index| self.entries[*index].session.as_ref().is_some_and(&may));
        chosen.take(count).map(|index| self.id(index as u32)).collect()
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
        self.streams += usize::from(session.has_stream());
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

    /// The current session of a client process, or the last one that was superseded and has not ended.
    pub(crate) fn of_process(&self, client: &str, nonce: u64) -> Option<SessionId> {
        let known = [self.by_client.get(client), self.superseded.get(client)];
        let mut known = known.into_iter().flatten().map(|index| self.id(*index));
        known.find(|id| self.get(*id).is_some_and(|session| session.client.nonce == nonce))
    }

    /// The session that holds a slot.
    pub(crate) fn of_slot(&self, slot: u32) -> Option<SessionId> {
        let place = self.of_slot.get(slot as usize).filter(|place| place.session != NONE)?;
        Some(self.id(place.session))
    }

    /// The write of this node with which the session of a slot got it.
    pub(crate) fn held_since(&self, slot: u32) -> Option<u64> {
        self.of_slot.get(slot as usize).filter(|place| place.session != NONE).map(|place| place.since)
    }

    pub(crate) fn of_conn(&self, conn: ConnId) -> Vec<SessionId> {
        self.by_conn.get(&conn).into_iter().flatten().map(|index| self.id(*index)).collect()
    }

    /// Assigns a slot to a session with a write of this node, and removes it from any other.
    pub(crate) fn give(&mut self, id: SessionId, slot: u32, since: u64) {
        match self.of_slot(slot) {
            Some(owner) if owner == id => return,
            Some(_) => self.take(slot),
            None => {}
        }
        if slot as usize >= self.of_slot.len() {
            self.of_slot.resize(slot as usize + 1, NOWHERE);
        }
        if let Some(session) = self.get_mut(id) {
            session.members.push(slot);
            let at = session.members.len() as u32 - 1;
            self.of_slot[slot as usize] = Place { session: id.index, at, since };
        }
    }

    /// Removes a slot from its session.
    pub(crate) fn take(&mut self, slot: u32) {
        let Some(id) = self.of_slot(slot) else { return };
        let Place { at, .. } = std::mem::replace(&mut self.of_slot[slot as usize], NOWHERE);
        let Some(session) = self.get_mut(id) else { return };
        session.members.swap_remove(at as usize);
        if let Some(moved) = session.members.get(at as usize).copied() {
            self.of_slot[moved as usize].at = at;
        }
    }

    /// The session is no longer its client's current one; its handle and connection are invalid, its timers continue.
    pub(crate) fn supersede(&mut self, id: SessionId) -> Option<ConnId> {
        let session = self.get_mut(id)?;
        session.superseded = true;
        let stream = session.has_stream();
        let conn = session.conn.take();
        let client = session.client.id.clone();
        self.streams -= usize::from(stream);
        self.unlink(id.index, conn, &client);
        self.superseded.insert(client, id.index);
        conn
    }

    /// Detaches the session from its connection.
    pub(crate) fn detach(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id) else { return };
        let stream = session.has_stream();
        if let Some(conn) = session.conn.take() {
            self.streams -= usize::from(stream);
            self.unlink_conn(id.index, conn);
        }
    }

    /// Removes the session; its members must have been removed before.
    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let session = entry.session.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.len -= 1;
        self.streams -= usize::from(session.has_stream());
        self.free.push(id.index);
        for slot in &session.members {
            self.of_slot[*slot as usize] = NOWHERE;
        }
        self.unlink(id.index, session.conn, &session.client.id);
        if self.superseded.get(&session.client.id) == Some(&id.index) {
            self.superseded.remove(&session.client.id);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn session(client: &str) -> Session {
        let client = Arc::new(ClientProcess { id: client.into(), nonce: 1, principal: SmolStr::default() });
        Session::waiting(client, 1, Duration::from_secs(20), Clock::default())
    }

    proptest! {
        /// Slots move between sessions and are removed: each is listed by its session, and by no other.
        #[test]
        fn every_slot_is_listed_by_its_session_alone(steps in prop::collection::vec((0..20_u32, 0..4_usize), 0..200)) {
            let mut sessions = Sessions::default();
            let ids = ["a", "b", "c"].map(|client| sessions.insert(session(client)));
            let mut expected: BTreeMap<u32, SessionId> = BTreeMap::new();
            for (slot, to) in steps {
                match ids.get(to) {
                    Some(id) => {
                        sessions.give(*id, slot, 1);
                        expected.insert(slot, *id);
                    }
                    None => {
                        sessions.take(slot);
                        expected.remove(&slot);
                    }
                }
                for slot in 0..20 {
                    prop_assert_eq!(sessions.of_slot(slot), expected.get(&slot).copied());
                }
                for id in ids {
                    let mut listed = sessions.get(id).map_or(Vec::new(), |session| session.members.clone());
                    listed.sort_unstable();
                    let fed = expected.iter().filter(|(_, feeder)| **feeder == id).map(|(slot, _)| *slot);
                    prop_assert_eq!(listed, fed.collect::<Vec<u32>>());
                }
            }
            let [first, ..] = ids;
            sessions.remove(first);
            prop_assert!((0..20).all(|slot| sessions.of_slot(slot) != Some(first)));
        }
    }
}
