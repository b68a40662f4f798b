//! Nodes that are part of something: they end with the process that started them, however that ends.

use crate::failure::{Failure, Outcome};

/// From now on the system ends this process at once when its parent ends; fails if that has happened already.
#[cfg(target_os = "linux")]
pub(crate) fn end_with(parent: i32) -> Outcome {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::failed(format!("cannot bind this process to its parent: {error}")))?;
    match getppid() {
        Some(actual) if actual.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::failed(format!("process {parent}, with which this node should end, is not its parent"))),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with(_parent: i32) -> Outcome {
    Err(Failure::usage("--end-with needs Linux"))
}
