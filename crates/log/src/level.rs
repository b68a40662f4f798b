//! Feature levels: which commands and which state formats the replicas of a log use (V1).

use std::fmt;

/// A feature level of the log. Commands and state of a level exist only once the log has reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u64);

impl Level {
    /// Sessions, keys and membership. Binaries of this level know no levels.
    pub const FIRST: Level = Level(1);
    /// Transactions, history, leases, locks and elections.
    pub const COORDINATION: Level = Level(2);
    /// The highest level that this version supports.
    pub const SUPPORTED: Level = Level::COORDINATION;
}

impl Default for Level {
    fn default() -> Self {
        Level::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
