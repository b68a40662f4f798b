//! The command line as people type it. What it means is decided elsewhere.

mod bench;
mod client;
mod cluster;
mod demo;
mod log;
mod node;
mod top;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

pub(crate) use bench::{
    BenchArgs, BenchCommand, BenchCommon, HeartbeatLoad, HttpKvLoad, HttpLookupLoad, HttpRegisterLoad, JoinLoad,
    LogLoad, PropagateLoad, WatchHttpLoad, WatchLoad, WriteLoad,
};
pub(crate) use client::{
    Connect, DrainArgs, Id, Inspect, MembersArgs, NodesArgs, NodesCommand, RegisterArgs, WatchArgs,
};
pub(crate) use cluster::{ClusterArgs, ClusterCommand, CreateArgs, FaultCommand};
pub(crate) use demo::DemoArgs;
pub(crate) use log::{Consistency, KvArgs, KvCommand, LogArgs, LogCommand, Offline};
pub(crate) use node::{DevArgs, StartArgs};
pub(crate) use top::TopArgs;

const AFTER: &str = "\
Exit codes: 0 fine, 1 failure, 2 bad usage or configuration, 3 cannot reach a node, 4 not found, 5 refused. \
Commands that wrap another one exit with its status, 125 for their own failure.";

/// A service registry that people can rely on while things fail.
#[derive(Debug, Parser)]
#[command(name = "convoke", version, after_help = AFTER, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start one node with everything on: in memory, for this machine only.
    Dev(DevArgs),
    /// Start a node.
    Start(StartArgs),
    /// Watch a cluster of three nodes live through churn and faults; no set-up, Ctrl-C ends it and leaves nothing behind.
    Demo(DemoArgs),
    /// Show how a node is.
    Status(Inspect),
    /// Show all nodes as one of them sees them, or forget one.
    Nodes(NodesArgs),
    /// Show services and how many members they have.
    Services(Inspect),
    /// Show members.
    Members(MembersArgs),
    /// Show one member.
    Member(Id),
    /// Tell why a member has its status: who said so, on what evidence.
    Explain(Id),
    /// Follow changes, one per line, until interrupted; goes on at another node if one is lost.
    Watch(WatchArgs),
    /// Keep a member registered while this runs, or while a command runs.
    Register(RegisterArgs),
    /// Mark a member or a node as not to be given traffic; it stays listed and up.
    Drain(DrainArgs),
    /// Take that mark back.
    Undrain(DrainArgs),
    /// Read and write keys of the log plane.
    Kv(KvArgs),
    /// Look after the log plane: its group, backups, what became of requests.
    Log(LogArgs),
    /// Put nodes under load and report rates, latencies and what the nodes use.
    Bench(BenchArgs),
    /// Show nodes, rates, services and changes on the whole terminal, until q.
    Top(TopArgs),
    /// Clusters on this machine for development and tests: create them, make things go wrong, look what comes of it.
    Cluster(ClusterArgs),
    /// Check or print configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell.
    Completions { shell: clap_complete::Shell },
    /// Write manual pages, one for each command.
    Man {
        /// Where to; it is made if it is not there.
        directory: PathBuf,
    },
    /// Print the version.
    Version {
        /// JSON instead of text.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a file; exit 2 says what is wrong and where.
    Check {
        file: PathBuf,
        /// JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Print the configuration that counts here: file, then environment.
    Print(PrintArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    /// Print every key with its meaning and default instead.
    #[arg(long)]
    pub(crate) defaults: bool,
    /// Configuration in TOML.
    #[arg(long, value_name = "FILE", env = "CONVOKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// JSON instead of TOML.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}
