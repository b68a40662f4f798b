//! One run of a script: a process group with bounded time and output.

use crate::config::ScriptCheck;
use crate::schedule::RunResult;
use convoke_core::member::{Health, OUTPUT_BYTES_MAX, beginning};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

/// The exit status of a warning, as for scripts of Nagios and Consul.
const WARNING: i32 = 1;
/// Variables of the node with this prefix are not passed on: they can hold secrets.
const OWN_VARIABLES: &str = "CONVOKE_";

/// Runs a script once.
pub(super) async fn run(script: &ScriptCheck) -> RunResult {
    let critical = |output: String| RunResult { status: Health::Critical, output };
    let (mut process, mut output) = match start(script) {
        Ok(started) => started,
        Err(error) => return critical(format!("cannot run {:?}: {error}", script.command.first())),
    };
    let mut kept = Vec::new();
    // The output ends when all processes of the script have closed it. Only then the first one is waited for: until then its
    // id, which is that of the group, cannot be given to another process.
    let running = async {
        read(&mut output, &mut kept).await?;
        process.0.wait().await
    };
    let ended = tokio::time::timeout(script.timeout, running).await;
    let printed = String::from_utf8_lossy(&kept).trim_end().to_owned();
    match ended {
        Ok(Ok(status)) => {
            process.1 = None;
            judge(status, printed)
        }
        Ok(Err(error)) => critical(format!("cannot wait for the script: {error}")),
        Err(_) => {
            process.kill();
            // It ends at once: a process does not survive this signal.
            let _ = process.0.wait().await;
            let colon = if printed.is_empty() { "" } else { ": " };
            critical(format!("still running after {} ms{colon}{printed}", script.timeout.as_millis()))
        }
    }
}

/// A script that runs. Its process group is killed with the value.
struct Running(Child, Option<Pid>);

impl Running {
    fn kill(&mut self) {
        if let Some(group) = self.1.take() {
            // The group is gone if all of its processes have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the command without a shell, in a process group of its own, with one pipe for all its output.
fn start(script: &ScriptCheck) -> io::Result<(Running, Receiver)> {
    let (reader, writer) = io::pipe()?;
    let [program, arguments @ ..] = script.command.as_slice() else {
        return Err(io::Error::other("the command is empty"));
    };
    let mut command = Command::new(program);
    command.args(arguments).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(OWN_VARIABLES)) {
        command.env_remove(name);
    }
    let child = command.spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    Ok((Running(child, group), Receiver::from_owned_fd(OwnedFd::from(reader))?))
}

/// Reads to the end, and keeps the beginning.
async fn read(output: &mut Receiver, kept: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    loop {
        let count = output.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

fn judge(status: ExitStatus, printed: String) -> RunResult {
    let health = match status.code() {
        Some(0) => Health::Passing,
        Some(WARNING) => Health::Warning,
        _ => Health::Critical,
    };
    // Without any text, the reason is the exit status.
    let output = if printed.is_empty() { status.to_string() } else { printed };
    RunResult { status: health, output: beginning(&output, OUTPUT_BYTES_MAX).to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use std::time::Duration;

    fn script(command: &[&str], timeout: Duration) -> ScriptCheck {
        ScriptCheck {
            member: "m".into(),
            check: "c".into(),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            interval: Duration::from_secs(10),
            timeout,
        }
    }

    async fn ran(shell: &str) -> (Health, String) {
        let outcome = run(&script(&["sh", "-c", shell], Duration::from_secs(60))).await;
        (outcome.status, outcome.output)
    }

    #[tokio::test]
    async fn the_exit_status_is_the_health() {
        assert_eq!(ran("echo fine; exit 0").await, (Health::Passing, "fine".to_owned()));
        assert_eq!(ran("echo so >&2; echo so; exit 1").await, (Health::Warning, "so\nso".to_owned()));
        assert_eq!(ran("exit 2").await, (Health::Critical, "exit status: 2".to_owned()));
        let (health, output) = ran("kill -9 $$").await;
        assert!(health == Health::Critical && output.contains("signal: 9"), "{output}");
        let missing = run(&script(&["/nonexistent/program"], Duration::from_secs(60))).await;
        assert!(missing.status == Health::Critical && missing.output.contains("cannot run"), "{}", missing.output);
        // No shell: the arguments are passed on as they are.
        let plain = run(&script(&["echo", "$HOME", ";", "exit", "1"], Duration::from_secs(60))).await;
        assert_eq!((plain.status, plain.output.as_str()), (Health::Passing, "$HOME ; exit 1"));
    }

    #[tokio::test]
    async fn output_is_bounded_and_not_a_reason_to_block() {
        let (health, output) = ran("head -c 1000000 /dev/zero | tr '\\0' 'é'").await;
        assert_eq!(health, Health::Passing);
        assert!((OUTPUT_BYTES_MAX - 4..=OUTPUT_BYTES_MAX).contains(&output.len()), "{}", output.len());
    }

    /// A script that is too slow is killed with all its processes.
    #[tokio::test]
    async fn the_whole_process_group_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("id");
        let shell = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; echo begun; wait", file.display());
        let outcome = run(&script(&["sh", "-c", &shell], Duration::from_secs(3))).await;
        assert_eq!((outcome.status, outcome.output.as_str()), (Health::Critical, "still running after 3000 ms: begun"));
        let id = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(id).unwrap();
        convoke_testkit::eventually("the process is gone", async || !is_running(pid)).await;
    }

    #[tokio::test]
    async fn scripts_end_with_the_node() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("id");
        let shell = format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600", file.display());
        let task = tokio::spawn(async move { run(&script(&["sh", "-c", &shell], Duration::from_secs(600))).await });
        convoke_testkit::eventually("the script runs", async || file.exists()).await;
        task.abort();
        let id = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(id).unwrap();
        convoke_testkit::eventually("the process is gone", async || !is_running(pid)).await;
    }

    /// A process that nobody waits for remains as a zombie.
    fn is_running(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}
