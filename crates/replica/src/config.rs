//! Configuration of a replica.

use crate::mutant::Mutation;
use convoke_log::{Level, LogLimits};
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of a replica.
#[derive(Clone, Debug)]
pub struct Config {
    /// Id of the node that hosts the replica.
    pub node: String,
    /// Cluster name. Nodes of another cluster are rejected.
    pub cluster: String,
    /// Address at which other replicas dial this one, `host:port`.
    pub address: String,
    /// Address at which clients reach this node; empty if there is none. Replicas exchange it, so that a node can name
    /// the leader before the registry has its address.
    pub client_address: String,
    /// Peer addresses at which to look for a log.
    pub join: Vec<String>,
    /// When this node may create a log.
    pub founding: Founding,
    /// Directory for log and snapshots. `None` keeps everything in memory, and a restart makes a new replica.
    pub data_dir: Option<PathBuf>,
    /// Limits of the state. Used only by the node that creates a log; afterwards they are part of the state (LH4).
    pub state: LogLimits,
    pub timers: LogTimers,
    pub limits: ReplicaLimits,
    /// Whether the leader leaves the feature level as it is until an operator raises it (V3).
    pub hold_level: bool,
    /// The highest feature level that this replica supports. Tests set a lower one to run an earlier version.
    pub supported: Level,
    /// A deliberate bug, for tests.
    pub mutation: Mutation,
}

/// When a node that finds no log may create one (FD1 to FD4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Founding {
    /// Alone and at once if the join list is empty, otherwise as `Listed`. Only for a node that no other node can know
    /// yet, because a node that lost its disk would create a second log.
    #[default]
    AtOnce,
    /// Together with all nodes of the join list, if it has at least two entries.
    Listed,
    /// Alone, if no node with a log is known for this time.
    Alone { after: Duration },
    /// Together with the nodes behind the join list, once there are exactly so many.
    Expected(usize),
}

/// Timers of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTimers {
    /// Interval between heartbeats of a leader.
    pub heartbeat_interval: Duration,
    /// A replica whose leader is silent for `election_timeout_max` waits for a random time between the two values and
    /// then starts an election. An election therefore starts after at least their sum and at most twice the maximum.
    pub election_timeout_min: Duration,
    pub election_timeout_max: Duration,
    /// Deadline for the answer to a message to another replica.
    pub rpc_timeout: Duration,
    /// A snapshot transfer without progress for this time is aborted.
    pub snapshot_stall: Duration,
    /// Interval between attempts to reach missing founders.
    pub join_interval: Duration,
}

impl Default for LogTimers {
    fn default() -> Self {
        LogTimers {
            heartbeat_interval: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(400),
            election_timeout_max: Duration::from_millis(700),
            rpc_timeout: Duration::from_secs(1),
            snapshot_stall: Duration::from_secs(10),
            join_interval: Duration::from_millis(500),
        }
    }
}

/// Limits of a replica outside the replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// Requests in progress at a leader; further ones are rejected.
    pub proposals: usize,
    /// Reads in progress at a leader; further ones are rejected.
    pub reads: usize,
    /// Clients that wait for a change of their place in a lock, at a leader; further ones are rejected.
    pub awaited_places: usize,
    /// Size of one encoded command.
    pub command_bytes: usize,
    /// Bytes of entries per message to another replica.
    pub append_bytes: usize,
    /// Unanswered messages per replica.
    pub appends_in_flight: usize,
    /// Largest message between replicas.
    pub frame_bytes: usize,
    /// Connections from other replicas.
    pub connections: usize,
    /// Size of one segment of the log.
    pub segment_bytes: u64,
    /// A snapshot is taken whenever the log has grown by this size.
    pub snapshot_log_bytes: u64,
    /// Size of the log kept before a snapshot, for replicas that lag a little.
    pub catch_up_bytes: u64,
    /// Maximum size of the log. Beyond it, requests are rejected until a snapshot completes.
    pub log_bytes: u64,
}

