//! The tables of open and ended sessions.

use super::answer::Fate;
use super::session::{EndReason, Ended, Named, Session};
use crate::command::Opener;
use crate::id::LogSessionId;
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
    /// Open session of each client name. Derived from `open`.
    names: Tree<Named<LogSessionId>>,
    /// Open sessions per opener, and of all openers that are not reserved. Derived from `open`.
    openers: Tree<Named<u64>>,
    ordinary: u64,
    /// Ended sessions in order of ending. Derived from `ended`.
    order: VecDeque<LogSessionId>,
}

impl Sessions {
    /// Creates the tables of a snapshot, without its sessions.
    pub(crate) fn restored(endings: u64) -> Self {
        Sessions { endings, ..Sessions::default() }
    }

    pub(crate) fn holder(&self, name: &str) -> Option<&Arc<Session>> {
        self.open.get(&self.names.get(name)?.value)
    }

    pub(crate) fn insert(&mut self, session: Arc<Session>) {
        if let Some(name) = &session.client {
            self.names.insert(Arc::new(Named { name: name.clone(), value: session.id }));
        }
        self.ordinary += u64::from(!session.opener.reserved);
        let value = self.held_by(&session.opener) + 1;
        self.openers.insert(Arc::new(Named { name: session.opener.name.clone(), value }));
        self.open.insert(session);
    }

    /// Ends an open session and keeps its outcomes until `kept` other sessions have ended (LS8). Returns false if it is
    /// not open.
    pub(crate) fn end(&mut self, id: LogSessionId, reason: EndReason, kept: u64) -> bool {
        let Some(session) = self.open.remove(&id) else { return false };
        if let Some(name) = &session.client {
            self.names.remove(name);
        }
        self.ordinary -= u64::from(!session.opener.reserved);
        let opener = &session.opener;
        let left = self.held_by(opener).saturating_sub(1);
        if left == 0 {
            self.openers.remove(&opener.name);
        } else {
            self.openers.insert(Arc::new(Named { name: opener.name.clone(), value: left }));
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

    /// Returns the number of open sessions of an opener (LS7).
    pub(crate) fn held_by(&self, opener: &Opener) -> u64 {
        self.openers.get(&opener.name).map_or(0, |count| count.value)
    }

    /// Returns the number of open sessions outside the reserved places (LS7).
    pub(crate) fn ordinary(&self) -> u64 {
        self.ordinary
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
