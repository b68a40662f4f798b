//! Set-up of the process that runs a command.

use crate::{CommandError, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::future::Future;
use tokio::runtime::Builder;

/// Runs a command on this thread.
pub fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    run(Builder::new_current_thread(), command)
}

/// Runs a command on as many threads as there are cores.
pub fn block_on_all_cores<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    run(Builder::new_multi_thread(), command)
}

fn run<T>(mut builder: Builder, command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        builder.enable_all().build().map_err(|error| CommandError::failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(command)
}

/// Raises the soft limit of open files to the hard limit. Every client is an open file, and the usual soft limit of
/// 1,024 is for programs that use `select`.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
