//! Flags of commands that talk to a running node.

use clap::{Args, Subcommand};
use convoke_cli::{Inspect, pair, timeout};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) inspect: Inspect,
    #[command(subcommand)]
    pub(crate) command: Option<NodesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Forget a node that will not return, and stop dialling it
    Forget {
        /// Node id
        id: String,
    },
    /// Declare a node that reaches no seed the first of its cluster
    DeclareFirst,
}

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Filter, such as: service == "orders" and meta.version != "v1"
    pub(crate) filter: Option<String>,
    /// Members of one service
    #[arg(long, value_name = "NAME", conflicts_with = "filter")]
    pub(crate) service: Option<String>,
    /// Accept a list that may lack members
    #[arg(long)]
    pub(crate) partial: bool,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

/// The filter of a command that takes either a filter or a service.
pub(crate) fn filter_of(filter: Option<&str>, service: Option<&str>) -> String {
    match service {
        Some(name) => convoke_core::filter::Filter::service(name).to_string(),
        None => filter.unwrap_or_default().to_owned(),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Id {
    /// Member id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) target: DrainTarget,
    /// End the drain after this time, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = timeout)]
    pub(crate) lasts: Option<Duration>,
    /// Reason, shown with the member
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Wait until no connection is left, at most for the grace
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time limit of --wait
    #[arg(long, value_name = "TIME", requires = "wait", default_value = "30s", value_parser = timeout)]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    pub(crate) target: DrainTarget,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct DrainTarget {
    /// Member to drain or undrain
    #[arg(required_unless_present = "node", conflicts_with = "node")]
    pub(crate) id: Option<String>,
    /// Drain or undrain a node; without NODE, the one that answers
    #[arg(long, value_name = "NODE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) node: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Register or replace a member that no client keeps alive
    Register(Box<ServiceRegisterArgs>),
    /// Deregister such a member, at any node
    Deregister(Id),
    /// List the members that no client keeps alive
    List(Inspect),
}

#[derive(Debug, Args)]
pub(crate) struct ServiceRegisterArgs {
    /// JSON file with a member or a list of members; - for stdin
    #[arg(conflicts_with_all = ["id", "service", "address", "endpoints", "locality", "revision", "weight", "metadata", "check_http", "check_tcp", "check_grpc", "check_ttl"], required_unless_present_all = ["id", "service"])]
    pub(crate) file: Option<PathBuf>,
    /// Member id, unique in the cluster
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Service that the member belongs to
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// Address of the member
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// Named address, such as metrics=10.0.0.5:9100; repeatable
    #[arg(long = "endpoint", value_name = "NAME=HOST:PORT", value_parser = pair)]
    pub(crate) endpoints: Vec<(String, String)>,
    /// Locality, from large to small: aws.us-east-1.a
    #[arg(long)]
    pub(crate) locality: Option<String>,
    /// The `revision` attribute: version of the software
    #[arg(long)]
    pub(crate) revision: Option<String>,
    /// Relative share of traffic
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) weight: Option<u16>,
    /// Metadata; repeatable
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Check by an HTTP request: 200 to 299 is passing; repeatable
    #[arg(long, value_name = "URL")]
    pub(crate) check_http: Vec<String>,
    /// Check by a TCP connection; repeatable
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) check_tcp: Vec<String>,
    /// Check by the health service of gRPC; repeatable
    #[arg(long, value_name = "HOST:PORT[/SERVICE]")]
    pub(crate) check_grpc: Vec<String>,
    /// Check that the application reports at least every MS; repeatable
    #[arg(long, value_name = "MS")]
    pub(crate) check_ttl: Vec<u64>,
    /// Interval of the checks in milliseconds; 10000 by default
    #[arg(long, value_name = "MS")]
    pub(crate) check_interval: Option<u64>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Member id
    #[arg(
        required_unless_present_any = ["lock", "election", "grant"],
        conflicts_with_all = ["lock", "election", "grant"]
    )]
    pub(crate) id: Option<String>,
    /// Explain a lock instead of a member
    #[arg(long, value_name = "NAME", conflicts_with = "election")]
    pub(crate) lock: Option<String>,
    /// Explain an election instead of a member
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,
    /// Explain why a token allows or denies, such as: put key:config/a
    #[arg(long, value_name = "GRANT", conflicts_with_all = ["lock", "election"])]
    pub(crate) grant: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Filter, such as: service == "orders"
    pub(crate) filter: Option<String>,
    /// Members of one service
    #[arg(long, value_name = "NAME", conflicts_with = "filter")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// Member id, unique in the cluster
    #[arg(long)]
    pub(crate) id: String,
    /// Service that the member belongs to
    #[arg(long)]
    pub(crate) service: String,
    /// Address of the member
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// Named address, such as metrics=10.0.0.5:9100; repeatable
    #[arg(long = "endpoint", value_name = "NAME=HOST:PORT", value_parser = pair)]
    pub(crate) endpoints: Vec<(String, String)>,
    /// Locality, from large to small: aws.us-east-1.a
    #[arg(long)]
    pub(crate) locality: Option<String>,
    /// The `revision` attribute: version of the software
    #[arg(long)]
    pub(crate) revision: Option<String>,
    /// Relative share of traffic
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) weight: Option<u16>,
    /// Metadata; repeatable
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Take the id over from another live client
    #[arg(long)]
    pub(crate) takeover: bool,
    /// Report the member down within a second of a lost connection
    #[arg(long)]
    pub(crate) fast: bool,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
    /// Command to run; the member is unregistered when it ends
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
