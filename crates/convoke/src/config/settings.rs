//! Everything that can be set for a node, with its defaults.

use convoke_cli::{CLIENT_PORT, PEER_PORT};
use convoke_node::NetworkLimits;
use convoke_node::core::version::NodeId;
use convoke_node::core::{self, Limits, Timers};
use std::path::PathBuf;
use std::time::Duration;

const DNS_PORT: u16 = 7753;

/// Field names are the names of the keys: see [`super::keys`].
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) region: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) join: Vec<String>,
    pub(crate) bind: String,
    pub(crate) client_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) dns_port: u16,
    pub(crate) advertise: String,
    pub(crate) insecure_public: bool,
    pub(crate) mass_failure_share: f64,
    pub(crate) retry_jitter: f64,
    pub(crate) logging: Logging,
    pub(crate) tracing: TracingSettings,
    pub(crate) timers: Timers,
    pub(crate) limits: Limits,
    pub(crate) network: NetworkLimits,
    pub(crate) clients: convoke_server::Limits,
    pub(crate) client_timeouts: convoke_server::Timeouts,
    pub(crate) dns: DnsSettings,
    pub(crate) log: LogSettings,
    pub(crate) log_timers: convoke_replica::Timers,
    pub(crate) log_limits: convoke_replica::ReplicaLimits,
    pub(crate) log_state: convoke_replica::log::Limits,
}

#[derive(Clone, Debug)]
pub(crate) struct DnsSettings {
    pub(crate) enabled: bool,
    pub(crate) ttl: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Logging {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Debug)]
pub(crate) struct TracingSettings {
    pub(crate) otlp_endpoint: String,
    pub(crate) sample_ratio: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct LogSettings {
    pub(crate) enabled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        let core = core::Config::new(NodeId::new("default").expect("a valid node id"));
        Settings {
            id: String::new(),
            cluster: core.cluster,
            region: core.region,
            data_dir: PathBuf::from("./convoke-data"),
            join: Vec::new(),
            bind: "127.0.0.1".to_owned(),
            client_port: CLIENT_PORT,
            peer_port: PEER_PORT,
            dns_port: DNS_PORT,
            advertise: String::new(),
            insecure_public: false,
            mass_failure_share: core.mass_failure_share,
            retry_jitter: core.retry_jitter,
            logging: Logging { level: "info".to_owned(), format: LogFormat::Text },
            tracing: TracingSettings { otlp_endpoint: String::new(), sample_ratio: 1.0 },
            timers: core.timers,
            limits: core.limits,
            network: NetworkLimits::default(),
            clients: convoke_server::Limits::default(),
            client_timeouts: convoke_server::Timeouts::default(),
            dns: DnsSettings { enabled: true, ttl: Duration::from_secs(1) },
            log: LogSettings { enabled: true },
            log_timers: convoke_replica::Timers::default(),
            log_limits: convoke_replica::ReplicaLimits::default(),
            log_state: convoke_replica::log::Limits::default(),
        }
    }
}
