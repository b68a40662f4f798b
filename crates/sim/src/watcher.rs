//! Watchers: each reads a node's stream at its own pace and keeps the SDK's watch state.
//!
//! Beside it the checker folds the node's events itself (`view`), so that the node and the SDK are judged apart.

use crate::convert;
use crate::network::Micros;
use convoke_core::filter::Filter;
use convoke_core::member::{Member, Space};
use convoke_core::node::{Resume, StreamEvent, WatcherId};
use convoke_proto::v1;
use convoke_session::watch_state::{Next, WatchState};
use convoke_session::{Event, Member as Shown};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a watcher comes back. The SDK resumes by token, or by versions if it has none; others may do it otherwise.
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
    /// Where it reads now: host, run of the host, handle.
    pub at: Option<(usize, u64, WatcherId)>,
    /// Pause between two reads, and how much it reads at once.
    pub pace: Micros,
    pub batch: usize,
    /// The checker's own: reads at once, everything, and has no SDK.
    pub observer: bool,
    /// What the stream of the node says.
    pub view: BTreeMap<String, Member>,
    /// A caught-up mark has been received in this connection, since the last reset.
    pub complete: bool,
    pub sdk: WatchState,
    pub application: Application,
    /// A read is on the event heap.
    pub reading: bool,
    pub generation: u64,
    pub resets: u64,
    /// Nothing more to take at the last read.
    pub drained: bool,
    pub returned: Return,
    pub connected_at: Micros,
}

/// What the SDK has told the application of a watch.
#[derive(Debug, Default)]
pub struct Application {
    pub view: BTreeMap<String, Arc<Shown>>,
    pub caught_up: bool,
}

impl Application {
    /// Takes an event; what is wrong with it, if anything is.
    pub fn take(&mut self, event: &Event) -> Option<String> {
        let problem = match event {
            Event::Snapshot(member) | Event::Registered(member) => {
                let out_of_place = matches!(event, Event::Snapshot(_)) == self.caught_up;
                let twice = self.view.insert(member.id.clone(), member.clone()).is_some();
                (out_of_place || twice).then_some("is told twice or at the wrong time")
            }
            Event::Updated(member) | Event::StatusChanged(member) | Event::OwnerChanged(member) => {
                let before = self.view.insert(member.id.clone(), member.clone());
                let new = before.is_some_and(|before| before.version != member.version);
                (!new).then_some("tells nothing new")
            }
            Event::Unregistered { member, .. } => {
                let known = self.view.remove(&member.id).is_some_and(|held| held == *member);
                (!known).then_some("leaves without being there")
            }
            Event::CaughtUp => std::mem::replace(&mut self.caught_up, true).then_some("comes twice"),
            Event::Reset(_) => {
                *self = Application::default();
                None
            }
        };
        problem.map(|problem| format!("the application is told {event:?}, which {problem}"))
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
            application: Application::default(),
            reading: false,
            generation: 0,
            resets: 0,
            drained: false,
            returned: Return::Fresh,
            connected_at: 0,
        }
    }

    /// What to resume from, and what that amounts to.
    pub fn resume(&mut self, how: Return) -> (Resume, Return) {
        if how == Return::Fresh || self.observer {
            self.forget();
            return (Resume::Fresh, Return::Fresh);
        }
        let mut told = Vec::new();
        let mut resume = self.sdk.resume(&mut told);
        for event in &told {
            self.application.take(event);
        }
        let Some(asked) = &mut resume else {
            self.view.clear();
            return (Resume::Fresh, Return::Fresh);
        };
        let known = || v1::resume::Known {
            versions: self.sdk.members().iter().map(|(id, member)| (id.clone(), member.version.clone())).collect(),
        };
        // An application that has just caught up may also come with the versions of all it has.
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
        (convert::resume(resume).expect("versions come from nodes"), how)
    }

    /// The SDK takes an event and tells the application; what is wrong, if anything is.
    pub fn pass_on(&mut self, event: StreamEvent) -> (Next, Option<String>) {
        let mut told = Vec::new();
        let next = self.sdk.apply(convert::event(event), &mut told);
        let mut problem = None;
        for event in &told {
            problem = problem.or(self.application.take(event));
        }
        (next, problem)
    }

    /// Folds an event of the node.
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

    /// Nothing is known any more: the application was started anew.
    pub fn forget(&mut self) {
        self.view.clear();
        self.sdk = WatchState::default();
        self.application = Application::default();
    }
}
