//! Flags of commands that talk to a running node.

use crate::config::value::duration;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::time::Duration;

/// Whom to talk to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connect {
    /// Nodes to talk to, tried in turn.
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        env = "CONVOKE_ADDR",
        hide_env_values = true,
        default_value = "127.0.0.1:7700",
        value_delimiter = ',',
        global = true
    )]
    pub(crate) addr: Vec<String>,
    /// How long to try.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout, global = true)]
    pub(crate) timeout: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) inspect: Inspect,
    #[command(subcommand)]
    pub(crate) command: Option<NodesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Remove a node that is gone for good; without this it is retried for ever.
    Forget {
        /// Of the node.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Only those that match, for example: service == "orders" and meta.version != "v1"
    pub(crate) filter: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct Id {
    /// Of the member.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Member to mark.
    #[arg(required_unless_present = "node", conflicts_with = "node")]
    pub(crate) id: Option<String>,
    /// Mark a node: this one, or the one that answers.
    #[arg(long, value_name = "NODE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only members that match.
    pub(crate) filter: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// Unique in the cluster.
    #[arg(long)]
    pub(crate) id: String,
    /// Service it is an instance of.
    #[arg(long)]
    pub(crate) service: String,
    /// Where it can be reached.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// Where it is, a hierarchy with dots: aws.us-east-1.a
    #[arg(long)]
    pub(crate) locality: Option<String>,
    /// Of the software it runs.
    #[arg(long)]
    pub(crate) revision: Option<String>,
    /// Relative share of traffic.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) weight: Option<u16>,
    /// Metadata; may be given several times.
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Take the id even if another live client holds it.
    #[arg(long)]
    pub(crate) takeover: bool,
    /// A lost connection means down within a second, not after the heartbeat timeout.
    #[arg(long)]
    pub(crate) fast: bool,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
    /// Command to run; it is unregistered when this ends. Signals are passed on.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Nobody waits for longer, and clocks can count that far.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Seconds if there is no unit.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.or_else(|| duration(text)).filter(|time| !time.is_zero()) {
        Some(time) if time > TIME_MAX => Err("write a time of at most 365d".to_owned()),
        Some(time) => Ok(time),
        None => Err("write a time, for example 5s or 500ms".to_owned()),
    }
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_a_clock_can_count() {
        for (text, ms) in [("5", 5_000), ("0.5", 500), ("500ms", 500), ("365d", 365 * 24 * 3_600_000)] {
            assert_eq!(timeout(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, why) in [("0", "for example"), ("soon", "for example"), ("366d", "at most 365d")] {
            assert!(timeout(text).unwrap_err().contains(why), "{text}");
        }
        assert_eq!(timeout("10000000000000000000"), Err("write a time of at most 365d".to_owned()));
    }
}
