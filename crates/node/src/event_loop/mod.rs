//! The event loop: the only code that accesses the core. Inputs arrive through bounded queues: heartbeats, requests of
//! clients, peers, and calls. A turn handles all heartbeats first, then the other inputs in turns, publishes the changes,
//! and then sends the answers.

mod clients;
mod effects;
mod inputs;
mod lifecycle;
mod queues;
mod streams;

pub use inputs::Executed;
pub(crate) use inputs::{Call, Frames, Input, Operations, ReplyTo, Signal, WatchRequest};
pub(crate) use lifecycle::Launch;
pub(crate) use queues::Inputs;

use crate::archive::ArchiveWriter;
use crate::clock::{Clock, wall_ms};
use crate::connection::{Delivery, Outbox};
use crate::counters::add;
use crate::disk::DataDir;
use crate::links::{Link, LinkTasks, LogThrottle};
use crate::shared::{Ending, Phase, Shared};
use crate::view::Publisher;
use convoke_core::node::{ConnId, LinkId, OperationResult, StopReason, Unreplicated};
use convoke_core::version::NodeId;
use convoke_core::{Node, Output, Time};
use foldhash::fast::FixedState;
use queues::Work;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use streams::Streams;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Limits of one turn, in inputs and in time: the answers to its first inputs wait until the turn ends.
const TURN_INPUTS: usize = 512;
const TURN_MAX: Duration = Duration::from_millis(5);
/// How long an answer waits until another node has its writes (C12).
const REPLICATION_WAIT: Duration = Duration::from_millis(100);
/// The longest sleep. A timer that is due later is checked again then.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// These numbers are assigned by the node itself, so the hash needs no protection against chosen keys.
type Numbered<K, V> = HashMap<K, V, FixedState>;

#[derive(Debug)]
pub(crate) struct EventLoop {
    core: Node,
    core_config: convoke_core::Config,
    out: Output,
    clock: Clock,
    /// Counts the cores of this process. Dials of an earlier core are void.
    generation: u64,
    /// Restarts because others had writes of this incarnation that it did not make (P10).
    collisions: u32,
    shared: Arc<Shared>,
    inputs: Inputs,
    signals: mpsc::UnboundedReceiver<Signal>,
    publisher: Publisher,
    links: Numbered<LinkId, Link>,
    link_tasks: LinkTasks,
    dials: JoinSet<()>,
    clients: Numbered<ConnId, Arc<Outbox>>,
    streams: Streams,
    /// Replies to send, in order, once this turn's changes are published.
    replies: Vec<Reply>,
    /// Replies that wait until the writes before them are replicated.
    unreplicated: Unreplicated<Reply>,
    /// Names registered by the application, which a new incarnation registers again (N2).
    names: BTreeMap<String, String>,
    data_dir: Option<Arc<DataDir>>,
    /// Agentless members on disk (AG4).
    archive: ArchiveWriter,
    /// Limits log lines of repeating events.
    log_throttle: LogThrottle,
    ended: Option<StopReason>,
}

enum Reply {
    Deliver(Arc<Outbox>, ConnId, Delivery),
    Answer(oneshot::Sender<Vec<OperationResult>>, Vec<OperationResult>),
    Executed(oneshot::Sender<Executed>, Executed),
    Call(Box<dyn FnOnce() + Send>),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Deliver(_, conn, delivery) => f.debug_tuple("Deliver").field(conn).field(delivery).finish(),
            Reply::Answer(_, answers) => f.debug_tuple("Answer").field(answers).finish(),
            Reply::Executed(_, executed) => f.debug_tuple("Executed").field(executed).finish(),
            Reply::Call(_) => f.write_str("Call"),
        }
    }
}

impl EventLoop {
    /// Runs the node until it stops.
    pub(crate) async fn run(mut self) -> Ending {
        let mut signals = Vec::with_capacity(TURN_INPUTS);
        let timer = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(timer);
        let mut armed = Time::ZERO;
        self.turn(None, &mut signals);
        let reason = loop {
            if let Some(reason) = self.ended {
                break reason;
            }
            let due = self.unreplicated.deadline().unwrap_or(Time::MAX).min(self.core.next_wake());
            // A timer that fires too early costs one turn, so a later due time does not reset it.
            if due < armed || timer.is_elapsed() {
                let delay = due.since(self.clock.now()).min(SLEEP_MAX);
                timer.as_mut().reset(tokio::time::Instant::now() + delay);
                armed = due;
            }
            let busy = self.streams.has_work();
            let first = tokio::select! {
                biased;
                work = self.inputs.next() => work,
                _ = self.signals.recv_many(&mut signals, TURN_INPUTS) => None,
                () = &mut timer => None,
                () = std::future::ready(()), if busy => None,
            };
            // Other tasks run on this thread first. The tasks that are about to submit something share this turn then: its
            // pushes, its publication and its wake-ups cost little more for many inputs than for one.
            tokio::task::yield_now().await;
            self.turn(first, &mut signals);
        };
        self.finish().await;
        Ending::from(reason)
    }

