//! Client connections: operations are submitted in batches; answers and notices are delivered in order.

use crate::client_queue::{ClientQueue, Heartbeat, Request};
use crate::event_loop::{Executed, Operations, ReplyTo, Signal};
use crate::shared::{Shared, stopped};
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{
    Attach, AttachMember, Attached, ClientOperation, ConnId, Notice, OperationResult, Reattach, Replicated, SessionId,
};
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// A message from the node to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One answer for each operation of a submitted batch, in its order. Batches are answered in the order submitted.
    Answers(Vec<OperationResult>),
    /// The next answers contain that of a close. There are other nodes, and none has confirmed the unregistrations (C18).
    Unreplicated,
    Notice(Notice),
    /// Answer to [`ClientConnection::heartbeat_echoed`].
    Heartbeat {
        echo: u64,
        result: Result<(), Rejection>,
        /// How far the writes of the node are replicated (C13).
        replicated: Replicated,
    },
    /// A heartbeat without a requested answer was rejected.
    HeartbeatRejected {
        session: SessionId,
        rejection: Rejection,
    },
    /// The node closed this connection. Nothing follows.
    Closed(CloseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The registry closed the connection.
    Dropped,
    /// The node was paused or began a new incarnation; buffered messages are void (L5). Attach again, at any node.
    NodePaused,
    NodeStopped,
    /// Too many notices were not read.
    Overflow,
}

/// A client's connection. Dropping it detaches its sessions; they continue until they time out.
#[derive(Debug)]
pub struct ClientConnection {
    conn: ConnId,
    shared: Arc<Shared>,
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    queue: Arc<ClientQueue>,
}

/// The event loop's end of a connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) sender: mpsc::UnboundedSender<Delivery>,
    pub(crate) queue: Arc<ClientQueue>,
}

impl Outbox {
    /// Delivers a message. Returns false if more notices wait than allowed.
    pub(crate) fn deliver(&self, delivery: Delivery, notices_max: usize) -> bool {
        let unsolicited = matches!(delivery, Delivery::Notice(_) | Delivery::HeartbeatRejected { .. });
        if unsolicited && !self.queue.notice(notices_max) {
            return false;
        }
        // If the connection has just been dropped, the message is lost; the signal of the drop is already queued.
        let _ = self.sender.send(delivery);
        true
    }
}

impl ClientConnection {
    pub(crate) fn open(shared: &Arc<Shared>) -> Result<Self, Rejection> {
        let conn = ConnId(shared.number());
        #[allow(
            clippy::disallowed_methods,
            reason = "answers are bounded by the requests of the client, and notices are counted"
        )]
        let (sender, deliveries) = mpsc::unbounded_channel();
        let queue = Arc::new(ClientQueue::new(conn));
        let connection = ClientConnection { conn, shared: shared.clone(), deliveries, queue: queue.clone() };
        connection.request(Request::Connect(Outbox { sender, queue }))?;
        Ok(connection)
    }

    pub fn id(&self) -> ConnId {
        self.conn
    }

    /// Submits operations to be executed in order, in one batch. The answers arrive as one [`Delivery::Answers`].
    pub fn submit(&self, operations: Vec<ClientOperation>) -> Result<(), Rejection> {
        let count = operations.len();
        self.queue.begin(count, self.shared.network.unanswered_operations)?;
        self.operations(operations, ReplyTo::Outbox).inspect_err(|_| self.queue.end(count))
    }

    /// Submits operations and waits for their answers.
    pub async fn call(&self, operations: Vec<ClientOperation>) -> Result<Vec<OperationResult>, Rejection> {
        self.start(operations)?.await
    }

    /// Submits operations. When this returns, their position in the order of the connection is fixed. The answers are
    /// awaited separately from the connection, so that more operations can be submitted meanwhile. A batch of heartbeats
    /// alone does not wait behind other operations.
    pub fn start(
        &self,
        operations: Vec<ClientOperation>,
    ) -> Result<impl Future<Output = Result<Vec<OperationResult>, Rejection>> + Send + use<>, Rejection> {
        let (reply, answers) = oneshot::channel();
        self.start_batch(operations, ReplyTo::Once(reply))?;
        Ok(async { answers.await.map_err(|_| stopped()) })
    }

    /// Submits operations as [`ClientConnection::start`] does. The answer waits until another ready node has the writes; it
    /// does not wait without such a node, and not longer than 100 ms (C12).
    pub fn start_replicated(
        &self,
        operations: Vec<ClientOperation>,
    ) -> Result<impl Future<Output = Result<Executed, Rejection>> + Send + use<>, Rejection> {
        let (reply, executed) = oneshot::channel();
        self.start_batch(operations, ReplyTo::Replicated(reply))?;
        Ok(async { executed.await.map_err(|_| stopped()) })
    }

    fn start_batch(&self, operations: Vec<ClientOperation>, reply: ReplyTo) -> Result<(), Rejection> {
        let is_heartbeat = |operation: &ClientOperation| matches!(operation, ClientOperation::Heartbeat { .. });
        if !operations.is_empty() && operations.iter().all(is_heartbeat) {
            self.beat(Heartbeat::Batch(Operations { operations, reply }))
        } else {
            self.operations(operations, reply)
        }
    }

    /// Sends a heartbeat. It is answered only if rejected, with [`Delivery::HeartbeatRejected`].
    pub fn heartbeat(&self, session: SessionId) -> Result<(), Rejection> {
        self.beat(Heartbeat::Unanswered { session })
    }

    /// Sends a heartbeat that is answered: [`Delivery::Heartbeat`] returns `echo` (C5).
    pub fn heartbeat_echoed(&self, session: SessionId, echo: u64) -> Result<(), Rejection> {
        self.queue.begin(1, self.shared.network.unanswered_operations)?;
        self.beat(Heartbeat::Echoed { session, echo }).inspect_err(|_| self.queue.end(1))
    }

    /// Queues a batch. The heartbeats of a batch count even if the node is too busy for the rest.
    fn operations(&self, operations: Vec<ClientOperation>, reply: ReplyTo) -> Result<(), Rejection> {
        let sessions: Vec<SessionId> = operations.iter().filter_map(heartbeat_of).collect();
        self.request(Request::Operations(Operations { operations, reply })).inspect_err(|_| {
            for session in sessions {
                // If this is rejected too, the rejection of the batch tells the client.
                let _ = self.beat(Heartbeat::Unanswered { session });
            }
        })
    }

    fn request(&self, request: Request) -> Result<(), Rejection> {
        self.shared.lanes.request(&self.queue, request, &self.shared.network, &self.shared.counting)
    }

    fn beat(&self, heartbeat: Heartbeat) -> Result<(), Rejection> {
        self.shared.lanes.heartbeat(&self.queue, heartbeat, &self.shared.network, &self.shared.counting)
    }

    /// Returns the next delivery; `None` once the node has closed this connection and every delivery was read.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let delivery = self.deliveries.poll_recv(context);
        if let Poll::Ready(Some(delivery)) = &delivery {
            self.queue.read(delivery);
        }
        delivery
    }
}

