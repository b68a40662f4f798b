//! Nodes that stop when the process that started them ends.

use convoke_cli::{CommandError, Result};

/// Configures the system to kill this process when its parent ends. Fails if the parent has already ended.
#[cfg(target_os = "linux")]
pub(crate) fn end_with(parent: i32) -> Result {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| CommandError::failed(format!("cannot bind this process to its parent: {error}")))?;
    match getppid() {
        Some(actual) if actual.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(CommandError::failed(format!("cannot stop with process {parent}: it is not the parent of this node"))),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with(_parent: i32) -> Result {
    Err(CommandError::usage("--end-with needs Linux"))
}
