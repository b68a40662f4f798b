//! The table of all keys. It parses, prints and documents: nothing else lists them.

use super::settings::Settings;
use super::value::{
    Bytes, Bytes64, Count, Count32, Count64, Format, Kind, List, Path, Port, Raw, Share, Switch, Text, Time,
};

/// One key of the configuration.
pub(crate) struct Key {
    /// With its section: `timers.heartbeat_interval`.
    pub(crate) name: &'static str,
    /// For what the usual name does not fit.
    environment: Option<&'static str>,
    pub(crate) flag: Option<&'static str>,
    pub(crate) meaning: &'static str,
    pub(crate) write: fn(&mut Settings, &Raw) -> Result<(), String>,
    /// As TOML.
    pub(crate) read: fn(&Settings) -> String,
}

impl Key {
    pub(crate) fn environment(&self) -> String {
        match self.environment {
            Some(name) => name.to_owned(),
            None => format!("CONVOKE_{}", self.name.replace('.', "_").to_uppercase()),
        }
    }

    /// Section, empty for the top, and name in it.
    pub(crate) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    const fn flag(mut self, flag: &'static str) -> Key {
        self.flag = Some(flag);
        self
    }

    const fn environment_name(mut self, name: &'static str) -> Key {
        self.environment = Some(name);
        self
    }
}

/// The name of a key is the path of its field.
macro_rules! key {
    ($kind:ty, $field:ident, $meaning:literal) => {
        key!(@ $kind, stringify!($field), [$field], $meaning)
    };
    ($kind:ty, $section:ident.$field:ident, $meaning:literal) => {
        key!(@ $kind, concat!(stringify!($section), ".", stringify!($field)), [$section.$field], $meaning)
    };
    (@ $kind:ty, $name:expr, [$($path:tt)+], $meaning:literal) => {
        Key {
            name: $name,
            environment: None,
            flag: None,
            meaning: $meaning,
            write: |settings, raw| {
                settings.$($path)+ = <$kind>::parse(raw)?;
                Ok(())
            },
            read: |settings| <$kind>::toml(&settings.$($path)+),
        }
    };
}

/// Sections in the order in which they are shown, each with what it is about.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("", "The node."),
    ("logging", "What the node says about itself, on stderr."),
    ("tracing", "Traces for OpenTelemetry: see docs/monitoring.md."),
    ("timers", "Durations. They are checked together: see docs/protocol.md for what depends on what."),
    ("limits", "Bounds of the registry. Reaching one is a refusal that names it. Give all nodes the same."),
    ("network", "Bounds of links to other nodes and of queues inside the node."),
    ("clients", "Bounds of what clients may make this node hold."),
    ("client_timeouts", "How long the client port waits for whom."),
    ("dns", "The registry as a DNS zone: see docs/dns.md."),
    ("log", "The log plane. The registry does not depend on it."),
    ("log_timers", "Durations of the log plane. Give all nodes the same."),
    ("log_limits", "Bounds of what a replica of the log holds beside the state."),
    (
        "log_state",
        "Bounds of the log's state. They are set when a log begins and are part of it from then on; later changes here do nothing.",
    ),
];

