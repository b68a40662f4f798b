//! Operations for operators.

use super::NodeHandle;
use crate::events::NodeEvent;
use convoke_core::member::Drain;
use convoke_core::node::{Coverage, Explanation, PeerView, SeedView, SessionOwner};
use convoke_core::version::{Dot, NodeId, OriginId};
use convoke_core::{Rejection, Revocation, RevocationSet};
use std::sync::Arc;
use tokio::sync::watch;

impl NodeHandle {
    /// Sets or clears the drain mark of a member, whichever node owns it.
    pub async fn drain(&self, id: &str, drained: bool) -> Result<(), Rejection> {
        self.mark(id, drained.then(Drain::default)).await
    }

    /// Drains a member, with a reason and an end; `None` undoes a drain (C21).
    pub async fn mark(&self, id: &str, wanted: Option<Drain>) -> Result<(), Rejection> {
        let id = id.to_owned();
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.mark(now, &id, wanted.as_ref(), out)
        })
        .await?
    }

    /// Revokes credentials at all nodes (P11). Returns whether this was news.
    pub async fn revoke(&self, revocation: Revocation) -> Result<bool, Rejection> {
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.revoke(now, revocation, out)
        })
        .await?
    }

    /// Removes revocations that are no longer needed. `unix_seconds` is the wall clock.
    pub async fn prune_revocations(&self, unix_seconds: u64, margin: u64) -> Result<(), Rejection> {
        self.run_in_event_loop(move |event_loop, _| {
            let (core, out) = event_loop.core();
            core.prune_revocations(unix_seconds, margin, out);
        })
        .await
    }

    /// Returns all revocations, and again whenever they change.
    pub fn revocations(&self) -> watch::Receiver<Arc<RevocationSet>> {
        self.shared.revocations.subscribe()
    }

    /// Sets or clears the drain mark of this node.
    pub async fn drain_node(&self, drained: bool) -> Result<(), Rejection> {
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.drain_node(now, drained, out)
        })
        .await?
    }

    /// Publishes the id of the log that this node holds a replica of, empty for none, in the member record of the node.
    pub async fn set_log(&self, log: &str) -> Result<(), Rejection> {
        let log = log.to_owned();
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.set_log(now, &log, out);
        })
        .await
    }

    /// Adds an event of a component around the node, such as its log, to the timeline.
    pub fn record_event(&self, what: NodeEvent) {
        self.shared.timeline.record(what);
    }

    /// Explains a member's status, including that of a tombstone; `None` if there is no such member. Rejected if
    /// this node cannot tell.
    pub async fn explain(&self, id: &str) -> Result<Option<Explanation>, Rejection> {
        let absence = self.absence();
        let id = id.to_owned();
        match self.run_in_event_loop(move |event_loop, _| event_loop.core().0.explain(&id)).await? {
            None => absence.map(|()| None),
            explanation => Ok(explanation),
        }
    }

    /// Returns the current incarnation of this node.
    pub async fn origin(&self) -> Result<OriginId, Rejection> {
        self.run_in_event_loop(|event_loop, _| event_loop.core().0.origin().clone()).await
    }

    /// Returns the other node that owns the members of a client process; `None` if this node does, or none is known.
    pub async fn owner_of_session(
        &self,
        client: &str,
        nonce: u64,
        creator: OriginId,
    ) -> Result<Option<SessionOwner>, Rejection> {
        let client = client.to_owned();
        self.run_in_event_loop(move |event_loop, _| {
            event_loop.core().0.owner_of_session(&client, nonce, Some(&creator))
        })
        .await
    }

    /// Looks for writes that a client names, and asks other nodes for them (C17). Pass the number of the search again until
    /// it has ended.
    pub async fn search(&self, dots: Vec<Dot>, search: Option<u64>) -> Result<(Coverage, Vec<Dot>), Rejection> {
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.search(now, &dots, search, out)
        })
        .await?
    }

    /// Returns the other nodes with the state of the links to them.
    pub async fn nodes(&self) -> Result<Vec<PeerView>, Rejection> {
        self.run_in_event_loop(|event_loop, _| event_loop.core().0.peers()).await
    }

    /// States that this node is the first of its cluster: it stops waiting for its seeds (N7). It founds no log.
    pub async fn declare_first(&self) -> Result<(), Rejection> {
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.declare_first(now, out)
        })
        .await?
    }

    /// Returns the seeds with the node or the failure found there.
    pub async fn seeds(&self) -> Result<Vec<SeedView>, Rejection> {
        self.run_in_event_loop(|event_loop, _| event_loop.core().0.seeds()).await
    }

    /// Removes a node that is not connected, until a message names it again, and
    /// its name once nothing of it is left (D15).
    pub async fn forget(&self, node: &NodeId) -> Result<(), Rejection> {
        let node = node.clone();
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.forget(now, &node, out)
        })
        .await?
    }
}
