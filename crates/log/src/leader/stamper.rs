//! Log time as one leader counts it (LS5).

use crate::time::LogTime;
use convoke_core::Time;

/// Stamps entries: the highest stamp in the log at election, plus the leader's own time since.
#[derive(Clone, Copy, Debug)]
pub struct Stamper {
    base: LogTime,
    elected: Time,
    last: LogTime,
}

impl Stamper {
    pub fn elected(now: Time, highest: LogTime) -> Self {
        Stamper { base: highest, elected: now, last: highest }
    }

    /// The stamp of an entry that is appended now. Never below one given before.
    pub fn stamp(&mut self, now: Time) -> LogTime {
        self.last = self.last.max(self.base + now.since(self.elected));
        self.last
    }
}
