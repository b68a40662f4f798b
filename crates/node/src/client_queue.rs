//! Requests of client connections that wait for the event loop.
//!
//! Every connection has a queue of its own. A connection with waiting requests is *scheduled*: it stands in a lane, at
//! most once, and the event loop takes one batch of it per visit. So the connections share the event loop in turns,
//! however much one of them submits. Heartbeats have a lane of their own, which the event loop empties first: a
//! heartbeat never waits behind bulk work.

use crate::config::NetworkLimits;
use crate::connection::{Delivery, Outbox};
use crate::counters::{Counting, add};
use crate::event_loop::Operations;
use crate::shared::stopped;
use convoke_core::node::{ConnId, SessionId};
use convoke_core::{ErrorCode, Rejection};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// One connection may take this fraction of the queue of all requests.
const CONNECTION_FRACTION: usize = 8;
/// Half of the queue is reserved for connections with fewer waiting requests than this: enough to connect and attach.
const FIRST_REQUESTS: usize = 2;
/// Heartbeats that one visit takes from a connection.
const HEARTBEATS_PER_VISIT: usize = 64;

/// A request that is executed in the order of its connection.
#[derive(Debug)]
pub(crate) enum Request {
    Connect(Outbox),
    Operations(Operations),
}

/// A heartbeat. It may overtake the requests of its connection.
#[derive(Debug)]
pub(crate) enum Heartbeat {
    /// Answered only if it is rejected.
    Unanswered { session: SessionId },
    /// Answered with the echo (C5).
    Echoed { session: SessionId, echo: u64 },
    /// A batch that contains only heartbeats.
    Batch(Operations),
}

/// The queue of one connection, and the counts of what its client has not read yet.
#[derive(Debug)]
pub(crate) struct ClientQueue {
    pub(crate) conn: ConnId,
    waiting: Mutex<Waiting>,
    /// Submitted operations whose answers were not read yet.
    unanswered: AtomicUsize,
    /// Notices not read yet.
    notices: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    heartbeats: VecDeque<Heartbeat>,
    heartbeats_scheduled: bool,
    requests: VecDeque<Request>,
    requests_scheduled: bool,
    /// The event loop has ended.
    closed: bool,
}

impl ClientQueue {
    pub(crate) fn new(conn: ConnId) -> Self {
        ClientQueue { conn, waiting: Mutex::default(), unanswered: AtomicUsize::new(0), notices: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts operations that need an answer. A single batch above the limit is accepted, because the sender decides
    /// its size.
    pub(crate) fn begin(&self, count: usize, limit: usize) -> Result<(), Rejection> {
        if self.unanswered.fetch_add(count, Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.end(count);
        let message = format!("this connection has {limit} unanswered operations; read their answers first");
        Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(limit))
    }

    pub(crate) fn end(&self, count: usize) {
        self.unanswered.fetch_sub(count, Ordering::Relaxed);
    }

    /// Counts a notice. Returns false if more wait than allowed.
    pub(crate) fn notice(&self, limit: usize) -> bool {
        self.notices.fetch_add(1, Ordering::Relaxed) < limit
    }

    /// The client has read a delivery.
    pub(crate) fn read(&self, delivery: &Delivery) {
        match delivery {
            Delivery::Answers(answers) => self.end(answers.len()),
            Delivery::Heartbeat { .. } => self.end(1),
            Delivery::Notice(_) | Delivery::HeartbeatRejected { .. } => {
                self.notices.fetch_sub(1, Ordering::Relaxed);
            }
            Delivery::Closed(_) | Delivery::Unreplicated => {}
        }
    }
}

/// A connection's place in a lane. If it is dropped there, the event loop has ended, and so has everything that waits.
#[derive(Debug)]
pub(crate) struct Scheduled(Option<Arc<ClientQueue>>);

impl Drop for Scheduled {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            let mut waiting = queue.lock();
            waiting.closed = true;
            // Dropped outside of the lock: their senders wake tasks.
            let (heartbeats, requests) =
                (std::mem::take(&mut waiting.heartbeats), std::mem::take(&mut waiting.requests));
            drop(waiting);
            drop((heartbeats, requests));
        }
    }
}

pub(crate) type Lane = mpsc::UnboundedReceiver<Scheduled>;

/// The sending ends of both lanes. The lanes are unbounded, but a connection is in each of them at most once.
#[derive(Debug)]
pub(crate) struct Lanes {
    heartbeats: mpsc::UnboundedSender<Scheduled>,
    requests: mpsc::UnboundedSender<Scheduled>,
    /// Requests of all connections that wait.
    waiting: AtomicUsize,
}

