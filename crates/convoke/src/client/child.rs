//! A child command: forwards signals and returns its exit status.

use convoke_cli::{CommandError, Result, Signal, Signals};
use rustix::process::{Pid, Signal as Kill, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, Command};

/// Starts a command with the stdin, stdout and stderr of this one.
pub(crate) fn spawn(command: &[OsString]) -> Result<Child> {
    spawn_with(command, &[])
}

/// Starts a command with additional environment variables.
pub(crate) fn spawn_with(command: &[OsString], environment: &[(&str, String)]) -> Result<Child> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| CommandError::usage("no command to run: add one after --"))?;
    Command::new(program)
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .spawn()
        .map_err(|error| CommandError::failed(format!("cannot run {}: {error}", program.to_string_lossy())))
}

/// Waits for the end of the child and forwards signals.
pub(crate) async fn wait(child: &mut Child, signals: &mut Signals) -> Result<u8> {
    let pid = pid(child);
    loop {
        tokio::select! {
            status = child.wait() => {
                let status = status.map_err(|error| CommandError::failed(format!("cannot wait for the command: {error}")))?;
                return Ok(exit_code(status));
            }
            signal = signals.next() => {
                if let Some(pid) = pid && !received_from_terminal(signal) {
                    let kill = match signal {
                        Signal::Terminate => Kill::TERM,
                        Signal::Interrupt => Kill::INT,
                        Signal::Hangup => Kill::HUP,
                    };
                    // Fails if the child has ended meanwhile.
                    let _ = kill_process(pid, kill);
                }
            }
        }
    }
}

/// Ends the child with SIGTERM, and with SIGKILL after the grace period.
pub(crate) async fn end(child: &mut Child, grace: Duration, signals: &mut Signals) -> Result<u8> {
    if let Some(pid) = pid(child) {
        // Fails if the child has ended meanwhile.
        let _ = kill_process(pid, Kill::TERM);
    }
    match tokio::time::timeout(grace, wait(child, signals)).await {
        Ok(code) => code,
        Err(_) => {
            child.kill().await.map_err(|error| CommandError::failed(format!("cannot kill the command: {error}")))?;
            wait(child, signals).await
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
}

/// Returns whether the child received Ctrl-C from the terminal. A second signal would stop many programs immediately.
fn received_from_terminal(signal: Signal) -> bool {
    signal == Signal::Interrupt && stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Returns the exit status as shells report it: the code of the child, or 128 plus the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(convoke_cli::exit::WRAPPER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_those_of_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
    }
}
