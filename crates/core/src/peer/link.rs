//! One connection to a peer.

use crate::map::{Cursor, ItemRef};
use crate::node::LinkId;
use crate::time::{Clock, Duration, ReceivedAt, Time};
use crate::version::{NodeId, OriginId};
use crate::wire::Context;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPhase {
    /// Hello sent or awaited.
    Handshake,
    /// A second connection of a peer that has one; waits (P5).
    Candidate,
    Up,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) dialled: bool,
    /// The seed this connection was dialled for.
    pub(crate) seed: Option<usize>,
    pub(crate) phase: LinkPhase,
    pub(crate) peer: Option<NodeId>,
    pub(crate) origin: Option<OriginId>,
    /// Node that the certificate of the connection names; `None` without TLS (TS3).
    pub(crate) authenticated: Option<NodeId>,
    pub(crate) opened: ReceivedAt,
    pub(crate) received: ReceivedAt,
    /// Pings sent and not yet echoed: sequence and when.
    unechoed: VecDeque<(u64, ReceivedAt)>,
    /// When the newest echoed ping was sent.
    echoed: ReceivedAt,
    pub(crate) ping_seq: u64,
    /// Highest sequence received, to be echoed.
    pub(crate) received_seq: u64,
    /// Other regions the peer has links to (P9).
    pub(crate) regions: Vec<String>,
    /// Origins of which the peer requested evidence with its last ping: it has no link to them.
    pub(crate) asked: Vec<OriginId>,
    /// Own writes the peer has been sent; `None` until an exchange showed its position (D5).
    pub(crate) sent: Option<u64>,
    /// Own writes the peer has received, according to its receipts (C12).
    pub(crate) received_writes: u64,
    /// The peer wants a receipt for its writes.
    pub(crate) receipt_owed: bool,
    pub(crate) outgoing: Option<Outgoing>,
    pub(crate) incoming: Option<Incoming>,
    /// The last ping had another context hash.
    pub(crate) differed: bool,
    /// Comparisons in a row in which the peer held other contents with the same context (D16).
    pub(crate) contents_differed: u32,
    /// When this side last requested an exchange.
    pub(crate) wanted: Option<ReceivedAt>,
    /// How many exchanges this end has numbered.
    exchange: u64,
}

/// A delta or full merge being sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) exchange: u64,
    pub(crate) pending: Pending,
    /// Context to be joined by the receiver: as it was when the delta was computed.
    pub(crate) context: Context,
    /// Context of the receiver.
    pub(crate) receiver: Context,
    pub(crate) next_index: u64,
    pub(crate) acked: u64,
    pub(crate) reply: bool,
}

#[derive(Debug)]
pub(crate) enum Pending {
    List { items: Vec<ItemRef>, next: usize },
    Full(Cursor),
}

/// A delta or full merge being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) exchange: u64,
    pub(crate) next_index: u64,
    pub(crate) full: bool,
    pub(crate) records: u64,
    pub(crate) began: Time,
    pub(crate) progress: ReceivedAt,
}

impl Link {
    pub(crate) fn new(id: LinkId, dialled: bool, clock: Clock) -> Self {
        let now = ReceivedAt::now(clock);
        Link {
            id,
            dialled,
            seed: None,
            phase: LinkPhase::Handshake,
            peer: None,
            origin: None,
            authenticated: None,
            opened: now,
            received: now,
            unechoed: VecDeque::new(),
            echoed: now,
            ping_seq: 0,
            received_seq: 0,
            regions: Vec::new(),
            asked: Vec::new(),
            sent: None,
            received_writes: 0,
            receipt_owed: false,
            outgoing: None,
            incoming: None,
            differed: false,
            contents_differed: 0,
            wanted: None,
            exchange: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.phase == LinkPhase::Up
    }

    /// Numbers a ping about to be sent.
    pub(crate) fn next_ping(&mut self, clock: Clock) -> u64 {
        self.ping_seq += 1;
        self.unechoed.push_back((self.ping_seq, ReceivedAt::now(clock)));
        // A peer that echoes nothing is detected long before this; the bound limits the memory.
        if self.unechoed.len() > 64 {
            self.unechoed.pop_front();
        }
        self.ping_seq
    }

    pub(crate) fn note_echo(&mut self, echo: u64) {
        while let Some((seq, sent)) = self.unechoed.front() {
            if *seq > echo {
                break;
            }
            self.echoed = *sent;
            self.unechoed.pop_front();
        }
    }

    pub(crate) fn silence(&self, clock: Clock) -> Duration {
        self.received.silence_without_pauses(clock, Duration::MAX)
    }

    /// How long ago the newest ping was sent that is known to have arrived.
    pub(crate) fn echo_silence(&self, clock: Clock) -> Duration {
        self.echoed.silence_without_pauses(clock, Duration::MAX)
    }

    /// Returns a number for a delta in either direction that neither end of the link has used: the two count
    /// separately.
    pub(crate) fn next_exchange(&mut self) -> u64 {
        self.exchange += 1;
        2 * self.exchange + u64::from(self.dialled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An abort of a delta contains its number only, not its sender.
    #[test]
    fn the_ends_of_a_link_number_exchanges_differently() {
        let numbers = |dialled| {
            let mut link = Link::new(LinkId(1), dialled, Clock::default());
            [(); 4].map(|()| link.next_exchange())
        };
        let (here, there): ([u64; 4], [u64; 4]) = (numbers(true), numbers(false));
        assert!(here.iter().all(|number| !there.contains(number)), "{here:?} {there:?}");
        assert!(here.is_sorted_by(|a, b| a < b), "{here:?}");
    }
}
