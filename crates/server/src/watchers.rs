//! Who watches what at this node, for operators. The node itself bounds how many there are.

use crate::service::ClientConnection;
use ::http::HeaderValue;
use convoke_core::filter::Filter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a client says of itself is cut at this length.
const AGENT_CHARS: usize = 120;

/// One stream of changes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Watcher {
    /// `http` or `grpc`.
    surface: &'static str,
    /// Of the client, `host:port`; empty if unknown.
    address: String,
    /// What the client calls itself; may be empty.
    agent: String,
    /// Empty is everything.
    filter: String,
    /// UNIX milliseconds.
    since: u64,
}

impl Watcher {
    pub(crate) fn new(
        surface: &'static str,
        tie: Option<&ClientConnection>,
        agent: Option<&HeaderValue>,
        filter: &Filter,
    ) -> Self {
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Watcher {
            surface,
            address: tie.and_then(|tie| tie.address).map(|address| address.to_string()).unwrap_or_default(),
            agent: agent.chars().take(AGENT_CHARS).collect(),
            filter: filter.to_string(),
            since: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    there: BTreeMap<u64, Watcher>,
}

impl Watchers {
    /// Listed until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>, watcher: Watcher) -> Watching {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.next += 1;
        let number = table.next;
        table.there.insert(number, watcher);
        Watching { watchers: self.clone(), number }
    }

    /// How many there are, and the oldest of them.
    pub(crate) fn list(&self, limit: usize) -> (usize, Vec<Watcher>) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (table.there.len(), table.there.values().take(limit).cloned().collect())
    }
}

/// A place in the list.
#[derive(Debug)]
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    number: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut table = self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.there.remove(&self.number);
    }
}
