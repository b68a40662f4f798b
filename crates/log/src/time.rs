//! Log time: the only notion of time in entries (LS5).

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in log time, in microseconds since the log was created. Unrelated to wall clocks.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(u64);

impl LogTime {
    pub const ZERO: LogTime = LogTime(0);

    pub const fn from_micros(micros: u64) -> Self {
        LogTime(micros)
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: LogTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for LogTime {
    type Output = LogTime;
    fn add(self, duration: Duration) -> LogTime {
        LogTime(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
