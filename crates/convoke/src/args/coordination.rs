//! Flags of the commands for leases, locks and elections.

use clap::{Args, Subcommand};
use convoke_cli::{Inspect, timeout};
use std::ffi::OsString;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    #[command(subcommand)]
    pub(crate) command: LeaseCommand,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Grant a lease; it ends unless it is kept alive
    Grant {
        /// Time for which the lease lives without a keep-alive
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
        ttl: Duration,
        /// Keep the keys of the lease when it ends
        #[arg(long)]
        release_keys: bool,
    },
    /// Keep a lease alive until interrupted; exit 4 when it has ended
    KeepAlive {
        /// Lease id
        lease: u64,
        /// Send one keep-alive only
        #[arg(long)]
        once: bool,
    },
    /// End a lease, its keys and its locks
    Revoke {
        /// Lease id
        lease: u64,
    },
    /// List leases
    List,
    /// Show a lease with its keys and locks; exit 4 if it has ended
    Show {
        /// Lease id
        lease: u64,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LockCommand>,
    #[command(flatten)]
    pub(crate) run: LockRun,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct LockRun {
    /// Name of the lock
    #[arg(required = true)]
    pub(crate) name: Option<String>,
    /// Time to wait for the lock; 0s does not wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) lease: LeaseOf,
    /// Permits of the lock; all users must name the same number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) permits: u64,
    /// Value that others see
    #[arg(long, default_value = "")]
    pub(crate) value: String,
    /// Time for which the lock stays free after this holder died
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) delay: Option<Duration>,
    /// Time between SIGTERM and SIGKILL to CMD when the lock is lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = wait)]
    pub(crate) grace: Duration,
    /// Command to run while the lock is held, with CONVOKE_FENCE
    #[arg(last = true, value_name = "CMD", required = true)]
    pub(crate) cmd: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LeaseOf {
    /// Time after which the lock of a dead holder is free
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout, conflicts_with = "member")]
    pub(crate) ttl: Duration,
    /// Register this member, and hold the lock as long as it is up
    #[arg(long, value_name = "ID")]
    pub(crate) member: Option<String>,
    /// Service of the member
    #[arg(long, value_name = "SERVICE", default_value = "locks", requires = "member")]
    pub(crate) service: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// List locks with their holders
    List,
    /// Show a lock with its holders and its queue
    Show {
        /// Name of the lock
        name: String,
    },
    /// Release a lock for its holder; exit 4 if that fence does not hold it
    Release {
        /// Name of the lock
        name: String,
        /// Fence of the holder
        #[arg(long, value_name = "N")]
        fence: u64,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ElectArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ElectCommand>,
    #[command(flatten)]
    pub(crate) run: ElectRun,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct ElectRun {
    /// Name of the election
    #[arg(required = true)]
    pub(crate) name: Option<String>,
    /// Value of this candidate, such as its address
    #[arg(long, default_value = "")]
    pub(crate) value: String,
    /// Time to wait for the leadership; 0s does not wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) lease: LeaseOf,
    /// Time between SIGTERM and SIGKILL to CMD on a lost leadership
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = wait)]
    pub(crate) grace: Duration,
    /// Command to run while this candidate leads, with CONVOKE_FENCE
    #[arg(last = true, value_name = "CMD")]
    pub(crate) cmd: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ElectCommand {
    /// List elections with their leaders
    List,
    /// Show an election with its leader and its candidates
    Show {
        /// Name of the election
        name: String,
    },
    /// Show the leader and every change of it, one per line
    Watch {
        /// Name of the election
        name: String,
    },
    /// End the term of a leader; exit 4 if that fence does not lead
    Resign {
        /// Name of the election
        name: String,
        /// Fence of the leader
        #[arg(long, value_name = "N")]
        fence: u64,
    },
}

fn wait(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { timeout(text) }
}
