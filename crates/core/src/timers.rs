//! Timers as values in a heap. A timer triggers a check, never a decision: its handler checks whether it is really due
//! and sets a new one if not. So no timer is ever cancelled, and a heartbeat touches no timer. Stale timers of sessions are
//! dropped when there are too many: a client that attaches in a loop would add one each time.

use crate::node::{LinkId, SessionId};
use crate::time::Time;
use crate::version::NodeId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Liveness counter, pings, admission, retirement, marks: everything periodic.
    Tick,
    Session(SessionId),
    /// Handshake deadline, silence, missing echo.
    Link(LinkId),
    RetryPeer(NodeId),
    RetrySeed(usize),
    HealthQuery(NodeId),
    HealthDecide(NodeId, u64),
    Collect,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64, Timer)>>,
    sequence: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Time, timer: Timer) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, timer)));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(crate) fn due(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, timer))| timer)
    }

    /// Drops the timers that are not wanted.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(Time, &Timer) -> bool) {
        self.heap.retain(|Reverse((at, _, timer))| wanted(*at, timer));
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
