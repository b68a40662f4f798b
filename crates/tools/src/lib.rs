//! Development tools of Convoke: `convoke demo`, `cluster`, `top` and `bench`.
//!
//! The `convoke` binary includes them with its default feature `tools`; packages leave them out. Tools start nodes as
//! processes of the binary they are part of. They must not link the node itself.

mod args;
mod bench;
mod cluster;
mod demo;
mod log_group;
mod top;

pub use args::{BenchArgs, ClusterArgs, DemoArgs, Tool, TopArgs};
pub use demo::timers as demo_timers;

use convoke_cli::{Result, block_on, block_on_all_cores};

/// Returns the environment variable of a configuration key, or `None` if there is no such key.
pub type VariableOf = fn(&str) -> Option<String>;

/// Runs a tool and returns its exit code.
pub fn run(tool: Tool, variable_of: VariableOf) -> Result<u8> {
    match tool {
        Tool::Demo(arguments) => block_on(demo::run(&arguments)).map(|()| 0),
        Tool::Cluster(arguments) => block_on(cluster::run(arguments, variable_of)),
        Tool::Top(arguments) => block_on(top::run(&arguments)).map(|()| 0),
        Tool::Bench(arguments) => block_on_all_cores(bench::bench(&arguments)).map(|()| 0),
    }
}
