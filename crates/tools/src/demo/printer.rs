//! Prints events as text lines or JSON objects.

use convoke_cli::Result;
use convoke_cli::output::{Palette, Style, print, print_json};
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kind of a line: its mark, and whether `--quiet` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A change of members or keys; not with `--quiet`.
    Churn,
    /// A fault starts.
    Fault,
    /// An effect of a fault.
    Noticed,
    /// The end of a fault, as expected or not.
    Good,
    Bad,
}

#[derive(Debug)]
pub(crate) struct Printer {
    begin: Instant,
    quiet: bool,
    json: bool,
    palette: Palette,
    counts: Mutex<EventCounts>,
}

/// Number of events printed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventCounts {
    pub(crate) churn: u64,
    pub(crate) faults: u64,
}

impl Printer {
    pub(crate) fn new(quiet: bool, json: bool) -> Printer {
        let (begin, palette) = (Instant::now(), Palette::of_stdout());
        Printer { begin, quiet, json, palette, counts: Mutex::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) fn counts(&self) -> EventCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, tone: Tone) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match tone {
            Tone::Churn => counts.churn += 1,
            Tone::Fault => counts.faults += 1,
            Tone::Noticed | Tone::Good | Tone::Bad => {}
        }
    }

    /// `what` and `facts` are for programs, `text` is for people.
    pub(crate) fn event(&self, tone: Tone, what: &str, facts: Value, text: &str) -> Result {
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

    /// Prints text outside of events; not in JSON output.
    pub(crate) fn line(&self, text: &str) -> Result {
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