/// Single operations.
impl ClientConnection {
    pub async fn attach(&self, attach: Attach) -> Result<Attached, Rejection> {
        match self.call_one(ClientOperation::Attach(Box::new(attach))).await? {
            OperationResult::Attached(result) => result,
            _ => Err(mismatched_answer()),
        }
    }

    pub async fn reattach(&self, reattach: Reattach) -> Result<Attached, Rejection> {
        match self.call_one(ClientOperation::Reattach(Box::new(reattach))).await? {
            OperationResult::Attached(result) => result,
            _ => Err(mismatched_answer()),
        }
    }

    pub async fn register(&self, session: SessionId, seq: u64, member: AttachMember) -> Result<Version, Rejection> {
        self.written(ClientOperation::Register { session, seq, member: Arc::new(member) }).await
    }

    pub async fn update(
        &self,
        session: SessionId,
        seq: u64,
        id: &str,
        update: MetadataUpdate,
        expected: Option<Version>,
    ) -> Result<Version, Rejection> {
        self.written(ClientOperation::Update { session, seq, id: id.to_owned(), update: Arc::new(update), expected })
            .await
    }

    pub async fn unregister(&self, session: SessionId, seq: u64, id: &str) -> Result<(), Rejection> {
        self.done(ClientOperation::Unregister { session, seq, id: id.to_owned() }).await
    }

    pub async fn close(&self, session: SessionId) -> Result<(), Rejection> {
        self.done(ClientOperation::Close { session }).await
    }

    async fn call_one(&self, operation: ClientOperation) -> Result<OperationResult, Rejection> {
        self.call(vec![operation]).await?.pop().ok_or_else(mismatched_answer)
    }

    async fn written(&self, operation: ClientOperation) -> Result<Version, Rejection> {
        match self.call_one(operation).await? {
            OperationResult::Written(result) => result,
            _ => Err(mismatched_answer()),
        }
    }

    async fn done(&self, operation: ClientOperation) -> Result<(), Rejection> {
        match self.call_one(operation).await? {
            OperationResult::Unregistered(result) => result.map(|_| ()),
            OperationResult::Heartbeat(result) => result,
            _ => Err(mismatched_answer()),
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        // An error means that the node, and with it the connection, has ended.
        let _ = self.shared.signals.send(Signal::Disconnected(self.conn));
    }
}

fn heartbeat_of(operation: &ClientOperation) -> Option<SessionId> {
    match operation {
        ClientOperation::Heartbeat { session } => Some(*session),
        _ => None,
    }
}

/// Unreachable: every operation has one kind of answer.
fn mismatched_answer() -> Rejection {
    Rejection::new(ErrorCode::InvalidArgument, "the answer does not belong to the request")
}
