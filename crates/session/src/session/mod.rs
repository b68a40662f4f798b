//! The session: the members that the application wants registered and the steps to register them (R-13, R-50, R-51,
//! R-54; rules C1–C6 of `docs/protocol.md`).
//!
//! A synchronous state machine. Calls carry the time, and effects are returned as data. It owns no socket, no clock and
//! no task. Its guarantees:
//!
//! - All wanted members are attached again after any loss, with a higher claim each time.
//! - Every operation is answered exactly once, and no operation is reported as done that a node did not acknowledge.
//! - A member that another client took over is not registered again.

mod answers;
mod attach;
mod operations;
mod state;
#[cfg(test)]
mod tests;
mod unreplicated;

pub use state::{
    ClientIdentity, ClientTime, ConnectionId, Effect, Effects, NotSent, OperationId, RegistrationId, not_sent_in_time,
};

use crate::backoff::Backoff;
use crate::mutant::{Mutation, seam};
use crate::seeds::{KnownNode, Seeds};
use crate::{ConnectionState, Error};
use convoke_proto::{ErrorCode, PART_BYTES, v1};
use state::{AttachScope, Gone, Holding, Operation, PendingAttach, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unreplicated::Unreplicated;
use v1::client_message::Message as ToNode;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the answer to an attach or a close. It is independent of heartbeats, because a node may request very
/// frequent ones.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a close that one node has acknowledged is repeated at other nodes (C18).
const CLOSE_REPEAT: Duration = Duration::from_secs(5);
/// Assumed until a node sends its setting.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);
/// Tolerated delay of an answered heartbeat.
const HEARTBEAT_SLACK: Duration = Duration::from_millis(100);
/// Number of retries after another process was found to use the client id (C2).
const SUPERSEDED_MAX: u32 = 2;

#[derive(Debug)]
pub struct Session {
    identity: ClientIdentity,
    phase: Phase,
    /// Address of the current connection.
    address: String,
    seeds: Seeds,
    backoff: Backoff,
    random: fastrand::Rng,
    /// Claim of the last attach, whatever its outcome (C1).
    claim: u64,
    /// Claim of the last accepted attach (C2).
    previous_claim: u64,
    /// The members named by the pending attach.
    pending_attach: PendingAttach,
    /// Consecutive attaches rejected with STALE_CLAIM.
    stale: u32,
    /// Attach again on the same stream once all pending operations are answered.
    attach_again: bool,
    /// How much the next attach omits.
    attach_scope: AttachScope,
    superseded: u32,
    /// Another process holds this client id permanently: nothing is attached any more, watches continue.
    observing: bool,
    closing: bool,
    /// A node has closed the session, and no other node has confirmed the unregistrations. They are repeated until then.
    repeat_close_until: Option<ClientTime>,
    holdings: BTreeMap<String, Holding>,
    /// Unregistered by the application and not yet acknowledged by a node. The id may have been registered again since.
    unregistered: BTreeMap<String, Gone>,
    /// Unregistered and acknowledged, but perhaps by one node only.
    unreplicated: Unreplicated,
    operations: BTreeMap<OperationId, Operation>,
    /// Deadlines of operations, earliest first.
    deadlines: BTreeSet<(ClientTime, OperationId)>,
    /// Operations that wait to be sent.
    waiting: BTreeSet<OperationId>,
    /// Operations in flight by the sequence number of their request.
    in_flight: BTreeMap<u64, OperationId>,
    seq: u64,
    last_id: u64,
    heartbeat_interval: Duration,
    heartbeat_timeout: Duration,
    heartbeat_due: ClientTime,
    /// Send time of the newest heartbeat or attach that was answered (C5).
    last_echo: ClientTime,
    /// Size above which an attach is sent in parts.
    part_bytes: usize,
    mutation: Mutation,
}

impl Session {
    /// Returns the heartbeat timeout that the node of the last attach set.
    pub fn heartbeat_timeout(&self) -> Duration {
        self.heartbeat_timeout
    }

    /// Returns a session that connects when it is first woken.
    pub fn new(identity: ClientIdentity, seeds: Seeds, random: fastrand::Rng, now: ClientTime) -> Session {
        Session {
            identity,
            phase: Phase::Waiting { until: now },
            address: String::new(),
            seeds,
            backoff: Backoff::default(),
            random,
            claim: 0,
            previous_claim: 0,
            pending_attach: PendingAttach::default(),
            stale: 0,
            attach_again: false,
            attach_scope: AttachScope::Everything,
            superseded: 0,
            observing: false,
            closing: false,
            repeat_close_until: None,
            holdings: BTreeMap::new(),
            unregistered: BTreeMap::new(),
            unreplicated: Unreplicated::default(),
            operations: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            seq: 0,
            last_id: 0,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            heartbeat_due: ClientTime::ZERO,
            last_echo: now,
            part_bytes: PART_BYTES,
            mutation: Mutation::none(),
        }
    }

    /// Returns the session with another size of the parts of an attach. Simulations have small members.
    #[must_use]
    pub fn with_part_bytes(self, part_bytes: usize) -> Session {
        Session { part_bytes, ..self }
    }

    /// Returns the session with a deliberate bug.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Session {
        Session { mutation, ..self }
    }

    /// Returns when `wake` must be called; `None` once closed.
    pub fn next_wake(&self) -> Option<ClientTime> {
        let phase = match self.phase {
            Phase::Waiting { until }
            | Phase::Connecting { until, .. }
            | Phase::Attaching { until, .. }
            | Phase::Closing { until, .. } => Some(until),
            Phase::Attached { .. } => Some(self.heartbeat_due),
            Phase::Observing { .. } => None,
            Phase::Closed => return None,
        };
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        phase.into_iter().chain(deadline).chain(self.repeat_close_until).min()
    }

    pub fn wake(&mut self, now: ClientTime, out: &mut Effects) {
        self.expire(now, out);
        if self.repeat_close_until.is_some_and(|until| now >= until) {
            self.drop_connection(out);
            self.finish_closing(false, out);
        }
        match self.phase {
            Phase::Waiting { until } if now >= until => self.dial(now, out),
            Phase::Connecting { until, .. } if now >= until => self.lost(now, "no connection in time", out),
            Phase::Attaching { until, .. } | Phase::Closing { until, .. } if now >= until => {
                self.lost(now, "the node does not answer", out);
            }
            Phase::Attached { connection } if now >= self.heartbeat_due => self.send_heartbeat(now, connection, out),
            _ => {}
        }
    }

    /// Adds nodes learnt from the registry.
    pub fn learn(&mut self, nodes: impl IntoIterator<Item = KnownNode>) {
        self.seeds.learn(nodes);
    }

    /// Returns the addresses that the session can connect to.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.seeds.addresses()
    }

    /// The requested connection is established.
    pub fn connected(&mut self, now: ClientTime, connection: ConnectionId, out: &mut Effects) {
        if !matches!(self.phase, Phase::Connecting { connection: held, .. } if held == connection) {
            out.push(Effect::Disconnect { connection });
        } else if self.observing {
            self.phase = Phase::Observing { connection };
            self.backoff.reset();
            out.push(Effect::State(ConnectionState::Connected { node: String::new(), address: self.address.clone() }));
        } else {
            self.attach(now, connection, out);
        }
    }

    /// The connection failed or ended.
    pub fn disconnected(&mut self, now: ClientTime, connection: ConnectionId, reason: &Error, out: &mut Effects) {
        if self.phase.connection() == Some(connection) {
            self.backoff.not_before(reason.retry_after());
            self.lost_with(now, reason.clone(), out);
        }
    }

    fn dial(&mut self, now: ClientTime, out: &mut Effects) {
        self.last_id += 1;
        let connection = ConnectionId(self.last_id);
        self.address = self.seeds.next(&mut self.random);
        self.phase = Phase::Connecting { connection, until: now + CONNECT_TIMEOUT };
        out.push(Effect::State(ConnectionState::Connecting { address: self.address.clone() }));
        let attach = !self.observing;
        out.push(Effect::Connect { connection, address: self.address.clone(), attach });
    }

    /// Drops the connection and reconnects, to another node if there is one.
    fn lost(&mut self, now: ClientTime, why: &str, out: &mut Effects) {
        self.lost_with(now, Error::new(ErrorCode::NotReady, why), out);
    }

    /// Like `lost`, with the error of the node, so that the application can tell a denial from a node that is gone.
    fn lost_with(&mut self, now: ClientTime, reason: Error, out: &mut Effects) {
        self.drop_connection(out);
        self.seeds.failed(&self.address);
        let pause = self.backoff.pause(now, self.seeds.has_untried(), self.heartbeat_timeout, &mut self.random);
        self.wait(now, pause, reason, out);
    }

    fn wait(&mut self, now: ClientTime, pause: Duration, reason: Error, out: &mut Effects) {
        if self.closing && self.unregistered.is_empty() && self.repeat_close_until.is_none() {
            // Nothing is left to unregister.
            self.finish_closing(true, out);
            return;
        }
        self.phase = Phase::Waiting { until: now + pause };
        out.push(Effect::State(ConnectionState::Disconnected { reason, retry_in: pause }));
    }

    /// Drops the connection. Unanswered operations are queued again.
    fn drop_connection(&mut self, out: &mut Effects) {
        if let Some(connection) = self.phase.connection() {
            out.push(Effect::Disconnect { connection });
        }
        for holding in self.holdings.values_mut() {
            holding.version = None;
        }
        self.pending_attach = PendingAttach::default();
        self.attach_again = false;
        self.requeue(out);
    }

    /// Returns whether the node has stopped answering (C6).
    fn is_silent(&self, now: ClientTime) -> bool {
        seam!(self, SilentNodeKept => return false);
        now.saturating_sub(self.last_echo) > 2 * self.heartbeat_interval + HEARTBEAT_SLACK
    }

    fn send_heartbeat(&mut self, now: ClientTime, connection: ConnectionId, out: &mut Effects) {
        if self.is_silent(now) || self.attach_again {
            self.lost(now, "the node has stopped answering", out);
            return;
        }
        self.heartbeat_due = now + self.heartbeat_interval;
        let sent = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.send(connection, ToNode::Heartbeat(v1::Heartbeat { sent }), out);
        self.repair();
    }

    fn send(&self, connection: ConnectionId, message: ToNode, out: &mut Effects) {
        out.push(Effect::Send { connection, message: v1::ClientMessage { message: Some(message) } });
    }

    /// Another process holds the client id. The rejection may be outdated, so the client retries before it stops (C2).
    fn handle_superseded(&mut self, now: ClientTime, out: &mut Effects) {
        self.drop_connection(out);
        self.superseded += 1;
        let error =
            Error::new(ErrorCode::Superseded, "another process uses this client id; give every process its own");
        if self.superseded <= SUPERSEDED_MAX {
            self.wait(now, self.heartbeat_timeout.mul_f64(1.25), error, out);
            return;
        }
        self.observing = true;
        self.unregistered.clear();
        self.unreplicated.clear();
        let ids: Vec<String> = self.holdings.keys().cloned().collect();
        for id in ids {
            self.give_up(&id, &error, out);
        }
        let rest: Vec<OperationId> = self.operations.keys().copied().collect();
        for operation in rest {
            self.finish(operation, Err(error.clone()), out);
        }
        let pause = self.backoff.pause(now, self.seeds.has_untried(), self.heartbeat_timeout, &mut self.random);
        self.wait(now, pause, error, out);
    }
}
