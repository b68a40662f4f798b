//! Flags of `convoke cluster`.

use clap::{Args, Subcommand};
use convoke_cli::timeout;
use std::time::Duration;

/// Default port of the cluster manager.
pub(crate) const MANAGER_PORT: u16 = 7720;

#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Port of the cluster manager
    #[arg(long, value_name = "PORT", default_value_t = MANAGER_PORT, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start a cluster and wait until its nodes are ready
    Create(CreateArgs),
    /// List clusters
    List,
    /// Show the nodes, addresses and faults of a cluster
    Info {
        #[command(flatten)]
        cluster: Name,
    },
    /// Add a node
    Add {
        #[command(flatten)]
        cluster: Name,
        /// Region of the node
        #[arg(long)]
        region: Option<String>,
    },
    /// Stop a node, remove it from the log and forget it
    Remove {
        /// Node id
        node: String,
        /// Remove it even if the content of the log is lost
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        cluster: NameFlag,
    },
    /// Run clients with one member each, spread over the nodes
    Clients {
        /// Number of clients; 0 stops them all
        count: usize,
        /// Service of their members
        #[arg(long, default_value = "web")]
        service: String,
        /// Stop surplus clients without unregistering
        #[arg(long)]
        crash: bool,
        #[command(flatten)]
        cluster: NameFlag,
    },
    /// Inject or heal a fault
    Fault {
        #[command(flatten)]
        cluster: NameFlag,
        #[command(subcommand)]
        fault: FaultCommand,
    },
    /// Check that all nodes run and agree; exit 1 with the differences
    Health {
        #[command(flatten)]
        cluster: Name,
        /// Time to wait for the cluster to become healthy
        #[arg(long, value_name = "TIME", value_parser = timeout)]
        wait: Option<Duration>,
    },
    /// Stop and remove a cluster
    Delete {
        #[command(flatten)]
        cluster: Name,
        /// Remove all clusters and stop the manager
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run the cluster manager in the foreground
    Serve {
        /// Stop with the last cluster
        #[arg(long, hide = true)]
        background: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Cluster name
    #[arg(default_value = "local")]
    pub(crate) name: String,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) nodes: usize,
    /// Regions of the nodes, assigned in turn
    #[arg(long = "region", value_name = "REGION,…", value_delimiter = ',')]
    pub(crate) regions: Vec<String>,
    /// Configuration key for all nodes: timers.ping_timeout=1s; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = convoke_cli::pair)]
    pub(crate) settings: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// Cluster name [default: the only cluster]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NameFlag {
    /// Cluster name [default: the only cluster]
    #[arg(long, global = true)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Reset connections once: all, of one node, or between two nodes
    Drop {
        /// None, one or two node ids
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
    /// Drop all traffic of a node, or between two nodes
    Blackhole {
        /// One or two node ids
        #[arg(value_name = "NODE", num_args = 1..=2, required = true)]
        nodes: Vec<String>,
    },
    /// Drop all traffic between groups; other nodes form the last group
    Partition {
        /// Node ids of a group
        #[arg(value_name = "NODE,…", required = true)]
        groups: Vec<String>,
    },
    /// Drop traffic from one node to another, in one direction only
    OneWay {
        /// Id of the sending node
        from: String,
        /// Id of the receiving node
        to: String,
    },
    /// Delay traffic: of all nodes, of one node, or between two nodes
    Delay {
        /// Delay, such as 200ms
        #[arg(value_parser = timeout)]
        time: Duration,
        /// None, one or two node ids
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
    /// Pause the process of a node (SIGSTOP)
    Pause {
        /// Node id
        node: String,
    },
    /// Resume a paused node (SIGCONT)
    Resume {
        /// Node id
        node: String,
    },
    /// Kill the process of a node (SIGKILL)
    Kill {
        /// Node id
        node: String,
    },
    /// Start a killed node with its addresses and data
    Restart {
        /// Node id
        node: String,
    },
    /// Remove drops and delays: all, of one node, or between two nodes
    Heal {
        /// None, one or two node ids
        #[arg(value_name = "NODE", num_args = 0..=2)]
        nodes: Vec<String>,
    },
}
