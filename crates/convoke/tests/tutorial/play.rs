//! Runs the commands of a page and collects their output.

use super::document::{Block, Document, Piece, Step};
use super::masks::Masks;
use super::terminal::Terminal;
use convoke_testkit::TEST_TIMEOUT;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// Commands without side effects. If the output differs, they are repeated, because the state may not have settled yet.
const READ_ONLY: &[&str] = &[
    "convoke nodes",
    "convoke status",
    "convoke services",
    "convoke member",
    "convoke explain",
    "convoke log status",
    "convoke kv get",
    "convoke kv list",
    "convoke lock show",
    "convoke elect show",
    "cat ",
];
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// When a page is written: an output is final if it does not change for this long.
const SETTLED: Duration = Duration::from_secs(6);

pub struct Player<'a> {
    /// Creates the shell of a terminal.
    pub shell: &'a dyn Fn() -> Command,
    pub masks: Masks,
    pub terminals: BTreeMap<String, Terminal>,
    /// Whether the page is written instead of checked.
    pub writing: bool,
    pub differences: Vec<String>,
}

impl<'a> Player<'a> {
    pub fn new(shell: &'a dyn Fn() -> Command, writing: bool) -> Player<'a> {
        Player { shell, masks: Masks::new(), terminals: BTreeMap::new(), writing, differences: Vec::new() }
    }

    /// Returns the page with the actual output. Output that differs only in masked parts stays unchanged.
    pub fn play(&mut self, page: &Document) -> Document {
        let pieces = page.pieces.iter().map(|piece| match piece {
            Piece::Prose(prose) => Piece::Prose(prose.clone()),
            Piece::Block(block) => {
                let steps = block.steps.iter().map(|step| self.step(block, step)).collect();
                Piece::Block(Block { terminal: block.terminal.clone(), steps })
            }
        });
        let pieces = pieces.collect();
        for (name, terminal) in &self.terminals {
            let rest = terminal.rest();
            if !rest.is_empty() && !name.is_empty() {
                self.differences.push(format!("terminal {name} has more output than the page:\n{}", rest.join("\n")));
            }
        }
        Document { pieces }
    }

    fn step(&mut self, block: &Block, step: &Step) -> Step {
        let typed = step.command.as_ref().map(|command| self.masks.typed(command));
        let found = match &typed {
            Some(command) if block.terminal.is_empty() => self.run(command, &step.output),
            command => self.follow(&block.terminal, command.as_deref(), step.output.len()),
        };
        self.masks.learn(&step.output, &found);
        if self.masks.same(&step.output, &found) {
            return step.clone();
        }
        let command = step.command.as_deref().unwrap_or("(output meanwhile)");
        let (written, printed) = (step.output.join("\n"), found.join("\n"));
        self.differences.push(format!("line {}: {command}\n--- expected\n{written}\n--- found\n{printed}", step.line));
        Step { command: step.command.clone(), output: self.masks.written(&found), line: step.line }
    }

    /// Runs a command of the main terminal to its end.
    fn run(&mut self, command: &str, written: &[String]) -> Vec<String> {
        let begin = Instant::now();
        let mut found = self.once(command);
        if !READ_ONLY.iter().any(|look| command.starts_with(look)) {
            return found;
        }
        let mut same_since = Instant::now();
        loop {
            let settled = self.writing && same_since.elapsed() > SETTLED;
            if self.masks.same(written, &found) || settled || begin.elapsed() > TEST_TIMEOUT {
                return found;
            }
            #[allow(clippy::disallowed_methods, reason = "the pause between two looks at the output")]
            std::thread::sleep(LOOK_AGAIN);
            let next = self.once(command);
            if !self.masks.same(&found, &next) {
                same_since = Instant::now();
            }
            found = next;
        }
    }

    fn once(&mut self, command: &str) -> Vec<String> {
        let terminal = self.terminal("");
        terminal.begin(command);
        terminal.end()
    }

    /// Starts a command that keeps running in a separate terminal.
    fn follow(&mut self, name: &str, command: Option<&str>, count: usize) -> Vec<String> {
        let writing = self.writing;
        let terminal = self.terminal(name);
        if let Some(command) = command {
            terminal.begin(command);
        }
        if writing { terminal.silence(SETTLED) } else { terminal.lines(count) }
    }

    fn terminal(&mut self, name: &str) -> &mut Terminal {
        let shell = self.shell;
        self.terminals.entry(name.to_owned()).or_insert_with(|| Terminal::open(&mut shell()))
    }
}
