//! Flags of the commands of the log plane.

use super::client::{Connect, Inspect, timeout};
use clap::{Args, Subcommand, ValueEnum};
use convoke_proto::v1::RequestId;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    pub(crate) command: KvCommand,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Show a key; exit 4 if it does not exist.
    Get {
        key: String,
        /// The value alone, byte by byte.
        #[arg(long, conflicts_with = "json")]
        raw: bool,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Set a key.
    Put {
        key: String,
        /// Without it, or with -, the value is read from stdin. One that begins with a dash is written after --: `put KEY -- --value`.
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
        /// Only if the key has this modify revision; 0: only if it does not exist. Otherwise exit 5.
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
    },
    /// Delete a key, or all that begin with it.
    Delete {
        key: String,
        /// All keys that begin with this one.
        #[arg(long, conflicts_with = "if_revision")]
        prefix: bool,
        /// Only if the key has this modify revision. Otherwise exit 5.
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
    },
    /// Show keys in order.
    List {
        /// Only those that begin with this.
        #[arg(default_value = "")]
        prefix: String,
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        #[command(flatten)]
        read: ReadArgs,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReadArgs {
    /// What the answer may miss.
    #[arg(long, value_enum, default_value_t = Consistency::Linearizable)]
    pub(crate) consistency: Consistency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Nothing that was acknowledged before.
    Linearizable,
    /// Whatever one node has not heard of yet; works without a leader.
    Local,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) command: LogCommand,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the log as a node sees it: who leads, who takes part, how far everything is.
    Status,
    /// Make a running node a learner: it gets everything and votes on nothing.
    Add {
        /// Id of the node.
        node: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make a learner a voter, once it has caught up.
    Promote {
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make a voter a learner.
    Demote {
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Take a node out of the group.
    Remove {
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Give the place of a dead node to another one, or to itself with an empty disk.
    Replace {
        old: String,
        node: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have the leader hand over to another voter.
    Transfer { node: String },
    /// Write the whole state to a file.
    Backup {
        file: PathBuf,
        /// Replace the file if it exists.
        #[arg(long)]
        force: bool,
    },
    /// Say what became of a request, so far.
    Peek {
        /// As told with OUTCOME_UNKNOWN: session/number.
        request: RequestId,
    },
    /// Make the fate of a request final, and say it: applied, or never.
    Resolve {
        /// As told with OUTCOME_UNKNOWN: session/number.
        request: RequestId,
    },
    /// Offline: begin a new log from a backup, with this node alone.
    Restore {
        file: PathBuf,
        #[command(flatten)]
        offline: Offline,
    },
    /// Offline, after the loss of a majority: begin a new log from what this node has, alone. What only others had is lost.
    Recover {
        #[command(flatten)]
        offline: Offline,
        /// Id of this node once more, to confirm that the other nodes and what only they had are given up for good.
        #[arg(long, value_name = "NODE")]
        i_give_up_all_other_nodes: Option<String>,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Its peer address [default: as the cluster knows it].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Wait {
    /// How long to wait until the group is as wanted; 0s: not at all.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    pub(crate) wait: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Offline {
    /// The node's data directory. The node must not be running.
    #[arg(long, value_name = "DIR", default_value = "convoke-data")]
    pub(crate) data_dir: PathBuf,
    /// Id of the node [default: the one the data directory belongs to].
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Where other nodes will reach it: its peer address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7701")]
    pub(crate) address: String,
}

impl LogArgs {
    pub(crate) fn connect(&self) -> &Connect {
        &self.inspect.connect
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { timeout(text) }
}
