//! The clocks of this machine: monotonic time for decisions, wall time for display.

use convoke_core::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Monotonic time since the node started. It includes the time during which the machine was suspended where the system
/// provides that, because a node must detect its own pauses (N5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { base: running() }
    }

    pub(crate) fn now(self) -> Time {
        let micros = running().saturating_sub(self.base).as_micros();
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(target_os = "linux")]
fn running() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn running() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BASE: OnceLock<Instant> = OnceLock::new();
    BASE.get_or_init(Instant::now).elapsed()
}

/// UNIX milliseconds, for display only.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
