//! The trace: a hash over all events, the last lines for a failure report, all lines for a replay.

use crate::network::Micros;
use std::collections::VecDeque;
use std::fmt;

const RING: usize = 40;

/// Folds values into 64 bits (FNV-1a over words, with a final mix per value).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold(pub u64);

impl Default for Fold {
    fn default() -> Self {
        Fold(0xcbf2_9ce4_8422_2325)
    }
}

impl Fold {
    pub fn word(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(u64::from_le_bytes(chunk.try_into().expect("chunks of eight bytes")));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.word(u64::from_le_bytes(last));
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// Formats lazily: most lines are never shown.
#[derive(Clone, Debug)]
pub enum Line {
    Wake { host: usize },
    Heartbeat { host: usize, conn: u64 },
    Frame { from: usize, to: usize, bytes: usize, kind: u8 },
    Text(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Wake { host } => write!(f, "n{host} wakes"),
            Line::Heartbeat { host, conn } => write!(f, "n{host} receives heartbeat on connection {conn}"),
            Line::Frame { from, to, bytes, kind } => {
                write!(f, "n{to} receives frame {kind} of {bytes} bytes from n{from}")
            }
            Line::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Debug, Default)]
pub struct Trace {
    pub hash: Fold,
    /// Decisions and visible results, without frames and clock values (`clocks_irrelevant`).
    pub decisions: Fold,
    pub verbose: bool,
    pub events: u64,
    ring: VecDeque<(Micros, Line)>,
}

impl Trace {
    /// Folds an event into the hash.
    pub fn event(&mut self, at: Micros, kind: u64, who: u64, detail: u64) {
        self.events += 1;
        self.hash.word(at);
        self.hash.word(kind);
        self.hash.word(who);
        self.hash.word(detail);
    }

    #[allow(clippy::disallowed_macros, reason = "a verbose run prints its trace")]
    pub fn line(&mut self, at: Micros, line: Line) {
        if self.verbose {
            println!("{} {line}", stamp(at));
        }
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back((at, line));
    }

    pub fn text(&mut self, at: Micros, text: String) {
        self.hash.text(&text);
        self.line(at, Line::Text(text));
    }

    pub fn last_lines(&self) -> Vec<String> {
        self.ring.iter().map(|(at, line)| format!("{} {line}", stamp(*at))).collect()
    }
}

/// Virtual time as minutes and seconds.
pub fn stamp(at: Micros) -> String {
    format!("{:>4}:{:02}.{:06}", at / 60_000_000, at / 1_000_000 % 60, at % 1_000_000)
}
