//! The timeline of a node: events that an operator needs, logged, kept for a while, and sent to listeners.

use crate::clock::wall_ms;
use convoke_core::node::{DegradedReason, LossReason, RegistryEvent, RestartReason, StopReason};
use convoke_core::version::NodeId;
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
    pub what: NodeEvent,
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The registry's own events.
    Registry(RegistryEvent),
    Started {
        incarnation: u64,
    },
    /// A new incarnation began in the same process; all clients were disconnected.
    Restarted {
        reason: RestartReason,
        incarnation: u64,
    },
    Stopped {
        reason: StopReason,
    },
    /// Something other than a peer connected to the peer port.
    Malformed {
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
    /// The cluster has two logs.
    LogConflict {
        conflict: String,
    },
    LogConflictEnded,
    /// The state of this node's replica of the log differs from the state of its leader.
    LogDiverged {
        divergence: String,
    },
    /// A limit of the log is reached by at least 80 percent.
    LogNearlyFull {
        warning: String,
    },
    LogNotFull,
}

impl NodeEvent {
    /// Returns whether an operator should look at the event.
    pub fn is_warning(&self) -> bool {
        match self {
            NodeEvent::Registry(event) => matches!(
                event,
                RegistryEvent::PeerLost { .. }
                    | RegistryEvent::PeerFailed { .. }
                    | RegistryEvent::PeerRejected { .. }
                    | RegistryEvent::FrameRejected { .. }
                    | RegistryEvent::Diverged { .. }
                    | RegistryEvent::SeedFailed { .. }
                    | RegistryEvent::Serving { alone: true, .. }
                    | RegistryEvent::IdInUse { .. }
                    | RegistryEvent::IdDisputed { .. }
                    | RegistryEvent::ServingWithout { .. }
                    | RegistryEvent::OriginSilent { .. }
                    | RegistryEvent::NameLost { .. }
                    | RegistryEvent::Conflict { .. }
                    | RegistryEvent::Degraded { .. }
                    | RegistryEvent::Late { .. }
            ),
            NodeEvent::Started { .. } | NodeEvent::LogConflictEnded | NodeEvent::LogNotFull => false,
            NodeEvent::Stopped { reason } => *reason != StopReason::Graceful,
            NodeEvent::Restarted { .. }
            | NodeEvent::Malformed { .. }
            | NodeEvent::LinkOverflow { .. }
            | NodeEvent::PersistFailed { .. }
            | NodeEvent::LogConflict { .. }
            | NodeEvent::LogDiverged { .. }
            | NodeEvent::LogNearlyFull { .. } => true,
        }
    }
}

/// The event as a sentence.
impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeEvent::Registry(event) => registry(event, f),
            NodeEvent::Started { incarnation } => write!(f, "started with incarnation {incarnation}"),
            NodeEvent::Restarted { reason, incarnation } => {
                write!(f, "restarted with incarnation {incarnation}: {}", restart_reason(*reason))
            }
            NodeEvent::Stopped { reason: StopReason::Graceful } => f.write_str("stopped"),
            NodeEvent::Stopped { reason: StopReason::IdentityConflict } => {
                f.write_str("stopped because another process uses this node id")
            }
            NodeEvent::Malformed { address, what } => write!(f, "closed a connection from {address}: {what}"),
            NodeEvent::LinkOverflow { address } => {
                write!(f, "closed the link to the peer at {address}: the peer reads too slowly")
            }
            NodeEvent::PersistFailed { error } => write!(f, "cannot write the incarnation to disk: {error}"),
            NodeEvent::LogConflict { conflict } => f.write_str(conflict),
            NodeEvent::LogConflictEnded => f.write_str("the cluster has one log again"),
            NodeEvent::LogDiverged { divergence } => write!(f, "this replica of the log differs: {divergence}"),
            NodeEvent::LogNearlyFull { warning } => write!(f, "{warning}; delete what is not needed"),
            NodeEvent::LogNotFull => f.write_str("the log has room again"),
        }
    }
}

