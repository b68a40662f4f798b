//! Settings of a node, validated together before anything starts.

use crate::member::{CHECK_TEXTS_BYTES_MAX, CHECKS_MAX, OUTPUT_BYTES_MAX};
use crate::time::Duration;
use crate::version::NodeId;
use crate::wire;

/// All durations of the registry and peer planes. Defaults are those of the requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Interval at which a client is expected to send heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which a client's members are `down`.
    pub heartbeat_timeout: Duration,
    /// Further silence after which they are `left`.
    pub reconnect_timeout: Duration,
    /// How long a `left` record is kept (D8).
    pub tombstone_timeout: Duration,
    /// Pause between attempts to reach a lost peer (P4), ± 10 %.
    pub peer_retry_interval: Duration,
    /// Silence after which a node's names are dropped (D10).
    pub dead_peer_timeout: Duration,
    /// Silence after which the name of a node is removed (D15), unless it left: then the retirement time.
    pub forget_timeout: Duration,
    /// At most one exchange per link and interval (D7).
    pub gossip_interval: Duration,
    pub ping_interval: Duration,
    /// Silence on a link, or of its echo, after which the peer is lost (P6).
    pub ping_timeout: Duration,
    /// From losing a peer to asking others about it (P3).
    pub health_query_delay: Duration,
    /// How long reports are collected.
    pub health_report_wait: Duration,
    /// How long all reachable nodes must have been starting before the one with the lowest id begins to serve (N8).
    pub lone_start_wait: Duration,
    /// How long a resuming watcher waits for a lagging node (W4).
    pub resume_wait: Duration,
    /// Pause between marks in watcher streams.
    pub mark_interval: Duration,
    /// How long a graceful stop waits for its sessions to move, and for a peer to receive its last writes (N6).
    pub handover_timeout: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_timeout: Duration::from_secs(20),
            reconnect_timeout: Duration::from_secs(5 * 60),
            tombstone_timeout: Duration::from_secs(30 * 60),
            peer_retry_interval: Duration::from_secs(5),
            dead_peer_timeout: Duration::from_secs(15 * 60),
            forget_timeout: Duration::from_secs(7 * 24 * 60 * 60),
            gossip_interval: Duration::from_secs(1),
            ping_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(3),
            health_query_delay: Duration::from_millis(100),
            health_report_wait: Duration::from_secs(1),
            lone_start_wait: Duration::from_secs(5),
            resume_wait: Duration::from_secs(5),
            mark_interval: Duration::from_secs(5),
            handover_timeout: Duration::from_secs(30),
        }
    }
}

impl Timers {
    /// Silence after which an old incarnation is retired (D14): by then every running node has collected its records.
    pub fn retirement(&self) -> Duration {
        self.dead_peer_timeout + self.tombstone_timeout + self.admission_window() + self.reconnect_timeout
    }

    /// Silence of an origin after which it is no longer admitted (L2). The ping timeout on top covers the propagation
    /// when a client re-attached elsewhere just before the deadline.
    pub fn admission_window(&self) -> Duration {
        self.heartbeat_timeout + self.ping_timeout
    }
}

/// Bytes of the checks of a record.
const CHECKS_BYTES: usize = CHECK_TEXTS_BYTES_MAX + CHECKS_MAX * (OUTPUT_BYTES_MAX + 256);

/// Limits on everything a node accepts or holds. Exceeding one causes a rejection and increments a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub id_bytes: usize,
    pub attribute_bytes: usize,
    pub metadata_pairs: usize,
    pub metadata_key_bytes: usize,
    pub metadata_value_bytes: usize,
    pub metadata_bytes: usize,
    pub endpoints: usize,
    pub members: usize,
    pub members_per_session: usize,
    pub sessions: usize,
    pub names: usize,
    pub watchers: usize,
    /// Changes that may wait for one slow watcher (W5).
    pub watcher_queue: usize,
    /// Id → version pairs a resuming watcher may send.
    pub resume_known: usize,
    pub peers: usize,
    /// Incarnations of one node id that are tracked at once.
    pub incarnations_per_node: usize,
    /// Largest peer frame in bytes (P7).
    pub frame_bytes: usize,
    /// Target size of one chunk of a delta or full merge.
    pub chunk_bytes: usize,
    /// Chunks that may be in flight without an acknowledgement.
    pub chunk_window: usize,
    /// Writes a peer may lag behind before pushing to it stops (D5).
    pub push_backlog: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            id_bytes: 256,
            attribute_bytes: 256,
            metadata_pairs: 64,
            metadata_key_bytes: 128,
            metadata_value_bytes: 4 * 1024,
            metadata_bytes: 16 * 1024,
            endpoints: 16,
            members: 2_000_000,
            members_per_session: 100_000,
            sessions: 200_000,
            names: 1_000_000,
            watchers: 50_000,
            watcher_queue: 4_096,
            resume_known: 2_000_000,
            peers: 1_024,
            incarnations_per_node: 64,
            frame_bytes: 4 * 1024 * 1024,
            chunk_bytes: 128 * 1024,
            chunk_window: 4,
            push_backlog: 16_384,
        }
    }
}

