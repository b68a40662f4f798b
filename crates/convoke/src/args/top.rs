//! Flags of `convoke top`.

use super::client::{Connect, timeout};
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// How often to ask.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// One look as JSON instead of the screen; rates are over one interval.
    #[arg(long)]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let fits = |time: &Duration| (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(time);
    timeout(text).ok().filter(fits).ok_or_else(|| "write a time from 100ms to 1h, for example 2s".to_owned())
}