fn registry(event: &RegistryEvent, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match event {
        RegistryEvent::PeerUp { node } => write!(f, "peer {node} is up"),
        RegistryEvent::PeerLost { node, reason } => write!(f, "peer {node} is lost: {}", loss_reason(*reason)),
        RegistryEvent::PeerFailed { node, votes, answers } => {
            write!(f, "peer {node} has failed: {votes} of {answers} nodes cannot reach it")
        }
        RegistryEvent::PeerLeft { node } => write!(f, "peer {node} has left"),
        RegistryEvent::PeerRejected { node: Some(node), reason } => write!(f, "rejected peer {node}: {reason}"),
        RegistryEvent::PeerRejected { node: None, reason } => write!(f, "rejected a peer connection: {reason}"),
        RegistryEvent::FrameRejected { node: Some(node), excess } => {
            write!(f, "rejected a frame of peer {node}: {excess}")
        }
        RegistryEvent::FrameRejected { node: None, excess } => {
            write!(f, "rejected a frame of a peer connection: {excess}")
        }
        RegistryEvent::Diverged { node } => write!(
            f,
            "the registry differs from that of node {node}, although both have received the same writes; \
             restart the node that differs from most others"
        ),
        RegistryEvent::DivergenceEnded { node } => write!(f, "the registry equals that of node {node} again"),
        RegistryEvent::IdInUse { timeout } => write!(
            f,
            "another process of the cluster uses this node id; this node stops if it still does after {:.0} s",
            timeout.as_secs_f64()
        ),
        RegistryEvent::IdDisputed { by, incarnation } => write!(
            f,
            "node {by} reports incarnation {} of this node, which is newer than this process; it continues",
            incarnation.number
        ),
        RegistryEvent::ServingWithout { peers, grace } => write!(
            f,
            "ready without the registry of {}; no member is reported as absent for {:.0} s",
            list(peers),
            grace.as_secs_f64()
        ),
        RegistryEvent::Serving { alone: true, .. } => f.write_str(
            "alone: none of the seeds was reached; clients are served, and nothing is reported as absent \
             (run `convoke nodes declare-first` if this is the first node)",
        ),
        RegistryEvent::Serving { first: true, .. } => f.write_str("ready as the first node"),
        RegistryEvent::Joined { node: Some(node) } => write!(f, "ready: exchanged with node {node}"),
        RegistryEvent::Joined { node: None } => f.write_str("ready as the first node, as an operator stated"),
        RegistryEvent::SeedFailed { address, failure } => write!(f, "seed {address}: {}", failure.as_str()),
        RegistryEvent::Serving { .. } => f.write_str("ready with the registry of a peer"),
        RegistryEvent::OriginSilent { origin } => write!(f, "node {origin} is silent; the members it owns are down"),
        RegistryEvent::OriginReturned { origin } => write!(f, "node {origin} is back"),
        RegistryEvent::OriginRetired { origin } => write!(f, "removed the incarnation {origin}"),
        RegistryEvent::Conflict { id, winner, loser } => {
            write!(f, "concurrent writes of {id:?}: {winner} wins over {loser}")
        }
        RegistryEvent::NameLost { name, winner } => write!(f, "node {winner} has registered the name {name:?}"),
        RegistryEvent::Degraded { reason, .. } => {
            write!(f, "degraded: most {} fell silent at once; waiting for confirmation", degraded_reason(*reason))
        }
        RegistryEvent::DegradedEnded { reason } => write!(f, "no longer degraded ({})", degraded_reason(*reason)),
        RegistryEvent::Late { by } => {
            write!(f, "paused for {:.1} s: the machine was overloaded or suspended", by.as_secs_f64())
        }
        RegistryEvent::Exchanged { from, records, .. } => write!(f, "received {records} records from {from}"),
        RegistryEvent::FullMerge { from, removed } => {
            write!(f, "merged the whole registry of {from}; {removed} members removed")
        }
    }
}

