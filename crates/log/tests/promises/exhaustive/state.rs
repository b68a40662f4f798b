//! The state of the system, as small as it can be, and how the real machine and gate see it.

use convoke_base::Time;
use convoke_log::command::{Body, Open, Request};
use convoke_log::leader::{Barrier, Leadership, NotAppended};
use convoke_log::machine::{Refused, Reply};
use convoke_log::{Command, Entry, Epoch, Limits, LogTime, Machine, Mutation, Position, SessionId};
use std::time::Duration;

pub(super) const SERVERS: usize = 3;
/// Entries the leaders of the two terms may have.
pub(super) const LOG_MAX: [usize; 2] = [5, 6];

/// The bounds and the rules in force.
#[derive(Debug)]
pub(super) struct System {
    pub(super) log_max: [usize; 2],
    /// Before any entry.
    empty: Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) client: u8,
    pub(super) number: u8,
    /// The term it is meant for.
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

/// How far a leader is with the barrier read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Reading {
    #[default]
    Idle,
    Raised,
    /// With the commit index taken before leadership was confirmed.
    Confirmed(u8),
    /// The floor stays raised for the term.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Server {
    pub(super) log: Vec<Slot>,
    pub(super) term: u8,
    /// The term it believes to lead, 0 for none.
    pub(super) leads: u8,
    /// As a leader. Followers know nothing, which is the worst case for who becomes one.
    pub(super) commit: u8,
    pub(super) reading: Reading,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) servers: [Server; SERVERS],
    pub(super) leader_of_second: Option<u8>,
    /// Whether the clients have given up their first request.
    pub(super) given_up: [bool; 2],
    /// Messages on their way. What is sent stays on its way for ever.
    pub(super) sent: Vec<Message>,
    /// The index of the state that the read saw.
    pub(super) read: Option<u8>,
    /// How much is committed, and what it did.
    pub(super) committed: u8,
    pub(super) effects: Vec<Effect>,
    pub(super) superseded: bool,
}

/// Entries that are there at the beginning: the first of the term, and two sessions.
pub(super) const BEGINNING: u8 = 3;
const READER: SessionId = SessionId(3);

impl State {
    pub(super) fn new() -> Self {
        let log = [Item::First, Item::Open, Item::Open].into_iter().map(|item| Slot { term: 1, item }).collect();
        let follower = Server { log, term: 1, commit: BEGINNING, ..Server::default() };
        let leader = Server { leads: 1, ..follower.clone() };
        let mut state = State {
            servers: [leader, follower.clone(), follower],
            leader_of_second: None,
            given_up: [false; 2],
            sent: Vec::new(),
            read: None,
            committed: BEGINNING,
            effects: Vec::new(),
            superseded: false,
        };
        state.send();
        state
    }

    /// Clients send what they want in every epoch they may know of. Sending early loses no behaviour: a message may
    /// take its time.
    pub(super) fn send(&mut self) {
        let terms = if self.leader_of_second.is_some() { 2 } else { 1 };
        for term in 1..=terms {
            let abandoner = if self.given_up[0] { Some(2) } else { Some(1) };
            let reader = if self.given_up[1] { None } else { Some(1) };
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
        System { log_max, empty: Machine::new(Limits::default()).unwrap().with_mutation(mutation) }
    }

    pub(super) fn request(&self, state: &State, message: Message) -> Request {
        let session = SessionId(u64::from(message.client) + 2);
        let body = Body::put("k", message.number.to_string());
        Request::new(session, message.number.into(), state.epoch(message.term), body)
    }

    /// What the entries of a log do, one by one.
    pub(super) fn replay(&self, state: &State, log: &[Slot], mut each: impl FnMut(u8, &Slot, bool, bool)) -> Machine {
        let mut machine = self.empty.clone();
        for (at, slot) in log.iter().enumerate() {
            let (index, epoch) = (at as u64 + 1, state.epoch(slot.term));
            let command = match slot.item {
                Item::First => {
                    machine.skip(Position { index, epoch }).unwrap();
                    continue;
                }
                Item::Open => Command::Open(Open { epoch, ttl: Duration::from_secs(10), nonce: index, client: None }),
                Item::Request(message) => Command::Request(self.request(state, message)),
            };
            let before = machine.keys().revision();
            let applied = machine.apply(&Entry { index, epoch, stamp: LogTime::ZERO, command }).unwrap();
            let superseded =
                matches!(&applied.reply, Reply::Request(answer) if answer.verdict == Err(Refused::Superseded));
            each(index as u8, slot, machine.keys().revision() > before, superseded);
        }
        machine
    }

    /// The real gate of a leader, rebuilt from what it has appended for the reader and whether it has raised the
    /// floor; and its machine. The barrier is the one that was raised, or a new one.
    pub(super) fn gate(&self, state: &State, at: usize) -> (Leadership, Machine, Result<Barrier, NotAppended>) {
        let server = &state.servers[at];
        let machine = self.replay(state, &server.log[..server.commit.into()], |_, _, _, _| {});
        let first = server.log.iter().position(|slot| slot.term == server.leads).expect("a term begins with an entry");
        let first = Position { index: first as u64 + 1, epoch: state.epoch(server.leads) };
        let mut leadership = Leadership::elected(Time::ZERO, first, LogTime::ZERO, &machine);
        for (index, slot) in server.log.iter().enumerate() {
            let Item::Request(message) = slot.item else { continue };
            // Others came past the gate, under another leadership.
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
