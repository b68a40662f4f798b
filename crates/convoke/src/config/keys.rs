//! The table of all configuration keys. Files, variables, flags, help texts and docs/configuration.md come from it.

use super::settings::Settings;
use serde_json::Value;

/// One configuration key. The field of [`Settings`] with the same path holds its value.
#[derive(Debug)]
pub(crate) struct Key {
    /// With its section: `timers.heartbeat_interval`.
    pub(crate) name: &'static str,
    /// Meaning of the key: one phrase, also the help text of the flag.
    pub(crate) help: &'static str,
    /// Further sentences for the reference.
    pub(crate) details: &'static str,
    pub(crate) flag: Option<&'static str>,
    pub(crate) value_name: &'static str,
    variable: Option<&'static str>,
    /// Only a configuration file sets it: no variable, no flag.
    pub(crate) only_in_file: bool,
}

const fn key(name: &'static str, help: &'static str) -> Key {
    Key { name, help, details: "", flag: None, value_name: "", variable: None, only_in_file: false }
}

impl Key {
    const fn details(mut self, details: &'static str) -> Key {
        self.details = details;
        self
    }

    const fn flag(mut self, flag: &'static str, value_name: &'static str) -> Key {
        self.flag = Some(flag);
        self.value_name = value_name;
        self
    }

    const fn only_in_file(mut self) -> Key {
        self.only_in_file = true;
        self
    }

    const fn variable(mut self, variable: &'static str) -> Key {
        self.variable = Some(variable);
        self
    }

    /// Name of the environment variable. If only a file sets the key, this variable is an error.
    pub(crate) fn environment(&self) -> String {
        match self.variable {
            Some(name) => name.to_owned(),
            None => format!("CONVOKE_{}", self.name.replace('.', "_").to_uppercase()),
        }
    }

    /// Section (empty for the top of the file) and name in it.
    pub(crate) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// The value in a tree of settings.
    pub(crate) fn slot<'a>(&self, tree: &'a mut Value) -> &'a mut Value {
        tree.pointer_mut(&self.pointer()).expect("every key is a setting")
    }

    pub(crate) fn read(&self, settings: &Settings) -> Value {
        self.slot(&mut tree(settings)).take()
    }

    fn pointer(&self) -> String {
        format!("/{}", self.name.replace('.', "/"))
    }
}

/// The settings as a tree of plain values.
pub(crate) fn tree(settings: &Settings) -> Value {
    serde_json::to_value(settings).expect("settings are plain data")
}

/// Sections in the order of the reference.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("", "Identity and addresses of the node."),
    ("tls", "Encryption and identity of connections (docs/guides/secure.md)."),
    ("logging", "Diagnostics on stderr."),
    ("tracing", "OpenTelemetry traces (docs/monitoring.md)."),
    ("timers", "Durations of the registry. The node checks them together (docs/protocol.md)."),
    ("limits", "Limits of the registry. A request beyond a limit is rejected. Use the same values on all nodes."),
    ("clients", "Limits of the client port."),
    ("client_timeouts", "Timeouts of the client port."),
    ("rates", "Rate limits of the client port, per second; 0 means no limit (docs/access-control.md)."),
    ("auth", "Access control with tokens and grants (docs/access-control.md)."),
    ("audit", "Audit log of changes and denials (docs/access-control.md#audit-log)."),
    ("consul", "Consul's HTTP API and DNS (docs/consul.md)."),
    ("dns", "DNS (docs/dns.md)."),
    ("checks", "Health checks (docs/guides/check-health.md)."),
    ("log", "The replicated log (docs/log.md). The registry does not depend on it."),
    ("log_timers", "Durations of the replicated log. Use the same values on all nodes."),
    ("log_limits", "Limits of a replica of the log."),
    ("log_state", "Limits of the state of the log. They are fixed when the log is created."),
];

