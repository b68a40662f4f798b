//! Signals that end a process.

use crate::{CommandError, Result};
use std::fmt;
use tokio::signal::unix::{self, SignalKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Interrupt,
    /// The terminal was closed, or an operator asks a daemon to read its configuration again.
    Hangup,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
            Signal::Hangup => "SIGHUP",
        })
    }
}

/// A listener for SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// `None` if the parent process set SIGHUP to be ignored, as `nohup` does.
    hangup: Option<unix::Signal>,
}

impl Signals {
    pub fn listen() -> Result<Signals> {
        let on = |kind| {
            unix::signal(kind).map_err(|error| CommandError::failed(format!("cannot listen for signals: {error}")))
        };
        let hangup = if hangup_is_ignored() { None } else { Some(on(SignalKind::hangup())?) };
        Ok(Signals { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())?, hangup })
    }

    pub async fn next(&mut self) -> Signal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = hangup => Signal::Hangup,
        }
    }
}

/// Returns whether SIGHUP was ignored when this process started. Only Linux shows this without unsafe code.
fn hangup_is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// Parses the mask of ignored signals. The lowest bit is signal 1, SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert!(ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
