//! From settings to what the components take, checked together.

use super::keys;
use super::load::Loaded;
use super::settings::PEER_PORT;
use crate::failure::{Failure, Outcome};
use convoke_node::StartError;
use convoke_node::core::ConfigError;

/// What node and server are started with.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) node: convoke_node::Config,
    pub(crate) server: convoke_server::Config,
    /// `None`: no log plane. Its address is known once the node is bound.
    pub(crate) log: Option<convoke_replica::Config>,
    /// `None`: nothing is traced.
    pub(crate) traces: Option<convoke_otlp::Config>,
    /// Host that clients are told to dial, if it is not the one bound to.
    pub(crate) client_host: Option<String>,
}

/// Refuses what cannot work, naming the key and where it came from. `id` is the one to use.
pub(crate) fn build(loaded: &Loaded, id: &str) -> Outcome<Parts> {
    let settings = &loaded.settings;
    let mut node =
        convoke_node::Config::new(id).map_err(|error| Failure::usage(format!("{error}{}", from(loaded, &["id"]))))?;
    node.cluster.clone_from(&settings.cluster);
    node.region.clone_from(&settings.region);
    node.bind = host_port(&settings.bind, settings.peer_port);
    node.join = settings.join.iter().map(|address| with_port(address, PEER_PORT)).collect();
    node.data_dir = Some(settings.data_dir.clone());
    node.timers = settings.timers.clone();
    node.limits = settings.limits.clone();
    node.network = settings.network.clone();
    node.mass_failure_share = settings.mass_failure_share;
    node.retry_jitter = settings.retry_jitter;
    let client_host = match settings.advertise.as_str() {
        "" => None,
        advertised => {
            let address = with_port(advertised, 0);
            let host = address.rsplit_once(':').map(|(host, _)| host.to_owned());
            node.advertise = Some(address);
            host
        }
    };
    node.validate().map_err(|error| refused_by_node(loaded, &error))?;
    let server = convoke_server::Config {
        bind: host_port(&settings.bind, settings.client_port),
        insecure_public: settings.insecure_public,
        dns: settings.dns.enabled.then(|| convoke_dns::Config {
            bind: host_port(&settings.bind, settings.dns_port),
            insecure_public: settings.insecure_public,
            ttl: settings.dns.ttl,
        }),
        limits: settings.clients.clone(),
        timeouts: settings.client_timeouts.clone(),
    };
    server.validate().map_err(|error| refused_by_server(loaded, &error))?;
    let log = settings.log.enabled.then(|| convoke_replica::Config {
        node: id.to_owned(),
        cluster: settings.cluster.clone(),
        address: String::new(),
        join: node.join.clone(),
        data_dir: Some(settings.data_dir.join(LOG_DIRECTORY)),
        state: settings.log_state.clone(),
        timers: settings.log_timers.clone(),
        limits: settings.log_limits.clone(),
    });
    if let Some(error) = log.as_ref().and_then(|log| log.validate().err()) {
        return Err(refused(loaded, &error.to_string(), Some(error.field), "", OF_LOG));
    }
    Ok(Parts { traces: traces(loaded, id)?, node, server, log, client_host })
}

fn traces(loaded: &Loaded, id: &str) -> Outcome<Option<convoke_otlp::Config>> {
    let settings = &loaded.settings.tracing;
    let ratio = settings.sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        let key = "tracing.sample_ratio";
        return Err(Failure::usage(format!("{key} is {ratio}: write a number from 0 to 1{}", from(loaded, &[key]))));
    }
    if settings.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let endpoint = convoke_otlp::Endpoint::parse(&settings.otlp_endpoint).map_err(|error| {
        let key = "tracing.otlp_endpoint";
        Failure::usage(format!("{key} {error}{}", from(loaded, &[key])))
    })?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Some(convoke_otlp::Config { endpoint, sample_ratio: ratio, instance: id.to_owned(), version }))
}

/// Where the log is, within the node's data directory.
pub(crate) const LOG_DIRECTORY: &str = "log";

/// Sections of the configuration that each component knows.
const OF_NODE: &[&str] = &["", "timers", "limits", "network"];
const OF_SERVER: &[&str] = &["clients", "client_timeouts"];
const OF_LOG: &[&str] = &["log_timers", "log_limits", "log_state"];

fn refused_by_node(loaded: &Loaded, error: &StartError) -> Failure {
    let also = match error {
        StartError::Config(ConfigError::TooShort { why, .. }) => why,
        _ => "",
    };
    refused(loaded, &error.to_string(), field(error), also, OF_NODE)
}

fn refused_by_server(loaded: &Loaded, error: &convoke_server::StartError) -> Failure {
    let field = match error {
        convoke_server::StartError::Zero { name } => Some(*name),
        _ => None,
    };
    refused(loaded, &error.to_string(), field, "", OF_SERVER)
}

