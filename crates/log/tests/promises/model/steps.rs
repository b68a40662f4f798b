//! Random commands: duplicates, reorderings, stale epochs, and all limits within reach.

use super::reference::{ModelFate, ModelOutcome, ModelReply};
use convoke_log::command::{
    Body, Delete, DeleteRange, DurableClient, Expire, GroupChange, Open, Opener, Put, ReplicaLocation, Request,
};
use convoke_log::keys::{KeyRange, KeyRecord};
use convoke_log::machine::{Applied, Outcome, Reply, Response};
use convoke_log::{Command, Entry, Epoch, LogSessionId, LogTime, ReplicaId, RequestId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Key, value, create revision, modify revision, version.
pub(super) type RecordParts = (Vec<u8>, Vec<u8>, u64, u64, u64);

pub(super) fn parts(record: &KeyRecord) -> RecordParts {
    let numbers = (record.create_revision, record.modify_revision, record.version);
    (record.key().to_vec(), record.value().to_vec(), numbers.0, numbers.1, numbers.2)
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Open {
        ttl: u64,
        nonce: u64,
        name: Option<(String, usize)>,
        opener: (String, bool),
    },
    Request {
        session: usize,
        /// Offset from the highest used number, minus 3.
        ahead: u64,
        wants: u64,
        before: u64,
        deadline: Option<u64>,
        last: bool,
        body: StepBody,
    },
    Expire {
        session: usize,
        activity: u64,
    },
    /// Repeats an earlier command, optionally with the current epoch.
    Again {
        which: usize,
        stamped: bool,
    },
    Elect,
    Wait(u64),
    Restore,
}

#[derive(Clone, Debug)]
pub(super) enum StepBody {
    Fence(usize, u64),
    End(usize),
    Put { key: u8, len: usize, if_revision: Option<u64>, previous: bool },
    Delete { key: u8, if_revision: Option<u64>, previous: bool },
    DeleteRange { from: u8, until: u8, previous: bool },
    Membership { stale: bool, voters: u64, learner: Option<u64> },
}

fn session() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0usize), 2 => Just(1), 1 => 2..5usize]
}

fn body() -> impl Strategy<Value = StepBody> {
    let key = 0..5u8;
    let revision = || prop::option::weighted(0.3, 0..6u64);
    prop_oneof![
        2 => (session(), 1..12u64).prop_map(|(session, number)| StepBody::Fence(session, number)),
        1 => session().prop_map(StepBody::End),
        6 => (key.clone(), 0..8usize, revision(), any::<bool>())
            .prop_map(|(key, len, if_revision, previous)| StepBody::Put { key, len, if_revision, previous }),
        2 => (key.clone(), revision(), any::<bool>())
            .prop_map(|(key, if_revision, previous)| StepBody::Delete { key, if_revision, previous }),
        2 => (prop_oneof![Just(0u8), key.clone()], prop_oneof![Just(4u8), key], any::<bool>())
            .prop_map(|(from, until, previous)| StepBody::DeleteRange { from, until, previous }),
        1 => (prop::bool::weighted(0.2), 1..10u64, prop::option::of(1..12u64))
            .prop_map(|(stale, voters, learner)| StepBody::Membership { stale, voters, learner }),
    ]
}

pub(super) fn open() -> impl Strategy<Value = Step> {
    let name = prop::option::of(("[ab]|[ab]{0,4}", 0..3usize));
    let opener = ("[xyz]|[xyz]{0,4}", prop::bool::weighted(0.3));
    (9..62u64, 0..3u64, name, opener).prop_map(|(ttl, nonce, name, opener)| Step::Open { ttl, nonce, name, opener })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let ahead = prop_oneof![4 => Just(4u64), 1 => 0..7u64];
    prop_oneof![
        3 => open(),
        20 => (session(), ahead, 0..6u64, 1..4u64, prop::option::weighted(0.2, 0..40u64), prop::bool::weighted(0.05), body()).prop_map(
            |(session, ahead, wants, before, deadline, last, body)| {
                Step::Request { session, ahead, wants, before, deadline, last, body }
            }
        ),
        2 => (session(), 0..4u64).prop_map(|(session, activity)| Step::Expire { session, activity }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, stamped)| Step::Again { which, stamped }),
        1 => Just(Step::Elect),
        2 => (0..25u64).prop_map(Step::Wait),
        2 => Just(Step::Restore),
    ]
}

