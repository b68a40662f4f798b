//! A minimal state of the system, and its mapping to the real machine and gate.

use convoke_base::Time;
use convoke_log::command::{Body, Open, Request};
use convoke_log::leader::{Barrier, LeaderTerm, NotAppended};
use convoke_log::machine::{ApplyRejection, Reply};
use convoke_log::{Command, Entry, Epoch, LogLimits, LogSessionId, LogTime, Machine, Mutation, Position};
use std::time::Duration;

pub(super) const SERVERS: usize = 3;
/// Maximum log length of the leaders of the two terms.
pub(super) const LOG_MAX: [usize; 2] = [5, 6];

/// Bounds of the search and the active rules.
#[derive(Debug)]
pub(super) struct System {
    pub(super) log_max: [usize; 2],
    /// The machine before any entry.
    empty: Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) client: u8,
    pub(super) number: u8,
    /// The term that the message names.
    pub(super) term: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    First,
    Open,
    Request(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) term: u8,
    pub(super) item: Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Effect {
    pub(super) client: u8,
    pub(super) number: u8,
    pub(super) index: u8,
    pub(super) term: u8,
    pub(super) meant_for: u8,
}

/// Progress of a leader's barrier read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Reading {
    #[default]
    Idle,
    Raised,
    /// Confirmed, with the commit index taken before.
    Confirmed(u8),
    /// The floor stays raised for the term.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Server {
    pub(super) log: Vec<Slot>,
    pub(super) term: u8,
    /// The term in which the server considers itself the leader, or 0.
    pub(super) leads: u8,
    /// Commit index of a leader. Followers know nothing, which is the worst case for a new leader.
    pub(super) commit: u8,
    pub(super) reading: Reading,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) servers: [Server; SERVERS],
    pub(super) leader_of_second: Option<u8>,
    /// Whether the clients have abandoned their first request.
    pub(super) abandoned: [bool; 2],
    /// Messages in flight. A sent message stays in flight for ever.
    pub(super) sent: Vec<Message>,
    /// Index of the state that the read saw.
    pub(super) read: Option<u8>,
    /// Number of committed entries, and their effects.
    pub(super) committed: u8,
    pub(super) effects: Vec<Effect>,
    pub(super) superseded: bool,
}

/// Initial entries: the first of the term, and two sessions.
pub(super) const BEGINNING: u8 = 3;
const READER: LogSessionId = LogSessionId(3);

impl State {
    pub(super) fn new() -> Self {
        let log = [Item::First, Item::Open, Item::Open].into_iter().map(|item| Slot { term: 1, item }).collect();
        let follower = Server { log, term: 1, commit: BEGINNING, ..Server::default() };
        let leader = Server { leads: 1, ..follower.clone() };
        let mut state = State {
            servers: [leader, follower.clone(), follower],
            leader_of_second: None,
            abandoned: [false; 2],
            sent: Vec::new(),
            read: None,
            committed: BEGINNING,
            effects: Vec::new(),
            superseded: false,
        };
        state.send();
        state
    }

    /// Sends all wanted requests in every epoch that a client may know. Sending early loses no behaviour, because
    /// messages can be delayed.
    pub(super) fn send(&mut self) {
        let terms = if self.leader_of_second.is_some() { 2 } else { 1 };
        for term in 1..=terms {
            let abandoner = if self.abandoned[0] { Some(2) } else { Some(1) };
            let reader = if self.abandoned[1] { None } else { Some(1) };
            for (client, number) in [(0, abandoner), (1, reader)] {
                let message = number.map(|number| Message { client, number, term });
                self.sent.extend(message.filter(|message| !self.sent.contains(message)));
            }
        }
        self.sent.sort_unstable_by_key(|message| (message.client, message.number, message.term));
    }

    pub(super) fn effect(&self, client: u8, number: u8) -> Option<u8> {
        self.effects.iter().find(|effect| (effect.client, effect.number) == (client, number)).map(|effect| effect.index)
    }

    pub(super) fn epoch(&self, term: u8) -> Epoch {
        let leader = if term == 1 { 0 } else { self.leader_of_second.unwrap_or(0) };
        Epoch::new(term.into(), u64::from(leader) + 1)
    }
}

impl System {
    pub(super) fn new(mutation: Mutation, log_max: [usize; 2]) -> Self {
        System { log_max, empty: Machine::new(LogLimits::default()).unwrap().with_mutation(mutation) }
    }

    pub(super) fn request(&self, state: &State, message: Message) -> Request {
        let session = LogSessionId(u64::from(message.client) + 2);
        let body = Body::put("k", message.number.to_string());
        Request::new(session, message.number.into(), state.epoch(message.term), body)
    }

    /// Replays the entries of a log one by one.
    pub(super) fn replay(&self, state: &State, log: &[Slot], mut each: impl FnMut(u8, &Slot, bool, bool)) -> Machine {
        let mut machine = self.empty.clone();
        for (at, slot) in log.iter().enumerate() {
            let (index, epoch) = (at as u64 + 1, state.epoch(slot.term));
            let command = match slot.item {
                Item::First => {
                    machine.skip(Position { index, epoch }).unwrap();
                    continue;
                }
                Item::Open => Command::Open(Open::new(epoch, Duration::from_secs(10), index.into())),
                Item::Request(message) => Command::Request(self.request(state, message)),
            };
            let before = machine.keys().revision();
            let applied = machine.apply(&Entry { index, epoch, stamp: LogTime::ZERO, command }).unwrap();
            let superseded =
                matches!(&applied.reply, Reply::Request(answer) if answer.verdict == Err(ApplyRejection::Superseded));
            each(index as u8, slot, machine.keys().revision() > before, superseded);
        }
        machine
    }

    /// Returns the real gate of a leader, rebuilt from its appends for the reader and its raised floor, together with
    /// its machine. The barrier is the raised one or a new one.
    pub(super) fn gate(&self, state: &State, at: usize) -> (LeaderTerm, Machine, Result<Barrier, NotAppended>) {
        let server = &state.servers[at];
        let machine = self.replay(state, &server.log[..server.commit.into()], |_, _, _, _| {});
        let first = server.log.iter().position(|slot| slot.term == server.leads).expect("a term begins with an entry");
        let first = Position { index: first as u64 + 1, epoch: state.epoch(server.leads) };
        let mut leadership = LeaderTerm::elected(Time::ZERO, first, LogTime::ZERO, &machine);
        for (index, slot) in server.log.iter().enumerate() {
            let Item::Request(message) = slot.item else { continue };
            // Other entries passed the gate under another leadership.
            if message.client == 1 && (slot.term, message.term) == (server.leads, server.leads) {
                let command = Command::Request(self.request(state, message));
                let admission = leadership.gate.admit(&command, &machine).expect("it was admitted before");
                leadership.gate.settle(admission, Some(index as u64 + 1));
            }
        }
        let barrier = match server.reading {
            Reading::Idle => Err(NotAppended::NotReady),
            _ => leadership.barrier(READER, first.epoch, 2, &machine),
        };
        (leadership, machine, barrier)
    }
}
