//! The handle: every operation on a node, from any task. It is cheap to clone.

mod admin;
mod agentless;
mod checks;
mod names;
mod status;

pub use status::{Counters, NodeStatus, QueueLengths, RegistryStanding};

use crate::changes::MemberChange;
use crate::connection::ClientConnection;
use crate::dispatch::Inbound;
use crate::event_loop::{Call, EventLoop, Input, WatchRequest};
use crate::events::TimelineEvent;
use crate::shared::{Ending, Phase, Shared, starting, stopped};
use crate::view::MemberPage;
use crate::watch::WatchHandle;
use convoke_base::framing::Preamble;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_core::node::{Resume, ServiceView, WatchSelection};
use convoke_core::version::NodeId;
use convoke_core::{Rejection, Time};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

/// A handle to a node. Reads use the published view and never wait; everything else goes through the event loop.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: AbortHandle,
}

/// Identity and addresses.
impl NodeHandle {
    pub fn id(&self) -> &NodeId {
        &self.shared.id
    }

    pub fn cluster(&self) -> &str {
        &self.shared.cluster
    }

    pub fn region(&self) -> &str {
        &self.shared.region
    }

    /// The bound address, with the port that the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local_address
    }

    /// The address that other nodes dial.
    pub fn peer_address(&self) -> &str {
        &self.shared.peer_address
    }

    pub fn client_address(&self) -> &str {
        &self.shared.client_address
    }

    /// The heartbeat timeout of sessions that do not ask for another one.
    pub fn session_timeout(&self) -> Duration {
        self.shared.session_timeout
    }

    /// Returns the receiver of future connections on the peer port that begin with this preamble of another plane. A
    /// receiver from an earlier call gets no more.
    pub fn connections(&self, preamble: Preamble) -> mpsc::Receiver<Inbound> {
        self.shared.dispatch.receive(preamble)
    }
}

/// Phases of the node.
impl NodeHandle {
    pub fn phase(&self) -> Phase {
        *self.shared.phase.borrow()
    }

    /// Returns a receiver of the node's phases.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.shared.phase.subscribe()
    }

    /// Returns whether the registry is complete and the node serves clients. A node that is alone serves clients
    /// and is not ready (N7).
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }

    /// Waits until the node is ready. Rejected if the node stops instead. A node that reaches none of its seeds becomes
    /// ready when it reaches one, or by [`NodeHandle::declare_first`].
    pub async fn ready(&self) -> Result<(), Rejection> {
        let reached = |phase: &Phase| matches!(phase, Phase::Ready | Phase::Stopping | Phase::Stopped(_));
        match self.phases().wait_for(reached).await.as_deref() {
            Ok(Phase::Ready) => Ok(()),
            _ => Err(stopped()),
        }
    }

    /// Waits until the node has ended, and returns how.
    pub async fn stopped(&self) -> Ending {
        let ended = |phase: &Phase| matches!(phase, Phase::Stopped(_));
        match self.phases().wait_for(ended).await.as_deref() {
            Ok(Phase::Stopped(ending)) => *ending,
            _ => Ending::Aborted,
        }
    }

    /// Stops gracefully: hands clients over, unregisters names, informs peers (N6). Waits until it is done.
    pub async fn stop(&self) -> Ending {
        // An error means that the event loop, and so the node, has ended.
        let _ = self.shared.inbox.send(Input::Stop).await;
        self.stopped().await
    }

    /// Ends the node immediately, like a crash of the process.
    pub fn abort(&self) {
        self.owner.abort();
    }
}

/// Reads. They never wait.
impl NodeHandle {
    /// Succeeds if an unknown id is absent from the registry. Rejected while the node is alone: it may not have received
    /// the member (N7). Every interface asks this method before it reads.
    pub fn absence(&self) -> Result<(), Rejection> {
        if self.phase() == Phase::Starting {
            return Err(starting());
        }
        match &*self.shared.absence_unknown.load() {
            Some(unknown) => Err(Rejection::clone(unknown)),
            None => Ok(()),
        }
    }

