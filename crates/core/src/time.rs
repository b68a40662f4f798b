//! Silence, measured without the node's own pauses (rule L5).
//!
//! The core never reads a clock. The shell (or the simulator) passes the node's monotonic time into every call.

pub use convoke_base::{Duration, Time};

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Attention time (rule L5): the node's clock, together with how much of it the node was paused.
///
/// Silence of others counts only for the time in which this node was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    pub now: Time,
    /// Total lateness so far.
    pub lost: Duration,
}

/// When something was last received, on both time scales.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedAt {
    /// Microseconds on the node's clock; negative for events that others received before this clock started.
    at: i64,
    lost: Duration,
}

impl ReceivedAt {
    pub fn now(clock: Clock) -> Self {
        ReceivedAt::ago(clock, Duration::ZERO)
    }

    /// Received `age` ago, as measured by another node.
    pub fn ago(clock: Clock, age: Duration) -> Self {
        ReceivedAt { at: signed(clock.now.as_micros()).saturating_sub(signed(micros(age))), lost: clock.lost }
    }

    /// Whether this was received later than `other`.
    pub fn is_after(self, other: ReceivedAt) -> bool {
        self.at > other.at
    }

    /// The same time, with as much lateness of this node forgiven that it counts as no more silent than `earlier` does.
    pub fn forgiving_as(self, earlier: ReceivedAt, clock: Clock) -> Self {
        let silence = |at: ReceivedAt| at.silence_without_pauses(clock, Duration::MAX);
        let more = silence(self).saturating_sub(silence(earlier));
        ReceivedAt { lost: self.lost.saturating_sub(more), ..self }
    }

    /// Silence in real time.
    pub fn silence(self, clock: Clock) -> Duration {
        Duration::from_micros(signed(clock.now.as_micros()).saturating_sub(self.at).max(0).unsigned_abs())
    }

    /// Silence while this node was running, where at most `forgiven` of lateness is subtracted.
    pub fn silence_without_pauses(self, clock: Clock, forgiven: Duration) -> Duration {
        let late = clock.lost.saturating_sub(self.lost).min(forgiven);
        self.silence(clock).saturating_sub(late)
    }

    /// The earliest time at which `silence_without_pauses` can reach `silence`, if the node keeps running.
    pub fn due(self, clock: Clock, silence: Duration, forgiven: Duration) -> Time {
        let due = self.at.saturating_add(signed(micros(silence)));
        Time::from_micros(due.max(0).unsigned_abs()) + clock.lost.saturating_sub(self.lost).min(forgiven)
    }
}
