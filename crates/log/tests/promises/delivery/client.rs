//! A client that follows the protocol: it numbers requests, abandons them, and resends them with a new epoch.

use super::reads::ReadRequest;
use convoke_base::Time;
use convoke_log::command::{DurableClient as ClientName, Open, Request};
use convoke_log::keys::Keys;
use convoke_log::machine::{ApplyRejection, Fate, Opened, RequestAnswer};
use convoke_log::{Command, Epoch, LogSessionId, LogTime, RequestId};
use std::collections::BTreeMap;
use std::time::Duration;

/// More than a client ever uses.
const NONCES: u128 = 1_000_000;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: usize,
    pub(super) name: Option<String>,
    /// Counts its processes and lost sessions.
    generation: u64,
    pub(super) ttl: Duration,
    pub(super) pipelined: bool,
    pub(super) session: Option<LogSessionId>,
    /// The session that holds its name, as far as it knows.
    holder: Option<LogSessionId>,
    /// The next number.
    pub(super) next: u64,
    /// The number issued last.
    last: u64,
    /// Requests that are sent, wanted and not answered.
    pub(super) outstanding: BTreeMap<u64, Request>,
    /// All requests issued in this session.
    pub(super) issued: Vec<Request>,
    /// The assumed leader.
    pub(super) leader: usize,
    pub(super) epoch: Epoch,
    pub(super) log_time: LogTime,
    pub(super) read: Option<ReadRequest>,
    /// The last state it read.
    pub(super) seen: Option<Keys>,
    pub(super) kept_alive: Time,
}

/// Meaning of an answer for the client.
#[derive(Debug, PartialEq)]
pub(super) enum Reaction {
    Nothing,
    /// A wanted request can never take effect, although the client did not abandon it.
    Lost(RequestId),
    SessionGone,
}

impl Client {
    pub(super) fn new(id: usize, rng: &mut fastrand::Rng) -> Self {
        Client {
            id,
            name: (id < 2).then(|| format!("client-{id}")),
            generation: 1,
            ttl: Duration::from_millis(if id == 3 { rng.u64(1_000..3_000) } else { rng.u64(3_000..12_000) }),
            pipelined: rng.bool(),
            session: None,
            holder: None,
            next: 1,
            last: 0,
            outstanding: BTreeMap::new(),
            issued: Vec::new(),
            leader: 0,
            epoch: Epoch::default(),
            log_time: LogTime::ZERO,
            read: None,
            seen: None,
            kept_alive: Time::ZERO,
        }
    }

    /// One nonce per session, so that an old answer to an open is not mistaken for a new one (LS2).
    pub(super) fn nonce(&self) -> u128 {
        self.id as u128 * NONCES + u128::from(self.generation)
    }

    pub(super) fn of_nonce(nonce: u128) -> usize {
        (nonce / NONCES) as usize
    }

    pub(super) fn open(&self) -> Command {
        let client = self.name.as_ref().map(|name| ClientName { name: name.into(), replaces: self.holder });
        Command::Open(Open { client, ..Open::new(self.epoch, self.ttl, self.nonce()) })
    }

    pub(super) fn opened(&mut self, opened: Result<Opened, ApplyRejection>, now: Time) {
        match opened {
            Ok(opened) if self.session.is_none() => {
                self.session = Some(opened.session);
                self.holder = Some(opened.session);
                self.kept_alive = now;
                (self.next, self.last) = (1, 0);
                self.outstanding.clear();
                self.issued.clear();
            }
            Err(ApplyRejection::NameHeld { holder }) => self.holder = Some(holder),
            _ => {}
        }
    }

    /// Issues a request. Without pipelining, this abandons all earlier ones.
    pub(super) fn submit(
        &mut self,
        body: convoke_log::command::Body,
        deadline: Option<LogTime>,
        give_up: bool,
    ) -> Option<Request> {
        let session = self.session?;
        let number = self.next;
        if give_up || !self.pipelined {
            self.outstanding.clear();
        }
        let abandon_below = self.outstanding.keys().next().copied().unwrap_or(number);
        let request = Request {
            session,
            number,
            abandon_below,
            previous: self.last,
            epoch: self.epoch,
            deadline,
            last: false,
            body,
        };
        self.next += 1;
        self.last = number;
        self.outstanding.insert(number, request.clone());
        self.issued.push(request.clone());
        Some(request)
    }

    /// Repeats a request with the current epoch and the currently wanted numbers (A2).
    pub(super) fn again(&self, number: u64) -> Option<Request> {
        let (lowest, _) = self.outstanding.first_key_value()?;
        let request = self.outstanding.get(&number)?.clone();
        Some(Request { epoch: self.epoch, abandon_below: *lowest.max(&request.abandon_below), ..request })
    }

    /// Abandons everything for a barrier read.
    pub(super) fn start_read(&mut self, id: u64) -> Option<ReadRequest> {
        let session = self.session?;
        self.outstanding.clear();
        let read = ReadRequest { client: self.id, id, session, epoch: self.epoch, below: self.next };
        self.read = Some(read);
        Some(read)
    }

    pub(super) fn answered(&mut self, answer: &RequestAnswer) -> Reaction {
        if self.session != Some(answer.id.session) {
            return Reaction::Nothing;
        }
        if let Some((id, fate)) = &answer.previous
            && fate.is_final()
            && id.session == answer.id.session
            && answer.verdict.is_ok()
            && *fate != Fate::Never
        {
            self.outstanding.remove(&id.number);
        }
        match &answer.verdict {
            Ok(_) => {
                self.outstanding.remove(&answer.id.number);
                Reaction::Nothing
            }
            Err(ApplyRejection::SessionEnded(_) | ApplyRejection::SessionUnknown) => {
                self.gone();
                Reaction::SessionGone
            }
            Err(rejected) if rejected.is_final() && self.outstanding.remove(&answer.id.number).is_some() => {
                Reaction::Lost(answer.id)
            }
            Err(_) => Reaction::Nothing,
        }
    }

    pub(super) fn gone(&mut self) {
        self.generation += 1;
        self.session = None;
        self.read = None;
        self.outstanding.clear();
    }

    /// Replaces the client's process by another one that only knows the name.
    pub(super) fn restart(&mut self) {
        self.gone();
        (self.holder, self.seen) = (None, None);
        self.issued.clear();
    }
}
