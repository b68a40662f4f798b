//! All settings of a node, with their defaults. The path of a field is the name of its key.
//!
//! A setting needs a user who must change it. All other values of the components are constants: the defaults of their
//! configuration types, listed in docs/configuration.md.

use super::value::{Bytes, Time, path};
use convoke_cli::{CLIENT_PORT, PEER_PORT};
use convoke_core::version::NodeId;
use convoke_core::{self, Limits, Timers};
use convoke_server::AuditConfig;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

const DNS_PORT: u16 = 7753;
/// Port of Consul's HTTP API with `convoke dev`.
pub(crate) const DEV_CONSUL_PORT: u16 = 8500;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) region: String,
    #[serde(deserialize_with = "path")]
    pub(crate) data_dir: PathBuf,
    pub(crate) join: Vec<String>,
    pub(crate) bootstrap: usize,
    pub(crate) bind: String,
    pub(crate) client_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) dns_port: u16,
    pub(crate) advertise: String,
    pub(crate) insecure_public: bool,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) mass_failure_share: f64,
    pub(crate) rebalance: bool,
    pub(crate) tls: TlsSettings,
    pub(crate) logging: LoggingSettings,
    pub(crate) tracing: TracingSettings,
    pub(crate) timers: TimerSettings,
    pub(crate) limits: LimitSettings,
    pub(crate) clients: ClientSettings,
    pub(crate) client_timeouts: ClientTimeoutSettings,
    pub(crate) rates: RateSettings,
    pub(crate) auth: AuthSettings,
    pub(crate) audit: AuditSettings,
    pub(crate) consul: ConsulSettings,
    pub(crate) dns: DnsSettings,
    pub(crate) checks: CheckSettings,
    pub(crate) log: LogSettings,
    pub(crate) log_timers: LogTimerSettings,
    pub(crate) log_limits: LogLimitSettings,
    pub(crate) log_state: LogStateSettings,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TlsSettings {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client: convoke_tls::Mode,
    pub(crate) peer: convoke_tls::Mode,
    pub(crate) client_certificates: convoke_tls::ClientCertificates,
    pub(crate) client_tls12: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoggingSettings {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TracingSettings {
    pub(crate) otlp_endpoint: String,
    pub(crate) sample_ratio: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AuthSettings {
    pub(crate) enabled: bool,
    #[serde(deserialize_with = "path")]
    pub(crate) keys: PathBuf,
    pub(crate) policy: PathBuf,
    pub(crate) anonymous: Vec<String>,
    pub(crate) max_token_ttl: Time,
    pub(crate) node_token: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AuditSettings {
    pub(crate) file: PathBuf,
    pub(crate) max_bytes: Bytes,
    pub(crate) files: usize,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConsulSettings {
    pub(crate) port: u16,
    pub(crate) dns: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DnsSettings {
    pub(crate) enabled: bool,
    pub(crate) ttl: Time,
    pub(crate) networks: Vec<String>,
    pub(crate) responses_per_second: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckSettings {
    pub(crate) allow: Vec<String>,
    pub(crate) ca: PathBuf,
    pub(crate) panic_share: f64,
    pub(crate) scripts: Vec<ScriptSettings>,
}

/// One table of `checks.scripts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptSettings {
    pub(crate) member: String,
    pub(crate) check: String,
    pub(crate) command: Vec<String>,
    #[serde(default = "script_interval")]
    pub(crate) interval: Time,
    #[serde(default = "script_timeout")]
    pub(crate) timeout: Time,
}

fn script_interval() -> Time {
    Duration::from_secs(10).into()
}

fn script_timeout() -> Time {
    Duration::from_secs(5).into()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogSettings {
    pub(crate) enabled: bool,
    pub(crate) hold_level: bool,
}

/// Fields of a component's configuration that can be set. Defaults come from the component.
macro_rules! part_of {
    ($component:ty, $name:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty),+ $(,)? }) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) struct $name {
            $($(#[$attribute])* pub(crate) $field: $kind,)+
        }

        impl Default for $name {
            fn default() -> Self {
                let component = <$component>::default();
                $name { $($field: component.$field.into(),)+ }
            }
        }

        impl $name {
            /// The component's configuration with these settings.
            pub(crate) fn build(&self) -> $component {
                let mut component = <$component>::default();
                $(component.$field = self.$field.into();)+
                component
            }
        }
    };
}

part_of!(
    Timers,
    TimerSettings {
        heartbeat_interval: Time,
        heartbeat_timeout: Time,
        reconnect_timeout: Time,
        tombstone_timeout: Time,
        peer_retry_interval: Time,
        dead_peer_timeout: Time,
        ping_interval: Time,
        ping_timeout: Time,
        handover_timeout: Time,
    }
);

part_of!(Limits, LimitSettings { metadata_bytes: Bytes, members: usize, sessions: usize, watchers: usize });

part_of!(
    convoke_server::ServerLimits,
    ClientSettings { connections: usize, connections_per_address: usize, http_watchers: usize }
);

/// Rates per second of one principal or one address; 0 means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateSettings {
    pub(crate) principal_requests: u64,
    pub(crate) principal_attaches: u64,
    pub(crate) principal_sessions: u64,
    pub(crate) principal_watchers: u64,
    pub(crate) principal_bytes: Bytes,
    pub(crate) address_requests: u64,
    pub(crate) address_attaches: u64,
    pub(crate) address_sessions: u64,
    pub(crate) address_watchers: u64,
    pub(crate) address_bytes: Bytes,
}

part_of!(convoke_server::Timeouts, ClientTimeoutSettings { headers: Time });

part_of!(convoke_replica::LogTimers, LogTimerSettings { heartbeat_interval: Time, election_timeout_min: Time });

part_of!(convoke_replica::ReplicaLimits, LogLimitSettings { log_bytes: Bytes });

part_of!(convoke_log::LogLimits, LogStateSettings { sessions: u64, value_bytes: Bytes, store_bytes: Bytes });

impl Default for AuthSettings {
    fn default() -> Self {
        AuthSettings {
            enabled: false,
            keys: PathBuf::from("keys"),
            policy: PathBuf::new(),
            anonymous: Vec::new(),
            max_token_ttl: Duration::from_secs(convoke_access::MAX_TOKEN_TTL).into(),
            node_token: PathBuf::new(),
        }
    }
}

impl Default for AuditSettings {
    fn default() -> Self {
        AuditSettings { file: PathBuf::new(), max_bytes: AuditConfig::MAX_BYTES.into(), files: AuditConfig::FILES }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let core = convoke_core::Config::new(NodeId::new("default").expect("a valid node id"));
        Settings {
            id: String::new(),
            cluster: core.cluster,
            region: core.region,
            data_dir: PathBuf::from("./convoke-data"),
            join: Vec::new(),
            bootstrap: 0,
            bind: "127.0.0.1".to_owned(),
            client_port: CLIENT_PORT,
            peer_port: PEER_PORT,
            dns_port: DNS_PORT,
            advertise: String::new(),
            insecure_public: false,
            allowed_hosts: Vec::new(),
            mass_failure_share: core.mass_failure_share,
            rebalance: true,
            tls: TlsSettings::default(),
            logging: LoggingSettings { level: "info".to_owned(), format: LogFormat::Text },
            tracing: TracingSettings { otlp_endpoint: String::new(), sample_ratio: 1.0 },
            timers: TimerSettings::default(),
            limits: LimitSettings::default(),
            clients: ClientSettings::default(),
            client_timeouts: ClientTimeoutSettings::default(),
            rates: RateSettings::default(),
            auth: AuthSettings::default(),
            audit: AuditSettings::default(),
            consul: ConsulSettings::default(),
            dns: DnsSettings {
                enabled: true,
                ttl: Duration::from_secs(1).into(),
                networks: Vec::new(),
                responses_per_second: 1_000,
            },
            checks: CheckSettings {
                allow: Vec::new(),
                ca: PathBuf::new(),
                panic_share: core.panic_share,
                scripts: Vec::new(),
            },
            log: LogSettings { enabled: true, hold_level: false },
            log_timers: LogTimerSettings::default(),
            log_limits: LogLimitSettings::default(),
            log_state: LogStateSettings::default(),
        }
    }
}
