//! A shell that is told what to do line by line.

use super::masks::left_out;
use convoke_testkit::PATIENCE;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Ends what a command said; nothing else says it.
const END: char = '\u{1e}';

/// Dropping it ends it, and everything that was started in it.
pub struct Terminal {
    child: Child,
    stdin: ChildStdin,
    said: Arc<(Mutex<Said>, Condvar)>,
}

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    /// Whether the last command has ended.
    done: bool,
}

impl Terminal {
    /// `shell` runs bash.
    pub fn open(shell: &mut Command) -> Terminal {
        let mut child =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("bash");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let said = Arc::<(Mutex<Said>, Condvar)>::default();
        let gathering = said.clone();
        std::thread::spawn(move || {
            let left_out = left_out();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut said = gathering.0.lock().unwrap_or_else(PoisonError::into_inner);
                match line.split_once(END) {
                    Some((rest, _)) => {
                        // What ends without a line break is a line nevertheless.
                        said.lines.extend((!rest.is_empty()).then(|| rest.to_owned()));
                        said.done = true;
                    }
                    None if left_out.is_match(&line) => {}
                    None => said.lines.push(line),
                }
                gathering.1.notify_all();
            }
        });
        let mut terminal = Terminal { child, stdin, said };
        // Jobs have numbers; what goes wrong is said where everything is said.
        terminal.write("exec 2>&1; set -m");
        terminal
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the shell reads");
    }

    /// Begins a command; the one before must have ended.
    pub fn begin(&mut self, command: &str) {
        self.said.0.lock().unwrap_or_else(PoisonError::into_inner).done = false;
        self.write(command);
        // What comes next may ask how it ended.
        self.write(&format!("ended=$?; printf '\\{:03o}\\n'; (exit $ended)", u32::from(END)));
    }

    /// Everything since it was last asked, once the command has ended.
    pub fn end(&self) -> Vec<String> {
        self.take(usize::MAX, |said| said.done)
    }

    /// The next lines of a command that goes on, once it has said so many; less if it does not say so many.
    pub fn lines(&self, count: usize) -> Vec<String> {
        self.take(count, |said| said.done || said.lines.len() >= count)
    }

    /// Everything since it was last asked, once it has said nothing more for so long.
    pub fn silence(&self, pause: Duration) -> Vec<String> {
        let mut before = usize::MAX;
        loop {
            let now = self.said.0.lock().unwrap_or_else(PoisonError::into_inner).lines.len();
            if now == before {
                return self.rest();
            }
            before = now;
            std::thread::sleep(pause);
        }
    }

    /// Everything since it was last asked.
    pub fn rest(&self) -> Vec<String> {
        self.take(usize::MAX, |_| true)
    }

    fn take(&self, most: usize, enough: impl Fn(&Said) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut said = self.said.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !enough(&said) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            said = self.said.1.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = said.lines.len().min(most);
        said.lines.drain(..count).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
