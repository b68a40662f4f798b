//! When checks run, and what follows from their outcomes. Pure: it takes time as an argument.

use crate::state::CheckState;
use convoke_core::Time;
use convoke_core::member::{Check, CheckResult, Checks, Health};
use convoke_core::node::CheckReport;
use smol_str::SmolStr;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// Changes of one member are published at most this often (HC1).
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// The first run of a check without a result is at most this far away.
const FIRST_RUN_MAX: Duration = Duration::from_secs(1);
/// How often a member that is critical for too long is named again. The core may refuse (HC5).
const DEREGISTER_INTERVAL: Duration = Duration::from_secs(5);
/// A timer that is handled later than this shows that the node was paused.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Fewer timers than this are not searched for stale ones.
const TIMERS_MIN: usize = 1024;
/// An interval varies by this share, so that checks that began together spread.
const JITTER: f64 = 0.05;

/// The outcome of one run of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    pub status: Health,
    pub output: String,
}

/// One run of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId {
    pub member: SmolStr,
    /// Position among the checks of the member.
    pub index: usize,
    /// Changes with the checks of the member. The outcome of a run for earlier checks does not count.
    generation: u64,
}

/// What the shell has to do.
#[derive(Clone, Debug)]
pub enum CheckAction {
    Run { run: RunId, checks: Arc<[Check]> },
    Publish { member: SmolStr, claim: u64, checks: Arc<Checks> },
    Deregister { member: SmolStr, claim: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A check runs, or the report of its application is missing.
    Check(usize),
    Publish,
    Deregister,
}

#[derive(Debug)]
struct Member {
    generation: u64,
    claim: u64,
    /// As the registry has them.
    published: Arc<Checks>,
    states: Vec<CheckState>,
    /// By when each report is missing.
    missing_at: Vec<Time>,
    publish_after: Time,
    publish_planned: bool,
    deregister_planned: bool,
}

/// Time, order of creation, member, its generation, and what is due.
type Timer = Reverse<(Time, u64, SmolStr, u64, Due)>;

/// The checks of all members that this node owns.
#[derive(Debug)]
pub struct Schedule {
    members: BTreeMap<SmolStr, Member>,
    timers: BinaryHeap<Timer>,
    /// At this number of timers, those of members that are gone are dropped.
    drop_timers_at: usize,
    sequence: u64,
    generations: u64,
    random: fastrand::Rng,
}

impl Schedule {
    pub fn new(seed: u64) -> Schedule {
        let random = fastrand::Rng::with_seed(seed);
        Schedule {
            members: BTreeMap::new(),
            timers: BinaryHeap::new(),
            drop_timers_at: TIMERS_MIN,
            sequence: 0,
            generations: 0,
            random,
        }
    }

    /// How many members have checks here, and how many checks.
    pub fn sizes(&self) -> (usize, usize) {
        (self.members.len(), self.members.values().map(|member| member.states.len()).sum())
    }

