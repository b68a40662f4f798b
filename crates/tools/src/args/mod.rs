//! Flags of the development tools.

mod bench;
mod bench_consul;
mod cluster;
mod demo;
mod top;

use clap::Subcommand;

pub use bench::BenchArgs;
pub(crate) use bench::{
    BenchCommand, BenchCommon, HeartbeatLoad, HttpKvLoad, HttpLookupLoad, HttpRegisterLoad, HttpWatchLoad, JoinLoad,
    KeyWatchLoad, LeaseLoad, LockLoad, LogLoad, PropagateLoad, TxnLoad, WatchLoad, WriteLoad,
};
pub(crate) use bench_consul::{CheckLoad, ConsulLookupLoad, ConsulRegisterLoad, ConsulWaitLoad};
pub use cluster::ClusterArgs;
pub(crate) use cluster::{ClusterCommand, CreateArgs, FaultCommand};
pub use demo::DemoArgs;
pub use top::TopArgs;

/// Commands for development and tests.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Watch a three-node cluster with churn and faults until Ctrl-C
    Demo(DemoArgs),
    /// Manage local clusters for development and tests
    Cluster(ClusterArgs),
    /// Show nodes, rates, services and changes full-screen
    Top(TopArgs),
    /// Generate load and report rates, latencies and resource use
    Bench(BenchArgs),
}
