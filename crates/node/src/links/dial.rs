//! Connecting to a peer. Names are resolved with every attempt: they may point elsewhere by now.

use super::{Connected, framing, socket, tell};
use crate::counters::add;
use crate::owner::Input;
use crate::shared::Shared;
use convoke_core::node::DialId;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// Connects within the time allowed and tells the owner task how it went. `run` is the run of the node that asked.
pub(crate) async fn dial(run: u64, dial: DialId, address: String, shared: Arc<Shared>) {
    add(&shared.counting.dials, 1);
    let connecting = connect(&address);
    let result = tokio::time::timeout(shared.network.dial_timeout, connecting).await;
    let input = match result.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
        Ok(connected) => Input::Dialed { run, dial, connected: Box::new(connected) },
        Err(error) => {
            add(&shared.counting.dials_failed, 1);
            tracing::debug!(node = %shared.id, %address, "cannot reach a peer: {error}");
            Input::DialFailed { run, dial }
        }
    };
    tell(&shared, input).await;
}

async fn connect(address: &str) -> io::Result<Connected> {
    let mut last = ErrorKind::AddrNotAvailable.into();
    for address in tokio::net::lookup_host(address).await? {
        match socket(address)?.connect(address).await {
            Ok(mut stream) => {
                stream.write_all(&framing::PREAMBLE).await?;
                return Ok(Connected { stream, address, unidentified: None });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
