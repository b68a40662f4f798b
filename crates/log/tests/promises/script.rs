//! A log written entry by entry, and a machine that applies it.

use bytes::Bytes;
use convoke_log::command::{Body, DurableClient, Expire, Open, Request};
use convoke_log::machine::{
    Applied, ApplyRejection, EndReason, Fate, NotExpired, Opened, Outcome, Reply, RequestAnswer,
};
use convoke_log::{Command, Entry, Epoch, LogLimits, LogSessionId, LogTime, Machine, RequestId};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Appends commands as the leader of `epoch`, at log time `now`.
pub(crate) struct Script {
    pub(crate) machine: Machine,
    pub(crate) epoch: Epoch,
    pub(crate) now: LogTime,
    pub(crate) ended: Vec<(LogSessionId, EndReason)>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Script::with(LogLimits::default())
    }

    pub(crate) fn with(limits: LogLimits) -> Self {
        let machine = Machine::new(limits).unwrap();
        Script { machine, epoch: Epoch::new(1, 1), now: LogTime::ZERO, ended: Vec::new() }
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Applied {
        // Every applied command has been encoded and decoded.
        let command = Command::decode(&Bytes::from(command.encode())).unwrap();
        let entry = Entry { index: self.machine.applied().index + 1, epoch: self.epoch, stamp: self.now, command };
        let applied = self.machine.apply(&entry).unwrap();
        self.ended.extend(&applied.ended);
        applied
    }

    pub(crate) fn request(&self, session: LogSessionId, number: u64, body: Body) -> Request {
        Request::new(session, number, self.epoch, body)
    }

    pub(crate) fn deliver(&mut self, request: &Request) -> RequestAnswer {
        match self.apply(&Command::Request(request.clone())).reply {
            Reply::Request(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Submits and delivers a request.
    pub(crate) fn submit(&mut self, session: LogSessionId, number: u64, body: Body) -> RequestAnswer {
        let request = self.request(session, number, body);
        self.deliver(&request)
    }

    pub(crate) fn try_open(
        &mut self,
        nonce: u64,
        client: Option<(&str, Option<LogSessionId>)>,
    ) -> Result<Opened, ApplyRejection> {
        let client = client.map(|(name, replaces)| DurableClient { name: name.into(), replaces });
        self.open_as(Open { client, ..Open::new(self.epoch, TTL, nonce.into()) })
    }

    pub(crate) fn open_as(&mut self, open: Open) -> Result<Opened, ApplyRejection> {
        match self.apply(&Command::Open(open)).reply {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open(&mut self) -> LogSessionId {
        self.try_open(0, None).unwrap().session
    }

    pub(crate) fn expire(&mut self, session: LogSessionId, activity: u64, epoch: Epoch) -> Result<(), NotExpired> {
        match self.apply(&Command::Expire(Expire { epoch, session, activity })).reply {
            Reply::Expired(expired) => expired,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn peek(&self, session: LogSessionId, number: u64) -> Fate {
        self.machine.peek(RequestId::new(session, number))
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let record = self.machine.keys().get(key.as_bytes())?;
        Some(String::from_utf8(record.value().to_vec()).unwrap())
    }

    /// Restarts the replica from a snapshot.
    pub(crate) fn restart(&mut self) {
        let bytes = self.machine.snapshot().to_bytes();
        self.machine = Machine::from_snapshot(&bytes).unwrap();
    }

    /// Elects another leader.
    pub(crate) fn elect(&mut self, leader: u64) {
        self.epoch = Epoch::new(self.epoch.term + 1, leader);
    }
}

pub(crate) fn applied(answer: &RequestAnswer) -> &Arc<Outcome> {
    match &answer.verdict {
        Ok(outcome) if outcome.is_applied() => outcome,
        other => panic!("not applied: {other:?}"),
    }
}
