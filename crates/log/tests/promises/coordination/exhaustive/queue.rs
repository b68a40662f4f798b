//! Three clients compete for a lock; their leases end and are granted again; they write with the fence they know.
//!
//! The state is the real machine. Two states are equal if no further step can tell them apart: fences and indexes
//! matter only through who holds the lock and whether a client's fence is current.

use convoke_log::command::{
    Acquire, Body, Compare, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, LockName,
    MemberBinding, Op, Open, Place, Release, Txn, TxnPut,
};
use convoke_log::machine::{Applied, Outcome, Reply, Response};
use convoke_log::{Command, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine, Mutation, ReplicaId};
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};
use std::time::Duration;

const CLIENTS: usize = 3;
const EPOCH: Epoch = Epoch { term: 1, leader: ReplicaId(1) };
/// Ticks of log time that the lock stays free after the death of a holder.
const DELAY: u64 = 2;

fn name() -> LockName {
    LockName::lock("l")
}

#[derive(Debug)]
pub(super) struct System {
    begin: State,
    permits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Grant(usize),
    Acquire(usize),
    Try(usize),
    Release(usize),
    EndLease(usize),
    /// A put, guarded by the fence that the client knows.
    Write(usize),
    Tick,
    EndDelay,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    machine: Machine,
    time: u64,
    number: u64,
    leases: [Option<LeaseId>; CLIENTS],
    /// The fence of each client's last grant.
    known: [u64; CLIENTS],
    /// Clients in the order in which they began to wait.
    waiting: Vec<usize>,
    highest: u64,
    /// Broken promises.
    broken: Vec<&'static str>,
}

/// What a client knows about its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fence {
    None,
    Old,
    Current,
}

