//! Log time as counted by one leader (LS5).

use crate::time::LogTime;
use convoke_base::Time;

/// Stamps entries with the highest stamp in the log at election plus the leader's own time since then.
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

    /// Returns the stamp for an entry that is appended now. Stamps never fall.
    pub fn stamp(&mut self, now: Time) -> LogTime {
        self.last = self.last.max(self.base + now.since(self.elected));
        self.last
    }
}
