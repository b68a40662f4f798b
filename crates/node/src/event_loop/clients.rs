//! Execution of client operations.

use super::{EventLoop, Executed, Operations, REPLICATION_WAIT, Reply, ReplyTo};
use crate::client_queue::{Heartbeat, Request};
use crate::connection::{CloseReason, Delivery};
use crate::counters::add;
use convoke_core::node::{ClientOperation, ConnId, OperationResult, Replicated, SessionId};
use convoke_core::{ErrorCode, Rejection, Time};
use std::sync::Arc;

impl EventLoop {
    pub(super) fn request(&mut self, conn: ConnId, request: Request, now: Time) {
        match request {
            Request::Connect(outbox) => {
                if !outbox.sender.is_closed() {
                    self.clients.insert(conn, Arc::new(outbox));
                }
            }
            Request::Operations(batch) => self.operations(conn, batch, now),
        }
        self.settle();
    }

    pub(super) fn heartbeat(&mut self, conn: ConnId, heartbeat: Heartbeat, now: Time) {
        match heartbeat {
            Heartbeat::Unanswered { session } => self.execute_heartbeat(conn, session, None, now),
            Heartbeat::Echoed { session, echo } => self.execute_heartbeat(conn, session, Some(echo), now),
            Heartbeat::Batch(batch) => self.operations(conn, batch, now),
        }
        self.settle();
    }

    /// Executes a batch in order. Its answers are sent before the notices that it causes.
    fn operations(&mut self, conn: ConnId, batch: Operations, now: Time) {
        let Operations { operations, reply } = batch;
        let outbox = self.clients.get(&conn).cloned();
        let mut answers = Vec::with_capacity(operations.len());
        let written = self.core.last_dot().n;
        for operation in &operations {
            let answer = if outbox.is_some() {
                self.core.execute(now, conn, operation, &mut self.out)
            } else {
                // This node has closed the connection, so its buffered operations are void (L5).
                operation.rejected(closed())
            };
            answers.push(answer);
        }
        match (reply, outbox) {
            (ReplyTo::Outbox, Some(outbox)) => {
                let reply = Reply::Deliver(outbox, conn, Delivery::Answers(answers));
                let closed = operations.iter().any(|operation| matches!(operation, ClientOperation::Close { .. }));
                if closed {
                    // The members may have been unregistered before.
                    self.unreplicated.push(self.core.last_unregistration(), now + REPLICATION_WAIT, reply);
                } else {
                    self.replies.push(reply);
                }
            }
            (ReplyTo::Outbox, None) => {}
            (ReplyTo::Once(reply), _) => self.replies.push(Reply::Answer(reply, answers)),
            (ReplyTo::Replicated(reply), _) => {
                let last_write = self.core.last_dot();
                // The copy of a request writes nothing, and waits for what the first one wrote.
                let accepted = answers.iter().any(is_accepted_write);
                let executed = Executed { results: answers, last_write, replicated: false };
                let written = if accepted { 0 } else { written };
                self.reply_when_replicated(Reply::Executed(reply, executed), written, now);
            }
        }
    }

    /// Replies at once if nothing was written since `written`, otherwise when the writes are replicated (C12).
    fn reply_when_replicated(&mut self, reply: Reply, written: u64, now: Time) {
        let last = self.core.last_dot().n;
        if last > written {
            self.core.want_receipt();
            self.unreplicated.push(last, now + REPLICATION_WAIT, reply);
        } else {
            self.replies.push(reply);
        }
    }

    /// Releases the replies that need not wait any longer (C12, C18).
    pub(super) fn release_answers(&mut self, now: Time, state: Replicated) {
        while let Some((reply, replicated)) = self.unreplicated.next(now, state) {
            let reply = match reply {
                Reply::Executed(reply, executed) => Reply::Executed(reply, Executed { replicated, ..executed }),
                Reply::Deliver(outbox, conn, answers) => {
                    if !replicated && self.core.has_other_nodes() {
                        self.replies.push(Reply::Deliver(outbox.clone(), conn, Delivery::Unreplicated));
                    }
                    Reply::Deliver(outbox, conn, answers)
                }
                other => other,
            };
            self.replies.push(reply);
        }
    }

    /// Executes a heartbeat. Without an echo, it is answered only if rejected.
    fn execute_heartbeat(&mut self, conn: ConnId, session: SessionId, echo: Option<u64>, now: Time) {
        if !self.clients.contains_key(&conn) {
            return;
        }
        let result = self.core.heartbeat(now, session, &mut self.out);
        let delivery = match (echo, result) {
            (Some(echo), result) => Delivery::Heartbeat { echo, result, replicated: self.core.replicated() },
            (None, Err(rejection)) => Delivery::HeartbeatRejected { session, rejection },
            (None, Ok(())) => return,
        };
        if let Some(outbox) = self.clients.get(&conn) {
            self.replies.push(Reply::Deliver(outbox.clone(), conn, delivery));
        }
    }

    /// Closes a client's connection. Operations that it submits from now on are rejected.
    pub(super) fn close_client(&mut self, conn: ConnId, reason: CloseReason) {
        if let Some(outbox) = self.clients.remove(&conn) {
            self.replies.push(Reply::Deliver(outbox, conn, Delivery::Closed(reason)));
        }
    }

    pub(super) fn close_all_clients(&mut self, reason: CloseReason) {
        for (conn, outbox) in self.clients.drain() {
            self.replies.push(Reply::Deliver(outbox, conn, Delivery::Closed(reason)));
        }
        self.streams.end_all();
    }

    /// Closes a connection whose client does not read its notices.
    pub(super) fn overflow(&mut self, conn: ConnId) {
        let Some(outbox) = self.clients.remove(&conn) else { return };
        add(&self.shared.counting.clients_overflowed, 1);
        outbox.deliver(Delivery::Closed(CloseReason::Overflow), 0);
        let now = self.clock.now();
        self.core.disconnected(now, conn, &mut self.out);
        self.settle();
    }
}

fn closed() -> Rejection {
    Rejection::new(ErrorCode::SessionGone, "the node closed this connection; attach again")
}

/// Whether this is the result of a write, by this request or by an earlier copy.
fn is_accepted_write(result: &OperationResult) -> bool {
    matches!(result, OperationResult::Written(Ok(_)) | OperationResult::Unregistered(Ok(_)))
}