/// The event as a log line: its name, then `key=value` fields, so that operators can search for both.
struct LogLine<'a>(&'a NodeEvent);

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NodeEvent::Registry(event) => registry_line(event, f),
            NodeEvent::Started { incarnation } => write!(f, "node started incarnation={incarnation}"),
            NodeEvent::Restarted { reason, incarnation } => {
                write!(f, "node restarted incarnation={incarnation} reason={:?}", restart_reason(*reason))
            }
            NodeEvent::Stopped { reason: StopReason::Graceful } => f.write_str("node stopped"),
            NodeEvent::Stopped { reason: StopReason::IdentityConflict } => {
                f.write_str("node stopped reason=\"another process uses this node id\"")
            }
            NodeEvent::Malformed { address, what } => {
                write!(f, "peer connection closed address={address} reason={what:?}")
            }
            NodeEvent::LinkOverflow { address } => {
                write!(f, "peer link closed address={address} reason=\"the peer reads too slowly\"")
            }
            NodeEvent::PersistFailed { error } => write!(f, "incarnation not persisted error={error:?}"),
            NodeEvent::LogConflict { conflict } => write!(f, "log conflict reason={conflict:?}"),
            NodeEvent::LogConflictEnded => f.write_str("log conflict ended"),
            NodeEvent::LogDiverged { divergence } => write!(f, "log replica diverged reason={divergence:?}"),
            NodeEvent::LogNearlyFull { warning } => write!(f, "log nearly full reason={warning:?}"),
            NodeEvent::LogNotFull => f.write_str("log has room again"),
        }
    }
}

fn registry_line(event: &RegistryEvent, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match event {
        RegistryEvent::PeerUp { node } => write!(f, "peer up peer={node}"),
        RegistryEvent::PeerLost { node, reason } => {
            write!(f, "peer lost peer={node} reason={:?}", loss_reason(*reason))
        }
        RegistryEvent::PeerFailed { node, votes, answers } => {
            write!(f, "peer failed peer={node} unreachable_from={votes} answers={answers}")
        }
        RegistryEvent::PeerLeft { node } => write!(f, "peer left peer={node}"),
        RegistryEvent::PeerRejected { node: Some(node), reason } => {
            write!(f, "peer rejected peer={node} reason={reason:?}")
        }
        RegistryEvent::PeerRejected { node: None, reason } => write!(f, "peer rejected reason={reason:?}"),
        RegistryEvent::FrameRejected { node: Some(node), excess } => {
            write!(f, "peer frame rejected peer={node} reason=\"{excess}\"")
        }
        RegistryEvent::FrameRejected { node: None, excess } => write!(f, "peer frame rejected reason=\"{excess}\""),
        RegistryEvent::Diverged { node } => write!(f, "registry diverged peer={node}"),
        RegistryEvent::DivergenceEnded { node } => write!(f, "registry no longer diverged peer={node}"),
        RegistryEvent::IdInUse { timeout } => write!(f, "node id in use stops_after_s={:.0}", timeout.as_secs_f64()),
        RegistryEvent::IdDisputed { by, incarnation } => {
            write!(f, "node id disputed by={by} incarnation={}", incarnation.number)
        }
        RegistryEvent::ServingWithout { peers, grace } => {
            write!(f, "node ready without peers={} no_absence_s={:.0}", list(peers), grace.as_secs_f64())
        }
        RegistryEvent::Serving { alone: true, .. } => f.write_str("node alone reason=\"no seed reached\""),
        RegistryEvent::Serving { first, .. } => write!(f, "node ready first={first}"),
        RegistryEvent::Joined { node: Some(node) } => write!(f, "node ready peer={node}"),
        RegistryEvent::Joined { node: None } => f.write_str("node ready reason=declared_first"),
        RegistryEvent::SeedFailed { address, failure } => {
            write!(f, "seed not reached seed={address} reason={:?}", failure.as_str())
        }
        RegistryEvent::OriginSilent { origin } => write!(f, "node silent origin={origin}"),
        RegistryEvent::OriginReturned { origin } => write!(f, "node returned origin={origin}"),
        RegistryEvent::OriginRetired { origin } => write!(f, "incarnation retired origin={origin}"),
        RegistryEvent::Conflict { id, winner, loser } => {
            write!(f, "concurrent writes id={id:?} winner={winner} loser={loser}")
        }
        RegistryEvent::NameLost { name, winner } => write!(f, "name lost name={name:?} winner={winner}"),
        RegistryEvent::Degraded { reason, .. } => write!(f, "node degraded silent={}", degraded_reason(*reason)),
        RegistryEvent::DegradedEnded { reason } => {
            write!(f, "node no longer degraded silent={}", degraded_reason(*reason))
        }
        RegistryEvent::Late { by } => write!(f, "node paused seconds={:.1}", by.as_secs_f64()),
        RegistryEvent::Exchanged { from, records, .. } => write!(f, "exchange finished peer={from} records={records}"),
        RegistryEvent::FullMerge { from, removed } => write!(f, "full merge finished peer={from} removed={removed}"),
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::as_str).collect::<Vec<&str>>().join(",")
}

