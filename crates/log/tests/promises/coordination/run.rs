//! One run: a machine and its model, step by step.

use super::reference::{Model, ModelChange, ModelResult, rec};
use super::watchers::Watchers;
use super::{Difference, same, steps, tight};
use convoke_log::command::{Body, GroupChange, LockName, OpResult, Open, Raise, ReplicaLocation, Request};
use convoke_log::history::{EventPosition, WatchFilter};
use convoke_log::keys::{KeyRange, Selection};
use convoke_log::machine::{ApplyRejection, Field, Outcome, Reason, Reply, RequestAnswer, Response};
use convoke_log::{Command, Entry, Epoch, Level, LogSessionId, LogTime, Machine, Mutation, ReplicaId};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

const SESSION: LogSessionId = LogSessionId(1);

type Expected = (Arc<Outcome>, Option<Vec<ModelResult>>);

pub(super) struct Run {
    machine: Machine,
    pub(super) model: Model,
    mutation: Mutation,
    rng: Rng,
    now: u64,
    epoch: Epoch,
    number: u64,
    /// Requests with their outcome and results, newest last.
    done: Vec<(Request, Expected)>,
    pub(super) watchers: Watchers,
    pub(super) seen: BTreeMap<String, u64>,
}

fn results(results: &[OpResult]) -> Vec<ModelResult> {
    let result = |result: &OpResult| match result {
        OpResult::Put { previous } => ModelResult::Put(previous.as_deref().map(rec)),
        OpResult::Deleted { keys, previous } => {
            ModelResult::Deleted(*keys, previous.iter().map(|record| rec(record)).collect())
        }
        OpResult::Read(read) => {
            ModelResult::Read(read.records.iter().map(|record| rec(record)).collect(), read.count, read.more)
        }
    };
    results.iter().map(result).collect()
}

impl Run {
    pub(super) fn new(seed: u64, mutation: Mutation) -> Self {
        let machine = Machine::new(tight()).unwrap().with_mutation(mutation);
        let mut run = Run {
            machine,
            model: Model::new(tight()),
            mutation,
            rng: Rng::with_seed(seed),
            now: 0,
            epoch: Epoch::new(2, 1),
            number: 0,
            done: Vec::new(),
            watchers: Watchers::new(),
            seen: BTreeMap::new(),
        };
        run.apply(Command::Open(Open::new(run.epoch, Duration::from_secs(60), 7)));
        run
    }

    fn apply(&mut self, command: Command) -> Reply {
        self.now += 1;
        let index = self.machine.applied().index + 1;
        self.model.begin_entry(self.now);
        let entry = Entry { index, epoch: self.epoch, stamp: LogTime::from_micros(self.now), command };
        self.machine.apply(&entry).unwrap().reply
    }

    fn see(&mut self, what: &dyn Debug) {
        let text = format!("{what:?}");
        let name = text.split(|c: char| !c.is_alphanumeric()).find(|part| !part.is_empty()).unwrap_or_default();
        let name = name.to_owned();
        *self.seen.entry(name).or_default() += 1;
    }

    pub(super) fn step(&mut self) -> Result<(), Difference> {
        match self.rng.u32(..100) {
            0..62 => {
                let body = steps::body(&mut self.rng, &self.model);
                self.request(&body)?;
            }
            62..72 => {
                let body = steps::plain(&mut self.rng);
                self.request(&body)?;
            }
            72..82 => self.leader()?,
            82..84 => self.reconfigure()?,
            84..87 => self.raise()?,
            87..93 => self.copy()?,
            93..96 => self.restore()?,
            _ => self.now += self.rng.u64(..40),
        }
        self.look()?;
        let (machine, model) = (&self.machine, &self.model);
        self.watchers.poll(&mut self.rng, machine, model)
    }

