//! Status of members: filters are about it, so it lives here.

use std::fmt;

/// Status of a member, decided only by Convoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    Up,
    Down,
    /// A tombstone: unregistered, hidden from queries.
    Left,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Up => "up",
            Status::Down => "down",
            Status::Left => "left",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
