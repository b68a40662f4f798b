//! Drains of members and nodes, as gRPC and HTTP request them (R-16, C21).

use crate::access::Caller;
use crate::error::rejected;
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_core::Rejection;
use convoke_core::member::{Drain, NODE_ID_PREFIX};
use convoke_proto::{Error, ErrorCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is drained or undrained.
#[derive(Clone, Debug)]
pub(crate) enum Marked {
    Member(String),
    /// Empty: this node.
    Node(String),
}

/// A drain with what the request says about it. Only the displayed end comes from the wall clock.
pub(crate) fn wanted(for_ms: Option<u64>, reason: String) -> Drain {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let until = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(for_ms.unwrap_or_default());
    Drain { lasts: for_ms.map(Duration::from_millis), reason, until }
}

impl Surface {
    /// Drains, or undoes a drain with `None`.
    pub(crate) async fn mark(&self, caller: &Caller, target: Marked, wanted: Option<Drain>) -> Result<(), Error> {
        let node = &self.node;
        match &target {
            Marked::Node(id) if id.is_empty() => caller.check(Verb::Drain, Resource::Node(node.id().as_str()))?,
            Marked::Node(id) => caller.check(Verb::Drain, Resource::Node(id))?,
            Marked::Member(id) => {
                caller.about("member", id);
                self.check_member(caller, Verb::Drain, id)?;
            }
        }
        match target {
            Marked::Node(id) => {
                let id = if id.is_empty() { node.id().to_string() } else { id };
                let marked = node.mark(&format!("{NODE_ID_PREFIX}{id}"), wanted).await;
                marked.map_err(|rejection| of_node(&id, rejection))
            }
            Marked::Member(id) => node.mark(&id, wanted).await.map_err(rejected),
        }
    }
}

/// Rewrites an error about a node. The core represents a node as a member with a prefixed id, which the caller does not
/// know.
fn of_node(id: &str, rejection: Rejection) -> Error {
    let error = rejected(rejection);
    let message = match error.code {
        ErrorCode::NotFound => format!("no node {id:?} is up as seen by this node; `convoke nodes` lists the nodes"),
        ErrorCode::NotReady => format!("node {id} cannot be reached from this node now"),
        _ => return error,
    };
    Error { message, ..error }.field("node")
}
