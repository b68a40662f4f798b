//! The handle: everything that can be asked of a node, from any task. Cloning it is cheap.

mod admin;
mod names;
mod status;

pub use status::{Counters, Status};

use crate::changes::MemberChange;
use crate::connection::Connection;
use crate::events::TimelineEvent;
use crate::owner::{Call, Input, Owner, SubscribeRequest};
use crate::shared::{Ending, LogConnection, Phase, Shared, stopped};
use crate::subscription::Subscription;
use crate::view::Page;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_core::node::{Interest, Resume, ServiceView};
use convoke_core::version::NodeId;
use convoke_core::{Refusal, Time};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

/// Asks a node. Reads are answered from the published view and never wait; everything else goes to the owner task.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: AbortHandle,
}

/// Who and where.
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

    /// The address bound to, with the port the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local_address
    }

    /// What other nodes dial.
    pub fn peer_address(&self) -> &str {
        &self.shared.peer_address
    }

    pub fn client_address(&self) -> &str {
        &self.shared.client_address
    }

    /// Connections to the peer port that are meant for the log plane, from now on. Whoever asked before gets no more.
    pub fn log_connections(&self) -> mpsc::Receiver<LogConnection> {
        self.shared.log_connections()
    }
}

/// The life of the node.
impl NodeHandle {
    pub fn phase(&self) -> Phase {
        *self.shared.phase.borrow()
    }

    /// Follows the node through its life.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.shared.phase.subscribe()
    }

    /// Whether the registry is complete and clients may come.
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }

    /// Waits until the node is ready; refused if it stops instead.
    pub async fn ready(&self) -> Result<(), Refusal> {
        let reached = |phase: &Phase| matches!(phase, Phase::Ready | Phase::Stopping | Phase::Stopped(_));
        match self.phases().wait_for(reached).await.as_deref() {
            Ok(Phase::Ready) => Ok(()),
            _ => Err(stopped()),
        }
    }

    /// Waits until the node is no more, and says why.
    pub async fn stopped(&self) -> Ending {
        let ended = |phase: &Phase| matches!(phase, Phase::Stopped(_));
        match self.phases().wait_for(ended).await.as_deref() {
            Ok(Phase::Stopped(ending)) => *ending,
            _ => Ending::Aborted,
        }
    }

    /// Graceful stop: clients are sent elsewhere, names unregistered, peers told (N6). Waits until it is done.
    pub async fn stop(&self) -> Ending {
        // If the owner task is gone, so is the node.
        let _ = self.shared.inbox.send(Input::Stop).await;
        self.stopped().await
    }

    /// Ends at once, as if the process had died.
    pub fn abort(&self) {
        self.owner.abort();
    }
}

/// Reading. Never waits for anything.
impl NodeHandle {
    /// One member, unless unknown or left.
    pub fn member(&self, id: &str) -> Option<Member> {
        self.shared.view.member(id)
    }

    /// Members that match, ordered by service and id, at most `limit`, from `cursor` on. The cursor works at every node.
    pub fn members(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Result<Page, Refusal> {
        self.shared.view.list(filter, cursor, limit)
    }

    /// Services that have members, by name.
    pub fn services(&self) -> Vec<ServiceView> {
        self.shared.view.services()
    }

    /// Events that are still kept, with a sequence above `after`, oldest first.
    pub fn events_after(&self, after: u64) -> Vec<Arc<TimelineEvent>> {
        self.shared.timeline.after(after)
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Arc<TimelineEvent>> {
        self.shared.timeline.listen()
    }

    /// Changes of members that are still kept, with a sequence above `after`, oldest first.
    pub fn changes_after(&self, after: u64) -> Vec<Arc<MemberChange>> {
        self.shared.changes.after(after)
    }

    /// The sequence of the last change of a member, whenever there is a new one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.listen()
    }
}

/// Clients and subscribers.
impl NodeHandle {
    /// Opens a connection for a client.
    pub fn connect(&self) -> Result<Connection, Refusal> {
        Connection::open(&self.shared)
    }

    /// Subscribes to members or names; see [`Resume`] for going on where an earlier subscription ended.
    pub async fn subscribe(&self, interest: Interest, resume: Resume) -> Result<Subscription, Refusal> {
        self.subscribe_as(interest, resume, false).await
    }

    /// Subscribes with a mark whenever everything has been told, and not only now and then: for readers that cannot
    /// remember much beyond the last one.
    pub async fn subscribe_marked(&self, interest: Interest, resume: Resume) -> Result<Subscription, Refusal> {
        self.subscribe_as(interest, resume, true).await
    }

    async fn subscribe_as(
        &self,
        interest: Interest,
        resume: Resume,
        eager_marks: bool,
    ) -> Result<Subscription, Refusal> {
        let (reply, answer) = oneshot::channel();
        let request = SubscribeRequest { interest, resume, eager_marks, reply };
        self.shared.submit(Input::Subscribe(Box::new(request)))?;
        answer.await.map_err(|_| stopped())?
    }
}

impl NodeHandle {
    /// Has the owner task do something; answered after the changes it made are published. Waits its turn.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Owner, Time) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |owner, now| {
            let value = question(owner, now);
            Box::new(move || drop(reply.send(value)))
        });
        self.shared.inbox.send(Input::Call(call)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())
    }
}