fn loss_reason(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Closed => "connection closed",
        LossReason::Silent => "no message within ping_timeout",
        LossReason::OneWay => "pings are not answered",
        LossReason::Replaced => "replaced by a newer incarnation",
        LossReason::Malformed => "malformed frame",
        LossReason::Excessive => "frame with an excessive number",
    }
}

fn restart_reason(reason: RestartReason) -> &'static str {
    match reason {
        RestartReason::PausedTooLong => "the process was paused for too long",
        RestartReason::WritesUnknown => "other nodes know writes of this incarnation that it does not know",
    }
}

fn degraded_reason(reason: DegradedReason) -> &'static str {
    match reason {
        DegradedReason::Sessions => "sessions",
        DegradedReason::Nodes => "nodes",
        DegradedReason::Identity => "identity",
    }
}

/// The last events, and a channel for new ones.
#[derive(Debug)]
pub(crate) struct Timeline {
    node: String,
    kept: Mutex<VecDeque<Arc<TimelineEvent>>>,
    limit: usize,
    sender: broadcast::Sender<Arc<TimelineEvent>>,
}

impl Timeline {
    pub(crate) fn new(node: String, limit: usize) -> Self {
        Timeline { node, kept: Mutex::default(), limit, sender: broadcast::channel(limit.min(1_024)).0 }
    }

    pub(crate) fn record(&self, what: NodeEvent) {
        if what.is_warning() {
            tracing::warn!(node = %self.node, "{}", LogLine(&what));
        } else {
            tracing::info!(node = %self.node, "{}", LogLine(&what));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = kept.back().map_or(1, |last| last.sequence + 1);
        let event = Arc::new(TimelineEvent { sequence, wall_ms: wall_ms(), what });
        if kept.len() == self.limit {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // An error means that there are no listeners.
        let _ = self.sender.send(event);
    }

    /// Kept events with a sequence above `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<Arc<TimelineEvent>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|event| event.sequence > after).cloned().collect()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<TimelineEvent>> {
        self.sender.subscribe()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn the_last_events_are_kept_and_new_ones_are_sent() {
        let timeline = Timeline::new("a".to_owned(), 3);
        let mut receiver = timeline.listen();
        for incarnation in 1..=5 {
            timeline.record(NodeEvent::Started { incarnation });
        }
        let kept: Vec<u64> = timeline.after(0).iter().map(|event| event.sequence).collect();
        assert_eq!(kept, [3, 4, 5]);
        assert_eq!(timeline.after(4).len(), 1);
        // The listener was slower than the limit and receives the number of missed events.
        assert!(matches!(receiver.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
        assert!(receiver.try_recv().is_ok());
    }
}