    fn request(&mut self, body: &Body) -> Result<(), Difference> {
        self.number += 1;
        let request = Request::new(SESSION, self.number, self.epoch, body.clone());
        let reply = self.apply(Command::Request(request.clone()));
        let Reply::Request(answer) = reply else { return Err(format!("no answer to a request: {reply:?}")) };
        if body.level() > self.model.level {
            let rejected = ApplyRejection::Level { needed: body.level(), current: self.model.level };
            self.see(&rejected);
            return same("level", &answer.verdict, &Err(rejected));
        }
        let index = self.machine.applied().index;
        let (executed, found) = match body {
            Body::Put(put) => {
                let done = self.model.plain(Some((&put.key, &put.value)), &[]);
                (done.map(changed), None)
            }
            Body::Delete(delete) if delete.key.is_empty() || delete.key.len() > 8 => {
                let done = self.model.plain(Some((&delete.key, &[])), &[]);
                (done.map(changed), None)
            }
            Body::Delete(delete) => (self.model.plain(None, &[delete.key.to_vec()]).map(changed), None),
            Body::DeleteRange(delete) => {
                let within: Vec<Vec<u8>> =
                    self.model.map.keys().filter(|key| delete.range.contains(key)).cloned().collect();
                let done = if within.len() as u64 > self.model.limits.range_keys {
                    let limit = self.model.limits.range_keys;
                    Err(Reason::TooMany { field: Field::Range, limit })
                } else {
                    self.model.plain(None, &within)
                };
                (done.map(changed), None)
            }
            body => self.model.execute(index, body),
        };
        self.model.end_entry();
        let outcome = match executed {
            Ok(response) => {
                self.see(&response);
                Outcome::Applied { index, revision: self.model.revision, response }
            }
            Err(reason) => {
                self.see(&reason);
                Outcome::NotApplied { index, reason }
            }
        };
        let expected = (Arc::new(outcome), found);
        check_answer(&format!("answer to {body:?}"), &answer, &expected, &self.model, true)?;
        self.done.push((request, expected));
        Ok(())
    }

    /// A copy of a recent request has the same outcome and the same results, as long as history has them.
    fn copy(&mut self) -> Result<(), Difference> {
        let recent = self.done.len().min(12);
        if recent == 0 {
            return Ok(());
        }
        let at = self.done.len() - 1 - self.rng.usize(..recent);
        let (request, expected) = self.done[at].clone();
        let reply = self.apply(Command::Request(request));
        let Reply::Request(answer) = reply else { return Err(format!("no answer to a copy: {reply:?}")) };
        self.model.end_entry();
        check_answer("answer to a copy", &answer, &expected, &self.model, false)
    }

    fn leader(&mut self) -> Result<(), Difference> {
        if self.model.level < Level::COORDINATION {
            return Ok(());
        }
        let command = steps::of_leader(&mut self.rng, &self.model, self.epoch);
        let reply = self.apply(command.clone());
        let (found, expected) = match (&reply, &command) {
            (Reply::LeaseEnded(found), Command::EndLease(end)) => (*found, self.model.end_by_leader(self.epoch, end)),
            (Reply::DelayEnded(found), Command::EndDelay(end)) => (*found, self.model.end_delay(self.epoch, end)),
            _ => return Err(format!("answer to {command:?}: {reply:?}")),
        };
        self.model.end_entry();
        match &expected {
            Ok(()) => self.see(&"Ended"),
            Err(why) => self.see(why),
        }
        same("end by a leader", &found, &expected)
    }

    fn reconfigure(&mut self) -> Result<(), Difference> {
        self.number += 1;
        let voters = [(ReplicaId(1), ReplicaLocation { node: "n".into(), address: "a".into() })].into();
        let change = GroupChange { replaces: self.model.configuration, voters, learners: BTreeMap::new() };
        let request = Request::new(SESSION, self.number, self.epoch, Body::Membership(change));
        self.apply(Command::Request(request));
        self.model.configuration = self.machine.applied().index;
        self.model.end_entry();
        Ok(())
    }

    pub(super) fn raise(&mut self) -> Result<(), Difference> {
        let stale = self.rng.bool();
        let epoch = if self.rng.u32(..4) == 0 { Epoch::new(1, 1) } else { self.epoch };
        let configuration = if stale { self.model.configuration + 1 } else { self.model.configuration };
        let raise = Raise { epoch, level: Level::COORDINATION, configuration, limits: tight().coordination };
        let reply = self.apply(Command::Raise(raise.clone()));
        let Reply::Raised(found) = reply else { return Err(format!("answer to a raise: {reply:?}")) };
        let expected = self.model.raise(self.epoch, &raise);
        self.model.end_entry();
        if let Err(why) = &expected {
            self.see(why);
        }
        same("raise", &found, &expected)
    }

    fn restore(&mut self) -> Result<(), Difference> {
        let restored = Machine::from_snapshot(&self.machine.snapshot().to_bytes());
        let restored = restored.map_err(|error| format!("a snapshot that cannot be restored: {error}"))?;
        same("state hash", &restored.state_hash(), &self.machine.state_hash())?;
        same(
            "restored state",
            &format!("{restored:?}"),
            &format!("{:?}", self.machine.clone().with_mutation(Mutation::none())),
        )?;
        self.machine = restored.with_mutation(self.mutation);
        Ok(())
    }

