//! The queues of the event loop, and the order in which a turn takes from them.

use super::{EventLoop, Input, TURN_INPUTS};
use crate::client_queue::{Lane, Scheduled};
use convoke_core::Time;
use tokio::sync::mpsc;

/// The receiving ends of the queues.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// Connections whose heartbeats wait. Handled first in every turn.
    pub(crate) heartbeats: Lane,
    /// Connections whose requests wait.
    pub(crate) requests: Lane,
    pub(crate) peers: mpsc::Receiver<Input>,
    pub(crate) calls: mpsc::Receiver<Input>,
}

/// The next work of the event loop.
#[derive(Debug)]
pub(super) enum Work {
    Heartbeats(Scheduled),
    Requests(Scheduled),
    Input(Input),
}

impl Inputs {
    /// Waits for an input. The senders are never dropped before the event loop.
    pub(super) async fn next(&mut self) -> Option<Work> {
        tokio::select! {
            biased;
            scheduled = self.heartbeats.recv() => scheduled.map(Work::Heartbeats),
            input = self.peers.recv() => input.map(Work::Input),
            scheduled = self.requests.recv() => scheduled.map(Work::Requests),
            input = self.calls.recv() => input.map(Work::Input),
        }
    }

    /// Takes an input that waits, from each queue in turn. `turn` counts the calls.
    pub(super) fn take(&mut self, turn: usize) -> Option<Work> {
        for step in 0..QUEUES {
            let work = match (turn + step) % QUEUES {
                0 => self.peers.try_recv().ok().map(Work::Input),
                1 => self.requests.try_recv().ok().map(Work::Requests),
                _ => self.calls.try_recv().ok().map(Work::Input),
            };
            if work.is_some() {
                return work;
            }
        }
        None
    }
}

/// Queues that take turns.
const QUEUES: usize = 3;

impl EventLoop {
    /// Handles the heartbeats that wait, up to a limit, so that a flood of them leaves time for the rest.
    pub(super) fn heartbeats(&mut self, first: &mut Option<Work>, now: Time) {
        let mut scheduled = match first.take() {
            Some(Work::Heartbeats(scheduled)) => Some(scheduled),
            other => {
                *first = other;
                None
            }
        };
        let mut taken = Vec::new();
        let mut handled = 0;
        while handled < HEARTBEATS_PER_TURN
            && let Some(connection) = scheduled.take().or_else(|| self.inputs.heartbeats.try_recv().ok())
        {
            self.shared.lanes.take_heartbeats(connection, &mut taken);
            handled += taken.len();
            for (conn, heartbeat) in taken.drain(..) {
                self.heartbeat(conn, heartbeat, now);
            }
        }
        crate::counters::add(&self.shared.counting.inputs, handled as u64);
    }
}

/// About a millisecond of work.
const HEARTBEATS_PER_TURN: usize = 8 * TURN_INPUTS;
