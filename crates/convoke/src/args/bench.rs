//! Flags of the load generator.

use super::client::timeout;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchCommon {
    /// Nodes to put under load, separated by commas. Without it a cluster is started for the purpose and ended afterwards; CPU time and
    /// memory of nodes are known only then.
    #[arg(long = "addr", value_name = "HOST:PORT,…", value_delimiter = ',', global = true)]
    pub(crate) nodes_given: Vec<String>,
    /// Nodes of the cluster that is started.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9), global = true)]
    pub(crate) nodes: u16,
    /// Binary of the nodes that are started [default: this one], to compare versions under the same load.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) binary: Option<PathBuf>,
    /// How long to measure.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout, global = true)]
    pub(crate) duration: Duration,
    /// JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Clients of the SDK register members, each waiting for the acknowledgement.
    Register(WriteLoad),
    /// Clients of the SDK change the metadata of members they registered before.
    Update(WriteLoad),
    /// Clients say that they live and wait for the answer. Not by the SDK, which does so every few seconds only.
    Heartbeat(HeartbeatLoad),
    /// Changes at one node until a subscriber of the SDK at another one has them, at a fixed rate.
    Propagate(PropagateLoad),
    /// Every change to many subscribers; or, with --idle, what subscribers without changes cost.
    Watch(WatchLoad),
    /// A fresh node joins one that holds many members: time until it serves, and its memory.
    Join(JoinLoad),
    /// Durable writes to the log: every client puts keys, one after the other.
    Log(LogLoad),
    /// Sessions over HTTP/JSON register members.
    HttpRegister(HttpRegisterLoad),
    /// Lookups of a service's members over HTTP/JSON.
    HttpLookup(HttpLookupLoad),
    /// Send every change to many watchers over HTTP (server-sent events).
    WatchHttp(WatchHttpLoad),
    /// Durable key writes over HTTP, at the node that leads the log.
    HttpKv(HttpKvLoad),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WriteLoad {
    /// Clients, each with a connection of its own, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Operations that each client has under way at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pipeline: u32,
    /// Members of all clients, at most 100,000 each: those to change, or where registering ends before the time is up.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HeartbeatLoad {
    /// Sessions, all at the first node.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Connections that they share [default: one for each].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,
    /// Heartbeats per second of all together; 0 is as many as possible.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PropagateLoad {
    /// Changes per second.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Members that change in turn.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Clients that change them, all at the first node; the subscriber is at the second.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WatchLoad {
    /// Subscribers, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) subscribers: u32,
    /// Subscribers that share one connection.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=250))]
    pub(crate) shared: u32,
    /// Changes per second, each told to every subscriber.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Instead: so many subscribers and no changes. First each with a connection of its own, at one node, then sharing them, at another.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["subscribers", "rate"])]
    pub(crate) idle: Option<u32>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JoinLoad {
    /// Members that the first node holds.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Members of one client.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_client: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LogLoad {
    /// Clients, each with a session of its own.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Requests that each client has under way at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pipeline: u32,
    /// Links that they share, as the clients of one process do.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) links: u32,
    /// Size of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    pub(crate) value: u32,
    /// Keys that are put in turn.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// Of so many in a hundred operations, a read that the leader confirms.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) reads: u8,
    /// Writes per second of all together; 0 is as many as possible.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rate: u32,
    /// Instead: the same writes to etcd, at these addresses, for comparison. See bench/etcd.py.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with_all = ["reads", "rate"])]
    pub(crate) etcd: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpRegisterLoad {
    /// Connections, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Sessions that the connections share [default: one for each connection]. All connections of a session go to one node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions: Option<u32>,
    /// Requests that each has under way at once on its connection (HTTP/1.1 pipelining).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) pipeline: u32,
    /// Where registering ends before the time is up.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpLookupLoad {
    /// Connections, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Requests under way at once on each connection (HTTP/1.1 pipelining).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) pipeline: u32,
    /// Services that are looked up.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) services: u32,
    /// Members of each service.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) members: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WatchHttpLoad {
    /// Watchers, each with a connection of its own, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchers: u32,
    /// Changes per second. Every watcher receives each of them.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Changes made at once, as in a deployment or when a node is lost.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) burst: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpKvLoad {
    /// Connections to the leader.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Size of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=1_048_576))]
    pub(crate) value: u32,
    /// Keys that are put in turn.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
}
