//! The status of a member. It is defined here because filters use it and this crate is at the bottom of the
//! dependency graph: the core, the JSON types and the SDK share it.

use std::fmt;

/// Status of a member. Only Convoke sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Status {
    Up,
    Down,
    /// Unregistered: a tombstone. Queries do not return it; explanations show it.
    Left,
}

impl Status {
    /// Returns the name of the status.
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
