//! Flags of `convoke demo`.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Print faults and their effects only, not every member change
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Seed of the sequence of events [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Speed, including the timers of the nodes: 0.1 to 10
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.1..=10.0).contains(speed));
    speed.ok_or_else(|| "use a number from 0.1 to 10".to_owned())
}
