//! Blocking queries: a read with an index waits until the index of its result is another one, or until the time is over.

use super::failure::Failure;
use super::params::ReadOptions;
use crate::access::Caller;
use crate::http::Connection;
use crate::surface::{Gates, Surface};
use convoke_node::Phase;
use std::time::Duration;
use tokio::time::Instant;

/// Consul adds up to a sixteenth of the wait, so that clients do not come back at the same time.
const JITTER: u32 = 16;

/// Who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) caller: Caller,
    pub(crate) connection: Connection,
}

/// What is read again and again.
pub(crate) trait Source: Send {
    type Result: Send;

    /// Returns the index and the result.
    fn read(&mut self) -> impl Future<Output = Result<(u64, Self::Result), Failure>> + Send;

    /// Returns when the result may be another one than that of the last read. It must not miss changes since then.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Reads, and waits while the index is that of the client. The result is returned when the time is over, or when the node
/// stops.
pub(crate) async fn blocking<S: Source>(
    surface: &Surface,
    waiter: &Waiter,
    options: &ReadOptions,
    source: &mut S,
) -> Result<(u64, S::Result), Failure> {
    let (index, result) = source.read().await?;
    if options.index == 0 || index != options.index {
        return Ok((index, result));
    }
    let limit = surface.config.limits.http_watchers;
    let _permit = Gates::enter(&surface.gates.watchers, "event streams and blocking queries", limit)?;
    let deadline = Instant::now() + options.wait + jitter(options.wait);
    let mut phases = surface.node.phases();
    let stopping = phases.wait_for(|phase| matches!(phase, Phase::Stopping | Phase::Stopped(_)));
    let ended = async {
        tokio::select! {
            _ = stopping => Ok(()),
            () = tokio::time::sleep_until(deadline) => Ok(()),
            // What was readable before is not shown after the token was revoked.
            () = waiter.loses_rights(surface) => Err(Failure::denied()),
        }
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = source.changed() => {
                let (index, result) = source.read().await?;
                if index != options.index {
                    return Ok((index, result));
                }
            }
            ended = &mut ended => {
                ended?;
                return source.read().await;
            }
        }
    }
}

impl Waiter {
    async fn loses_rights(&self, surface: &Surface) {
        match &self.connection.0 {
            Some(connection) => surface.gate.loses_rights(connection, &self.caller).await,
            None => std::future::pending().await,
        }
    }
}

/// A random part of a sixteenth of the wait.
fn jitter(wait: Duration) -> Duration {
    let mut random = [0; 2];
    // Without randomness there is no jitter.
    let _ = getrandom::fill(&mut random);
    (wait / JITTER).mul_f64(f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX))
}
