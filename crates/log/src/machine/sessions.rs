//! The tables of open and ended sessions.

use super::answer::Fate;
use super::session::{EndReason, Ended, Holder, Session};
use crate::id::LogSessionId;
use crate::mutant::{Mutation, seam};
use crate::time::LogTime;
use crate::tree::Tree;
use std::collections::VecDeque;
use std::sync::Arc;

/// All known sessions. A copy is cheap (LH5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) open: Tree<Session>,
    pub(crate) ended: Tree<Ended>,
    /// Number of sessions ended so far.
    pub(crate) endings: u64,
    /// Holders of client names. Derived from `open`.
    names: Tree<Holder>,
    /// Ended sessions in order of ending. Derived from `ended`.
    order: VecDeque<LogSessionId>,
}

impl Sessions {
    /// Creates the tables of a snapshot, without its sessions.
    pub(crate) fn restored(endings: u64) -> Self {
        Sessions { endings, ..Sessions::default() }
    }

    pub(crate) fn holder(&self, name: &str) -> Option<&Arc<Session>> {
        self.open.get(&self.names.get(name)?.session)
    }

    pub(crate) fn insert(&mut self, session: Arc<Session>) {
        if let Some(name) = &session.client {
            self.names.insert(Arc::new(Holder { name: name.clone(), session: session.id }));
        }
        self.open.insert(session);
    }

    /// Ends an open session and keeps its outcomes until `kept` other sessions have ended (LS8). Returns false if it is
    /// not open.
    pub(crate) fn end(&mut self, id: LogSessionId, reason: EndReason, kept: u64) -> bool {
        let Some(session) = self.open.remove(&id) else { return false };
        if let Some(name) = &session.client {
            self.names.remove(name);
        }
        self.endings += 1;
        self.restore_ended(Ended { session, order: self.endings, reason });
        while self.order.len() as u64 > kept {
            let Some(oldest) = self.order.pop_front() else { break };
            self.ended.remove(&oldest);
        }
        true
    }

    /// Adds an ended session; they are added in order of ending.
    pub(crate) fn restore_ended(&mut self, ended: Ended) {
        self.order.push_back(ended.session.id);
        self.ended.insert(Arc::new(ended));
    }

    /// Iterates over ended sessions in order of ending.
    pub(crate) fn ended_in_order(&self) -> impl Iterator<Item = &Arc<Ended>> {
        self.order.iter().filter_map(|id| self.ended.get(id))
    }

    /// Returns the session to evict, if there is one (LS7).
    pub(crate) fn idle_longest(&self, log_time: LogTime, mutation: Mutation) -> Option<LogSessionId> {
        let is_idle = |session: &Session| {
            seam!(in mutation, BusyEvicted => return true);
            log_time.since(session.active_at) >= session.ttl
        };
        let idle = self.open.iter().filter(|session| is_idle(session));
        idle.min_by_key(|session| (session.active_at, session.id)).map(|session| session.id)
    }

    /// Returns the fate of a request at the applied index `applied` (A5, LS8).
    pub(crate) fn fate(&self, id: LogSessionId, number: u64, applied: u64) -> Fate {
        if let Some(session) = self.open.get(&id) {
            session.fate(number)
        } else if let Some(ended) = self.ended.get(&id) {
            ended.fate(number)
        } else if id.0 > applied {
            Fate::Open
        } else {
            Fate::TooOld
        }
    }
}