    /// Returns a member, or `None` if there is none. Rejected if this node cannot tell.
    pub fn find_member(&self, id: &str) -> Result<Option<Member>, Rejection> {
        let absence = self.absence();
        match self.member(id) {
            None => absence.map(|()| None),
            member => Ok(member),
        }
    }

    /// Returns a member that this node holds, unless it has left. `None` does not mean that there is no such member: see
    /// [`NodeHandle::find_member`].
    pub fn member(&self, id: &str) -> Option<Member> {
        self.shared.view.member(id)
    }

    /// Returns matching members, ordered by service and id, at most `limit`, starting at `cursor`. A cursor works at
    /// every node. Rejected while the node is alone, because the list may lack members (N7).
    pub fn members(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Result<MemberPage, Rejection> {
        self.absence()?;
        self.held_members(filter, cursor, limit)
    }

    /// Returns the matching members that this node holds. If [`NodeHandle::absence`] was rejected before, there may be
    /// more.
    pub fn held_members(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Result<MemberPage, Rejection> {
        self.shared.view.list(filter, cursor, limit)
    }

    /// Returns the services that have members, ordered by name. Rejected while the node is alone (N7).
    pub fn find_services(&self) -> Result<Vec<ServiceView>, Rejection> {
        self.absence()?;
        Ok(self.services())
    }

    /// Returns the services of the members that this node holds, ordered by name.
    pub fn services(&self) -> Vec<ServiceView> {
        self.shared.view.services(self.shared.panic_share)
    }

    /// Returns the kept events with a sequence above `after`, oldest first.
    pub fn events_after(&self, after: u64) -> Vec<Arc<TimelineEvent>> {
        self.shared.timeline.after(after)
    }

    /// Returns a receiver of future events.
    pub fn events(&self) -> broadcast::Receiver<Arc<TimelineEvent>> {
        self.shared.timeline.listen()
    }

    /// Returns the last kept changes of one member, at most `max`, newest first.
    pub fn changes_of(&self, id: &str, max: usize) -> Vec<MemberChange> {
        self.shared.changes.of(id, max)
    }

    /// Returns the kept member changes with a sequence above `after`, oldest first.
    pub fn changes_after(&self, after: u64) -> Vec<MemberChange> {
        self.shared.changes.after(after)
    }

    /// Returns a receiver of the sequence number of the last member change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.listen()
    }
}

/// Clients and watchers.
impl NodeHandle {
    /// Opens a connection for a client.
    pub fn connect(&self) -> Result<ClientConnection, Rejection> {
        ClientConnection::open(&self.shared)
    }

    /// Watches members or names. [`Resume`] continues where an earlier watch ended.
    pub async fn watch(&self, interest: WatchSelection, resume: Resume) -> Result<WatchHandle, Rejection> {
        self.watch_as(interest, resume, false).await
    }

    /// Watches with a progress mark after every batch, for readers that keep little state beyond the last mark.
    pub async fn watch_marked(&self, interest: WatchSelection, resume: Resume) -> Result<WatchHandle, Rejection> {
        self.watch_as(interest, resume, true).await
    }

    async fn watch_as(
        &self,
        interest: WatchSelection,
        resume: Resume,
        eager_marks: bool,
    ) -> Result<WatchHandle, Rejection> {
        let (reply, answer) = oneshot::channel();
        let request = WatchRequest { interest, resume, eager_marks, reply };
        self.shared.submit(Input::Watch(Box::new(request)))?;
        answer.await.map_err(|_| stopped())?
    }
}

impl NodeHandle {
    /// Runs a function in the event loop. Returns after its changes are published.
    async fn run_in_event_loop<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EventLoop, Time) -> T + Send + 'static,
    ) -> Result<T, Rejection> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |event_loop, now| {
            let value = function(event_loop, now);
            Box::new(move || drop(reply.send(value)))
        });
        self.shared.inbox.send(Input::Call(call)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())
    }
}