/// The components know their fields by their bare names; people know keys and places. `also` names further fields.
fn refused(loaded: &Loaded, message: &str, field: Option<&str>, also: &str, sections: &[&str]) -> Failure {
    let own = field.and_then(|field| keys::of_field(field, sections));
    let others = also.split(' ').filter_map(|word| keys::of_field(word, sections));
    let involved: Vec<&str> = own.into_iter().chain(others).map(|key| key.name).collect();
    let message = match own {
        Some(key) => message.replacen(key.parts().1, key.name, 1),
        None => message.to_owned(),
    };
    Failure::usage(message + &from(loaded, &involved))
}

fn field(error: &StartError) -> Option<&str> {
    match error {
        StartError::Config(error) => Some(match error {
            ConfigError::TooShort { name, .. }
            | ConfigError::Share { name, .. }
            | ConfigError::TooLarge { name, .. }
            | ConfigError::Zero { name } => name,
            ConfigError::Frame { .. } => "frame_bytes",
        }),
        StartError::Zero { name } => Some(name),
        StartError::LinkQueue { .. } => Some("link_queue_bytes"),
        _ => None,
    }
}

/// " (a from x, b from y)" for those of the keys that somebody set.
fn from(loaded: &Loaded, keys: &[&str]) -> String {
    let places = keys.iter().filter_map(|key| Some(format!("{key} from {}", loaded.origin(key)?)));
    let places: Vec<String> = places.collect();
    if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) }
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Adds a port where none is given.
pub(crate) fn with_port(address: &str, port: u16) -> String {
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    let has_port = !bare_v6 && address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address.to_owned() } else { host_port(address, port) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::Flag;
    use crate::config::value::Raw;

    fn loaded(values: &[(&'static str, &'static str, &str)]) -> Loaded {
        let mut loaded = Loaded::default();
        let flags = values.iter().map(|(key, flag, value)| Flag { key, flag, raw: Raw::from(value) });
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
    fn combinations_that_cannot_work_name_all_keys_and_places() {
        let error = build(&loaded(&[("timers.heartbeat_interval", "X", "10s")]), "n1").unwrap_err();
        assert_eq!(
            error,
            Failure::usage(
                "timers.heartbeat_timeout is 20s, which is too short: set it above 30s (3 × heartbeat_interval) \
                 (timers.heartbeat_interval from X)"
            )
        );
        let error = build(&loaded(&[("network.inbox", "X", "0")]), "n1").unwrap_err();
        assert_eq!(error.message, "network.inbox is 0: set it to at least 1 (network.inbox from X)");
        let error = build(&loaded(&[("clients.sessions", "X", "0")]), "n1").unwrap_err();
        assert_eq!(error.message, "clients.sessions is 0: set it to at least 1 (clients.sessions from X)");
        let error = build(&loaded(&[("limits.frame_bytes", "X", "1KiB")]), "n1").unwrap_err();
        assert!(error.message.starts_with("limits.frame_bytes is 1024, too small"), "{error}");
        let error = build(&loaded(&[("tracing.otlp_endpoint", "--otlp-endpoint", "https://a")]), "n1").unwrap_err();
        assert!(error.message.starts_with("tracing.otlp_endpoint begins with https"), "{error}");
        assert!(error.message.ends_with("(tracing.otlp_endpoint from --otlp-endpoint)"), "{error}");
        let error = build(&loaded(&[("tracing.sample_ratio", "X", "1.5")]), "n1").unwrap_err();
        assert_eq!(
            error.message,
            "tracing.sample_ratio is 1.5: write a number from 0 to 1 (tracing.sample_ratio from X)"
        );
        let error = build(&loaded(&[("id", "--id", "a b")]), "a b").unwrap_err();
        assert!(error.message.ends_with("(id from --id)"), "{error}");
    }

    #[test]
    fn addresses_get_the_ports_they_lack() {
        let parts = build(&loaded(&[("join", "-", "a,b:9,::1"), ("advertise", "-", "me"), ("bind", "-", "::1")]), "n1");
        let parts = parts.unwrap();
        assert_eq!(parts.node.join, ["a:7701", "b:9", "[::1]:7701"]);
        assert_eq!(parts.node.bind, "[::1]:7701");
        assert_eq!((parts.node.advertise.as_deref(), parts.client_host.as_deref()), (Some("me:0"), Some("me")));
        let parts = build(&loaded(&[("advertise", "-", "me:17")]), "n1").unwrap();
        assert_eq!((parts.node.advertise.as_deref(), parts.client_host.as_deref()), (Some("me:17"), Some("me")));
    }
}