/// The whole configuration of one node's core.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub node: NodeId,
    pub cluster: String,
    /// Ports of this node that use TLS, for its member record; empty for none (TS5).
    pub tls: String,
    pub region: String,
    /// Address other nodes dial.
    pub peer_address: String,
    /// Address clients dial; shown in the node's own member record.
    pub client_address: String,
    /// Peer addresses to start from; never forgotten (P12).
    pub seeds: Vec<String>,
    pub timers: Timers,
    pub limits: Limits,
    /// Share of members or nodes that may be judged lost at once without waiting (L6).
    pub mass_failure_share: f64,
    /// Share of the up, undrained members of a service: with fewer that are not critical, all are routable (HC6).
    pub panic_share: f64,
    /// Move sessions towards an even spread (N10).
    pub rebalance: bool,
    /// Jitter of the retry interval, as a share (P4).
    pub retry_jitter: f64,
    /// Key of the hash tables: keeps clients from choosing ids that collide.
    pub hash_seed: u64,
    /// Seed of the node's own randomness (jitter, choice of peers).
    pub random_seed: u64,
}

impl Config {
    pub fn new(node: NodeId) -> Self {
        Config {
            node,
            cluster: "convoke".to_owned(),
            tls: String::new(),
            region: String::new(),
            peer_address: String::new(),
            client_address: String::new(),
            seeds: Vec::new(),
            timers: Timers::default(),
            limits: Limits::default(),
            mass_failure_share: 0.5,
            panic_share: 0.5,
            rebalance: false,
            retry_jitter: 0.1,
            hash_seed: 0,
            random_seed: 0,
        }
    }

