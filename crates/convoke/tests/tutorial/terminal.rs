//! A shell that receives commands line by line.

use super::masks::left_out;
use convoke_testkit::TEST_TIMEOUT;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Marks the end of a command's output; no command prints it.
const END: char = '\u{1e}';

/// Dropping it ends the shell and all processes started in it.
pub struct Terminal {
    child: Child,
    stdin: ChildStdin,
    printed: Arc<(Mutex<Output>, Condvar)>,
}

#[derive(Default)]
struct Output {
    lines: Vec<String>,
    /// Whether the last command has ended.
    done: bool,
}

impl Terminal {
    /// `shell` must run bash.
    pub fn open(shell: &mut Command) -> Terminal {
        let mut child =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("bash");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let printed = Arc::<(Mutex<Output>, Condvar)>::default();
        let gathering = printed.clone();
        std::thread::spawn(move || {
            let left_out = left_out();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut printed = gathering.0.lock().unwrap_or_else(PoisonError::into_inner);
                match line.split_once(END) {
                    Some((rest, _)) => {
                        // An unterminated last line counts as a line.
                        printed.lines.extend((!rest.is_empty()).then(|| rest.to_owned()));
                        printed.done = true;
                    }
                    None if left_out.is_match(&line) => {}
                    None => printed.lines.push(line),
                }
                gathering.1.notify_all();
            }
        });
        let mut terminal = Terminal { child, stdin, printed };
        // Job control on; stderr goes to stdout.
        terminal.write("exec 2>&1; set -m");
        terminal
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the shell reads");
    }

    /// Starts a command. The previous one must have ended.
    pub fn begin(&mut self, command: &str) {
        self.printed.0.lock().unwrap_or_else(PoisonError::into_inner).done = false;
        self.write(command);
        // Preserves the exit status for the next command.
        self.write(&format!("ended=$?; printf '\\{:03o}\\n'; (exit $ended)", u32::from(END)));
    }

    /// Returns the output since the last call, once the command has ended.
    pub fn end(&self) -> Vec<String> {
        self.take(usize::MAX, |printed| printed.done)
    }

    /// Returns the next lines of a running command once there are this many, or fewer after a timeout.
    pub fn lines(&self, count: usize) -> Vec<String> {
        self.take(count, |printed| printed.done || printed.lines.len() >= count)
    }

    /// Returns the output since the last call, once there was none for this long.
    pub fn silence(&self, pause: Duration) -> Vec<String> {
        let mut before = usize::MAX;
        loop {
            let now = self.printed.0.lock().unwrap_or_else(PoisonError::into_inner).lines.len();
            if now == before {
                return self.rest();
            }
            before = now;
            #[allow(clippy::disallowed_methods, reason = "the pause between two looks at the output")]
            std::thread::sleep(pause);
        }
    }

    /// Returns the output since the last call.
    pub fn rest(&self) -> Vec<String> {
        self.take(usize::MAX, |_| true)
    }

    fn take(&self, most: usize, enough: impl Fn(&Output) -> bool) -> Vec<String> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut printed = self.printed.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !enough(&printed) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            printed = self.printed.1.wait_timeout(printed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = printed.lines.len().min(most);
        printed.lines.drain(..count).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
