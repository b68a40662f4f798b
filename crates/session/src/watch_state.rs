//! The local copy of a watch, and how it is resumed (R-52, R-53; rules W1–W6 of `docs/protocol.md`).
//!
//! A synchronous state machine: messages of the node go in, events for the application come out. Its guarantees:
//!
//! - Each change is reported once, in order per member, across connections and nodes.
//! - While a new snapshot is loaded, no members vanish: the old state is kept until the new one is complete.

#[cfg(test)]
mod tests;

use crate::mutant::{Mutation, seam};
use crate::{Event, Member, ResetReason};
use convoke_proto::v1::{self, Versioned, WatchEvent, watch_event, watch_event::reset::Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Largest size of a resume request, which must fit into one message.
const RESUME_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Size of a map entry on the wire in addition to its strings.
const ENTRY_BYTES: usize = 8;

#[derive(Debug)]
pub struct WatchState {
    members: BTreeMap<String, Arc<Member>>,
    /// Token of the last mark; empty if there was none since the last start.
    token: Vec<u8>,
    /// Versions received since that mark.
    recent: BTreeMap<String, String>,
    /// The ids of a snapshot that is being loaded. The application has seen these and no others.
    loaded: Option<BTreeSet<String>>,
    /// The versions of `members` are sufficient to resume.
    complete: bool,
    resumed: Resumed,
    mutation: Mutation,
}

/// How the current connection was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumed {
    Fresh,
    /// By token, and no event has been received yet.
    Token,
    Otherwise,
}

/// The action that an event requires of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    Read,
    /// End this stream and resume: that is cheaper than a new snapshot.
    Resume,
}

impl Default for WatchState {
    fn default() -> WatchState {
        WatchState {
            members: BTreeMap::new(),
            token: Vec::new(),
            recent: BTreeMap::new(),
            loaded: Some(BTreeSet::new()),
            complete: false,
            resumed: Resumed::Fresh,
            mutation: Mutation::none(),
        }
    }
}

impl WatchState {
    /// Returns the initial state with a deliberate bug.
    pub fn mutated(mutation: Mutation) -> WatchState {
        WatchState { mutation, ..WatchState::default() }
    }

    pub fn members(&self) -> &BTreeMap<String, Arc<Member>> {
        &self.members
    }

    /// Returns the resume token of the last mark; empty if there was none since the last start.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// Returns the resume request for a new connection.
    pub fn resume(&mut self, out: &mut Vec<Event>) -> Option<v1::Resume> {
        let complete = std::mem::replace(&mut self.complete, false);
        if !self.token.is_empty() && bytes(&self.recent) <= RESUME_BYTES_MAX {
            self.resumed = Resumed::Token;
            return Some(v1::Resume { token: self.token.clone(), recent: self.recent_versions(), known: None });
        }
        if complete && let Some(known) = self.known() {
            self.resumed = Resumed::Otherwise;
            self.forget_token();
            return Some(v1::Resume { known: Some(known), ..v1::Resume::default() });
        }
        self.resumed = Resumed::Fresh;
        self.start_over(ResetReason::Interrupted, out);
        None
    }

    /// Discards the state to resume from, because the node does not accept it.
    pub fn forget(&mut self, out: &mut Vec<Event>) {
        self.start_over(ResetReason::Interrupted, out);
    }

    /// Applies one event of the node.
    pub fn apply(&mut self, event: WatchEvent, out: &mut Vec<Event>) -> Next {
        use watch_event::Event as Wire;
        let first = std::mem::replace(&mut self.resumed, Resumed::Otherwise) == Resumed::Token;
        match event.event {
            Some(Wire::Snapshot(snapshot)) => {
                for member in snapshot.members {
                    self.show(member, None, out);
                }
            }
            Some(Wire::Registered(member)) => self.show(member, None, out),
            Some(Wire::Updated(member)) => self.show(member, Some(Event::Updated), out),
            Some(Wire::StatusChanged(member)) => self.show(member, Some(Event::StatusChanged), out),
            Some(Wire::OwnerChanged(member)) => self.show(member, Some(Event::OwnerChanged), out),
            Some(Wire::Unregistered(gone)) => self.hide(gone, out),
            Some(Wire::CaughtUp(_)) => self.catch_up(out),
            Some(Wire::Mark(mark)) => {
                self.token = mark.token;
                self.recent.clear();
            }
            Some(Wire::Reset(reset)) => {
                let forgotten = matches!(reset.reason(), Reason::TooOld | Reason::Unreadable);
                if first && forgotten && self.loaded.is_none() && bytes_of(&self.members) <= RESUME_BYTES_MAX {
                    // The token is too old, but the versions can be compared.
                    self.forget_token();
                    self.complete = true;
                    return Next::Resume;
                }
                self.start_over(ResetReason::from_wire(reset.reason()), out);
            }
            // A newer node may send events that this version does not know.
            None => {}
        }
        Next::Read
    }

