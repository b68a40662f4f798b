//! Signals that end a process.

use crate::failure::{Failure, Outcome};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from the moment it is made.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Outcome<Signals> {
        let on = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")));
        Ok(Signals { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    /// Waits for the next one and names it.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