pub(crate) const KEYS: &[Key] = &[
    key("id", "Node id, unique in the cluster")
        .details(
            "If it is empty, the node uses the id stored in the data directory, or derives one from the host name.",
        )
        .flag("--id", "ID"),
    key("cluster", "Cluster name; nodes reject peers of other clusters").flag("--cluster", "ID"),
    key("region", "Region of this node")
        .details("All nodes of a region connect to each other. Only some nodes connect to other regions.")
        .flag("--region", "REGION"),
    key("data_dir", "Data directory: node identity and replicated log").flag("--data-dir", "DIR"),
    key("join", "Peer addresses of nodes to join")
        .details("Without any, the node starts a new cluster, or waits for others. The list may contain the node's own address.")
        .flag("--join", "HOST:PORT,…"),
    key("bootstrap", "Number of nodes that create the replicated log together; 1: alone")
        .details(
            "`--bootstrap` without a number is 1. A node that finds a log never creates one, so the key can stay set. \
             With 0, all nodes of a `join` list of at least two entries create the log, and a node on a loopback \
             address without `join` creates it alone (docs/log-replicas.md).",
        )
        .flag("--bootstrap", "NODES"),
    key("bind", "Host name or address to listen on").flag("--bind", "HOST"),
    key("client_port", "Port for clients: gRPC, HTTP, dashboard; 0 picks a free port").flag("--client-port", "PORT"),
    key("peer_port", "Port for other nodes; 0 picks a free port").flag("--peer-port", "PORT"),
    key("dns_port", "Port for DNS over UDP and TCP; 0 picks a free port")
        .details("If the key is not set and its default is in use, the node picks a free port.")
        .flag("--dns-port", "PORT"),
    key("advertise", "Host, or host:port of the peer port, that other nodes dial")
        .details("The default is the bound address. Required with `bind` on all addresses (`0.0.0.0` or `::`).")
        .flag("--advertise", "HOST[:PORT]"),
    key("insecure_public", "Allow non-loopback listeners without authentication").flag("--insecure-public", ""),
    key("allowed_hosts", "Host names under which HTTP clients reach this node")
        .details(
            "Names without ports, for example that of a load balancer. IP addresses, names without a dot, names below \
             `.localhost`, `.svc`, `.svc.cluster.local` and `.internal`, and the host in `advertise` are always accepted. \
             `*` accepts every name, which lets web pages of attackers in (docs/http.md).",
        ),
    key("mass_failure_share", "Share of members or nodes lost at once that must be confirmed").details(
        "If a larger share falls silent at once, the node becomes `degraded` and waits before it reports them down.",
    ),
    key("rebalance", "Move sessions to nodes of the region that have fewer").details(
        "A node with more than its share asks a few clients per second to attach to another node.",
    ),
    key("tls.ca", "Certificate authorities that are trusted, in PEM")
        .details("A relative path in a configuration file is relative to the directory of the file. So are the next two."),
    key("tls.cert", "Certificate of this node in PEM")
        .details("It names the cluster and the node: `convoke://CLUSTER/node/ID`. `convoke init` writes it."),
    key("tls.key", "Private key of the certificate in PEM"),
    key("tls.client", "TLS of the client port: off, optional or required").details(
        "With `optional` the port also accepts connections without TLS, and the node is `degraded`. Use it only to \
         convert a running cluster.",
    ),
    key("tls.peer", "TLS between nodes: off, optional or required")
        .details("Both sides present certificates. `optional` is for the conversion of a running cluster."),
    key("tls.client_certificates", "Certificates of clients: off, request or require")
        .details("With `request`, a client may present one. Nodes always present theirs to each other."),
    key("tls.client_tls12", "Accept TLS 1.2 on the client port").details("Without it, the port speaks TLS 1.3 only."),
    key("logging.level", "Log level, or levels by module: info,convoke_node=debug")
        .details("Levels are `error`, `warn`, `info`, `debug`, `trace` and `off`.")
        .flag("--log-level", "LEVEL")
        .variable("CONVOKE_LOG_LEVEL"),
    key("logging.format", "Log format: text or json").flag("--log-format", "FORMAT").variable("CONVOKE_LOG_FORMAT"),
    key("tracing.otlp_endpoint", "Collector for traces (OTLP over HTTP): http://HOST:4318")
        .details("If it is empty, the node records no traces.")
        .flag("--otlp-endpoint", "URL"),
    key("tracing.sample_ratio", "Share of traces to record, from 0 to 1").details(
        "It applies to traces that start at this node. A caller that sends a trace context decides for its trace.",
    ),
    key("timers.heartbeat_interval", "Interval of client heartbeats"),
    key("timers.heartbeat_timeout", "Silence after which a client's members are down")
        .details("At least 3 × `heartbeat_interval`."),
    key("timers.reconnect_timeout", "Further silence after which the members are unregistered"),
    key("timers.tombstone_timeout", "Time for which unregistered members are remembered")
        .details("Longer than `dead_peer_timeout` + `heartbeat_timeout` + `ping_timeout` + `reconnect_timeout`."),
    key("timers.peer_retry_interval", "Pause between attempts to reach a lost node"),
    key("timers.dead_peer_timeout", "Silence after which the names of a node are dropped")
        .details("Longer than `heartbeat_timeout` + `ping_timeout` + `reconnect_timeout`."),
    key("timers.ping_interval", "Interval of pings between connected nodes")
        .details("Exchanges have at least this distance, and a lone start waits for five of them."),
    key("timers.ping_timeout", "Silence after which a connected node is lost").details("At least 2 × `ping_interval`."),
    key("timers.handover_timeout", "Longest time a stopping node waits for its clients to move"),
    key("limits.metadata_bytes", "Size of all metadata of one member")
        .details("A member has at most 64 keys, and a value at most 4 KiB."),
    key("limits.members", "Members in the cluster"),
    key("limits.sessions", "Clients attached to this node"),
    key("limits.watchers", "Watchers at this node"),
    key("clients.connections", "Client connections; the node closes new ones beyond the limit"),
    key("clients.connections_per_address", "Client connections from one address")
        .details("Raise it if all clients connect through one proxy."),
    key("clients.http_watchers", "Watchers over HTTP (server-sent events)"),
    key("client_timeouts.headers", "Time to receive the headers of a request")
        .details(
            "Also the time after which idle HTTP/1.1 connections are closed. Set it above the idle timeout of a load \
             balancer in front of the node.",
        ),
    key("rates.principal_requests", "Requests of one principal: calls, and messages of streams")
        .details("Rates of principals need `auth.enabled`. Nodes are not limited."),
    key("rates.principal_attaches", "Attach streams that one principal opens"),
    key("rates.principal_sessions", "HTTP sessions and log sessions that one principal creates"),
    key("rates.principal_watchers", "Watches that one principal opens"),
    key("rates.principal_bytes", "Bytes that one principal sends"),
    key("rates.address_requests", "Requests from one address, before authentication")
        .details("An address is an IPv4 address or an IPv6 network of 64 bits. Without TLS, other nodes count as clients."),
    key("rates.address_attaches", "Attach streams that one address opens"),
    key("rates.address_sessions", "HTTP sessions and log sessions that one address creates"),
    key("rates.address_watchers", "Watches that one address opens"),
    key("rates.address_bytes", "Bytes that one address sends"),
    key("auth.enabled", "Require tokens or certificates with grants")
        .details("Without it, every process that reaches a port may do everything, and the status shows `access: open`."),
    key("auth.keys", "Directory with the public keys that verify tokens, *.pub").details(
        "`convoke init` writes `signing.pub`. Several keys may be valid at the same time. The node reads the directory \
         again when it changes. A private key in it is an error.",
    ),
    key("auth.policy", "Policy file for other issuers and client certificates")
        .details("The node reads it again when it changes. Paths in it are relative to the file."),
    key("auth.anonymous", "Grants of callers without credentials")
        .details("For example `read service:*`. DNS queries are anonymous too."),
    key("auth.max_token_ttl", "Longest lifetime of a token that is accepted"),
    key("auth.node_token", "File with the token that this node shows to other nodes").details(
        "Only without TLS between nodes: other nodes accept the requests that this node forwards if the token has the \
         grant `* *`.",
    ),
    key("audit.file", "File of the audit log; `-` is standard output; empty: no audit log")
        .details("A relative path is relative to the data directory."),
    key("audit.max_bytes", "Size at which the audit log is rotated"),
    key("audit.files", "Files of the audit log that are kept, with the current one"),
    key("consul.port", "Port that serves Consul's HTTP API alone; 0: none")
        .details(
            "The client port serves it as well. With `convoke dev` the default is 8500, or a free port if it is in use. The \
             listener uses `bind`, and `tls.client` like the client port.",
        ),
    key("consul.dns", "Answer names in the form of Consul's DNS, such as web.service.consul")
        .details("It needs `dns.enabled` and uses `dns_port`. With `convoke dev` the default is true (docs/dns.md)."),
    key("dns.enabled", "Serve DNS")
        .details("With `auth.enabled` the default is false, because DNS cannot authenticate its clients."),
    key("dns.ttl", "TTL of DNS answers, in whole seconds"),
    key("dns.networks", "Networks whose clients get DNS answers; empty: all clients")
        .details("Ranges such as `10.0.0.0/8`, or addresses."),
    key("dns.responses_per_second", "DNS answers per second over UDP to one network of clients")
        .details("A network is a /24, or a /56 with IPv6. Further queries are told to use TCP. 0 means no limit. Clients on this machine are not limited."),
    key("checks.allow", "Addresses that health checks may reach although denied by default")
        .details("Networks such as `127.0.0.0/8`, and addresses with a port. Loopback, link-local and metadata addresses are denied; a port of a node only an address with this port allows. Loopback is allowed if the client port is bound to it."),
    key("checks.ca", "Certificate authorities for health checks with TLS, in PEM")
        .details("If it is empty, checks trust those of the system. A relative path in a configuration file is relative to the directory of the file."),
    key("checks.panic_share", "Share of members that must not be critical, or all are routable")
        .details("It counts members of a service that are up and not drained, from three on. 0 switches it off."),
    key("checks.scripts", "Programs that this node runs, and whose results it reports")
        .details(
            "A list of tables with `member`, `check`, `command` (program and arguments), `interval` (10s) and `timeout` \
             (5s). See docs/guides/check-health.md.",
        )
        .only_in_file(),
    key("log.enabled", "Take part in the replicated log"),
    key("log.hold_level", "Raise the feature level of the log only with `convoke log upgrade`")
        .details("Set it on all nodes before an upgrade that you may want to revert."),
    key("log_timers.heartbeat_interval", "Interval of the leader's heartbeats"),
    key("log_timers.election_timeout_min", "Shortest wait before a replica starts an election")
        .details(
            "At least 3 × `heartbeat_interval`. The longest wait, and the silence after which a leader is lost, is 1.75 × \
             this value.",
        ),
    key("log_limits.log_bytes", "Size of the log in memory and on disk")
        .details("A replica takes a snapshot when the log has grown by an eighth of it. At least 43 MiB."),
    key("log_state.sessions", "Open log sessions"),
    key("log_state.value_bytes", "Length of the value of a key"),
    key("log_state.store_bytes", "Size of all keys and values"),
];

pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns the environment variable of a key.
#[cfg(feature = "tools")]
pub(crate) fn variable_of(name: &str) -> Option<String> {
    find(name).map(Key::environment)
}

/// The key of a component's field. Components report errors with the bare names of their fields.
pub(crate) fn of_field(field: &str, sections: &[&str]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.parts().1 == field && sections.contains(&key.parts().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_setting_has_a_key() {
        let Value::Object(settings) = tree(&Settings::default()) else { panic!("settings are a table") };
        let mut names = BTreeSet::new();
        for (name, value) in settings {
            match value {
                Value::Object(section) => names.extend(section.keys().map(|key| format!("{name}.{key}"))),
                _ => drop(names.insert(name)),
            }
        }
        assert_eq!(names, KEYS.iter().map(|key| key.name.to_owned()).collect());
        assert!(KEYS.len() <= 80, "a key needs a user who must change it");
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
    fn help_texts_are_short_phrases() {
        for key in KEYS {
            assert!(key.help.chars().count() <= 70 && !key.help.ends_with('.'), "{}: {}", key.name, key.help);
            assert!(key.details.is_empty() || key.details.ends_with('.'), "{}: {}", key.name, key.details);
        }
    }
}
