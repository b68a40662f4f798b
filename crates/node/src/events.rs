//! The timeline: what an operator would want to know happened, logged, kept for a while and told to whoever listens.

use crate::clock::wall_ms;
use convoke_core::node::{Event, RestartReason, StopReason};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// One entry of the timeline.
#[derive(Clone, Debug)]
pub struct TimelineEvent {
    /// Counts from 1 without gaps.
    pub sequence: u64,
    /// UNIX milliseconds.
    pub wall_ms: u64,
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The registry's own events.
    Registry(Event),
    Started {
        incarnation: u64,
    },
    /// A new run began in the same process; all clients were dropped.
    Restarted {
        reason: RestartReason,
        incarnation: u64,
    },
    Stopped {
        reason: StopReason,
    },
    /// Something that is no peer spoke to the peer port.
    Garbage {
        address: String,
        what: String,
    },
    /// A peer read so slowly that its link was closed.
    LinkOverflow {
        address: String,
    },
    PersistFailed {
        error: String,
    },
}

impl Happening {
    /// Whether it is unexpected, as opposed to the ordinary course of things.
    pub fn is_warning(&self) -> bool {
        match self {
            Happening::Registry(event) => matches!(
                event,
                Event::PeerLost { .. }
                    | Event::PeerFailed { .. }
                    | Event::PeerRefused { .. }
                    | Event::IdInUse { .. }
                    | Event::OriginSilent { .. }
                    | Event::NameLost { .. }
                    | Event::Conflict { .. }
                    | Event::Degraded { .. }
                    | Event::Late { .. }
            ),
            Happening::Started { .. } => false,
            Happening::Stopped { reason } => *reason != StopReason::Graceful,
            Happening::Restarted { .. }
            | Happening::Garbage { .. }
            | Happening::LinkOverflow { .. }
            | Happening::PersistFailed { .. } => true,
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Registry(event) => registry(event, f),
            Happening::Started { incarnation } => write!(f, "started, incarnation {incarnation}"),
            Happening::Restarted { reason: RestartReason::SleptTooLong, incarnation } => {
                write!(f, "slept too long: starts anew with incarnation {incarnation}")
            }
            Happening::Restarted { reason: RestartReason::IncarnationCollision, incarnation } => {
                write!(f, "its incarnation was used before: starts anew with incarnation {incarnation}")
            }
            Happening::Stopped { reason: StopReason::Graceful } => f.write_str("stopped"),
            Happening::Stopped { reason: StopReason::IdentityConflict } => {
                f.write_str("stopped: another process uses this node id")
            }
            Happening::Garbage { address, what } => write!(f, "{address} is no peer: {what}"),
            Happening::LinkOverflow { address } => write!(f, "peer at {address} reads too slowly: link closed"),
            Happening::PersistFailed { error } => write!(f, "cannot remember the incarnation: {error}"),
        }
    }
}

fn registry(event: &Event, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match event {
        Event::PeerUp { node } => write!(f, "peer {node} is up"),
        Event::PeerLost { node, reason } => write!(f, "peer {node} is lost ({reason:?})"),
        Event::PeerFailed { node, votes, answers } => {
            write!(f, "peer {node} has failed: {votes} of {answers} cannot reach it")
        }
        Event::PeerLeft { node } => write!(f, "peer {node} has left"),
        Event::PeerRefused { node: Some(node), reason } => write!(f, "peer {node} was refused: {reason}"),
        Event::PeerRefused { node: None, reason } => write!(f, "a connection was refused: {reason}"),
        Event::IdInUse { patience } => write!(
            f,
            "another process of the cluster uses this node id: trying for {:.0} s, in case it has just died, then stopping",
            patience.as_secs_f64()
        ),
        Event::Ready { alone: true } => f.write_str("ready, as the first node"),
        Event::Ready { alone: false } => f.write_str("ready, with the registry of a peer"),
        Event::OriginSilent { origin } => write!(f, "node {origin} is silent: members it still owns are down"),
        Event::OriginReturned { origin } => write!(f, "node {origin} is back"),
        Event::OriginRetired { origin } => write!(f, "old run {origin} is forgotten"),
        Event::Conflict { id, winner, loser } => {
            write!(f, "{id:?} was written at two places at once: {winner} wins over {loser}")
        }
        Event::NameLost { name, winner } => write!(f, "name {name:?} is now registered by node {winner}"),
        Event::Degraded { reason, .. } => write!(f, "degraded: most {reason:?} fell silent at once; waiting"),
        Event::DegradedEnded { reason } => write!(f, "no longer degraded ({reason:?})"),
        Event::Late { by } => write!(f, "late by {:.1} s: this machine is overloaded or slept", by.as_secs_f64()),
        Event::Exchanged { from, records, .. } => write!(f, "took in {records} records of {from}"),
        Event::FullMerge { from, removed } => write!(f, "took over the whole registry of {from}, {removed} removed"),
    }
}

/// The last events, and a way to hear of new ones.
#[derive(Debug)]
pub(crate) struct Timeline {
    node: String,
    kept: Mutex<VecDeque<Arc<TimelineEvent>>>,
    limit: usize,
    news: broadcast::Sender<Arc<TimelineEvent>>,
}

impl Timeline {
    pub(crate) fn new(node: String, limit: usize) -> Self {
        Timeline { node, kept: Mutex::default(), limit, news: broadcast::channel(limit.min(1_024)).0 }
    }

    pub(crate) fn record(&self, what: Happening) {
        if what.is_warning() {
            tracing::warn!(node = %self.node, "{what}");
        } else {
            tracing::info!(node = %self.node, "{what}");
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = kept.back().map_or(1, |last| last.sequence + 1);
        let event = Arc::new(TimelineEvent { sequence, wall_ms: wall_ms(), what });
        if kept.len() == self.limit {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // Nobody listens: nobody minds.
        let _ = self.news.send(event);
    }

    /// Kept events with a sequence above `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<Arc<TimelineEvent>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|event| event.sequence > after).cloned().collect()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<TimelineEvent>> {
        self.news.subscribe()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn the_last_events_are_kept_and_new_ones_told() {
        let timeline = Timeline::new("a".to_owned(), 3);
        let mut news = timeline.listen();
        for incarnation in 1..=5 {
            timeline.record(Happening::Started { incarnation });
        }
        let kept: Vec<u64> = timeline.after(0).iter().map(|event| event.sequence).collect();
        assert_eq!(kept, [3, 4, 5]);
        assert_eq!(timeline.after(4).len(), 1);
        // The listener was slower than the bound: it is told so.
        assert!(matches!(news.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
        assert!(news.try_recv().is_ok());
    }
}
