//! `convoke lease`, `convoke lock` and `convoke elect`.

mod elections;
mod explain;
mod hold;
mod leases;
mod locks;

pub(crate) use elections::elect;
pub(super) use explain::explain_lock;
pub(crate) use leases::lease;
pub(crate) use locks::lock;

use super::log::{CLOSE_TIMEOUT, SESSION_TTL, ambassador};
use convoke_cli::output::unix_ms;
use convoke_cli::{ConnectArgs, Result};
use convoke_client::log::{Kv, Options};
use convoke_proto::json::LogClock;

/// Runs a command with a handle that is closed afterwards.
async fn with_handle<T>(connect: &ConnectArgs, run: impl AsyncFnOnce(&Kv) -> Result<T>) -> Result<T> {
    let kv = ambassador(connect)?.kv_with(Options::default().timeout(connect.timeout).ttl(SESSION_TTL));
    let done = run(&kv).await;
    // If the log session cannot be ended here, it expires.
    let _ = kv.close(CLOSE_TIMEOUT).await;
    done
}

/// Returns the conversion of log times for an answer that has just arrived.
fn clock(log_time_us: u64) -> LogClock {
    LogClock { log_time_us, unix_ms: unix_ms() }
}
