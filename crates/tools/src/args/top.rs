//! Flags of `convoke top`.

use clap::Args;
use convoke_cli::{ConnectArgs, timeout};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print one sample as JSON; rates cover one interval
    #[arg(long)]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let fits = |time: &Duration| (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(time);
    timeout(text).ok().filter(fits).ok_or_else(|| "use a time from 100ms to 1h, such as 2s".to_owned())
}
