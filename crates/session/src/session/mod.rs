//! The session: what the application wants registered, and how it is brought about (R-13, R-50, R-51, R-54; rules C1–C6 of
//! `docs/protocol.md`).
//!
//! A synchronous state machine. Calls go in with the time, effects come out as data; it owns no socket, no clock and no
//! task. The promises:
//!
//! - What is wanted is attached again after any loss, completely, with a higher claim each time.
//! - Every operation is answered exactly once, and nothing is reported as done that a node did not acknowledge.
//! - A member that another client took is not registered again.

mod answers;
mod attach;
mod operations;
mod state;
#[cfg(test)]
mod tests;

pub use state::{
    ConnectionId, Effect, Effects, Identity, NotSent, OperationId, RegistrationId, Time, not_sent_in_time,
};

use crate::backoff::Backoff;
use crate::seeds::{KnownNode, Seeds};
use crate::{ConnectionState, Error};
use convoke_proto::{ErrorCode, v1};
use state::{Caution, Gone, Holding, Naming, Operation, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use v1::client_message::Message as ToNode;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For the answer to an attach or a goodbye. Not a matter of heartbeats: a node may ask for very frequent ones.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Assumed until a node says otherwise.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);
/// An answered heartbeat may be so much later than it should.
const HEARTBEAT_SLACK: Duration = Duration::from_millis(100);
/// How often a client looks again after having been told that another process uses its id (C2).
const SUPERSEDED_MAX: u32 = 2;

#[derive(Debug)]
pub struct Session {
    identity: Identity,
    phase: Phase,
    /// Address of the present connection.
    address: String,
    seeds: Seeds,
    backoff: Backoff,
    random: fastrand::Rng,
    /// Of the last attach, whatever became of it (C1).
    claim: u64,
    /// Of the last accepted attach (C2).
    previous_claim: u64,
    /// What the attach under way names.
    naming: Naming,
    /// Times in a row that an attach was answered with STALE_CLAIM.
    stale: u32,
    /// Attach again on the same stream, once everything under way is answered.
    attach_anew: bool,
    /// How much the next attach leaves out.
    caution: Caution,
    superseded: u32,
    /// Another process has this client id for good: nothing is attached any more, watches go on.
    observing: bool,
    closing: bool,
    holdings: BTreeMap<String, Holding>,
    /// Unregistered by the application, not yet acknowledged by a node; perhaps registered anew since.
    unregistered: BTreeMap<String, Gone>,
    operations: BTreeMap<OperationId, Operation>,
    /// When operations are to be answered at the latest, the first one first.
    deadlines: BTreeSet<(Time, OperationId)>,
    /// Operations to send.
    waiting: BTreeSet<OperationId>,
    /// By the number of their request.
    in_flight: BTreeMap<u64, OperationId>,
    seq: u64,
    last_id: u64,
    heartbeat_interval: Duration,
    heartbeat_timeout: Duration,
    heartbeat_due: Time,
    /// Sending time of the youngest heartbeat or attach that was answered (C5).
    last_echo: Time,
}

impl Session {
    /// A session that connects at its first wake.
    pub fn new(identity: Identity, seeds: Seeds, random: fastrand::Rng, now: Time) -> Session {
        Session {
            identity,
            phase: Phase::Waiting { until: now },
            address: String::new(),
            seeds,
            backoff: Backoff::default(),
            random,
            claim: 0,
            previous_claim: 0,
            naming: Naming::default(),
            stale: 0,
            attach_anew: false,
            caution: Caution::None,
            superseded: 0,
            observing: false,
            closing: false,
            holdings: BTreeMap::new(),
            unregistered: BTreeMap::new(),
            operations: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            seq: 0,
            last_id: 0,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            heartbeat_due: Time::ZERO,
            last_echo: now,
        }
    }

    /// When `wake` is to be called; `None` once closed.
    pub fn next_wake(&self) -> Option<Time> {
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
        phase.into_iter().chain(deadline).min()
    }