pub(crate) const KEYS: &[Key] = &[
    key!(
        Text,
        id,
        "Name of this node, unique in the cluster. Empty: the one the data directory belongs to, else made from the host name."
    )
    .flag("--id"),
    key!(Text, cluster, "Nodes of another cluster are refused.").flag("--cluster"),
    key!(Text, region, "Where this node is. Nodes of a region are all linked to each other, regions by some of them.")
        .flag("--region"),
    key!(Path, data_dir, "Where the node remembers its number of runs and keeps its log.").flag("--data-dir"),
    key!(List, join, "Peer addresses of nodes to join, host:port. Empty: the first node of a new cluster.")
        .flag("--join"),
    key!(Text, bind, "Host to listen on, for clients and for peers.").flag("--bind"),
    key!(Port, client_port, "Port for clients, gRPC and HTTP; 0 is any free one.").flag("--client-port"),
    key!(Port, peer_port, "Port for other nodes; 0 is any free one.").flag("--peer-port"),
    key!(Port, dns_port, "Port for DNS, UDP and TCP; 0 is any free one. If nobody set it and it is taken, a free one.")
        .flag("--dns-port"),
    key!(
        Text,
        advertise,
        "Host, or host:port of the peer port, that others dial. Empty: the address bound to. Needed if bound to all addresses."
    )
    .flag("--advertise"),
    key!(
        Switch,
        insecure_public,
        "Listen on addresses that other machines reach although whoever reaches them may do everything."
    )
    .flag("--insecure-public"),
    key!(
        Share,
        mass_failure_share,
        "If more than this share of members or nodes falls silent at once, the node doubts itself first."
    ),
    key!(Share, retry_jitter, "By how much timers.peer_retry_interval varies, as a share."),
    key!(Text, logging.level, "Level (error, warn, info, debug, trace), or levels by module: info,convoke_node=debug.")
        .flag("--log-level")
        .environment_name("CONVOKE_LOG_LEVEL"),
    key!(Format, logging.format, "text or json.").flag("--log-format").environment_name("CONVOKE_LOG_FORMAT"),
    key!(
        Text,
        tracing.otlp_endpoint,
        "Collector that traces are sent to, OTLP over HTTP: http://127.0.0.1:4318. Empty: nothing is traced."
    )
    .flag("--otlp-endpoint"),
    key!(
        Share,
        tracing.sample_ratio,
        "Share of the traces begun here that are recorded, 0 to 1. Callers that trace have decided for themselves."
    ),
    key!(Time, timers.heartbeat_interval, "How often clients say that they live."),
    key!(
        Time,
        timers.heartbeat_timeout,
        "Silence after which a client's members are down. At least 3 × heartbeat_interval."
    ),
    key!(Time, timers.reconnect_timeout, "Further silence after which they are unregistered."),
    key!(
        Time,
        timers.tombstone_timeout,
        "How long it is remembered that a member was unregistered. Longer than dead_peer_timeout + heartbeat_timeout + ping_timeout + reconnect_timeout."
    ),
    key!(Time, timers.peer_retry_interval, "Pause between attempts to reach a lost node."),
    key!(
        Time,
        timers.dead_peer_timeout,
        "Silence after which the names registered by a node itself are dropped. Longer than heartbeat_timeout + ping_timeout + reconnect_timeout."
    ),
    key!(Time, timers.gossip_interval, "At most one exchange per link in this time."),
    key!(Time, timers.ping_interval, "How often linked nodes ping each other."),
    key!(Time, timers.ping_timeout, "Silence on a link after which the other node is lost. At least 2 × ping_interval."),
    key!(Time, timers.health_query_delay, "From losing a node to asking others about it."),
    key!(Time, timers.health_report_wait, "How long their answers are collected."),
    key!(Time, timers.lone_start_wait, "If all nodes that can be reached are starting: how long until one goes ahead."),
    key!(Time, timers.resume_wait, "How long a resuming watcher waits for a node that lags behind it."),
    key!(Time, timers.mark_interval, "Pause between marks in watches."),
    key!(Time, timers.handover_timeout, "How long a stopping node waits for its clients to move, and for a peer to hear of their last writes."),
    key!(Bytes, limits.id_bytes, "Id of a member."),
    key!(Bytes, limits.attribute_bytes, "Service, locality, revision, an address."),
    key!(Count, limits.metadata_pairs, "Metadata keys of one member."),
    key!(Bytes, limits.metadata_key_bytes, "One metadata key."),
    key!(Bytes, limits.metadata_value_bytes, "One metadata value."),
    key!(Bytes, limits.metadata_bytes, "All metadata of one member."),
    key!(Count, limits.endpoints, "Named endpoints of one member."),
    key!(Count, limits.members, "Members in the cluster."),
    key!(Count, limits.members_per_session, "Members of one client."),
    key!(Count, limits.sessions, "Clients attached to one node."),
    key!(Count, limits.names, "Names registered by nodes themselves."),
    key!(Count, limits.subscribers, "Watches at one node."),
    key!(Count, limits.subscriber_queue, "Changes that may wait for one slow watcher; beyond, it starts anew."),
    key!(Count, limits.resume_known, "Ids with versions that a resuming watcher may send."),
    key!(Count, limits.peers, "Other nodes."),
    key!(Count, limits.incarnations_per_node, "Runs of one node that are tracked at once."),
    key!(Bytes, limits.frame_bytes, "Largest message between nodes."),
    key!(Bytes, limits.chunk_bytes, "Target size of one part of an exchange."),
    key!(Count, limits.chunk_window, "Parts of an exchange that may be under way unacknowledged."),
    key!(Count, limits.push_backlog, "Writes a peer may lag behind before nothing more is pushed to it."),
    key!(Count, network.inbox, "Inputs that may wait for the owner task; beyond, clients are refused and peers wait."),
    key!(Bytes, network.link_queue_bytes, "What may wait to be written to one peer; beyond, the link is closed."),
    key!(Bytes, network.congestion_bytes, "What waits for a peer when nothing more is pushed to it."),
    key!(Count, network.unidentified_links, "Inbound peer connections that have not yet said who they are."),
    key!(Time, network.handshake_timeout, "How long such a connection may take."),
    key!(Time, network.dial_timeout, "How long one attempt to connect to a peer may take."),
    key!(Count, network.unanswered_operations, "Operations of one client connection that may be unanswered."),
    key!(Count, network.notices, "Notices that may wait for one client connection; beyond, it is closed."),
    key!(Count, network.events_kept, "Events of the timeline that are kept."),
    key!(Count, network.changes_kept, "Changes of members that are kept for the timeline."),
    key!(Count, clients.connections, "Connections at once; beyond, new ones are closed."),
    key!(Count32, clients.streams_per_connection, "Calls at once on one HTTP/2 connection."),
    key!(Count, clients.attaches, "Attached clients at once."),
    key!(Count, clients.watchers, "Server-sent event streams at once."),
    key!(Count, clients.sessions, "Sessions over HTTP held here at once."),
    key!(Count, clients.attach_members, "Members in one attach that comes in parts."),
    key!(Bytes, clients.attach_bytes, "Size of one attach that comes in parts."),
    key!(Bytes, clients.body_bytes, "Body of one HTTP request."),
    key!(Bytes, clients.header_bytes, "All headers of one request."),
    key!(Bytes, clients.uri_bytes, "Path and query of one request."),
    key!(Count, clients.page_members, "Members on one page of a listing."),
    key!(Count, clients.log_links, "Links of SDKs to the log at once."),
    key!(Bytes, clients.value_bytes, "Value of one key over HTTP; log_state.value_bytes holds as well."),
    key!(
        Time,
        client_timeouts.headers,
        "For the first bytes of a connection and the headers of a request; idle HTTP/1.1 connections are closed after it."
    ),
    key!(Time, client_timeouts.request, "For the body of a request, and for the answer to it."),
    key!(Time, client_timeouts.stall, "A client that takes nothing of what is written to it for so long is disconnected."),
    key!(Time, client_timeouts.keep_alive, "Between signs of life in event streams that have nothing to tell."),
    key!(Time, client_timeouts.forward, "For another node to answer a request of one of its sessions."),
    key!(Time, client_timeouts.farewell, "From the node's end to cutting what clients have not finished."),
    key!(Switch, dns.enabled, "Whether DNS is served."),
    key!(Time, dns.ttl, "How long resolvers may remember an answer; whole seconds."),
    key!(Switch, log.enabled, "Whether this node takes part in the log plane."),
    key!(Time, log_timers.heartbeat_interval, "Pause between signs of life of the leader."),
    key!(Time, log_timers.election_timeout_min, "Shortest pause before a replica stands for election."),
    key!(Time, log_timers.election_timeout_max, "A leader that was silent for so long is given up; also the longest pause before a replica stands for election."),
    key!(Time, log_timers.rpc_timeout, "How long a message to another replica may go unanswered."),
    key!(Time, log_timers.snapshot_stall, "A snapshot that makes no progress for so long is given up."),
    key!(Time, log_timers.join_interval, "Pause between attempts to find a log, or those to begin one with."),
    key!(Count, log_limits.proposals, "Requests under way at the leader; beyond, they are refused."),
    key!(Count, log_limits.reads, "Confirmed reads under way at the leader; beyond, they are refused."),
    key!(Bytes, log_limits.command_bytes, "One command in the log."),
    key!(Bytes, log_limits.append_bytes, "Entries in one message to another replica; a single one may be larger."),
    key!(Count, log_limits.appends_in_flight, "Messages with entries to one replica that may be unanswered."),
    key!(Bytes, log_limits.frame_bytes, "Largest message between replicas."),
    key!(Count, log_limits.connections, "Connections of other replicas."),
    key!(Bytes64, log_limits.segment_bytes, "Size of one file of the log."),
    key!(Bytes64, log_limits.snapshot_log_bytes, "A snapshot is taken when the log has grown by so much."),
    key!(Bytes64, log_limits.catch_up_bytes, "What is kept of the log behind a snapshot, for replicas that lag."),
    key!(Bytes64, log_limits.log_bytes, "What the log may hold in all, in memory, too; beyond, requests are refused."),
    key!(Count64, log_state.sessions, "Open log sessions."),
    key!(Count64, log_state.ended_sessions, "Ended sessions whose outcomes are still known."),
    key!(Count64, log_state.outcomes, "Outcomes a session keeps although nobody said that they are wanted."),
    key!(Count64, log_state.window, "Outcomes a session keeps because they are wanted."),
    key!(Bytes64, log_state.outcome_bytes, "Bytes of outcomes a session keeps, of either sort."),
    key!(Bytes64, log_state.response_bytes, "Bytes of previous records in one response."),
    key!(Time, log_state.ttl_min, "Shortest ttl of a session."),
    key!(Time, log_state.ttl_max, "Longest ttl of a session."),
    key!(Bytes64, log_state.client_name_bytes, "Name of a client."),
    key!(Bytes64, log_state.key_bytes, "One key."),
    key!(Bytes64, log_state.value_bytes, "One value."),
    key!(Count64, log_state.range_keys, "Keys that one request may delete."),
    key!(Bytes64, log_state.store_bytes, "All keys and values."),
    key!(Count64, log_state.replicas, "Voters and learners together."),
    key!(Bytes64, log_state.address_bytes, "Node id or address of a replica."),
];

pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns the environment variable of a key.
#[cfg(feature = "tools")]
pub(crate) fn variable_of(name: &str) -> Option<String> {
    find(name).map(Key::environment)
}

/// The key a component means by the bare name of its field.
pub(crate) fn of_field(field: &str, sections: &[&str]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.parts().1 == field && sections.contains(&key.parts().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A field that somebody adds to a component's settings appears here, or this fails.
    #[test]
    fn every_setting_of_every_component_has_a_key() {
        let settings = Settings::default();
        let sections = [
            ("timers", format!("{:#?}", settings.timers)),
            ("limits", format!("{:#?}", settings.limits)),
            ("network", format!("{:#?}", settings.network)),
            ("clients", format!("{:#?}", settings.clients)),
            ("client_timeouts", format!("{:#?}", settings.client_timeouts)),
            ("log_timers", format!("{:#?}", settings.log_timers)),
            ("log_limits", format!("{:#?}", settings.log_limits)),
            ("log_state", format!("{:#?}", settings.log_state)),
        ];
        for (section, shown) in sections {
            let fields = shown.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
            for (field, _) in fields {
                assert!(find(&format!("{section}.{field}")).is_some(), "no key for {section}.{field}");
            }
        }
    }

    #[test]
    fn names_and_variables_are_unique_and_sections_known() {
        let names: BTreeSet<_> = KEYS.iter().map(|key| key.name).collect();
        let variables: BTreeSet<_> = KEYS.iter().map(Key::environment).collect();
        assert_eq!((names.len(), variables.len()), (KEYS.len(), KEYS.len()));
        for key in KEYS {
            assert!(SECTIONS.iter().any(|(section, _)| *section == key.parts().0), "{}", key.name);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for key in KEYS {
            let mut settings = Settings::default();
            let before = (key.read)(&settings);
            let toml = format!("value = {before}");
            let raw = super::super::file::value_of(&toml);
            (key.write)(&mut settings, &raw).unwrap_or_else(|error| panic!("{} {error}", key.name));
            assert_eq!((key.read)(&settings), before, "{}", key.name);
        }
    }
}
