//! Turns the settings into the configurations of the components, and checks them together.

use super::keys;
use super::load::Loaded;
use super::secure::{audit, auth, dns_enabled, is_secured, rates, tls};
use super::settings::{LogLimitSettings, LogTimerSettings, ScriptSettings, Settings, TimerSettings};
use convoke_cli::{CommandError, PEER_PORT, Result, host_port, with_port};
use convoke_core::{ConfigError, Timers};
use convoke_node::StartError;
use convoke_replica::{Founding, LogTimers, ReplicaLimits};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The configurations of the components.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) node: convoke_node::Config,
    pub(crate) server: convoke_server::Config,
    /// `None` if the log is off. Its address is set after the node has bound its port.
    pub(crate) log: Option<convoke_replica::Config>,
    /// `None` if TLS is off on both ports. The files have not been read.
    pub(crate) tls: Option<convoke_tls::Settings>,
    /// `None` without a collector.
    pub(crate) traces: Option<convoke_otlp::Config>,
    /// Host that clients dial, if it differs from the bound address.
    pub(crate) client_host: Option<String>,
}

/// Builds the configurations. Errors name the key and its source.
pub(crate) fn build(loaded: &Loaded, id: &str) -> Result<Parts> {
    let settings = &loaded.settings;
    let mut node = convoke_node::Config::new(id)
        .map_err(|error| CommandError::usage(format!("{error}{}", from(loaded, &["id"]))))?;
    node.cluster.clone_from(&settings.cluster);
    node.region.clone_from(&settings.region);
    node.bind = host_port(&settings.bind, settings.peer_port);
    dialable(loaded, "bind", &settings.bind, &node.bind)?;
    node.join = settings.join.iter().map(|address| with_port(address, PEER_PORT)).collect();
    for (given, address) in settings.join.iter().zip(&node.join) {
        dialable(loaded, "join", given, address)?;
    }
    node.data_dir = Some(settings.data_dir.clone());
    node.timers = timers(&settings.timers);
    node.limits = settings.limits.build();
    node.mass_failure_share = settings.mass_failure_share;
    node.panic_share = settings.checks.panic_share;
    node.rebalance = settings.rebalance;
    let client_host = match settings.advertise.as_str() {
        "" => None,
        advertised => {
            let address = with_port(advertised, 0);
            dialable(loaded, "advertise", advertised, &address)?;
            let host = address.rsplit_once(':').map(|(host, _)| host.to_owned());
            node.advertise = Some(address);
            host
        }
    };
    let server = convoke_server::Config {
        bind: host_port(&settings.bind, settings.client_port),
        insecure_public: settings.insecure_public || is_secured(settings),
        tls: None,
        allowed_hosts: settings.allowed_hosts.clone(),
        auth: auth(loaded),
        audit: audit(settings),
        consul: (settings.consul.port != 0).then(|| host_port(&settings.bind, settings.consul.port)),
        dns: dns_enabled(loaded).then(|| convoke_dns::Config {
            bind: host_port(&settings.bind, settings.dns_port),
            insecure_public: settings.insecure_public,
            ttl: settings.dns.ttl.into(),
            networks: settings.dns.networks.clone(),
            responses_per_second: settings.dns.responses_per_second,
            consul: settings.consul.dns,
        }),
        checks: checks(loaded)?,
        limits: convoke_server::ServerLimits {
            // With 0 sessions the node rejects every attach itself.
            attaches: settings.limits.sessions.max(1),
            value_bytes: settings.log_state.value_bytes.into(),
            ..settings.clients.build()
        },
        rates: rates(&settings.rates),
        timeouts: settings.client_timeouts.build(),
    };
    server.validate().map_err(|error| rejected_by_server(loaded, &error))?;
    node.validate().map_err(|error| rejected_by_node(loaded, &error))?;
    let log = settings.log.enabled.then(|| convoke_replica::Config {
        node: id.to_owned(),
        cluster: settings.cluster.clone(),
        address: String::new(),
        client_address: String::new(),
        join: node.join.clone(),
        founding: founding(settings, node.timers.peer_retry_interval),
        data_dir: Some(settings.data_dir.join(LOG_DIRECTORY)),
        state: settings.log_state.build(),
        timers: log_timers(&settings.log_timers),
        limits: log_limits(&settings.log_limits),
        hold_level: settings.log.hold_level,
        supported: convoke_log::Level::SUPPORTED,
        mutation: convoke_replica::Mutation::none(),
    });
    if let Some(error) = log.as_ref().and_then(|log| log.validate().err()) {
        return Err(rejected(loaded, &error.to_string(), Some(error.field), "", OF_LOG));
    }
    Ok(Parts { traces: traces(loaded, id)?, tls: tls(loaded, id)?, node, server, log, client_host })
}

