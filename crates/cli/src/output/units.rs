//! Durations and counts as text.

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
        assert_eq!((counted(1, "node"), counted(0, "node")), ("1 node".to_owned(), "0 nodes".to_owned()));
    }
}
