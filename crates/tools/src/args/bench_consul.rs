//! Flags of the loads over Consul's HTTP API and of checks.

use clap::Args;
use convoke_cli::timeout;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct ConsulRegisterLoad {
    /// Number of connections, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Number of services
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) services: u32,
    /// Instances after which the benchmark ends early
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Register in the catalog instead of at the agent
    #[arg(long)]
    pub(crate) catalog: bool,
    /// Leave the instances registered
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConsulLookupLoad {
    /// Number of connections, spread over the nodes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// Number of services
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) services: u32,
    /// Instances per service
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) members: u32,
    /// Leave the instances registered
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConsulWaitLoad {
    /// Number of waiting queries, each with its own connection
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watchers: u32,
    /// Changes per second, each of which ends all queries
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rate: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckLoad {
    /// Number of members, each with one HTTP check of the load generator
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) members: u32,
    /// Interval of the checks
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub(crate) interval: Duration,
}
