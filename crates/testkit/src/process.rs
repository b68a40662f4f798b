//! Nodes as processes. They end with the test.

use crate::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A running process with its output. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    /// Starts a command without stdin and captures its output.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        Process::launch(command).expect("the binary can be run")
    }

    /// Like the function above, but returns the error.
    pub fn launch(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = Lines::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Lines::of(child.stderr.take().expect("stderr is piped"));
        Ok(Process { child, stdout, stderr })
    }

    /// Starts a command whose stdout is a closed pipe.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn_unread(command: &mut Command) -> Self {
        let (reader, writer) = io::pipe().expect("a pipe can be made");
        drop(reader);
        let command = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary can be run");
        let stderr = Lines::of(child.stderr.take().expect("stderr is piped"));
        Process { child, stdout: Lines::of(io::empty()), stderr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of stdout.
    ///
    /// # Panics
    /// If the line does not appear, or the process ends before.
    #[track_caller]
    pub fn line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        self.find_line(what, wanted).unwrap_or_else(|error| panic!("{error}"))
    }

    fn find_line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> io::Result<String> {
        self.stdout.find(&wanted).ok_or_else(|| {
            let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
            io::Error::other(format!("no line {what}; stdout:\n{stdout}\nstderr:\n{stderr}"))
        })
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGINT.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Sends SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process and of its output.
    ///
    /// # Panics
    /// If the process does not end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        self.stdout.ended();
        self.stderr.ended();
        status.expect("it has ended")
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().try_into().ok().and_then(Pid::from_raw).expect("a child has a process id");
        kill_process(pid, signal).expect("a child can be signalled");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A node as a process of the `convoke` binary.
#[derive(Debug)]
pub struct TestNode {
    pub process: Process,
    /// Client address.
    pub clients: String,
    /// Peer address.
    pub peers: String,
}

impl TestNode {
    /// Starts `convoke COMMAND…` and waits until it listens.
    ///
    /// # Panics
    /// If it does not listen.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        TestNode::launch(command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like the function above, but returns the error.
    pub fn launch(command: &mut Command) -> io::Result<Self> {
        let process = Process::launch(command)?;
        let line = process.find_line("listening", |line| line.starts_with("listening: "))?;
        let (clients, peers) = addresses(&line);
        Ok(TestNode { process, clients, peers })
    }

    /// Waits until the node is ready.
    ///
    /// # Panics
    /// If the node ends before.
    #[track_caller]
    pub fn ready(self) -> Self {
        self.wait_ready().unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Waits until the node is ready.
    pub fn wait_ready(&self) -> io::Result<()> {
        self.process.find_line("ready", |line| line.starts_with("ready: ")).map(drop)
    }
}

/// Parses `…: clients A, peers B, …`.
fn addresses(line: &str) -> (String, String) {
    let (clients, peers) = line
        .split_once("clients ")
        .and_then(|(_, addresses)| addresses.split_once(", peers "))
        .unwrap_or_else(|| panic!("no addresses in {line:?}"));
    let peers = peers.split_once(',').map_or(peers, |(peers, _)| peers);
    (clients.to_owned(), peers.to_owned())
}

/// Runs a command of the binary and returns its output.
///
/// # Panics
/// If it cannot be started.
pub fn run(binary: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    run_to_end(Command::new(binary).args(arguments)).expect("the binary can be run")
}

pub(crate) fn run_to_end(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

/// Lines of an output, collected by a thread.
#[derive(Clone, Debug, Default)]
struct Lines {
    shared: Arc<(Mutex<Gathered>, Condvar)>,
}

#[derive(Debug, Default)]
struct Gathered {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Lines::default();
        let gathering = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                gathering.change(|gathered| gathered.lines.push(line));
            }
            gathering.change(|gathered| gathered.ended = true);
        });
        lines
    }

    fn change(&self, change: impl FnOnce(&mut Gathered)) {
        let (gathered, news) = &*self.shared;
        change(&mut gathered.lock().unwrap_or_else(PoisonError::into_inner));
        news.notify_all();
    }

    /// The first matching line; `None` if the output ends or the timeout expires.
    fn find(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let (gathered, news) = &*self.shared;
        let deadline = Instant::now() + crate::TEST_TIMEOUT;
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(line) = gathered.lines.iter().find(|line| wanted(line)) {
                return Some(line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if gathered.ended || left == Duration::ZERO {
                return None;
            }
            gathered = news.wait_timeout(gathered, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the whole output has been read from the pipe.
    fn ended(&self) {
        let _ = self.find(|_| false);
    }

    fn text(&self) -> String {
        let (gathered, _) = &*self.shared;
        gathered.lock().unwrap_or_else(PoisonError::into_inner).lines.join("\n")
    }
}
