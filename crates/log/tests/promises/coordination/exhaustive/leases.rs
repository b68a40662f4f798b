//! One lease, a client that keeps it alive, and two leaders in turn, with the real expiry and the real rounds.
//!
//! A keep-alive counts from its sending. If a leader confirmed it, the lease must not end within a ttl of that time.

use convoke_base::Time;
use convoke_log::command::{Body, EndBehavior, GrantLease, LeaseId, LeaseTerm, Open, Request};
use convoke_log::leader::{Expiry, KeepAlive, Rounds};
use convoke_log::{Command, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine, Mutation};
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Ticks of a second.
const TTL: u64 = 2;
const TIME_MAX: u64 = 5;
const LEASE: LeaseId = LeaseId(2);

#[derive(Debug)]
pub(super) struct System {
    begin: State,
    mutation: Mutation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Tick,
    Send,
    /// A leader receives the keep-alive that is on its way.
    Receive(usize),
    BeginRound(usize),
    FinishRound(usize),
    Elect,
    /// A leader appends a proposed end; the second leader also one of the first.
    Append(usize, usize),
}

#[derive(Clone, Debug)]
struct Leader {
    expiry: Expiry,
    /// Keep-alives by the time of their sending.
    rounds: Rounds<u64>,
    /// Whether the round under way began before the second leader was elected.
    begun: Option<bool>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    machine: Machine,
    time: u64,
    /// Keep-alives that were sent, and the one on its way.
    sent: u8,
    on_the_way: Option<u64>,
    leaders: Vec<Leader>,
    proposed: Vec<Command>,
    /// Sending time of the last confirmed keep-alive.
    confirmed: Option<u64>,
    ended: Option<u64>,
}

impl State {
    fn observed(&self) -> String {
        let State { time, sent, on_the_way, leaders, proposed, confirmed, ended, .. } = self;
        format!("{time} {sent} {on_the_way:?} {leaders:?} {proposed:?} {confirmed:?} {ended:?}")
    }

    fn now(&self) -> Time {
        Time::from_secs(self.time)
    }

    fn epoch(&self, leader: usize) -> Epoch {
        Epoch::new(leader as u64 + 1, leader as u64 + 1)
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

fn apply(machine: &mut Machine, epoch: Epoch, time: u64, command: Command) -> bool {
    let index = machine.applied().index + 1;
    let stamp = LogTime::from_micros(time * 1_000_000);
    let applied = machine.apply(&Entry { index, epoch, stamp, command }).unwrap();
    !applied.ended_leases.is_empty()
}

impl System {
    pub(super) fn new(mutation: Mutation) -> Self {
        let mut machine = Machine::created(LogLimits::default(), Level::COORDINATION).unwrap().with_mutation(mutation);
        let epoch = Epoch::new(1, 1);
        apply(&mut machine, epoch, 0, Command::Open(Open::new(epoch, Duration::from_secs(600), 1)));
        let grant = GrantLease { term: LeaseTerm::Ttl(Duration::from_secs(TTL)), end: EndBehavior::Delete };
        let request = Request::new(LogSessionId(1), 1, epoch, Body::Grant(grant));
        apply(&mut machine, epoch, 0, Command::Request(request));
        let first = leader(Time::ZERO, epoch, &machine, mutation);
        let begin = State {
            machine,
            time: 0,
            sent: 0,
            on_the_way: None,
            leaders: vec![first],
            proposed: Vec::new(),
            confirmed: None,
            ended: None,
        };
        System { begin, mutation }
    }
}

fn leader(now: Time, epoch: Epoch, machine: &Machine, mutation: Mutation) -> Leader {
    Leader { expiry: Expiry::elected(now, epoch, machine), rounds: Rounds::new(mutation), begun: None }
}

impl Model for System {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin.clone()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend((state.time < TIME_MAX).then_some(Step::Tick));
        steps.extend((state.sent < 2 && state.on_the_way.is_none()).then_some(Step::Send));
        steps.extend((state.leaders.len() == 1).then_some(Step::Elect));
        for at in 0..state.leaders.len() {
            steps.extend([Step::Receive(at), Step::BeginRound(at), Step::FinishRound(at)]);
            steps.extend((0..state.proposed.len()).map(|proposal| Step::Append(at, proposal)));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        let now = state.now();
        match step {
            Step::Tick => {
                state.time += 1;
                let now = state.now();
                for leader in &mut state.leaders {
                    state.proposed.extend(leader.expiry.due(now, &state.machine));
                }
            }
            Step::Send => {
                state.sent += 1;
                state.on_the_way = Some(state.time);
            }
            Step::Receive(at) => {
                let sent = state.on_the_way.take()?;
                let leader = &mut state.leaders[at];
                if leader.expiry.renew(now, LEASE) == KeepAlive::Kept {
                    leader.rounds.received(sent);
                }
            }
            Step::BeginRound(at) => {
                let is_leading = at + 1 == state.leaders.len();
                if !state.leaders[at].rounds.begin() {
                    return None;
                }
                state.leaders[at].begun = Some(is_leading);
            }
            Step::FinishRound(at) => {
                let leader = &mut state.leaders[at];
                // The majority answers if it followed this leader when the round began.
                let is_confirmed = leader.begun.take()?;
                let kept = leader.rounds.finish();
                if is_confirmed {
                    state.confirmed = state.confirmed.into_iter().chain(kept).max();
                }
            }
            Step::Elect => {
                let epoch = state.epoch(1);
                state.leaders.push(leader(now, epoch, &state.machine, self.mutation));
                // The new leader looks at once.
                state.proposed.extend(state.leaders[1].expiry.due(now, &state.machine));
            }
            Step::Append(at, proposal) => {
                // Entries of a deposed leader are not committed.
                if at + 1 != state.leaders.len() {
                    return None;
                }
                let command = state.proposed.remove(proposal);
                let (epoch, time) = (state.epoch(at), state.time);
                if apply(&mut state.machine, epoch, time, command) {
                    state.ended = Some(time);
                    state.leaders.iter_mut().for_each(|leader| leader.expiry.ended(LEASE));
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("confirmed", |_, state: &State| match (state.confirmed, state.ended) {
                (Some(sent), Some(ended)) => ended >= sent + TTL,
                _ => true,
            }),
            Property::always("granted", |_, state: &State| state.ended.is_none_or(|ended| ended >= TTL)),
            Property::sometimes("ended by the first leader", |_, state: &State| {
                state.ended.is_some() && state.leaders.len() == 1
            }),
            Property::sometimes("ended by the second leader", |_, state: &State| {
                state.ended.is_some() && state.leaders.len() == 2 && state.confirmed.is_some()
            }),
        ]
    }
}