impl Default for ReplicaLimits {
    fn default() -> Self {
        ReplicaLimits {
            proposals: 8_192,
            reads: 8_192,
            awaited_places: 100_000,
            command_bytes: 9 * 1024 * 1024,
            append_bytes: 512 * 1024,
            appends_in_flight: 16,
            frame_bytes: 40 * 1024 * 1024,
            connections: 256,
            segment_bytes: 64 * 1024 * 1024,
            snapshot_log_bytes: 64 * 1024 * 1024,
            catch_up_bytes: 16 * 1024 * 1024,
            log_bytes: 512 * 1024 * 1024,
        }
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}: {wanted}")]
pub struct ConfigError {
    pub field: &'static str,
    pub found: String,
    pub wanted: &'static str,
}

impl Config {
    /// Creates the configuration of a replica in memory that creates its own log.
    pub fn new(node: impl Into<String>, address: impl Into<String>) -> Self {
        Config {
            node: node.into(),
            cluster: "default".to_owned(),
            address: address.into(),
            client_address: String::new(),
            join: Vec::new(),
            founding: Founding::default(),
            data_dir: None,
            state: LogLimits::default(),
            timers: LogTimers::default(),
            limits: ReplicaLimits::default(),
            hold_level: false,
            supported: Level::SUPPORTED,
            mutation: Mutation::none(),
        }
    }

    /// Checks the configuration before any file is opened.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let reject = |field, found: String, wanted| Err(ConfigError { field, found, wanted });
        let (timers, limits) = (&self.timers, &self.limits);
        if let Err(error) = self.state.check() {
            return reject(error.field, error.found.to_string(), "out of the bounds of the log's formats");
        }
        if timers.heartbeat_interval.as_millis() < 10 {
            return reject("heartbeat_interval", format!("{:?}", timers.heartbeat_interval), "at least 10 ms");
        }
        if timers.election_timeout_min < 3 * timers.heartbeat_interval {
            let found = format!("{:?}", timers.election_timeout_min);
            return reject("election_timeout_min", found, "at least three times heartbeat_interval");
        }
        if timers.election_timeout_max < timers.election_timeout_min * 3 / 2 {
            let found = format!("{:?}", timers.election_timeout_max);
            return reject("election_timeout_max", found, "at least 1.5 times election_timeout_min");
        }
        for (field, found) in [
            ("rpc_timeout", timers.rpc_timeout),
            ("snapshot_stall", timers.snapshot_stall),
            ("join_interval", timers.join_interval),
        ] {
            if found.as_millis() < 10 {
                return reject(field, format!("{found:?}"), "at least 10 ms");
            }
        }
        for (field, found) in [
            ("proposals", limits.proposals),
            ("reads", limits.reads),
            ("append_bytes", limits.append_bytes),
            ("appends_in_flight", limits.appends_in_flight),
            ("connections", limits.connections),
        ] {
            if found == 0 {
                return reject(field, found.to_string(), "at least 1");
            }
        }
        if limits.proposals > PROPOSALS_MAX {
            return reject("proposals", limits.proposals.to_string(), "at most 32768");
        }
        let value = usize::try_from(self.state.value_bytes + self.state.key_bytes).unwrap_or(usize::MAX);
        if limits.command_bytes < value.saturating_add(COMMAND_OVERHEAD) {
            return reject("command_bytes", limits.command_bytes.to_string(), "room for a key and a value, and 64 KiB");
        }
        let frame = (limits.command_bytes + limits.append_bytes).max(convoke_log::snapshot::FRAME_CONTENT_BYTES_MAX);
        if limits.frame_bytes < frame + FRAME_OVERHEAD {
            return reject(
                "frame_bytes",
                limits.frame_bytes.to_string(),
                "room for append_bytes and a command, or 32 MiB, and 64 KiB",
            );
        }
        if limits.segment_bytes < 4096 {
            return reject("segment_bytes", limits.segment_bytes.to_string(), "at least 4096");
        }
        if limits.log_bytes < 2 * (limits.snapshot_log_bytes + limits.catch_up_bytes) {
            let wanted = "at least twice snapshot_log_bytes and catch_up_bytes together";
            return reject("log_bytes", limits.log_bytes.to_string(), wanted);
        }
        Ok(())
    }
}

/// The engine's own queue is larger, so that handing over a proposal never waits.
const PROPOSALS_MAX: usize = 32_768;
/// Size of a command without key and value.
const COMMAND_OVERHEAD: usize = 64 * 1024;
/// Size of a message without its content.
const FRAME_OVERHEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed_and_what_cannot_work_is_named() {
        let config = Config::new("a", "127.0.0.1:1");
        assert_eq!(config.validate(), Ok(()));
        let mut wrong = config.clone();
        wrong.timers.election_timeout_min = Duration::from_millis(200);
        assert_eq!(wrong.validate().map_err(|error| error.field), Err("election_timeout_min"));
        let mut wrong = config.clone();
        wrong.limits.frame_bytes = 1024;
        assert_eq!(wrong.validate().map_err(|error| error.field), Err("frame_bytes"));
        let mut wrong = config;
        wrong.limits.log_bytes = 1024;
        assert!(wrong.validate().unwrap_err().to_string().starts_with("log_bytes is 1024: at least twice"));
    }
}
