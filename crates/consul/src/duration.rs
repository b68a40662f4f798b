//! Durations as Go writes them: `1h30m`, `1.5s`, `100ms`.

use std::fmt::{self, Write};
use std::time::Duration;

/// A text that is not a duration. Shown as Go shows it, because clients compare messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDuration(String);

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidDuration {}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go's durations are signed 64-bit nanoseconds.
const MAX: f64 = i64::MAX as f64;

/// Parses a duration. A negative one is invalid: nothing here can last that long.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(format!("time: invalid duration {text:?}"));
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if unit.is_empty() && number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(InvalidDuration(format!("time: missing unit in duration {text:?}")));
        }
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let Some((_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(InvalidDuration(format!("time: unknown unit {unit:?} in duration {text:?}")));
        };
        total += number * *nanoseconds as f64;
        rest = after;
    }
    if total > MAX {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// Writes a duration as Go does.
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let small = [(1_000, "ns", 1), (1_000_000, "\u{b5}s", 1_000), (1_000_000_000, "ms", 1_000_000)];
    if let Some((_, unit, size)) = small.into_iter().find(|(below, ..)| nanoseconds < *below) {
        return format!("{}{unit}", decimal(nanoseconds, size));
    }
    let seconds = nanoseconds / 1_000_000_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    text + &decimal(nanoseconds % 60_000_000_000, 1_000_000_000) + "s"
}

/// Writes a quotient without zeros at its end.
fn decimal(value: u128, unit: u128) -> String {
    let fraction = value % unit;
    if fraction == 0 {
        return (value / unit).to_string();
    }
    let digits = unit.ilog10() as usize;
    format!("{}.{fraction:0digits$}", value / unit).trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_in_go() {
        for (text, milliseconds, written) in [
            ("0", 0, "0s"),
            ("10s", 10_000, "10s"),
            ("1m", 60_000, "1m0s"),
            ("1h30m", 5_400_000, "1h30m0s"),
            ("1.5s", 1_500, "1.5s"),
            ("100ms", 100, "100ms"),
            ("+90s", 90_000, "1m30s"),
            (".5s", 500, "500ms"),
        ] {
            let duration = parse_duration(text).unwrap_or_default();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(format_duration(duration), written, "{text}");
        }
        assert_eq!(format_duration(Duration::from_nanos(1_500)), "1.5\u{b5}s");
    }

    #[test]
    fn other_texts_are_refused_in_the_words_of_go() {
        for (text, message) in [
            ("10", "time: missing unit in duration \"10\""),
            ("10q", "time: unknown unit \"q\" in duration \"10q\""),
            ("", "time: invalid duration \"\""),
            ("abc", "time: invalid duration \"abc\""),
            ("-1s", "time: invalid duration \"-1s\""),
            ("9999999999h", "time: invalid duration \"9999999999h\""),
        ] {
            assert_eq!(parse_duration(text).map_err(|error| error.to_string()), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn fuzz_durations() {
        convoke_fuzz::texts(&["1h30m", "1.5s", "100ms", "10", "\u{b5}s", "9223372036s"], |text| {
            if let Ok(duration) = parse_duration(text) {
                assert!(parse_duration(&format_duration(duration)).is_ok(), "{text}");
            }
        });
    }
}