    /// The time of the next [`Schedule::poll`].
    pub fn next(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    /// The node owns nothing any more.
    pub fn clear(&mut self) {
        self.members.clear();
        self.timers.clear();
    }

    /// The checks of a member as the registry has them now. `None`: this node does not own it any more.
    pub fn assign(&mut self, now: Time, id: &SmolStr, assigned: Option<(u64, Arc<Checks>)>) {
        let Some((claim, checks)) = assigned else {
            self.members.remove(id);
            return;
        };
        if let Some(member) = self.members.get_mut(id)
            && member.published.definitions() == checks.definitions()
        {
            member.claim = claim;
            member.published = checks;
            self.follow(now, id);
            return;
        }
        self.generations += 1;
        let generation = self.generations;
        let states: Vec<CheckState> = checks.results().iter().map(CheckState::new).collect();
        let missing_at = vec![Time::MAX; states.len()];
        let member = Member {
            generation,
            claim,
            published: checks.clone(),
            states,
            missing_at,
            publish_after: now,
            publish_planned: false,
            deregister_planned: false,
        };
        self.members.insert(id.clone(), member);
        for (index, (check, result)) in checks.iter().enumerate() {
            let first = now + Duration::from_millis(check.initial_delay_ms);
            let at = match check.probe.ttl_ms() {
                Some(ttl_ms) => first + Duration::from_millis(ttl_ms),
                None => first + self.spread(check, result),
            };
            if check.probe.ttl_ms().is_some()
                && let Some(member) = self.members.get_mut(id)
            {
                member.missing_at[index] = at;
            }
            self.set(at, id, generation, Due::Check(index));
        }
    }

    /// Checks that begin together, as after a deployment or the loss of a node, must not all run at once.
    fn spread(&mut self, check: &Check, result: &CheckResult) -> Duration {
        let interval = Duration::from_millis(check.interval_ms);
        let never_ran = result.output.is_empty();
        let within = if never_ran { interval.min(FIRST_RUN_MAX) } else { interval };
        within.mul_f64(self.random.f64())
    }

    fn set(&mut self, at: Time, id: &SmolStr, generation: u64, due: Due) {
        self.sequence += 1;
        self.timers.push(Reverse((at, self.sequence, id.clone(), generation, due)));
        self.drop_stale_timers();
    }

    /// A timer stays until it is due, which may be days after its member was deregistered.
    fn drop_stale_timers(&mut self) {
        if self.timers.len() < self.drop_timers_at {
            return;
        }
        let members = &self.members;
        self.timers.retain(|Reverse((_, _, id, generation, _))| {
            members.get(id).is_some_and(|member| member.generation == *generation)
        });
        self.drop_timers_at = TIMERS_MIN.max(2 * self.timers.len());
    }

    /// A report of an application. Unknown ones are dropped.
    pub fn reported(&mut self, now: Time, report: &CheckReport) -> bool {
        let Some(member) = self.members.get_mut(&report.id) else { return false };
        let definitions = member.published.definitions().clone();
        let found = definitions.iter().enumerate().find(|(_, check)| check.id == *report.check);
        let Some((index, check)) = found else { return false };
        let Some(ttl_ms) = check.probe.ttl_ms() else { return false };
        member.missing_at[index] = now + Duration::from_millis(ttl_ms);
        let outcome = RunResult { status: report.status, output: report.output.clone() };
        member.states[index].take(now, check, outcome);
        self.follow(now, &report.id.clone());
        true
    }

    /// The outcome of a run.
    pub fn finished(&mut self, now: Time, run: &RunId, outcome: RunResult) {
        let Some(member) = self.members.get_mut(&run.member).filter(|member| member.generation == run.generation)
        else {
            return;
        };
        let definitions = member.published.definitions().clone();
        let (Some(check), Some(state)) = (definitions.get(run.index), member.states.get_mut(run.index)) else { return };
        state.running = false;
        state.take(now, check, outcome);
        self.follow(now, &run.member);
    }

    /// Plans what follows from a changed state.
    fn follow(&mut self, now: Time, id: &SmolStr) {
        let Some(member) = self.members.get_mut(id) else { return };
        let generation = member.generation;
        let mut planned = Vec::new();
        if !member.publish_planned && member.differs() {
            member.publish_planned = true;
            planned.push((member.publish_after.max(now), Due::Publish));
        }
        if !member.deregister_planned
            && let Some(at) = member.deregister_at()
        {
            member.deregister_planned = true;
            planned.push((at.max(now), Due::Deregister));
        }
        for (at, due) in planned {
            self.set(at, id, generation, due);
        }
    }

    /// Returns what is due.
    pub fn poll(&mut self, now: Time) -> Vec<CheckAction> {
        self.forgive_pause(now);
        let mut actions = Vec::new();
        while let Some(Reverse((at, ..))) = self.timers.peek()
            && *at <= now
        {
            let Some(Reverse((_, _, id, generation, due))) = self.timers.pop() else { break };
            if self.members.get(&id).is_some_and(|member| member.generation == generation) {
                match due {
                    Due::Check(index) => self.check(now, &id, index, &mut actions),
                    Due::Publish => self.publish(now, &id, &mut actions),
                    Due::Deregister => self.deregister(now, &id, &mut actions),
                }
            }
        }
        actions
    }

    /// While the node was paused, reports could not arrive.
    fn forgive_pause(&mut self, now: Time) {
        let late = self.next().map_or(Duration::ZERO, |due| now.since(due));
        if late < PAUSE_MIN {
            return;
        }
        for member in self.members.values_mut() {
            let ttls = member.published.definitions().iter().map(|check| check.probe.ttl_ms().unwrap_or_default());
            for (at, ttl_ms) in member.missing_at.iter_mut().zip(ttls) {
                *at = (*at + late).max(now + late.min(Duration::from_millis(ttl_ms)));
            }
        }
    }

    fn check(&mut self, now: Time, id: &SmolStr, index: usize, actions: &mut Vec<CheckAction>) {
        let Some(member) = self.members.get_mut(id) else { return };
        let generation = member.generation;
        let definitions = member.published.definitions().clone();
        let (Some(check), Some(state)) = (definitions.get(index), member.states.get_mut(index)) else { return };
        let next = match check.probe.ttl_ms() {
            Some(_) if member.missing_at[index] > now => member.missing_at[index],
            Some(ttl_ms) => {
                state.expire(now, ttl_ms);
                now + Duration::from_millis(ttl_ms)
            }
            None => {
                // A run that takes longer than the interval is not started twice.
                if !state.running {
                    state.running = true;
                    let run = RunId { member: id.clone(), index, generation };
                    actions.push(CheckAction::Run { run, checks: definitions.clone() });
                }
                now + varied(&mut self.random, Duration::from_millis(check.interval_ms))
            }
        };
        self.set(next, id, generation, Due::Check(index));
        self.follow(now, id);
    }

    fn publish(&mut self, now: Time, id: &SmolStr, actions: &mut Vec<CheckAction>) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.publish_planned = false;
        if !member.differs() {
            return;
        }
        member.publish_after = now + PUBLISH_INTERVAL;
        if let Some(checks) = member.current() {
            actions.push(CheckAction::Publish { member: id.clone(), claim: member.claim, checks });
        }
        // If the registry does not take it, it is published again.
        member.publish_planned = true;
        let (at, generation) = (member.publish_after, member.generation);
        self.set(at, id, generation, Due::Publish);
    }

