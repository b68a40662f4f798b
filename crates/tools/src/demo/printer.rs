//! Telling what happened: a line in plain words, or a JSON object.

use convoke_cli::Result;
use convoke_cli::output::{Palette, Style, print, print_json};
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a line is shown, and whether it is in `--quiet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Somebody came, went, moved or changed: not when quiet.
    Churn,
    /// Something goes wrong now.
    Fault,
    /// What was noticed of it.
    Noticed,
    /// How it ended, well or not.
    Good,
    Bad,
}

#[derive(Debug)]
pub(crate) struct Story {
    begin: Instant,
    quiet: bool,
    json: bool,
    palette: Palette,
    told: Mutex<Told>,
}

/// How often what was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) churn: u64,
    pub(crate) faults: u64,
}

impl Story {
    pub(crate) fn new(quiet: bool, json: bool) -> Story {
        let (begin, palette) = (Instant::now(), Palette::of_stdout());
        Story { begin, quiet, json, palette, told: Mutex::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) fn told(&self) -> Told {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, tone: Tone) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match tone {
            Tone::Churn => told.churn += 1,
            Tone::Fault => told.faults += 1,
            Tone::Noticed | Tone::Good | Tone::Bad => {}
        }
    }

    /// `what` and `facts` are for programs, `text` is for people.
    pub(crate) fn tell(&self, tone: Tone, what: &str, facts: Value, text: &str) -> Result {
        self.count(tone);
        if self.quiet && tone == Tone::Churn {
            return Ok(());
        }
        let at = self.begin.elapsed();
        if self.json {
            let mut line = Map::new();
            line.insert("at_ms".to_owned(), json!(u64::try_from(at.as_millis()).unwrap_or(u64::MAX)));
            line.insert("event".to_owned(), json!(what));
            if let Value::Object(facts) = facts {
                line.extend(facts);
            }
            line.insert("text".to_owned(), json!(text));
            return print_json(&line);
        }
        let (mark, style) = match tone {
            Tone::Churn => (" ", Style::Dim),
            Tone::Fault => ("!", Style::Bad),
            Tone::Noticed => ("·", Style::Doubtful),
            Tone::Good => ("✓", Style::Good),
            Tone::Bad => ("✗", Style::Bad),
        };
        let at = self.palette.paint(Style::Dim, &format!("{:>7.1} s", at.as_secs_f64()));
        let text = if tone == Tone::Churn { self.palette.paint(style, text) } else { text.to_owned() };
        print(&format!("{at} {} {text}\n", self.palette.paint(style, mark)))
    }

    /// Text that is no part of the story; not for programs.
    pub(crate) fn aside(&self, text: &str) -> Result {
        if self.json { Ok(()) } else { print(text) }
    }
}

/// `8.0 s`, `12 ms`
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ ..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}
