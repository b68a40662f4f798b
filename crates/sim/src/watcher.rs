//! Watchers: each reads a node's stream at its own pace and keeps the SDK's watch state.
//!
//! The checker also folds the node's events itself (`view`), so that node and SDK are checked separately.

use crate::network::Micros;
use convoke_core::filter::Filter;
use convoke_core::member::{Member, Space};
use convoke_core::node::{Resume, StreamEvent, WatcherId};
use convoke_proto::v1;
use convoke_session::watch_state::{Next, WatchState};
use convoke_session::{Event, Member as Shown};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a watcher reconnects. The SDK resumes by token, or by versions if it has none; other clients may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    Fresh,
    Token,
    TokenAndKnown,
    Known,
}

#[derive(Debug)]
pub struct Watcher {
    pub space: Space,
    pub filter: Filter,
    /// Where it reads now: host, process number of the host, handle.
    pub at: Option<(usize, u64, WatcherId)>,
    /// Pause between two reads, and how much it reads at once.
    pub pace: Micros,
    pub batch: usize,
    /// The checker's own watcher: it reads everything at once and has no SDK.
    pub observer: bool,
    /// The folded events of the node's stream.
    pub view: BTreeMap<String, Member>,
    /// A caught-up mark has been received in this connection, since the last reset.
    pub complete: bool,
    pub sdk: WatchState,
    pub mutation: convoke_session::Mutation,
    pub application: Application,
    /// A read is scheduled on the event heap.
    pub reading: bool,
    pub generation: u64,
    pub resets: u64,
    /// The last read left nothing to read.
    pub drained: bool,
    pub returned: Return,
    pub connected_at: Micros,
}

/// The application's view, folded from the SDK's events.
#[derive(Debug, Default)]
pub struct Application {
    pub view: BTreeMap<String, Arc<Shown>>,
    pub caught_up: bool,
}

impl Application {
    /// Applies an event; returns a description of the error if the event is wrong.
    pub fn take(&mut self, event: &Event) -> Option<String> {
        let problem = match event {
            Event::Snapshot(member) | Event::Registered(member) => {
                let out_of_place = matches!(event, Event::Snapshot(_)) == self.caught_up;
                let twice = self.view.insert(member.id.clone(), member.clone()).is_some();
                (out_of_place || twice).then_some("comes twice or at the wrong time")
            }
            Event::Updated(member) | Event::StatusChanged(member) | Event::OwnerChanged(member) => {
                let before = self.view.insert(member.id.clone(), member.clone());
                let new = before.is_some_and(|before| before.version != member.version);
                (!new).then_some("changes nothing")
            }
            Event::Unregistered { member, .. } => {
                let known = self.view.remove(&member.id).is_some_and(|held| held == *member);
                (!known).then_some("removes a member that is not in the view")
            }
            Event::CaughtUp => std::mem::replace(&mut self.caught_up, true).then_some("comes twice"),
            Event::Reset(_) => {
                *self = Application::default();
                None
            }
        };
        problem.map(|problem| format!("the application gets {event:?}, which {problem}"))
    }
}

impl Watcher {
    pub fn new(space: Space, filter: Filter, pace: Micros, batch: usize) -> Self {
        Watcher {
            space,
            filter,
            at: None,
            pace,
            batch,
            observer: false,
            view: BTreeMap::new(),
            complete: false,
            sdk: WatchState::default(),
            mutation: convoke_session::Mutation::none(),
            application: Application::default(),
            reading: false,
            generation: 0,
            resets: 0,
            drained: false,
            returned: Return::Fresh,
            connected_at: 0,
        }
    }

    /// Returns the resume position, and how it resumes in effect.
    pub fn resume(&mut self, how: Return) -> (Resume, Return) {
        if how == Return::Fresh || self.observer {
            self.forget();
            return (Resume::Fresh, Return::Fresh);
        }
        let mut events = Vec::new();
        let mut resume = self.sdk.resume(&mut events);
        for event in &events {
            self.application.take(event);
        }
        let Some(asked) = &mut resume else {
            self.view.clear();
            return (Resume::Fresh, Return::Fresh);
        };
        let known = || v1::resume::Known {
            versions: self.sdk.members().iter().map(|(id, member)| (id.clone(), member.version.clone())).collect(),
        };
        // An application that has just caught up may also resume with the versions of all its members.
        let how = match how {
            _ if asked.token.is_empty() => Return::Known,
            Return::TokenAndKnown | Return::Known if !self.application.caught_up => Return::Token,
            Return::Known => {
                *asked = v1::Resume { known: Some(known()), ..v1::Resume::default() };
                Return::Known
            }
            Return::TokenAndKnown => {
                asked.known = Some(known());
                Return::TokenAndKnown
            }
            _ => Return::Token,
        };
        (convoke_convert::resume(resume).expect("versions come from nodes"), how)
    }

    /// Passes an event through the SDK to the application; returns the error, if any.
    pub fn pass_on(&mut self, event: StreamEvent) -> (Next, Option<String>) {
        let mut events = Vec::new();
        let next = self.sdk.apply(convoke_convert::event(event), &mut events);
        let mut problem = None;
        for event in &events {
            problem = problem.or(self.application.take(event));
        }
        (next, problem)
    }

    /// Folds an event of the node's stream.
    pub fn apply(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Snapshot(member)
            | StreamEvent::Registered(member)
            | StreamEvent::Updated(member)
            | StreamEvent::StatusChanged(member)
            | StreamEvent::OwnerChanged(member) => {
                self.view.insert(member.id().to_owned(), member.clone());
            }
            StreamEvent::Unregistered { id, .. } => {
                self.view.remove(id);
            }
            StreamEvent::Reset(_) => {
                self.view.clear();
                self.complete = false;
                self.resets += 1;
            }
            StreamEvent::CaughtUp => self.complete = true,
            StreamEvent::Mark(_) => {}
        }
    }

    /// Clears all state: the application was restarted.
    pub fn forget(&mut self) {
        self.view.clear();
        self.sdk = WatchState::mutated(self.mutation);
        self.application = Application::default();
    }
}
