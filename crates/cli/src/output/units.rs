//! Durations, times and counts as text.

use std::time::SystemTime;

/// A duration in its two largest units.
pub fn ago(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (1.., ..) => format!("{days} d {} h", hours % 24),
        (0, 1.., _) => format!("{hours} h {} min", minutes % 60),
        (0, 0, 1..) => format!("{minutes} min {} s", seconds % 60),
        (0, 0, 0) => format!("{}.{} s", seconds, ms % 1_000 / 100),
    }
}

/// The time of day in UTC of a number of UNIX milliseconds: `05:50:54`. Log lines of nodes are in UTC too.
pub fn clock_time(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The current time in UNIX milliseconds.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `1 member`, `2 members`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        for (ms, text) in
            [(0, "0.0 s"), (1_250, "1.2 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h 0 min"), (90_000_000, "1 d 1 h")]
        {
            assert_eq!(ago(ms), text);
        }
        assert_eq!(clock_time(1_794_895_854_999), "06:10:54");
        assert_eq!(clock_time(86_399_000), "23:59:59");
        assert_eq!((counted(1, "node"), counted(0, "node")), ("1 node".to_owned(), "0 nodes".to_owned()));
    }
}