    pub fn wake(&mut self, now: Time, out: &mut Effects) {
        self.expire(now, out);
        match self.phase {
            Phase::Waiting { until } if now >= until => self.dial(now, out),
            Phase::Connecting { until, .. } if now >= until => self.lost(now, "no connection in time", out),
            Phase::Attaching { until, .. } | Phase::Closing { until, .. } if now >= until => {
                self.lost(now, "the node does not answer", out);
            }
            Phase::Attached { connection } if now >= self.heartbeat_due => self.beat(now, connection, out),
            _ => {}
        }
    }

    /// Nodes learnt from the registry.
    pub fn learn(&mut self, nodes: impl IntoIterator<Item = KnownNode>) {
        self.seeds.learn(nodes);
    }

    /// The connection asked for stands.
    pub fn connected(&mut self, now: Time, connection: ConnectionId, out: &mut Effects) {
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
    pub fn disconnected(&mut self, now: Time, connection: ConnectionId, reason: &Error, out: &mut Effects) {
        if self.phase.connection() == Some(connection) {
            self.lost(now, &reason.message, out);
        }
    }

    fn dial(&mut self, now: Time, out: &mut Effects) {
        self.last_id += 1;
        let connection = ConnectionId(self.last_id);
        self.address = self.seeds.next(&mut self.random);
        self.phase = Phase::Connecting { connection, until: now + CONNECT_TIMEOUT };
        out.push(Effect::State(ConnectionState::Connecting { address: self.address.clone() }));
        let attach = !self.observing;
        out.push(Effect::Connect { connection, address: self.address.clone(), attach });
    }

    /// Gives the connection up and comes back, elsewhere if there is an elsewhere.
    fn lost(&mut self, now: Time, why: &str, out: &mut Effects) {
        self.hang_up(out);
        self.seeds.failed(&self.address);
        let pause = self.backoff.pause(now, self.heartbeat_timeout, &mut self.random);
        self.wait(now, pause, Error::new(ErrorCode::NotReady, why), out);
    }

    fn wait(&mut self, now: Time, pause: Duration, reason: Error, out: &mut Effects) {
        if self.closing && self.unregistered.is_empty() {
            // Nothing is left that a node would have to be told.
            self.finish_closing(out);
            return;
        }
        self.phase = Phase::Waiting { until: now + pause };
        out.push(Effect::State(ConnectionState::Disconnected { reason, retry_in: pause }));
    }

    /// Drops the connection; what was not answered is to be asked again.
    fn hang_up(&mut self, out: &mut Effects) {
        if let Some(connection) = self.phase.connection() {
            out.push(Effect::Disconnect { connection });
        }
        for holding in self.holdings.values_mut() {
            holding.version = None;
        }
        self.naming = Naming::default();
        self.attach_anew = false;
        self.requeue(out);
    }

    fn beat(&mut self, now: Time, connection: ConnectionId, out: &mut Effects) {
        let silent = now.saturating_sub(self.last_echo) > 2 * self.heartbeat_interval + HEARTBEAT_SLACK;
        if silent || self.attach_anew {
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

    /// Told that another process holds the client id. It may be an echo of the past: look again, then give in (C2).
    fn meet_other_process(&mut self, now: Time, out: &mut Effects) {
        self.hang_up(out);
        self.superseded += 1;
        let error =
            Error::new(ErrorCode::Superseded, "another process uses this client id; give every process its own");
        if self.superseded <= SUPERSEDED_MAX {
            self.wait(now, self.heartbeat_timeout.mul_f64(1.25), error, out);
            return;
        }
        self.observing = true;
        self.unregistered.clear();
        let ids: Vec<String> = self.holdings.keys().cloned().collect();
        for id in ids {
            self.give_up(&id, &error, out);
        }
        let rest: Vec<OperationId> = self.operations.keys().copied().collect();
        for operation in rest {
            self.finish(operation, Err(error.clone()), out);
        }
        let pause = self.backoff.pause(now, self.heartbeat_timeout, &mut self.random);
        self.wait(now, pause, error, out);
    }
}
