//! Nodes that are part of something: they end with the process that started them, however that ends.

use convoke_cli::{CommandError, Result};

/// From now on the system ends this process at once when its parent ends; fails if that has happened already.
#[cfg(target_os = "linux")]
pub(crate) fn end_with(parent: i32) -> Result {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| CommandError::failed(format!("cannot bind this process to its parent: {error}")))?;
    match getppid() {
        Some(actual) if actual.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(CommandError::failed(format!("process {parent}, with which this node should end, is not its parent"))),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with(_parent: i32) -> Result {
    Err(CommandError::usage("--end-with needs Linux"))
}