    fn deregister(&mut self, now: Time, id: &SmolStr, actions: &mut Vec<CheckAction>) {
        let Some(member) = self.members.get_mut(id) else { return };
        let generation = member.generation;
        let Some(at) = member.deregister_at() else {
            member.deregister_planned = false;
            return;
        };
        if at <= now {
            actions.push(CheckAction::Deregister { member: id.clone(), claim: member.claim });
        }
        self.set(at.max(now + DEREGISTER_INTERVAL), id, generation, Due::Deregister);
    }
}

/// An interval that differs a little each time.
pub(crate) fn varied(random: &mut fastrand::Rng, interval: Duration) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * random.f64() - 1.0))
}

impl Member {
    fn differs(&self) -> bool {
        let same = |(state, result): (&CheckState, &CheckResult)| {
            let shown = CheckResult::new(state.status, &state.output, result.since);
            shown == *result
        };
        !self.states.iter().zip(self.published.results()).all(same)
    }

    fn current(&self) -> Option<Arc<Checks>> {
        let results = self.states.iter().map(|state| CheckResult::new(state.status, &state.output, 0)).collect();
        Checks::new(self.published.definitions().clone(), results)
    }

    /// When the first check will have been critical for too long.
    fn deregister_at(&self) -> Option<Time> {
        let checks = self.states.iter().zip(self.published.definitions().iter());
        let due = checks.filter(|(_, check)| check.deregister_critical_after_ms > 0).filter_map(|(state, check)| {
            state.critical_since.map(|since| since + Duration::from_millis(check.deregister_critical_after_ms))
        });
        due.min()
    }
}

#[cfg(test)]
mod tests;
