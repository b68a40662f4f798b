//! Flags of commands that start a node. Each is a key of the configuration, too.

use crate::config::value::Raw;
use crate::config::{Flag, LogFormat};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Name of the node.
    #[arg(long)]
    id: Option<String>,
    /// Port for clients [default: 7700, or a free one].
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// Port for other nodes [default: 7701, or a free one].
    #[arg(long, value_name = "PORT")]
    peer_port: Option<u16>,
    /// Port for DNS [default: 7753, or a free one].
    #[arg(long, value_name = "PORT")]
    dns_port: Option<u16>,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Configuration in TOML; `convoke config print --defaults` shows what it may contain.
    #[arg(long, value_name = "FILE", env = "CONVOKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Name of this node, unique in the cluster [default: the one the data directory belongs to, else from the host name].
    #[arg(long)]
    id: Option<String>,
    /// Where the node remembers its number of runs [default: ./convoke-data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Peer addresses of nodes to join, separated by commas.
    #[arg(long, value_name = "HOST:PORT,…")]
    join: Option<String>,
    /// Where this node is.
    #[arg(long)]
    region: Option<String>,
    /// Nodes of another cluster are refused [default: convoke].
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// Host to listen on, for clients and for peers [default: 127.0.0.1].
    #[arg(long, value_name = "HOST")]
    bind: Option<String>,
    /// Port for clients, gRPC and HTTP; 0 is any free one [default: 7700].
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// Port for other nodes; 0 is any free one [default: 7701].
    #[arg(long, value_name = "PORT")]
    peer_port: Option<u16>,
    /// Port for DNS, UDP and TCP; 0 is any free one [default: 7753, or a free one].
    #[arg(long, value_name = "PORT")]
    dns_port: Option<u16>,
    /// Host, or host:port of the peer port, that others dial [default: the address bound to].
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<String>,
    /// Listen on addresses that other machines reach although whoever reaches them may do everything.
    #[arg(long)]
    insecure_public: bool,
    /// End at once when this process, which must be the one that started the node, ends.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) end_with: Option<i32>,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Args)]
struct TelemetryArgs {
    /// Log level, or levels by module: info,convoke_node=debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log format [default: text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Send traces to this OpenTelemetry collector, for example http://127.0.0.1:4318.
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl DevArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = Flags::default();
        flags.add("id", "--id", self.id.as_ref());
        flags.add("client_port", "--client-port", self.client_port.as_ref());
        flags.add("peer_port", "--peer-port", self.peer_port.as_ref());
        flags.add("dns_port", "--dns-port", self.dns_port.as_ref());
        self.telemetry.flags(&mut flags);
        flags.0
    }
}

impl StartArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = Flags::default();
        flags.add("id", "--id", self.id.as_ref());
        flags.add("data_dir", "--data-dir", self.data_dir.as_ref().map(|path| path.display()).as_ref());
        flags.add("join", "--join", self.join.as_ref());
        flags.add("region", "--region", self.region.as_ref());
        flags.add("cluster", "--cluster", self.cluster.as_ref());
        flags.add("bind", "--bind", self.bind.as_ref());
        flags.add("client_port", "--client-port", self.client_port.as_ref());
        flags.add("peer_port", "--peer-port", self.peer_port.as_ref());
        flags.add("dns_port", "--dns-port", self.dns_port.as_ref());
        flags.add("advertise", "--advertise", self.advertise.as_ref());
        flags.add("insecure_public", "--insecure-public", self.insecure_public.then_some(&true));
        self.telemetry.flags(&mut flags);
        flags.0
    }
}

impl TelemetryArgs {
    fn flags(&self, flags: &mut Flags) {
        flags.add("logging.level", "--log-level", self.log_level.as_ref());
        let format = self.log_format.map(|format| match format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        });
        flags.add("logging.format", "--log-format", format.as_ref());
        flags.add("tracing.otlp_endpoint", "--otlp-endpoint", self.otlp_endpoint.as_ref());
    }
}

#[derive(Default)]
struct Flags(Vec<Flag>);

impl Flags {
    fn add<T: ToString>(&mut self, key: &'static str, flag: &'static str, value: Option<&T>) {
        self.0.extend(value.map(|value| Flag { key, flag, raw: Raw::Text(value.to_string()) }));
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Arguments, Command};
    use crate::config::Loaded;
    use crate::config::keys::KEYS;
    use clap::{CommandFactory, Parser};

    /// Flags reach the keys that say they have them, and no flag is left out.
    #[test]
    fn flags_and_keys_know_each_other() {
        let line = "convoke start --id a --data-dir d --join x:1 --region r --cluster c --bind b --client-port 1 \
                    --peer-port 2 --dns-port 3 --advertise h --insecure-public --log-level debug --log-format json \
                    --otlp-endpoint http://h:1";
        let Command::Start(arguments) = Arguments::parse_from(line.split_whitespace()).command else { panic!() };
        let mut loaded = Loaded::default();
        loaded.flags(&arguments.flags()).unwrap();
        for key in KEYS {
            let origin = loaded.origin(key.name).map(ToString::to_string);
            assert_eq!(origin.as_deref(), key.flag, "{}", key.name);
        }
        let command = Arguments::command();
        let start = command.find_subcommand("start").unwrap();
        for flag in start.get_arguments().filter_map(|argument| argument.get_long()) {
            let known = KEYS.iter().any(|key| key.flag == Some(&format!("--{flag}")));
            assert!(known || ["config", "help", "end-with"].contains(&flag), "--{flag} is no key");
        }
    }
}
