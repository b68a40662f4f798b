//! Flags of `convoke cluster`.

use crate::args::client::timeout;
use clap::{Args, Subcommand};
use std::time::Duration;

/// Where the cluster manager of this machine listens.
pub(crate) const MANAGER_PORT: u16 = 7720;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Of the cluster manager, on this machine.
    #[arg(long, value_name = "PORT", default_value_t = MANAGER_PORT, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start a cluster and return when all its nodes are ready; interrupted, it leaves nothing behind.
    Create(CreateArgs),
    /// Show all clusters.
    List,
    /// Show a cluster: its nodes, where they are, which faults there are.
    Info {
        #[command(flatten)]
        cluster: Name,
    },
    /// Add a node.
    Add {
        #[command(flatten)]
        cluster: Name,
        /// Where the node is.
        #[arg(long)]
        region: Option<String>,
    },
    /// Stop a node gracefully and forget it; others take its place in the log first.
    Remove {
        /// Of the node.
        node: String,
        /// Even if it alone has the log and nobody can take it over: what the log holds is lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        cluster: NameFlag,
    },
    /// Have so many clients of a service, each with a member, spread over the nodes; 0 ends them all.
    Clients {
        /// How many there are from now on.
        count: usize,
        /// Their members are of it.
        #[arg(long, default_value = "web")]
        service: String,
        /// Those that are too many end without goodbye.
        #[arg(long)]
        crash: bool,
        #[command(flatten)]
        cluster: NameFlag,
    },
    /// Make something go wrong, or right again.
    Fault {
        #[command(flatten)]
        cluster: NameFlag,
        #[command(subcommand)]
        fault: FaultCommand,
    },
    /// Whether all nodes run, see each other and show the same members; exit 1 says what differs.
    Health {
        #[command(flatten)]
        cluster: Name,
        /// Wait so long for it to become so.
        #[arg(long, value_name = "TIME", value_parser = timeout)]
        wait: Option<Duration>,
    },
    /// End a cluster; the last one ends the manager.
    Delete {
        #[command(flatten)]
        cluster: Name,
        /// All clusters, and the manager.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run the cluster manager in the foreground until interrupted; that ends all clusters.
    Serve {
        /// Started by `create`: ends with the last cluster.
        #[arg(long, hide = true)]
        background: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Of the cluster.
    #[arg(default_value = "local")]
    pub(crate) name: String,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) nodes: usize,
    /// Regions to spread the nodes over, in turn.
    #[arg(long = "region", value_name = "REGION,…", value_delimiter = ',')]
    pub(crate) regions: Vec<String>,
    /// A key of the configuration for all nodes: timers.ping_timeout=1s; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::args::client::pair)]
    pub(crate) settings: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Of the cluster [default: the only one].
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NameFlag {
    /// Of the cluster [default: the only one].
    #[arg(long, global = true)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Reset connections between nodes once: all, those of one node, or those between two.
    Drop {
        /// None, one or two.
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
    /// Swallow everything between a node and all others, or between two nodes, without a word.
    Blackhole {
        /// One or two.
        #[arg(value_name = "NODE", num_args = 1..=2, required = true)]
        nodes: Vec<String>,
    },
    /// Swallow everything between groups of nodes; nodes that are not named are the last group.
    Partition {
        /// A group.
        #[arg(value_name = "NODE,…", required = true)]
        groups: Vec<String>,
    },
    /// Swallow what one node sends to another; the way back stays open.
    OneWay {
        /// Whose words are lost.
        from: String,
        /// For whom.
        to: String,
    },
    /// Delay everything on its way: between all nodes, of one node, or between two.
    Delay {
        /// For example 200ms.
        #[arg(value_parser = timeout)]
        time: Duration,
        /// None, one or two.
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
    /// Stop a node's process as a debugger does (SIGSTOP).
    Pause {
        /// Of the node.
        node: String,
    },
    /// Let it go on (SIGCONT).
    Resume {
        /// Of the node.
        node: String,
    },
    /// Kill a node's process (SIGKILL).
    Kill {
        /// Of the node.
        node: String,
    },
    /// Start a dead node again, with its addresses and its data.
    Restart {
        /// Of the node.
        node: String,
    },
    /// Open all ways, those of one node, or those between two, and take delays away; processes stay as they are.
    Heal {
        /// None, one or two.
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
}
