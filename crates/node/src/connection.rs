//! Client connections: operations are submitted in batches; answers and notices are delivered in order.

use crate::event_loop::{Executed, Input, Operations, ReplyTo, Signal};
use crate::shared::{Shared, stopped};
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{
    Attach, AttachMember, Attached, ClientOperation, ConnId, Notice, OperationResult, Reattach, SessionId,
};
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// A message from the node to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One answer for each operation of a submitted batch, in its order. Batches are answered in the order submitted.
    Answers(Vec<OperationResult>),
    Notice(Notice),
    /// Answer to [`ClientConnection::heartbeat_echoed`].
    Heartbeat {
        echo: u64,
        result: Result<(), Rejection>,
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
    backlog: Arc<Backlog>,
}

/// Counts of pending operations and notices of a connection.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Submitted operations whose answers were not read yet.
    operations: AtomicUsize,
    /// Notices not read yet.
    notices: AtomicUsize,
}

/// The event loop's end of a connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) sender: mpsc::UnboundedSender<Delivery>,
    pub(crate) backlog: Arc<Backlog>,
}

impl Outbox {
    /// Delivers a message. Returns false if more notices wait than allowed.
    pub(crate) fn deliver(&self, delivery: Delivery, notices_max: usize) -> bool {
        let unsolicited = matches!(delivery, Delivery::Notice(_) | Delivery::HeartbeatRejected { .. });
        if unsolicited && self.backlog.notices.fetch_add(1, Ordering::Relaxed) >= notices_max {
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
        let (sender, deliveries) = mpsc::unbounded_channel();
        let backlog = Arc::<Backlog>::default();
        shared.submit(Input::Connect { conn, outbox: Outbox { sender, backlog: backlog.clone() } })?;
        Ok(ClientConnection { conn, shared: shared.clone(), deliveries, backlog })
    }

    pub fn id(&self) -> ConnId {
        self.conn
    }

    /// Submits operations to be executed in order, in one batch. The answers arrive as one [`Delivery::Answers`].
    pub fn submit(&self, operations: Vec<ClientOperation>) -> Result<(), Rejection> {
        let count = operations.len();
        self.begin(count)?;
        let operations = Operations { conn: self.conn, operations, reply: ReplyTo::Outbox };
        self.shared.submit(Input::Operations(operations)).inspect_err(|_| self.end(count))
    }

    /// Submits operations and waits for their answers.
    pub async fn call(&self, operations: Vec<ClientOperation>) -> Result<Vec<OperationResult>, Rejection> {
        self.start(operations)?.await
    }

    /// Submits operations. When this returns, their position in the order of the connection is fixed. The answers are
    /// awaited separately from the connection, so that more operations can be submitted meanwhile.
    pub fn start(
        &self,
        operations: Vec<ClientOperation>,
    ) -> Result<impl Future<Output = Result<Vec<OperationResult>, Rejection>> + Send + use<>, Rejection> {
        let (reply, answers) = oneshot::channel();
        let operations = Operations { conn: self.conn, operations, reply: ReplyTo::Once(reply) };
        self.shared.submit(Input::Operations(operations))?;
        Ok(async { answers.await.map_err(|_| stopped()) })
    }

    /// Submits operations as [`ClientConnection::start`] does. The answer waits until another ready node has the writes; it
    /// does not wait without such a node, and not longer than 100 ms (C12).
    pub fn start_replicated(
        &self,
        operations: Vec<ClientOperation>,
    ) -> Result<impl Future<Output = Result<Executed, Rejection>> + Send + use<>, Rejection> {
        let (reply, executed) = oneshot::channel();
        let operations = Operations { conn: self.conn, operations, reply: ReplyTo::Replicated(reply) };
        self.shared.submit(Input::Operations(operations))?;
        Ok(async { executed.await.map_err(|_| stopped()) })
    }

    /// Sends a heartbeat. It is answered only if rejected, with [`Delivery::HeartbeatRejected`].
    pub fn heartbeat(&self, session: SessionId) -> Result<(), Rejection> {
        self.shared.submit(Input::Heartbeat { conn: self.conn, session, echo: None })
    }

    /// Sends a heartbeat that is answered: [`Delivery::Heartbeat`] returns `echo` (C5).
    pub fn heartbeat_echoed(&self, session: SessionId, echo: u64) -> Result<(), Rejection> {
        self.begin(1)?;
        let input = Input::Heartbeat { conn: self.conn, session, echo: Some(echo) };
        self.shared.submit(input).inspect_err(|_| self.end(1))
    }

    /// Counts operations that need an answer. A single batch above the limit is accepted, because the sender decides
    /// its size.
    fn begin(&self, count: usize) -> Result<(), Rejection> {
        let limit = self.shared.network.unanswered_operations;
        if self.backlog.operations.fetch_add(count, Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.end(count);
        let message = format!("this connection has {limit} unanswered operations; read their answers first");
        Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(limit))
    }

    fn end(&self, count: usize) {
        self.backlog.operations.fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the next delivery; `None` once the node has closed this connection and every delivery was read.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let delivery = self.deliveries.poll_recv(context);
        if let Poll::Ready(Some(delivery)) = &delivery {
            match delivery {
                Delivery::Answers(answers) => self.backlog.operations.fetch_sub(answers.len(), Ordering::Relaxed),
                Delivery::Heartbeat { .. } => self.backlog.operations.fetch_sub(1, Ordering::Relaxed),
                Delivery::Notice(_) | Delivery::HeartbeatRejected { .. } => {
                    self.backlog.notices.fetch_sub(1, Ordering::Relaxed)
                }
                Delivery::Closed(_) => 0,
            };
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
            OperationResult::Done(result) => result,
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

/// Unreachable: every operation has one kind of answer.
fn mismatched_answer() -> Rejection {
    Rejection::new(ErrorCode::InvalidArgument, "the answer does not belong to the request")
}
