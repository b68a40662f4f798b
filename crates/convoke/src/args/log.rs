//! Flags of the commands of the replicated log.

use clap::{Args, Subcommand, ValueEnum};
use convoke_cli::{ConnectArgs, Inspect, timeout};
use convoke_proto::v1::RequestId;
use std::ffi::OsString;
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
    /// Show a key; exit 4 if it does not exist
    Get {
        /// Key to read
        key: String,
        /// Print the bytes of the value only
        #[arg(long, conflicts_with = "json")]
        raw: bool,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        at: AtRevision,
    },
    /// Set a key
    Put {
        /// Key to set
        key: String,
        /// Value; read from stdin if missing or -
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
        /// Require this modify revision, 0: no such key; exit 5 otherwise
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
        /// Attach the key to this lease, and delete it at the end of it
        #[arg(long, value_name = "LEASE", value_parser = clap::value_parser!(u64).range(1..))]
        lease: Option<u64>,
        #[command(flatten)]
        guard: Guard,
    },
    /// Delete a key, or all keys with a prefix
    Delete {
        /// Key to delete
        key: String,
        /// Delete all keys that start with KEY
        #[arg(long, conflicts_with = "if_revision")]
        prefix: bool,
        /// Require this modify revision; exit 5 otherwise
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
        #[command(flatten)]
        guard: Guard,
    },
    /// List keys in order
    List {
        /// Prefix of the keys
        #[arg(default_value = "")]
        prefix: String,
        /// First key of a range, in place of a prefix
        #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
        from: Option<String>,
        /// First key after a range, in place of a prefix
        #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
        until: Option<String>,
        /// Largest number of keys
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// Omit the values
        #[arg(long, conflicts_with = "count")]
        keys: bool,
        /// Print the number of keys only
        #[arg(long, conflicts_with = "limit")]
        count: bool,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        at: AtRevision,
    },
    /// Show changes of keys, one per line, or run a command for each
    Watch {
        /// Prefix of the keys
        #[arg(default_value = "")]
        prefix: String,
        /// Watch this key only, not a prefix
        #[arg(long = "only", value_name = "KEY", conflicts_with = "prefix")]
        key: Option<String>,
        /// Watch the keys from PREFIX on and before this one
        #[arg(long, value_name = "KEY", conflicts_with = "key")]
        until: Option<String>,
        /// Show only changes of this kind
        #[arg(long, value_name = "KIND")]
        events: Option<ChangeKind>,
        /// First revision to show [default: after the current one]
        #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
        from: Option<u64>,
        /// Show previous values
        #[arg(long)]
        prev: bool,
        /// Continue at replicas that know no leader
        #[arg(long)]
        stale: bool,
        /// Command to run for each change, with the value on stdin
        #[arg(last = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Run a transaction; exit 5 if a compare does not hold
    Txn {
        /// File with the transaction as text or JSON; stdin if missing or -
        file: Option<PathBuf>,
    },
}

/// A kind of changes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ChangeKind {
    Put,
    Delete,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Guard {
    /// Require that this lock is held with --fence; exit 5 otherwise
    #[arg(long, value_name = "NAME", requires = "fence", conflicts_with = "election")]
    pub(crate) lock: Option<String>,
    /// Require that the leader of this election has --fence
    #[arg(long, value_name = "NAME", requires = "fence")]
    pub(crate) election: Option<String>,
    /// Fence of the holder, as CMD of convoke lock gets it
    #[arg(long, value_name = "N", env = "CONVOKE_FENCE", hide_env_values = true)]
    pub(crate) fence: Option<u64>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AtRevision {
    /// Read at an older revision that the history still contains
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) revision: Option<u64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReadArgs {
    /// Consistency of the read
    #[arg(long, value_enum, default_value_t = Consistency::Barrier)]
    pub(crate) consistency: Consistency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Like linearizable, and no abandoned request takes effect afterwards
    Barrier,
    /// Include all writes acknowledged before the read
    Linearizable,
    /// Read the state of one node; works without a leader
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
    /// Show leader, group and progress of the log as one node sees them
    Status,
    /// Check the log of a stopped node for damage; exit 1 if there is some
    Check {
        /// Data directory of the node, or its log directory
        directory: PathBuf,
        /// Cut the last segment after its last complete batch first
        #[arg(long)]
        cut_tail: bool,
    },
    /// Add a running node as a learner, which does not vote
    Add {
        /// Node id
        node: String,
        #[command(flatten)]
        peer_address: PeerAddressArg,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make a learner a voter once it has caught up
    Promote {
        /// Node id
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make a voter a learner
    Demote {
        /// Node id
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Remove a node from the group
    Remove {
        /// Node id
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Replace a dead node by another one, or by itself without its data
    Replace {
        /// Id of the dead node
        old: String,
        /// Id of the new node
        node: String,
        #[command(flatten)]
        peer_address: PeerAddressArg,
        #[command(flatten)]
        wait: Wait,
    },
    /// Transfer leadership to another voter
    Transfer {
        /// Id of the new leader
        node: String,
    },
    /// Raise the log to the highest feature level of all replicas
    Upgrade,
    /// Write the whole state to a file
    Backup {
        /// File to write
        file: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// Show whether a request was applied, so far
    Peek {
        /// Request id of an OUTCOME_UNKNOWN error: S/N or S/N@LOG
        request: RequestId,
    },
    /// Make the outcome of a request final: applied, or never
    Resolve {
        /// Request id of an OUTCOME_UNKNOWN error: S/N or S/N@LOG
        request: RequestId,
    },
    /// List open log sessions, or end some
    Sessions {
        #[command(subcommand)]
        command: Option<SessionsCommand>,
    },
    /// Start a new log from a backup with this node alone (offline)
    Restore {
        /// Backup of `convoke log backup`, or snapshot of `consul snapshot save`
        file: PathBuf,
        #[command(flatten)]
        offline: Offline,
    },
    /// Start a new log from this node's data after a lost majority (offline)
    Recover {
        #[command(flatten)]
        offline: Offline,
        /// Confirm with the id of this node that all other replicas are lost
        #[arg(long, value_name = "NODE")]
        i_give_up_all_other_nodes: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// End a session, or all sessions of a client address or node
    End {
        /// Session id
        #[arg(required_unless_present = "opened_by", conflicts_with = "opened_by", value_parser = clap::value_parser!(u64).range(1..))]
        session: Option<u64>,
        /// Client address or node id, as listed in the column OPENED BY
        #[arg(long, value_name = "CLIENT")]
        opened_by: Option<String>,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PeerAddressArg {
    /// Peer address of the node [default: as registered]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Wait {
    /// Time to wait for the change to take effect; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    pub(crate) wait: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Offline {
    /// Data directory of the node, which must not be running
    #[arg(long, value_name = "DIR", default_value = "convoke-data")]
    pub(crate) data_dir: PathBuf,
    /// Node id [default: the id in the data directory]
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Peer address that other nodes will dial
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7701")]
    pub(crate) address: String,
}

impl LogArgs {
    pub(crate) fn connect(&self) -> &ConnectArgs {
        &self.inspect.connect
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { timeout(text) }
}