/// Converts steps to entries, using the sessions known so far.
#[derive(Debug)]
pub(super) struct Translator {
    term: u64,
    now: u64,
    /// Sessions, most recent first.
    sessions: Vec<LogSessionId>,
    before: Vec<Command>,
    configuration: u64,
    activity: BTreeMap<LogSessionId, u64>,
    /// Highest number used so far.
    high: BTreeMap<LogSessionId, u64>,
}

impl Default for Translator {
    fn default() -> Self {
        let (activity, high) = (BTreeMap::new(), BTreeMap::new());
        Translator { term: 1, now: 0, sessions: Vec::new(), before: Vec::new(), configuration: 0, activity, high }
    }
}

impl Translator {
    pub(super) fn entry(&mut self, step: &Step, index: u64) -> Entry {
        self.now += 1;
        let epoch = Epoch::new(self.term, self.term % 3);
        let command = match step {
            Step::Elect | Step::Wait(_) | Step::Restore => {
                match step {
                    Step::Wait(time) => self.now += time,
                    _ => {
                        self.term += 1;
                        // A leader that does not know the highest stamp; log time must not fall.
                        self.now = self.now.saturating_sub(15);
                    }
                }
                Command::Expire(Expire { epoch, session: LogSessionId(0), activity: 0 })
            }
            Step::Open { ttl, nonce, name, opener: (opener, reserved) } => {
                let client = name.as_ref().map(|(name, replaces)| DurableClient {
                    name: name.into(),
                    replaces: self.sessions.get(*replaces).copied(),
                });
                let opener = Opener { name: opener.into(), reserved: *reserved };
                Command::Open(Open {
                    client,
                    opener,
                    ..Open::new(epoch, Duration::from_micros(*ttl), u128::from(*nonce))
                })
            }
            Step::Expire { session, activity } => {
                let session = self.session(*session);
                let known = self.activity.get(&session).copied().unwrap_or(0);
                Command::Expire(Expire { epoch, session, activity: known.saturating_sub(activity / 3) })
            }
            Step::Again { which, stamped } => self.again(*which, stamped.then_some(epoch), epoch),
            Step::Request { session, ahead, wants, before, deadline, last, body } => {
                let session = self.session(*session);
                let high = self.high.entry(session).or_default();
                let number = (*high + ahead).saturating_sub(3).max(1);
                *high = number.max(*high);
                Command::Request(Request {
                    session,
                    number,
                    abandon_below: number.saturating_sub(*wants).max(1),
                    previous: number.saturating_sub(*before),
                    epoch,
                    deadline: deadline.map(|after| LogTime::from_micros((self.now + after).saturating_sub(10))),
                    last: *last,
                    body: self.body(body),
                })
            }
        };
        self.before.push(command.clone());
        Entry { index, epoch: Epoch::new(self.term, self.term % 3), stamp: LogTime::from_micros(self.now), command }
    }

    /// Records the effect of an entry.
    pub(super) fn learn(&mut self, applied: &Applied) {
        match &applied.reply {
            Reply::Opened(Ok(opened)) => {
                self.sessions.retain(|known| *known != opened.session);
                self.sessions.insert(0, opened.session);
                self.activity.insert(opened.session, opened.session.0);
            }
            Reply::Request(answer) => {
                if let Ok(outcome) = &answer.verdict {
                    let known = self.activity.entry(answer.id.session).or_default();
                    *known = (*known).max(outcome.index());
                    if let Outcome::Applied { response: Response::Configured(number), .. } = **outcome {
                        self.configuration = self.configuration.max(number);
                    }
                }
            }
            _ => {}
        }
    }

    fn session(&self, which: usize) -> LogSessionId {
        self.sessions.get(which).copied().unwrap_or(LogSessionId(1))
    }