/// The settings of the checker.
fn checks(loaded: &Loaded) -> Result<convoke_server::CheckerConfig> {
    let settings = &loaded.settings.checks;
    let script = |script: &ScriptSettings| convoke_server::ScriptCheck {
        member: script.member.clone(),
        check: script.check.clone(),
        command: script.command.clone(),
        interval: script.interval.into(),
        timeout: script.timeout.into(),
    };
    let checks = convoke_server::CheckerConfig {
        allow: settings.allow.clone(),
        ca: (!settings.ca.as_os_str().is_empty()).then(|| loaded.resolve("checks.ca", &settings.ca)),
        scripts: settings.scripts.iter().map(script).collect(),
        ..convoke_server::CheckerConfig::default()
    };
    match checks.check_scripts() {
        Ok(()) => Ok(checks),
        Err(error) => Err(CommandError::usage(format!("{error}{}", from(loaded, &["checks.scripts"])))),
    }
}

/// Checks that listeners have different ports. A port in `yielding`, which is not configured, becomes 0 (any free
/// port); two equal configured ports are an error.
pub(crate) fn resolve_port_conflicts(loaded: &mut Loaded, yielding: &[&str]) -> Result {
    type Port = (&'static str, fn(&mut Settings) -> &mut u16);
    const PORTS: &[Port] = &[
        ("client_port", |settings| &mut settings.client_port),
        ("peer_port", |settings| &mut settings.peer_port),
        ("dns_port", |settings| &mut settings.dns_port),
        // 0 means that there is no such listener, not a free port.
        ("consul.port", |settings| &mut settings.consul.port),
    ];
    let has_dns = loaded.settings.dns.enabled;
    let listening: Vec<Port> = PORTS.iter().copied().filter(|(name, _)| has_dns || *name != "dns_port").collect();
    for (place, (second, port)) in listening.iter().enumerate() {
        for (first, other) in &listening[..place] {
            let settings = &mut loaded.settings;
            let (number, same) = (*port(settings), *port(settings) == *other(settings));
            if number == 0 || !same {
                continue;
            }
            if yielding.contains(second) {
                *port(settings) = 0;
            } else if yielding.contains(first) {
                *other(settings) = 0;
            } else {
                let sources = from(loaded, &[first, second]);
                let message = format!(
                    "{first} and {second} are both {number}: use different ports, or 0 for a free one{sources}"
                );
                return Err(CommandError::usage(message));
            }
        }
    }
    Ok(())
}

fn traces(loaded: &Loaded, id: &str) -> Result<Option<convoke_otlp::Config>> {
    let settings = &loaded.settings.tracing;
    let ratio = settings.sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        let key = "tracing.sample_ratio";
        return Err(CommandError::usage(format!("{key} is {ratio}: use a number from 0 to 1{}", from(loaded, &[key]))));
    }
    if settings.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let endpoint = convoke_otlp::Endpoint::parse(&settings.otlp_endpoint).map_err(|error| {
        let key = "tracing.otlp_endpoint";
        CommandError::usage(format!("{key} {error}{}", from(loaded, &[key])))
    })?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Some(convoke_otlp::Config { endpoint, sample_ratio: ratio, instance: id.to_owned(), version }))
}

/// Some timers follow the keys: their ratio to a key matters, not their length.
fn timers(settings: &TimerSettings) -> Timers {
    let timers = settings.build();
    Timers {
        gossip_interval: timers.ping_interval,
        lone_start_wait: 5 * timers.ping_interval,
        forget_timeout: timers.forget_timeout.max(timers.retirement()),
        ..timers
    }
}

fn log_timers(settings: &LogTimerSettings) -> LogTimers {
    let timers = settings.build();
    LogTimers { election_timeout_max: timers.election_timeout_min * 7 / 4, ..timers }
}

