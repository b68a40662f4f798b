//! Flags of the load generator.

use super::bench_consul::{CheckLoad, ConsulLookupLoad, ConsulRegisterLoad, ConsulWaitLoad};
use clap::{Args, Subcommand};
use convoke_cli::timeout;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchCommon {
    /// Client addresses of the nodes to load [default: a new cluster]
    #[arg(long = "addr", value_name = "HOST:PORT,…", value_delimiter = ',', global = true)]
    pub(crate) nodes_given: Vec<String>,
    /// Certificate authority of the given nodes; the load then uses TLS
    #[arg(long = "ca", id = "tls_ca", value_name = "FILE", requires = "nodes_given", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of the load generator, with --key
    #[arg(long = "cert", id = "tls_cert", value_name = "FILE", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the load generator, with --cert
    #[arg(long = "key", id = "tls_key", value_name = "FILE", global = true)]
    pub(crate) key: Option<PathBuf>,
    /// File with the token that the load shows to the given nodes
    #[arg(long, value_name = "FILE", requires = "nodes_given", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Processes of given nodes or of etcd, whose CPU time is measured
    #[arg(long, value_name = "PID,…", value_delimiter = ',', global = true)]
    pub(crate) server_pid: Vec<u32>,
    /// Number of nodes of the new cluster
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9), global = true)]
    pub(crate) nodes: u16,
    /// Binary of the new cluster's nodes [default: this one]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) binary: Option<PathBuf>,
    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout, global = true)]
    pub(crate) duration: Duration,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Register members with the SDK
    Register(WriteLoad),
    /// Update the metadata of registered members with the SDK
    Update(WriteLoad),
    /// Send heartbeats and wait for the answers, without the SDK
    Heartbeat(HeartbeatLoad),
    /// Measure the time from a change to a watcher at another node
    Propagate(PropagateLoad),
    /// Send changes to many watchers, or measure idle watchers
    Watch(WatchLoad),
    /// Measure how a new node joins one that holds many members
    Join(JoinLoad),
    /// Write keys to the replicated log
    Log(LogLoad),
    /// Execute transactions of four operations
    Txn(TxnLoad),
    /// Send changes of keys to many watchers of one prefix
    KeyWatch(KeyWatchLoad),
    /// Hand a lock over between contenders, or lock without contention
    Lock(LockLoad),
    /// Keep leases alive and measure the CPU time of the nodes
    Lease(LeaseLoad),
    /// Register members over HTTP/JSON
    HttpRegister(HttpRegisterLoad),
    /// Look up the members of a service over HTTP/JSON
    HttpLookup(HttpLookupLoad),
    /// Send changes to many watchers over HTTP
    HttpWatch(HttpWatchLoad),
    /// Write keys over HTTP at the leader of the log
    HttpKv(HttpKvLoad),
    /// Register instances over Consul's API, also at a Consul
    ConsulRegister(ConsulRegisterLoad),
    /// Look up the instances of a service over Consul's API, also at a Consul
    ConsulLookup(ConsulLookupLoad),
    /// Change a service that many blocking queries of Consul's API wait for
    ConsulWait(ConsulWaitLoad),
    /// Let nodes check members over HTTP, and measure their CPU time
    Checks(CheckLoad),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WriteLoad {
    /// Number of clients, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Operations in progress per client
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pipeline: u32,
    /// Members of all clients together, at most 100,000 per client
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HeartbeatLoad {
    /// Number of sessions, all at the first node
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Connections that they share [default: one per session]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,
    /// Heartbeats per second in total; 0 is unlimited
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PropagateLoad {
    /// Changes per second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Number of members, changed in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Number of clients, at the first node; the watcher is at the second
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WatchLoad {
    /// Number of watchers, spread over the nodes
    #[arg(long = "watchers", value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchers: u32,
    /// Watchers per connection
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=250))]
    pub(crate) shared: u32,
    /// Changes per second, each sent to every watcher
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Measure this many watchers without changes instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["watchers", "rate"])]
    pub(crate) idle: Option<u32>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JoinLoad {
    /// Members that the first node holds
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Members per client
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_client: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LogLoad {
    /// Number of clients, each with a log session
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Requests in progress per client
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pipeline: u32,
    /// Connections that the clients share
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) links: u32,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    pub(crate) value: u32,
    /// Number of keys, written in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// Share of linearizable reads among the operations
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) reads: u8,
    /// Writes per second in total; 0 is unlimited
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate: u32,
    /// Write to etcd at these addresses instead (bench/etcd.py)
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with = "reads")]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TxnLoad {
    /// Number of clients, each with a log session
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Connections that the clients share
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) links: u32,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=262_144))]
    pub(crate) value: u32,
    /// Number of keys, used in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(4..))]
    pub(crate) keys: u32,
    /// Use etcd at these addresses instead (bench/etcd.py)
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeyWatchLoad {
    /// Number of watchers, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchers: u32,
    /// Watchers per connection
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) shared: u32,
    /// Writes per second, each sent to every watcher
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Use etcd at these addresses instead; writes go to the first one
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LockLoad {
    /// Number of clients that compete for the lock
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) contenders: u32,
    /// Connections that they share [default: one each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,
    /// Give each client its own lock, and count locks with unlocks
    #[arg(long)]
    pub(crate) own: bool,
    /// Use etcd's lock service at these addresses instead
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LeaseLoad {
    /// Number of leases
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) leases: u32,
    /// Connections that they share
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Ttl of a lease, kept alive three times within it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub(crate) ttl: Duration,
    /// Use etcd at these addresses instead
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpRegisterLoad {
    /// Number of connections, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Sessions that the connections share [default: one each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions: Option<u32>,
    /// Requests in progress per connection (HTTP/1.1 pipelining)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) pipeline: u32,
    /// Members after which the benchmark ends early
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpLookupLoad {
    /// Number of connections, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Requests in progress per connection (HTTP/1.1 pipelining)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) pipeline: u32,
    /// Number of services
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) services: u32,
    /// Members per service
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpWatchLoad {
    /// Number of watchers, each with its own connection
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchers: u32,
    /// Changes per second, each sent to every watcher
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Number of changes made at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) burst: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpKvLoad {
    /// Number of connections to the leader
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    pub(crate) value: u32,
    /// Number of keys, written in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
}