    fn again(&self, which: usize, stamp: Option<Epoch>, epoch: Epoch) -> Command {
        let Some(command) = self.before.get(which % self.before.len().max(1)) else {
            return Command::Expire(Expire { epoch, session: LogSessionId(0), activity: 0 });
        };
        let mut command = command.clone();
        if let Some(epoch) = stamp {
            match &mut command {
                Command::Open(open) => open.epoch = epoch,
                Command::Request(request) => request.epoch = epoch,
                Command::Expire(expire) => expire.epoch = epoch,
                other => panic!("the log is at level 1: {other:?}"),
            }
        }
        command
    }

    fn body(&self, body: &StepBody) -> Body {
        let key = |key: u8| {
            vec![b'a'; usize::from(key % 4)].into_iter().chain((key == 4).then_some(b'b')).collect::<Vec<_>>()
        };
        match body {
            StepBody::Fence(session, number) => Body::Fence(RequestId::new(self.session(*session), *number)),
            StepBody::End(session) => Body::End(self.session(*session)),
            StepBody::Put { key: k, len, if_revision, previous } => Body::Put(Put {
                key: key(*k).into(),
                value: vec![b'v'; *len].into(),
                if_revision: *if_revision,
                previous: *previous,
            }),
            StepBody::Delete { key: k, if_revision, previous } => {
                Body::Delete(Delete { key: key(*k).into(), if_revision: *if_revision, previous: *previous })
            }
            StepBody::DeleteRange { from, until, previous } => {
                Body::DeleteRange(DeleteRange { range: KeyRange::new(key(*from), key(*until)), previous: *previous })
            }
            StepBody::Membership { stale, voters, learner } => {
                let replica = |id: u64| (ReplicaId(id), ReplicaLocation { node: "n".into(), address: "a".into() });
                Body::Membership(GroupChange {
                    replaces: if *stale { self.configuration / 2 } else { self.configuration },
                    voters: [*voters, *voters + 1].map(replica).into(),
                    learners: learner.iter().map(|id| replica(*id)).collect(),
                })
            }
        }
    }
}

pub(super) fn reply(applied: &Applied) -> ModelReply {
    match &applied.reply {
        Reply::Opened(opened) => {
            ModelReply::Opened(opened.map(|opened| (opened.session.0, opened.replaced.map(|session| session.0))))
        }
        Reply::Expired(expired) => ModelReply::Expired(expired.is_ok()),
        Reply::Request(answer) => ModelReply::Request(
            answer.verdict.as_ref().map(|outcome| ModelOutcome::of(outcome)).map_err(|rejected| *rejected),
            answer.previous.as_ref().map(|(id, fate)| (*id, ModelFate::of(fate))),
        ),
        other => panic!("the log is at level 1: {other:?}"),
    }
}

/// Names what happened, for counting.
pub(super) fn names(applied: &Applied) -> Vec<String> {
    let variant = |value: &dyn std::fmt::Debug| {
        let text = format!("{value:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    let mut names: Vec<String> = applied.ended.iter().map(|(_, reason)| format!("Ended.{}", variant(reason))).collect();
    match &applied.reply {
        Reply::Opened(Ok(_)) => names.push("Opened".to_owned()),
        Reply::Opened(Err(rejected)) => names.push(format!("Rejected.{}", variant(rejected))),
        Reply::Expired(Ok(())) => {}
        Reply::Expired(Err(why)) => names.push(format!("NotExpired.{}", variant(why))),
        Reply::Request(answer) => {
            names.push(match &answer.verdict {
                Err(rejected) => format!("Rejected.{}", variant(rejected)),
                Ok(outcome) => match &**outcome {
                    Outcome::Applied { response, .. } => format!("Applied.{}", variant(response)),
                    Outcome::NotApplied { reason, .. } => format!("NotApplied.{}", variant(reason)),
                },
            });
            names.extend(answer.previous.iter().map(|(_, fate)| format!("Fate.{}", variant(fate))));
        }
        other => panic!("the log is at level 1: {other:?}"),
    }
    names
}
