//! The list of watchers at this node, for operators. The node limits their number.

use crate::service::ClientConnection;
use ::http::HeaderValue;
use convoke_core::filter::Filter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A client's user agent is truncated to this length.
const AGENT_CHARS: usize = 120;

/// One watch stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Watcher {
    /// `http` or `grpc`.
    surface: &'static str,
    /// Address of the client, `host:port`; empty if unknown.
    address: String,
    /// User agent of the client; may be empty.
    agent: String,
    /// The filter; empty if it matches everything.
    filter: String,
    /// UNIX milliseconds.
    since: u64,
}

impl Watcher {
    pub(crate) fn new(
        surface: &'static str,
        connection: Option<&ClientConnection>,
        agent: Option<&HeaderValue>,
        filter: &Filter,
    ) -> Self {
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Watcher {
            surface,
            address: connection
                .and_then(|connection| connection.address)
                .map(|address| address.to_string())
                .unwrap_or_default(),
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
    /// Adds a watcher. It is listed until the returned guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, watcher: Watcher) -> Watching {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.next += 1;
        let number = table.next;
        table.there.insert(number, watcher);
        Watching { watchers: self.clone(), number }
    }

    /// Returns the number of watchers and the oldest of them.
    pub(crate) fn list(&self, limit: usize) -> (usize, Vec<Watcher>) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (table.there.len(), table.there.values().take(limit).cloned().collect())
    }
}

/// An entry in the list.
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
