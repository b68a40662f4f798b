//! Demos and local clusters in an isolated environment: a directory, a port, and a check that nothing is left.

use super::convoke;
use convoke_testkit::{Process, free_address, run, until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// An environment that is isolated from other tests.
pub struct World {
    pub dir: tempfile::TempDir,
    /// Port of the cluster manager.
    pub port: String,
}

impl World {
    pub fn new() -> World {
        let address = free_address();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        World { dir: tempfile::tempdir().unwrap(), port }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = convoke(arguments);
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    pub fn cluster(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["cluster", "--port", &self.port]);
        command.args(arguments);
        command
    }

    /// Runs a command of `convoke cluster` that ends by itself.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.cluster(arguments).stdin(std::process::Stdio::null()).output().unwrap()
    }

    /// Runs a command, which must succeed, and returns its JSON output.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let output = self.run(&all);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command that fails and returns its exit code and stderr.
    pub fn rejected(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap().trim().to_owned())
    }

    pub fn spawn(&self, command: &mut Command) -> Process {
        Process::spawn(command)
    }

    /// Checks that no process, open port or directory is left.
    #[track_caller]
    pub fn nothing_left(&self) {
        let ours = |process: &String| {
            process.contains(&*self.dir.path().to_string_lossy()) || process.contains(&format!("--port {}", self.port))
        };
        until("all processes are gone", || !processes().iter().any(ours));
        assert!(
            std::net::TcpStream::connect(format!("127.0.0.1:{}", self.port)).is_err(),
            "the manager's port is open"
        );
        let left: Vec<_> = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// Removes what a failed test has left.
impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run(&["delete", "--all"]);
    }
}

/// Returns the command lines of all processes except zombies.
fn processes() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let line = |path: &Path| std::fs::read(path.join("cmdline")).ok();
    entries
        .filter_map(|entry| line(&entry.path()))
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| !line.is_empty())
        .collect()
}

/// Returns whether a node answers at this client address.
pub fn answers(address: &str) -> bool {
    run(super::binary(), ["status", "--addr", address, "--timeout", "5s"]).status.success()
}