    /// Reports a member as `event`, or, if the node sent it without the kind of change, as what the two states show.
    /// Unlike a node, this compares the ids of the owners and not their incarnations: a member on the wire has none.
    fn show(&mut self, member: v1::Member, event: Option<fn(Arc<Member>) -> Event>, out: &mut Vec<Event>) {
        let member = Arc::new(Member::from(member));
        self.remember(&member.id, &member.version);
        let seen = self.loaded.as_ref().is_none_or(|loaded| loaded.contains(&member.id));
        let before = self.members.get(&member.id).filter(|_| seen);
        let event: fn(Arc<Member>) -> Event = match before {
            Some(before) if self.is_repeated(before, &member) => return,
            Some(before) if before.owner.node != member.owner.node => event.unwrap_or(Event::OwnerChanged),
            Some(before) if before.status != member.status => event.unwrap_or(Event::StatusChanged),
            Some(_) => event.unwrap_or(Event::Updated),
            None if self.loaded.is_some() => Event::Snapshot,
            None => Event::Registered,
        };
        if let Some(loaded) = &mut self.loaded {
            loaded.insert(member.id.clone());
        }
        self.members.insert(member.id.clone(), member.clone());
        out.push(event(member));
    }

    /// Returns the versions received since the last mark.
    fn recent_versions(&self) -> BTreeMap<String, String> {
        seam!(self, ResumeOmitsRecent => return BTreeMap::new());
        self.recent.clone()
    }

    /// Returns whether the application has seen this version of the member.
    fn is_repeated(&self, before: &Member, member: &Member) -> bool {
        seam!(self, RepeatedChangeReported => return false);
        before.version == member.version
    }

    fn hide(&mut self, gone: Versioned, out: &mut Vec<Event>) {
        self.remember(&gone.id, &gone.version);
        let seen = self.loaded.as_mut().is_none_or(|loaded| loaded.remove(&gone.id));
        if let Some(member) = self.members.remove(&gone.id)
            && seen
        {
            out.push(Event::Unregistered { member, version: gone.version });
        }
    }

    fn catch_up(&mut self, out: &mut Vec<Event>) {
        self.complete = true;
        if let Some(loaded) = self.loaded.take() {
            self.members.retain(|id, _| loaded.contains(id));
            out.push(Event::CaughtUp);
        }
    }

    /// Prepares for a whole new snapshot.
    fn start_over(&mut self, reason: ResetReason, out: &mut Vec<Event>) {
        if self.loaded.as_ref().is_none_or(|loaded| !loaded.is_empty()) {
            out.push(Event::Reset(reason));
        }
        self.loaded = Some(BTreeSet::new());
        self.complete = false;
        self.forget_token();
    }

    fn forget_token(&mut self) {
        self.token.clear();
        self.recent.clear();
    }

    fn remember(&mut self, id: &str, version: &str) {
        if !self.token.is_empty() {
            self.recent.insert(id.to_owned(), version.to_owned());
        }
    }

    /// Returns all versions, if they fit into one message.
    fn known(&self) -> Option<v1::resume::Known> {
        let pairs = self.members.iter().map(|(id, member)| (id.clone(), member.version.clone()));
        (bytes_of(&self.members) <= RESUME_BYTES_MAX).then(|| v1::resume::Known { versions: pairs.collect() })
    }
}

fn bytes(versions: &BTreeMap<String, String>) -> usize {
    versions.iter().map(|(id, version)| id.len() + version.len() + ENTRY_BYTES).sum()
}

fn bytes_of(members: &BTreeMap<String, Arc<Member>>) -> usize {
    members.iter().map(|(id, member)| id.len() + member.version.len() + ENTRY_BYTES).sum()
}
