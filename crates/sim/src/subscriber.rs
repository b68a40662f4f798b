//! Subscribers: they read a node's stream at their own pace and keep a view as an SDK would.

use crate::network::Micros;
use convoke_core::filter::Filter;
use convoke_core::member::{Member, Space};
use convoke_core::node::{StreamEvent, SubscriberId};
use convoke_core::version::Version;
use std::collections::BTreeMap;

/// How a subscriber comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    Fresh,
    Token,
    TokenAndKnown,
    Known,
}

#[derive(Debug)]
pub struct Subscriber {
    pub space: Space,
    pub filter: Filter,
    /// Where it reads now: host, run of the host, handle.
    pub at: Option<(usize, u64, SubscriberId)>,
    /// Pause between two reads, and how much it reads at once.
    pub pace: Micros,
    pub batch: usize,
    /// The checker's own: reads at once, everything.
    pub observer: bool,
    pub view: BTreeMap<String, Member>,
    /// A caught-up mark has been received in this connection, since the last reset.
    pub complete: bool,
    pub token: Option<Vec<u8>>,
    /// Versions received since that token.
    pub recent: BTreeMap<String, Version>,
    /// A read is on the event heap.
    pub reading: bool,
    pub generation: u64,
    pub resets: u64,
    /// Nothing more to take at the last read.
    pub drained: bool,
    pub returned: Return,
    pub connected_at: Micros,
}

impl Subscriber {
    pub fn new(space: Space, filter: Filter, pace: Micros, batch: usize) -> Self {
        Subscriber {
            space,
            filter,
            at: None,
            pace,
            batch,
            observer: false,
            view: BTreeMap::new(),
            complete: false,
            token: None,
            recent: BTreeMap::new(),
            reading: false,
            generation: 0,
            resets: 0,
            drained: false,
            returned: Return::Fresh,
            connected_at: 0,
        }
    }

    pub fn apply(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Snapshot(member)
            | StreamEvent::Registered(member)
            | StreamEvent::Updated(member)
            | StreamEvent::StatusChanged(member)
            | StreamEvent::OwnerChanged(member) => {
                self.remember(member.id(), member.version());
                self.view.insert(member.id().to_owned(), member.clone());
            }
            StreamEvent::Unregistered { id, version } => {
                self.remember(id, *version);
                self.view.remove(id);
            }
            StreamEvent::Reset(_) => {
                self.forget();
                self.complete = false;
                self.resets += 1;
            }
            StreamEvent::CaughtUp => self.complete = true,
            StreamEvent::Mark(token) => {
                self.token = Some(token.clone());
                self.recent.clear();
            }
        }
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.view.clear();
        self.recent.clear();
        self.token = None;
    }

    fn remember(&mut self, id: &str, version: Version) {
        if !self.observer {
            self.recent.insert(id.to_owned(), version);
        }
    }

    pub fn known(&self) -> BTreeMap<String, Version> {
        self.view.iter().map(|(id, member)| (id.clone(), member.version())).collect()
    }
}