fn log_limits(settings: &LogLimitSettings) -> ReplicaLimits {
    let limits = settings.build();
    ReplicaLimits { snapshot_log_bytes: limits.log_bytes / 8, ..limits }
}

/// When this node may create a log (FD1 to FD4).
fn founding(settings: &Settings, peer_retry_interval: Duration) -> Founding {
    let is_loopback = match settings.bind.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => settings.bind == "localhost",
    };
    match settings.bootstrap {
        // Nobody but processes on this machine can know the node.
        0 | 1 if settings.join.is_empty() && is_loopback => Founding::AtOnce,
        0 => Founding::Listed,
        1 => Founding::Alone { after: 2 * peer_retry_interval },
        nodes => Founding::Expected(nodes),
    }
}

/// Directory of the log in the data directory.
pub(crate) const LOG_DIRECTORY: &str = "log";

/// Sections of the keys of each component.
const OF_NODE: &[&str] = &["", "timers", "limits", "checks"];
const OF_SERVER: &[&str] = &["", "clients", "client_timeouts", "audit", "dns"];
const OF_LOG: &[&str] = &["log_timers", "log_limits", "log_state"];

fn rejected_by_node(loaded: &Loaded, error: &StartError) -> CommandError {
    if let StartError::Config(ConfigError::Frame { frame, needed }) = error {
        let key = "limits.metadata_bytes";
        return CommandError::usage(format!(
            "the largest member needs a message of {needed} bytes between nodes, and {frame} is the limit: lower {key}{}",
            from(loaded, &[key])
        ));
    }
    let also = match error {
        StartError::Config(ConfigError::TooShort { why, .. }) => why,
        StartError::Advertise { .. } => "bind",
        _ => "",
    };
    rejected(loaded, &error.to_string(), field(error), also, OF_NODE)
}

fn rejected_by_server(loaded: &Loaded, error: &convoke_server::StartError) -> CommandError {
    use convoke_server::StartError as E;
    let field = match error {
        E::Zero { name } => Some(*name),
        E::Public { .. } => Some("bind"),
        E::Dns(convoke_dns::StartError::Ttl { .. }) => Some("ttl"),
        E::Dns(convoke_dns::StartError::Network { .. }) => Some("networks"),
        E::Bind { .. } | E::BindConsul { .. } | E::Dns(_) | E::Auth(_) | E::Audit(_) | E::Checks(_) => None,
    };
    rejected(loaded, &error.to_string(), field, "", OF_SERVER)
}

/// Replaces the bare name of a component's field by its key, and adds the sources. `also` names further fields.
fn rejected(loaded: &Loaded, message: &str, field: Option<&str>, also: &str, sections: &[&str]) -> CommandError {
    let own = field.and_then(|field| keys::of_field(field, sections));
    let others = also.split(' ').filter_map(|word| keys::of_field(word, sections));
    let involved: Vec<&str> = own.into_iter().chain(others).map(|key| key.name).collect();
    let message = match (field, own) {
        (Some(field), Some(key)) => message.replacen(field, key.name, 1),
        _ => message.to_owned(),
    };
    CommandError::usage(message + &from(loaded, &involved))
}

fn field(error: &StartError) -> Option<&str> {
    match error {
        StartError::Config(error) => Some(match error {
            ConfigError::TooShort { name, .. }
            | ConfigError::Share { name, .. }
            | ConfigError::TooLarge { name, .. }
            | ConfigError::Zero { name } => name,
            ConfigError::Frame { .. } => return None,
        }),
        StartError::Zero { name } => Some(name),
        StartError::LinkQueue { .. } => Some("link_queue_bytes"),
        StartError::Advertise { .. } => Some("advertise"),
        _ => None,
    }
}

/// " (a from x, b from y)" for the keys that are set.
pub(super) fn from(loaded: &Loaded, keys: &[&str]) -> String {
    let sources = keys.iter().filter_map(|key| Some(format!("{key} from {}", loaded.source(key)?)));
    let sources: Vec<String> = sources.collect();
    if sources.is_empty() { String::new() } else { format!(" ({})", sources.join(", ")) }
}

