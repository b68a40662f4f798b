//! Flags of `convoke demo`.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Tell faults and what came of them, not every member that comes or goes.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Decides what happens, in which order; shown at the start [default: random].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How fast everything goes, timers of the nodes included: 0.1 to 10.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// One JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.1..=10.0).contains(speed));
    speed.ok_or_else(|| "write a number from 0.1 to 10".to_owned())
}