    /// Checks all settings together; the message names the setting to change, and the value to set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let t = &self.timers;
        let at_least = |name, value: Duration, bound: Duration, why| {
            if value < bound { Err(ConfigError::TooShort { name, value, bound, why }) } else { Ok(()) }
        };
        let longer = |name, value: Duration, bound: Duration, why| {
            if value <= bound { Err(ConfigError::TooShort { name, value, bound, why }) } else { Ok(()) }
        };
        let tick = Duration::from_millis(1);
        at_least("heartbeat_interval", t.heartbeat_interval, tick, "1 ms")?;
        at_least("ping_interval", t.ping_interval, tick, "1 ms")?;
        at_least("gossip_interval", t.gossip_interval, tick, "1 ms")?;
        at_least("peer_retry_interval", t.peer_retry_interval, tick, "1 ms")?;
        at_least("heartbeat_timeout", t.heartbeat_timeout, t.heartbeat_interval * 3, "3 × heartbeat_interval")?;
        at_least("ping_timeout", t.ping_timeout, t.ping_interval * 2, "2 × ping_interval")?;
        at_least("heartbeat_timeout", t.heartbeat_timeout, t.ping_timeout, "ping_timeout")?;
        longer(
            "dead_peer_timeout",
            t.dead_peer_timeout,
            t.admission_window() + t.reconnect_timeout,
            "heartbeat_timeout + ping_timeout + reconnect_timeout",
        )?;
        longer(
            "tombstone_timeout",
            t.tombstone_timeout,
            t.dead_peer_timeout + t.admission_window() + t.reconnect_timeout,
            "dead_peer_timeout + heartbeat_timeout + ping_timeout + reconnect_timeout",
        )?;
        at_least(
            "forget_timeout",
            t.forget_timeout,
            t.retirement(),
            "dead_peer_timeout + tombstone_timeout + heartbeat_timeout + ping_timeout + reconnect_timeout",
        )?;
        if !(0.0..=1.0).contains(&self.mass_failure_share) {
            return Err(ConfigError::Share { name: "mass_failure_share", value: self.mass_failure_share });
        }
        if !(0.0..=1.0).contains(&self.panic_share) {
            return Err(ConfigError::Share { name: "panic_share", value: self.panic_share });
        }
        if !(0.0..=0.9).contains(&self.retry_jitter) {
            return Err(ConfigError::Share { name: "retry_jitter", value: self.retry_jitter });
        }
        self.validate_limits()
    }

    fn validate_limits(&self) -> Result<(), ConfigError> {
        let l = &self.limits;
        let largest = l.id_bytes + 4 * l.attribute_bytes + 2 * l.metadata_bytes + CHECKS_BYTES + 1024;
        if l.chunk_bytes + largest > l.frame_bytes {
            return Err(ConfigError::Frame { frame: l.frame_bytes, needed: l.chunk_bytes + largest });
        }
        for (name, value, largest) in [
            ("id_bytes", l.id_bytes, wire::ID_BYTES_MAX),
            ("attribute_bytes", l.attribute_bytes, wire::TEXT_BYTES_MAX),
            ("metadata_key_bytes", l.metadata_key_bytes, wire::TEXT_BYTES_MAX),
            ("metadata_value_bytes", l.metadata_value_bytes, wire::TEXT_BYTES_MAX),
            ("metadata_pairs", l.metadata_pairs, wire::PAIRS_MAX),
            ("endpoints", l.endpoints, wire::PAIRS_MAX),
            ("cluster", self.cluster.len(), wire::ADDRESS_BYTES_MAX),
            ("region", self.region.len(), wire::ADDRESS_BYTES_MAX),
            ("peer_address", self.peer_address.len(), wire::ADDRESS_BYTES_MAX),
            ("client_address", self.client_address.len(), wire::ADDRESS_BYTES_MAX),
        ] {
            let largest = largest as usize;
            if value > largest {
                return Err(ConfigError::TooLarge { name, value, largest });
            }
        }
        for (name, value) in [
            ("id_bytes", l.id_bytes),
            ("attribute_bytes", l.attribute_bytes),
            ("watcher_queue", l.watcher_queue),
            ("chunk_bytes", l.chunk_bytes),
            ("chunk_window", l.chunk_window),
            ("push_backlog", l.push_backlog),
            ("peers", l.peers),
            ("incarnations_per_node", l.incarnations_per_node),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// A setting that is invalid, or invalid together with another.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("{name} is {value:?}, which is too short: set it above {bound:?} ({why})")]
    TooShort { name: &'static str, value: Duration, bound: Duration, why: &'static str },
    #[error("{name} is {value}, which is not a share: set it between 0 and 1")]
    Share { name: &'static str, value: f64 },
    #[error("frame_bytes is {frame}, too small for one chunk and the largest member: set it to at least {needed}")]
    Frame { frame: usize, needed: usize },
    #[error("{name} is {value}, more than the peer protocol can encode: set it to at most {largest}")]
    TooLarge { name: &'static str, value: usize, largest: usize },
    #[error("{name} is 0: set it to at least 1")]
    Zero { name: &'static str },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(NodeId::new("a").unwrap())
    }

    #[test]
    fn defaults_are_valid() {
        config().validate().unwrap();
    }

    #[test]
    fn timers_are_validated_together() {
        let mut c = config();
        c.timers.heartbeat_timeout = Duration::from_secs(14);
        let error = c.validate().unwrap_err().to_string();
        assert_eq!(error, "heartbeat_timeout is 14s, which is too short: set it above 15s (3 × heartbeat_interval)");

        let mut c = config();
        c.timers.tombstone_timeout = Duration::from_secs(20 * 60);
        assert!(c.validate().unwrap_err().to_string().starts_with("tombstone_timeout is 1200s"));

        let mut c = config();
        c.limits.frame_bytes = 1024;
        assert!(matches!(c.validate(), Err(ConfigError::Frame { .. })));
    }
}