/// Checks the syntax of an address. The host need not exist.
fn dialable(loaded: &Loaded, key: &str, given: &str, address: &str) -> Result {
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let fits = if host.starts_with('[') {
        address.parse::<SocketAddr>().is_ok()
    } else {
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "[]/:@".contains(c))
    };
    let form = match key {
        // The standard library parses zones only as numbers.
        _ if given.contains('%') => "use the number of the interface, for example fe80::1%3",
        "bind" => "use a host without a port (see client_port, peer_port, dns_port)",
        _ => "use host:port",
    };
    if fits {
        Ok(())
    } else {
        Err(CommandError::usage(format!("{key} {given:?} is not a valid address: {form}{}", from(loaded, &[key]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::Flag;

    fn loaded(values: &[(&'static str, &'static str, &str)]) -> Loaded {
        let mut loaded = Loaded::default();
        let flags = values.iter().map(|(key, flag, value)| Flag { key, flag, value: (*value).to_owned() });
        loaded.flags(&flags.collect::<Vec<_>>()).unwrap();
        loaded
    }

    #[test]
    fn defaults_build() {
        let parts = build(&Loaded::default(), "n1").unwrap();
        assert_eq!((parts.node.bind.as_str(), parts.server.bind.as_str()), ("127.0.0.1:7701", "127.0.0.1:7700"));
        assert_eq!(parts.node.advertise, None);
    }

    #[test]
    fn a_public_address_needs_tls_on_both_ports_and_access_control() {
        let secured = [
            ("bind", "-", "10.0.0.1"),
            ("tls.ca", "-", "ca.pem"),
            ("tls.cert", "-", "cert.pem"),
            ("tls.key", "-", "key.pem"),
            ("tls.client", "-", "required"),
            ("tls.peer", "-", "required"),
            ("auth.enabled", "-", "true"),
        ];
        assert!(build(&loaded(&secured), "n1").is_ok());
        for (weak, value) in [("tls.client", "optional"), ("tls.peer", "optional"), ("auth.enabled", "false")] {
            let weakened = secured.map(|(key, from, set)| (key, from, if key == weak { value } else { set }));
            let error = build(&loaded(&weakened), "n1").unwrap_err();
            assert!(error.message.contains("reachable from other machines"), "{weak}: {}", error.message);
        }
    }

    #[test]
    fn fd1_only_a_node_on_loopback_without_seeds_creates_a_log_at_once() {
        let founding =
            |values: &[(&'static str, &'static str, &str)]| build(&loaded(values), "n1").unwrap().log.unwrap().founding;
        let public = [("bind", "-", "10.0.0.1"), ("insecure_public", "-", "true")];
        assert_eq!(founding(&[]), Founding::AtOnce);
        assert_eq!(founding(&[("bootstrap", "-", "1")]), Founding::AtOnce);
        assert_eq!(founding(&[("bind", "-", "localhost")]), Founding::AtOnce);
        assert_eq!(founding(&[("join", "-", "a")]), Founding::Listed);
        assert_eq!(founding(&public), Founding::Listed);
        let alone = [public[0], public[1], ("bootstrap", "-", "1")];
        assert_eq!(founding(&alone), Founding::Alone { after: Duration::from_secs(10) });
        assert_eq!(founding(&[("join", "-", "a"), ("bootstrap", "-", "3")]), Founding::Expected(3));
    }

    #[test]
    fn invalid_combinations_name_all_keys_and_origins() {
        let error = build(&loaded(&[("timers.heartbeat_interval", "X", "10s")]), "n1").unwrap_err();
        assert_eq!(
            error,
            CommandError::usage(
                "timers.heartbeat_timeout is 20s, which is too short: set it above 30s (3 × heartbeat_interval) \
                 (timers.heartbeat_interval from X)"
            )
        );
        let error = build(&loaded(&[("clients.http_watchers", "X", "0")]), "n1").unwrap_err();
        assert_eq!(error.message, "clients.http_watchers is 0: set it to at least 1 (clients.http_watchers from X)");
        let error = build(&loaded(&[("limits.metadata_bytes", "X", "4MiB")]), "n1").unwrap_err();
        assert!(
            error.message.contains("between nodes, and 4194304 is the limit: lower limits.metadata_bytes"),
            "{error}"
        );
        assert!(error.message.ends_with("(limits.metadata_bytes from X)"), "{error}");
        let error = build(&loaded(&[("tracing.otlp_endpoint", "--otlp-endpoint", "https://a")]), "n1").unwrap_err();
        assert!(error.message.starts_with("tracing.otlp_endpoint begins with https"), "{error}");
        assert!(error.message.ends_with("(tracing.otlp_endpoint from --otlp-endpoint)"), "{error}");
        let error = build(&loaded(&[("tracing.sample_ratio", "X", "1.5")]), "n1").unwrap_err();
        assert_eq!(
            error.message,
            "tracing.sample_ratio is 1.5: use a number from 0 to 1 (tracing.sample_ratio from X)"
        );
        let error = build(&loaded(&[("id", "--id", "a b")]), "a b").unwrap_err();
        assert!(error.message.ends_with("(id from --id)"), "{error}");
    }

    #[test]
    fn values_that_are_no_keys_follow_the_keys() {
        let defaults = build(&loaded(&[]), "n1").unwrap();
        assert_eq!(defaults.node.timers, Timers::default());
        let log = defaults.log.unwrap();
        assert_eq!((log.timers, log.limits), (LogTimers::default(), ReplicaLimits::default()));
        let parts = build(
            &loaded(&[
                ("timers.ping_interval", "X", "200ms"),
                ("timers.tombstone_timeout", "X", "200h"),
                ("log_timers.election_timeout_min", "X", "1s"),
                ("log_limits.log_bytes", "X", "64MiB"),
            ]),
            "n1",
        )
        .unwrap();
        let timers = &parts.node.timers;
        assert_eq!(
            (timers.gossip_interval, timers.lone_start_wait),
            (Duration::from_millis(200), Duration::from_secs(1))
        );
        assert_eq!(timers.forget_timeout, timers.retirement(), "longer than seven days");
        let log = parts.log.unwrap();
        assert_eq!(log.timers.election_timeout_max, Duration::from_millis(1_750));
        assert_eq!(log.limits.snapshot_log_bytes, 8 << 20);
        let error = build(&loaded(&[("log_limits.log_bytes", "X", "42MiB")]), "n1").unwrap_err();
        assert!(error.message.ends_with("(log_limits.log_bytes from X)"), "{error}");
    }

    #[test]
    fn invalid_scripts_name_the_key_and_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("convoke.toml");
        let text = "\n[[checks.scripts]]\nmember = \"m\"\ncheck = \"c\"\ncommand = []\n";
        std::fs::write(&path, text).unwrap();
        let mut loaded = Loaded::default();
        loaded.file(&path).unwrap();
        let error = build(&loaded, "n1").unwrap_err();
        let words = "entry 1 (member \"m\", check \"c\"): command is empty: name a program";
        assert!(error.message.contains(words) && error.message.contains("line 2"), "{error}");
    }

    #[test]
    fn values_that_start_rejects_are_rejected_with_their_key() {
        for (values, words, sources) in [
            (
                vec![("bind", "--bind", "0.0.0.0")],
                "is reachable from other machines and every process that can connect to it has full access",
                "(bind from --bind)",
            ),
            (vec![("bind", "X", "::"), ("advertise", "-", "me")], "[::]:7700 is reachable", "(bind from X)"),
            (
                vec![("bind", "X", "0.0.0.0"), ("insecure_public", "Y", "true")],
                "peers cannot dial 0.0.0.0:7701: set advertise",
                "(bind from X)",
            ),
            (vec![("dns.ttl", "X", "500ms")], "dns.ttl is 500ms: expected whole seconds", "(dns.ttl from X)"),
            (vec![("dns.ttl", "X", "30000d")], "dns.ttl is", "(dns.ttl from X)"),
            (vec![("dns.networks", "X", "10.0.0.0/40")], "networks contains \"10.0.0.0/40\"", "(dns.networks from X)"),
            (
                vec![("bind", "X", "127.0.0.1:80")],
                "bind \"127.0.0.1:80\" is not a valid address: use a host",
                "(bind from X)",
            ),
            (vec![("bind", "X", "")], "bind \"\" is not a valid address: use a host", "(bind from X)"),
            (vec![("join", "X", "a:1,b:c:d")], "join \"b:c:d\" is not a valid address: use host:port", "(join from X)"),
            (
                vec![("join", "X", "http://a:1")],
                "join \"http://a:1\" is not a valid address: use host:port",
                "(join from X)",
            ),
            (
                vec![("join", "X", "fe80::1%eth0")],
                "join \"fe80::1%eth0\" is not a valid address: use the number of the interface",
                "(join from X)",
            ),
            (vec![("join", "X", "[a]:1")], "join \"[a]:1\" is not a valid address: use host:port", "(join from X)"),
            (
                vec![("advertise", "X", "me:99999")],
                "advertise \"me:99999\" is not a valid address: use host:port",
                "(advertise from X)",
            ),
        ] {
            let error = build(&loaded(&values), "n1").unwrap_err();
            assert!(error.message.contains(words) && error.message.ends_with(sources), "{error}");
            assert_eq!(error.exit, convoke_cli::exit::USAGE);
        }
        for fine in [
            vec![("bind", "X", "0.0.0.0"), ("insecure_public", "Y", "true"), ("advertise", "Z", "me")],
            vec![("bind", "X", "localhost")],
            vec![("bind", "X", "127.9.0.1")],
            vec![("dns.ttl", "X", "0s")],
            vec![("join", "X", "a,b:1,::1,[::1]:7,fe80::1%3,[fe80::1%3]:7")],
            vec![("dns.ttl", "X", "500ms"), ("dns.enabled", "Y", "false")],
        ] {
            build(&loaded(&fine), "n1").unwrap();
        }
    }

    #[test]
    fn conflicting_default_ports_become_free_ports() {
        let parted = |values: &[(&'static str, &'static str, &str)], yielding: &[&str]| {
            let mut loaded = loaded(values);
            resolve_port_conflicts(&mut loaded, yielding)?;
            let settings = &loaded.settings;
            Ok::<_, CommandError>([settings.client_port, settings.peer_port, settings.dns_port])
        };
        let error = parted(&[("client_port", "X", "8000"), ("peer_port", "Y", "8000")], &["dns_port"]).unwrap_err();
        assert_eq!(
            error,
            CommandError::usage(
                "client_port and peer_port are both 8000: use different ports, or 0 for a free one \
                 (client_port from X, peer_port from Y)"
            )
        );
        let error = parted(&[("client_port", "X", "7701")], &["dns_port"]).unwrap_err();
        assert!(error.message.starts_with("client_port and peer_port are both 7701"), "{error}");
        let error = parted(&[("dns_port", "X", "7701")], &[]).unwrap_err();
        assert!(error.message.starts_with("peer_port and dns_port are both 7701"), "{error}");
        assert_eq!(parted(&[("peer_port", "X", "7753")], &["dns_port"]), Ok([7700, 7753, 0]), "the DNS port yields");
        assert_eq!(parted(&[("client_port", "X", "7701")], &["peer_port"]), Ok([7701, 0, 7753]));
        assert_eq!(parted(&[("peer_port", "X", "7700")], &["client_port"]), Ok([0, 7700, 7753]));
        let without_dns = [("client_port", "X", "7753"), ("dns.enabled", "Y", "false")];
        assert_eq!(parted(&without_dns, &[]), Ok([7753, 7701, 7753]));
        let any = [("client_port", "X", "0"), ("peer_port", "X", "0"), ("dns_port", "X", "0")];
        assert_eq!(parted(&any, &[]), Ok([0, 0, 0]));
    }

    #[test]
    fn addresses_without_a_port_get_the_default_port() {
        let parts = build(&loaded(&[("join", "-", "a,b:9,::1"), ("advertise", "-", "me"), ("bind", "-", "::1")]), "n1");
        let parts = parts.unwrap();
        assert_eq!(parts.node.join, ["a:7701", "b:9", "[::1]:7701"]);
        assert_eq!(parts.node.bind, "[::1]:7701");
        assert_eq!((parts.node.advertise.as_deref(), parts.client_host.as_deref()), (Some("me:0"), Some("me")));
        let parts = build(&loaded(&[("advertise", "-", "me:17")]), "n1").unwrap();
        assert_eq!((parts.node.advertise.as_deref(), parts.client_host.as_deref()), (Some("me:17"), Some("me")));
    }
}
