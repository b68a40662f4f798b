//! The virtual network: FIFO connections between places, latencies, and cuts.
//!
//! A connection consists of two pipes. Items sent while a pipe is cut wait, as TCP would retransmit them. They arrive
//! after the cut is healed if both ends still hold the connection. An end that closes appends an end-of-stream to
//! everything it has sent. So messages of a client that has moved on do arrive, late.

use crate::client::FromClient;
use bytes::Bytes;
use convoke_convert::AttachState;
use convoke_proto::v1;
use std::collections::{BTreeMap, VecDeque};

/// Virtual time in microseconds since the start of the simulation.
pub type Micros = u64;

pub const SECOND: Micros = 1_000_000;
pub const MINUTE: Micros = 60 * SECOND;

/// A machine on the virtual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    Host(usize),
    Client(usize),
}

impl Site {
    /// Hosts take the lower half of the set, clients the upper; both wrap, which only makes cuts a little wider.
    pub fn bit(self) -> u128 {
        match self {
            Site::Host(host) => 1 << (host % 64),
            Site::Client(client) => 1 << (64 + client % 64),
        }
    }
}

/// An item in a pipe.
#[derive(Clone, Debug)]
pub enum Item {
    /// The end of the transport handshake: the dialer learns that the connection is established.
    Established,
    Frame(Bytes),
    ToNode(Box<FromClient>),
    ToClient(Box<v1::ServerMessage>),
    EndOfStream,
}

#[derive(Clone, Debug)]
pub struct Parcel {
    pub at: Micros,
    pub item: Item,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Pipe {
    pub queue: VecDeque<Parcel>,
    /// A delivery is scheduled on the event heap.
    pub scheduled: bool,
    /// Time since which the first parcel waits for a cut to heal.
    pub stalled: Option<Micros>,
    /// Arrival of the last parcel put in; keeps the order.
    pub last_at: Micros,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub place: Site,
    /// The process that holds it. An end of an earlier process belongs to none.
    pub process: u64,
    pub open: bool,
    /// The end of the stream has arrived here; nothing comes after it.
    pub ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Peer,
    Client,
}

#[derive(Clone, Debug)]
pub struct Connection {
    pub kind: Kind,
    /// The dialer is end 0.
    pub ends: [End; 2],
    /// `pipes[s]` carries what end `s` sends.
    pub pipes: [Pipe; 2],
    /// Delay on top of the latency for what end 0 sends from now on.
    pub extra: Micros,
    /// The dial that created it, until the dialer is notified.
    pub dial: u64,
    /// Members that a client registered over it, with the node's write for each.
    pub registered: BTreeMap<String, u64>,
    /// The node's side of a client's stream.
    pub attach: Option<Box<AttachState>>,
}

/// Blocks everything from one set of places to another.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub id: u64,
    pub since: Micros,
    pub from: u128,
    pub to: u128,
    /// Cuts clients only; it excuses no host.
    pub clients_only: bool,
}

/// Extra latency for everything from or to some places.
#[derive(Clone, Copy, Debug)]
pub struct Spike {
    pub id: u64,
    pub places: u128,
    pub extra: Micros,
}

#[derive(Debug, Default)]
pub struct Network {
    pub connections: BTreeMap<u64, Connection>,
    pub cuts: Vec<Cut>,
    pub spikes: Vec<Spike>,
    next: u64,
}

impl Network {
    /// Returns an unused number for a connection, cut or spike.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn blocked(&self, from: Site, to: Site) -> bool {
        self.cuts.iter().any(|cut| cut.from & from.bit() != 0 && cut.to & to.bit() != 0)
    }

    /// Whether one of two places cannot send to the other.
    pub fn severed(&self, one: Site, other: Site) -> bool {
        self.blocked(one, other) || self.blocked(other, one)
    }

    /// Returns since when one of two places cannot send to the other.
    pub fn severed_since(&self, one: Site, other: Site) -> Option<Micros> {
        let blocks = |cut: &&Cut, from: Site, to: Site| cut.from & from.bit() != 0 && cut.to & to.bit() != 0;
        let cuts = self.cuts.iter().filter(|cut| blocks(cut, one, other) || blocks(cut, other, one));
        cuts.map(|cut| cut.since).min()
    }

    pub fn spike(&self, from: Site, to: Site) -> Micros {
        let touched = from.bit() | to.bit();
        self.spikes.iter().filter(|spike| spike.places & touched != 0).map(|spike| spike.extra).max().unwrap_or(0)
    }

    pub fn connect(&mut self, kind: Kind, dialer: End, acceptor: End, dial: u64) -> u64 {
        let id = self.number();
        let pipes = [Pipe::default(), Pipe::default()];
        let registered = BTreeMap::new();
        let ends = [dialer, acceptor];
        self.connections.insert(id, Connection { kind, ends, pipes, extra: 0, dial, registered, attach: None });
        id
    }

    pub fn of_kind(&self, kind: Kind) -> Vec<u64> {
        self.connections.iter().filter(|(_, connection)| connection.kind == kind).map(|(id, _)| *id).collect()
    }

    /// Connections with an open end at a place, with that end's side.
    pub fn at(&self, place: Site, kind: Option<Kind>) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        for (&id, connection) in &self.connections {
            if kind.is_some_and(|kind| kind != connection.kind) {
                continue;
            }
            for side in 0..2 {
                if connection.ends[side].open && connection.ends[side].place == place {
                    found.push((id, side));
                }
            }
        }
        found
    }
}