    /// One turn: handles the queued inputs, beginning with the one that woke the loop, then their consequences.
    fn turn(&mut self, mut first: Option<Work>, signals: &mut Vec<Signal>) {
        while signals.len() < TURN_INPUTS
            && let Ok(signal) = self.signals.try_recv()
        {
            signals.push(signal);
        }
        let now = self.clock.now();
        self.core.set_wall_clock(wall_ms());
        // Before the timers: a session is not judged while its heartbeat waits here.
        self.heartbeats(&mut first, now);
        if self.core.next_wake() <= now {
            self.core.wake(now, &mut self.out);
            self.settle();
        }
        add(&self.shared.counting.turns, 1);
        for signal in signals.drain(..) {
            self.signal(signal);
        }
        let mut handled = 0;
        let end = now + TURN_MAX;
        let mut now = now;
        while handled < TURN_INPUTS
            && now <= end
            && let Some(work) = first.take().or_else(|| self.inputs.take(handled))
        {
            match work {
                Work::Input(input) => self.input(input, now),
                Work::Requests(scheduled) => {
                    if let Some((conn, request)) = self.shared.lanes.take_request(scheduled) {
                        self.request(conn, request, now);
                    }
                }
                // Handled at the beginning of the turn.
                Work::Heartbeats(_) => {}
            }
            handled += 1;
            now = self.clock.now();
        }
        add(&self.shared.counting.inputs, handled as u64);
        self.core.flush(now, &mut self.out);
        self.settle();
        self.publish();
        self.release_answers(now, self.core.replicated());
        self.reply();
        self.streams.serve(&mut self.core, now);
        self.link_tasks.reap();
        while self.dials.try_join_next().is_some() {}
    }

    /// Publishes changes to readers. Members that a starting node learns from others are not recorded as changes.
    fn publish(&mut self) {
        let kept = (*self.shared.phase.borrow() != Phase::Starting).then_some(&self.shared.changes);
        self.publisher.publish(&mut self.out.changes, kept);
    }

    fn input(&mut self, input: Input, now: Time) {
        match input {
            Input::Frames(Frames { link, frames, _unidentified: unidentified, .. }) => {
                for frame in frames {
                    self.core.received(now, link, &frame, &mut self.out);
                }
                if unidentified.is_some()
                    && self.core.is_identified(link)
                    && let Some(link) = self.links.get(&link)
                {
                    self.shared.handshake_permits.add_known(link.address.ip());
                }
            }
            Input::Accepted(connected) => {
                let link = LinkId(self.shared.number());
                let authenticated = connected.authenticated.clone();
                self.links.insert(link, Link::open(link, *connected, &self.shared, &mut self.link_tasks));
                self.core.accepted(now, link, &mut self.out);
                self.authenticate(link, authenticated);
            }
            Input::Dialled { generation, dial, addresses, connected } if generation == self.generation => {
                let link = LinkId(self.shared.number());
                let authenticated = connected.authenticated.clone();
                self.links.insert(link, Link::open(link, *connected, &self.shared, &mut self.link_tasks));
                self.core.resolved(dial, addresses);
                self.core.dialled(now, dial, link, &mut self.out);
                self.authenticate(link, authenticated);
            }
            Input::DialFailed { generation, dial, failure } if generation == self.generation => {
                self.core.dial_failed(now, dial, failure, &mut self.out);
            }
            // An earlier core requested this dial.
            Input::Dialled { .. } | Input::DialFailed { .. } => {}
            Input::Closed { link, failure } => {
                if self.links.remove(&link).is_some() {
                    self.core.closed_as(now, link, failure, &mut self.out);
                }
            }
            Input::Watch(request) => self.watch(*request, now),
            Input::Call(call) => {
                let reply = call(self, now);
                self.replies.push(Reply::Call(reply));
            }
            Input::Stop => {
                self.shared.phase.send_if_modified(|phase| {
                    let running = matches!(phase, Phase::Starting | Phase::Alone | Phase::Ready);
                    if running {
                        *phase = Phase::Stopping;
                    }
                    running
                });
                self.core.stop(now, &mut self.out);
            }
        }
        self.settle();
    }

    /// Tells the core which node the certificate of a new link names.
    fn authenticate(&mut self, link: LinkId, node: Option<NodeId>) {
        if let Some(node) = node {
            self.core.authenticated(link, node);
        }
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Disconnected(conn) => {
                self.clients.remove(&conn);
                let now = self.clock.now();
                self.core.disconnected(now, conn, &mut self.out);
                self.settle();
            }
            Signal::MoreRequested(stream) => self.streams.requested(stream),
            Signal::Unwatched(stream) => {
                if let Some(watcher) = self.streams.remove(stream) {
                    self.core.unwatch(watcher);
                }
            }
        }
    }

    /// Sends the replies that waited for this turn's changes to be published.
    fn reply(&mut self) {
        let mut overflowed = Vec::new();
        for reply in std::mem::take(&mut self.replies) {
            match reply {
                // An error means that the caller no longer waits.
                Reply::Answer(reply, answers) => drop(reply.send(answers)),
                Reply::Executed(reply, executed) => drop(reply.send(executed)),
                Reply::Call(reply) => reply(),
                Reply::Deliver(outbox, conn, delivery) => {
                    if !outbox.deliver(delivery, self.shared.network.notices) {
                        overflowed.push(conn);
                    }
                }
            }
        }
        for conn in overflowed {
            self.overflow(conn);
        }
    }

    /// Bytes that wait for the slowest peer.
    pub(crate) fn link_bytes_max(&self) -> usize {
        self.links.values().map(|link| link.queue.bytes()).max().unwrap_or(0)
    }

    /// The core, for calls that are neither frequent nor urgent.
    pub(crate) fn core(&mut self) -> (&mut Node, &mut Output) {
        (&mut self.core, &mut self.out)
    }

    /// Returns a future that resolves when the agentless members of all calls so far are on disk (AG4).
    pub(crate) fn stored(&mut self) -> impl Future<Output = bool> + Send + use<> {
        self.settle();
        self.archive.stored()
    }

    pub(crate) fn names(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.names
    }
}