/// Holders, waiters, living leases, fences, delay, and what was recorded about the past.
type Observed = (Vec<usize>, Vec<usize>, [bool; CLIENTS], [Fence; CLIENTS], u64, (Vec<usize>, Vec<&'static str>));

impl State {
    /// What can matter later.
    fn observed(&self) -> Observed {
        let name = name();
        let client = |lease: LeaseId| self.leases.iter().position(|known| *known == Some(lease)).unwrap_or(CLIENTS);
        let (holders, waiters): (Vec<_>, Vec<_>) =
            self.machine.places(&name).partition(|place| place.fence().is_some());
        let current = self.known.map(|known| match holders.iter().any(|place| place.fence() == Some(known)) {
            true => Fence::Current,
            false if known > 0 => Fence::Old,
            false => Fence::None,
        });
        let until = self.machine.lock(&name).and_then(|lock| lock.delayed_until);
        // One more than the remaining time, so that a delay that is over differs from none.
        let delay = until.map_or(0, |until| 1 + until.as_micros().saturating_sub(self.time));
        (
            holders.iter().map(|place| client(place.lease)).collect(),
            waiters.iter().map(|place| client(place.lease)).collect(),
            self.leases.map(|lease| lease.is_some()),
            current,
            delay,
            (self.waiting.clone(), self.broken.clone()),
        )
    }

    fn apply(&mut self, command: Command) -> Applied {
        let index = self.machine.applied().index + 1;
        let stamp = LogTime::from_micros(self.time);
        self.machine.apply(&Entry { index, epoch: EPOCH, stamp, command }).unwrap()
    }

    fn submit(&mut self, body: Body) -> Applied {
        self.number += 1;
        let request = convoke_log::command::Request::new(LogSessionId(1), self.number, EPOCH, body);
        self.apply(Command::Request(request))
    }

    fn breaks(&mut self, promise: &'static str) {
        if !self.broken.contains(&promise) {
            self.broken.push(promise);
        }
    }

    /// Checks the grants of an entry. `delayed` is whether the lock was delayed before it.
    fn granted(&mut self, applied: &Applied, delayed: bool) {
        for granted in &applied.granted {
            let Some(client) = self.leases.iter().position(|lease| *lease == Some(granted.lease)) else {
                self.breaks("alive");
                continue;
            };
            if granted.fence <= self.highest {
                self.breaks("fences grow");
            }
            if delayed {
                self.breaks("delay");
            }
            self.highest = self.highest.max(granted.fence);
            self.known[client] = granted.fence;
            if self.waiting.first().is_some_and(|first| *first != client) {
                self.breaks("fair");
            }
            self.waiting.retain(|waiting| *waiting != client);
        }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.observed() == other.observed()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.observed().hash(hasher);
    }
}

impl System {
    pub(super) fn new(mutation: Mutation, permits: u64) -> Self {
        let machine = Machine::created(LogLimits::default(), Level::COORDINATION).unwrap().with_mutation(mutation);
        let mut begin = State {
            machine,
            time: 0,
            number: 0,
            leases: [None; CLIENTS],
            known: [0; CLIENTS],
            waiting: Vec::new(),
            highest: 0,
            broken: Vec::new(),
        };
        begin.apply(Command::Open(Open::new(EPOCH, Duration::from_secs(10), 1)));
        System { begin, permits }
    }

    fn acquire(&self, state: &mut State, client: usize, wait: bool, delayed: bool) {
        let Some(lease) = state.leases[client] else { return };
        // The first client asks for a delay after its death.
        let delay = Duration::from_micros(if client == 0 { DELAY } else { 0 });
        let has_place = state.machine.place(&name(), lease).is_some();
        if wait && !has_place {
            state.waiting.push(client);
        }
        let acquire = Acquire { permits: self.permits, wait, delay, ..Acquire::new(name(), lease) };
        let applied = state.submit(Body::Acquire(acquire));
        state.granted(&applied, delayed);
    }
}

impl Model for System {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin.clone()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in 0..CLIENTS {
            match state.leases[client] {
                None => steps.push(Step::Grant(client)),
                Some(_) => {
                    steps.extend([Step::Acquire, Step::Try, Step::Release, Step::EndLease].map(|step| step(client)));
                }
            }
            steps.extend((state.known[client] > 0).then_some(Step::Write(client)));
        }
        let delay = state.machine.lock(&name()).and_then(|lock| lock.delayed_until);
        if let Some(until) = delay {
            steps.push(Step::EndDelay);
            steps.extend((state.time < until.as_micros()).then_some(Step::Tick));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        let until = state.machine.lock(&name()).and_then(|lock| lock.delayed_until);
        let delayed = until.is_some_and(|until| LogTime::from_micros(state.time) < until);
        match step {
            Step::Grant(client) => {
                let bound = MemberBinding { member: "m".into(), client: "c".into(), registration: "r".into() };
                let term = LeaseTerm::Member(bound);
                let applied = state.submit(Body::Grant(GrantLease { term, end: EndBehavior::Delete }));
                let Reply::Request(answer) = &applied.reply else { return None };
                let Ok(outcome) = &answer.verdict else { return None };
                let Outcome::Applied { response: Response::Granted(lease), .. } = &**outcome else { return None };
                state.leases[client] = Some(*lease);
            }
            Step::Acquire(client) => self.acquire(&mut state, client, true, delayed),
            Step::Try(client) => self.acquire(&mut state, client, false, delayed),
            Step::Release(client) => {
                let lease = state.leases[client]?;
                state.waiting.retain(|waiting| *waiting != client);
                let applied = state.submit(Body::Release(Release { name: name(), place: Place::Lease(lease) }));
                state.granted(&applied, delayed);
            }
            Step::EndLease(client) => {
                let lease = state.leases[client]?;
                state.waiting.retain(|waiting| *waiting != client);
                let cause = LeaseCause::MemberGone { registration: "r".into() };
                let applied = state.apply(Command::EndLease(EndLease { epoch: EPOCH, lease, cause }));
                state.leases[client] = None;
                let held = last.machine.place(&name(), lease).is_some_and(|place| place.fence().is_some());
                state.granted(&applied, delayed || (held && client == 0));
            }
            Step::Write(client) => {
                let fence = state.known[client];
                let txn = Txn {
                    compares: vec![Compare::Lock { name: name(), fence }],
                    then: vec![Op::Put(TxnPut::new("k", "v"))],
                    otherwise: Vec::new(),
                };
                let holds = last.machine.places(&name()).any(|place| place.fence() == Some(fence));
                let before = state.machine.keys().revision();
                state.submit(Body::Txn(txn));
                if (state.machine.keys().revision() > before) != holds {
                    state.breaks("guarded");
                }
            }
            Step::Tick => state.time += 1,
            Step::EndDelay => {
                let applied = state.apply(Command::EndDelay(EndDelay { epoch: EPOCH, name: name() }));
                state.granted(&applied, delayed);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn kept(state: &State, promise: &str) -> bool {
            !state.broken.contains(&promise)
        }
        vec![
            Property::always("permits", |system: &System, state: &State| {
                state.observed().0.len() as u64 <= system.permits
            }),
            Property::always("alive", |_, state: &State| {
                let (holders, waiters, ..) = state.observed();
                kept(state, "alive") && holders.iter().chain(&waiters).all(|client| *client < CLIENTS)
            }),
            Property::always("fences grow", |_, state: &State| kept(state, "fences grow")),
            Property::always("fair", |_, state: &State| kept(state, "fair")),
            Property::always("guarded", |_, state: &State| kept(state, "guarded")),
            Property::always("delay", |_, state: &State| kept(state, "delay")),
            Property::always("nobody waits for a free lock", |system: &System, state: &State| {
                let (holders, waiters, _, _, delay, _) = state.observed();
                waiters.is_empty() || holders.len() as u64 >= system.permits || delay > 0
            }),
            Property::sometimes("everybody has a place", |_, state: &State| {
                let (holders, waiters, ..) = state.observed();
                holders.len() + waiters.len() == CLIENTS
            }),
            Property::sometimes("a delayed lock with waiters", |_, state: &State| {
                let (holders, waiters, _, _, delay, _) = state.observed();
                holders.is_empty() && !waiters.is_empty() && delay > 1
            }),
            Property::sometimes("a client with an old fence", |_, state: &State| {
                state.observed().3.contains(&Fence::Old)
            }),
        ]
    }
}