    /// Compares everything that is observable.
    fn look(&self) -> Result<(), Difference> {
        let (machine, model) = (&self.machine, &self.model);
        let all = Selection::Range(KeyRange::all());
        same("level", &machine.level(), &model.level)?;
        same("revision", &machine.keys().revision(), &model.revision)?;
        let keys: Vec<_> = machine.keys().records(&KeyRange::all()).map(|record| rec(record)).collect();
        same("keys", &keys, &model.map.values().cloned().collect())?;
        if model.level >= Level::COORDINATION {
            same("oldest revision", &machine.history().oldest(), &(model.compacted + 1))?;
        }
        let events: Vec<_> = machine
            .history()
            .events_from(Default::default())
            .map(|event| (event.position, event.time.as_micros(), ModelChange::of(&event.change)))
            .collect();
        same("history", &events, &model.kept().cloned().collect())?;
        for revision in model.compacted..=model.revision {
            if model.level < Level::COORDINATION {
                break;
            }
            let Ok(view) = machine.at(revision) else { return Err(format!("no view of revision {revision}")) };
            let found: Vec<_> = view.records(&all).map(|record| rec(&record)).collect();
            let (_, expected) = model.states.range(..=revision).next_back().unwrap();
            same("keys of the past", &found, &expected.values().cloned().collect())?;
        }
        if model.level >= Level::COORDINATION && model.compacted > 0 {
            same("reads below history", &machine.at(model.compacted - 1).is_err(), &true)?;
        }
        if model.level < Level::COORDINATION && model.revision > 0 {
            let filter = WatchFilter::keys(all.clone());
            let watched = machine.watch(&filter, EventPosition::start_of(model.revision), 1, 1);
            same("past without history", &(machine.at(model.revision - 1).is_err(), watched.is_err()), &(true, true))?;
        }
        let leases: Vec<_> =
            machine.leases().map(|lease| (lease.id.0, lease.term.clone(), lease.granted_at.as_micros())).collect();
        let expected = model.leases.iter().map(|(id, lease)| (*id, lease.term.clone(), lease.granted_at)).collect();
        same("leases", &leases, &expected)?;
        for lease in machine.leases() {
            let attached: Vec<_> = machine.keys_of_lease(lease.id).iter().map(|record| rec(record)).collect();
            let expected = model.map.values().filter(|record| record.3[1] == lease.id.0).cloned().collect();
            same("keys of a lease", &attached, &expected)?;
            same("number of keys of a lease", &lease.keys, &(attached.len() as u64))?;
        }
        self.look_at_locks()
    }

    fn look_at_locks(&self) -> Result<(), Difference> {
        let locks: Vec<_> = self
            .machine
            .locks_from(&LockName::lock(""))
            .map(|lock| {
                let places: Vec<_> = self
                    .machine
                    .places(&lock.name)
                    .map(|place| {
                        let with = place.waits_with.map_or(0, |lease| lease.0);
                        (place.fence().unwrap_or(0), place.lease.0, with, place.value.clone())
                    })
                    .collect();
                (lock.name.clone(), lock.delayed_until.map(LogTime::as_micros), lock.holders, lock.waiters, places)
            })
            .collect();
        let expected = self.model.locks.0.iter().map(|(name, lock)| {
            let places = lock.holders.iter().chain(&lock.queue);
            let places =
                places.map(|place| (place.fence, place.lease, place.waits_with, place.value.clone())).collect();
            let counts = [&lock.holders, &lock.queue].map(|places| places.len() as u64);
            (name.clone(), lock.delayed_until, counts[0], counts[1], places)
        });
        same("locks", &locks, &expected.collect())
    }
}

fn changed(keys: u64) -> Response {
    Response::Changed(convoke_log::keys::Changed { keys, ..Default::default() })
}

fn check_answer(
    what: &str,
    answer: &RequestAnswer,
    expected: &Expected,
    model: &Model,
    is_first: bool,
) -> Result<(), Difference> {
    same(what, &answer.verdict, &Ok(expected.0.clone()))?;
    let found = match &answer.results {
        None => None,
        Some(Ok(found)) => Some(results(found)),
        Some(Err(compacted)) => {
            let Outcome::Applied { revision, response: Response::Txn(txn), .. } = &*expected.0 else {
                return Err(format!("{what}: results of another body"));
            };
            let needed = if txn.changes > 0 { *revision } else { *revision + 1 };
            let is_right = !is_first && needed <= model.compacted && compacted.oldest == model.compacted + 1;
            return if is_right { Ok(()) } else { Err(format!("{what}: {compacted:?} for revision {revision}")) };
        }
    };
    same(what, &found, &expected.1)
}