impl Lanes {
    /// Returns the lanes and their receivers: of heartbeats and of requests.
    #[allow(clippy::disallowed_methods, reason = "a connection is in each lane at most once")]
    pub(crate) fn new() -> (Lanes, Lane, Lane) {
        let (heartbeats, heartbeats_end) = mpsc::unbounded_channel();
        let (requests, requests_end) = mpsc::unbounded_channel();
        (Lanes { heartbeats, requests, waiting: AtomicUsize::new(0) }, heartbeats_end, requests_end)
    }

    /// Returns the number of requests of all connections that wait.
    pub(crate) fn waiting_requests(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a request, unless the connection or the node has too many.
    pub(crate) fn request(
        &self,
        queue: &Arc<ClientQueue>,
        request: Request,
        limits: &NetworkLimits,
        counting: &Counting,
    ) -> Result<(), Rejection> {
        let full = |message: &str, limit| {
            add(&counting.inbox_full, 1);
            Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(limit))
        };
        let total = self.waiting.fetch_add(1, Ordering::Relaxed);
        let share = (limits.inbox / CONNECTION_FRACTION).max(FIRST_REQUESTS);
        let mut waiting = queue.lock();
        let count = waiting.requests.len();
        let room = if count < FIRST_REQUESTS { limits.inbox } else { limits.inbox / 2 };
        if waiting.closed || count >= share || total >= room {
            let closed = waiting.closed;
            drop(waiting);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return match closed {
                true => Err(stopped()),
                false if count >= share => {
                    full("this connection has too many waiting requests; send more when some are answered", share)
                }
                false => full("this node is overloaded; try again later or use another node", limits.inbox),
            };
        }
        waiting.requests.push_back(request);
        let schedule = !std::mem::replace(&mut waiting.requests_scheduled, true);
        drop(waiting);
        schedule_in(&self.requests, schedule, queue)
    }

    /// Queues a heartbeat, unless the connection has too many.
    pub(crate) fn heartbeat(
        &self,
        queue: &Arc<ClientQueue>,
        heartbeat: Heartbeat,
        limits: &NetworkLimits,
        counting: &Counting,
    ) -> Result<(), Rejection> {
        let limit = limits.unanswered_operations;
        let mut waiting = queue.lock();
        if waiting.closed {
            return Err(stopped());
        }
        if waiting.heartbeats.len() >= limit {
            add(&counting.heartbeats_rejected, 1);
            let message = "this connection has too many heartbeats that wait for the node; send fewer";
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(limit));
        }
        waiting.heartbeats.push_back(heartbeat);
        let schedule = !std::mem::replace(&mut waiting.heartbeats_scheduled, true);
        drop(waiting);
        schedule_in(&self.heartbeats, schedule, queue)
    }

    /// Takes the next request of a scheduled connection, and schedules the connection again if it has more.
    pub(crate) fn take_request(&self, mut scheduled: Scheduled) -> Option<(ConnId, Request)> {
        let queue = scheduled.0.take()?;
        let mut waiting = queue.lock();
        let request = waiting.requests.pop_front();
        let more = !waiting.requests.is_empty();
        waiting.requests_scheduled = more;
        if waiting.requests.is_empty() {
            // Most connections are quiet most of the time.
            waiting.requests = VecDeque::new();
        }
        drop(waiting);
        if more {
            scheduled.0 = Some(queue.clone());
            let _ = self.requests.send(scheduled);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        request.map(|request| (queue.conn, request))
    }

    /// Takes the next heartbeats of a scheduled connection, and schedules the connection again if it has more.
    pub(crate) fn take_heartbeats(&self, mut scheduled: Scheduled, into: &mut Vec<(ConnId, Heartbeat)>) {
        let Some(queue) = scheduled.0.take() else { return };
        let mut waiting = queue.lock();
        let count = waiting.heartbeats.len().min(HEARTBEATS_PER_VISIT);
        into.extend(waiting.heartbeats.drain(..count).map(|heartbeat| (queue.conn, heartbeat)));
        let more = !waiting.heartbeats.is_empty();
        waiting.heartbeats_scheduled = more;
        if !more {
            waiting.heartbeats = VecDeque::new();
        }
        drop(waiting);
        if more {
            scheduled.0 = Some(queue);
            let _ = self.heartbeats.send(scheduled);
        }
    }
}

fn schedule_in(
    lane: &mpsc::UnboundedSender<Scheduled>,
    schedule: bool,
    queue: &Arc<ClientQueue>,
) -> Result<(), Rejection> {
    if schedule && lane.send(Scheduled(Some(queue.clone()))).is_err() {
        return Err(stopped());
    }
    Ok(())
}
