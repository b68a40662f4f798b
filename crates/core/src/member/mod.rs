//! Members: what clients register, how it is checked, and how it is held.

mod metadata;
mod record;
mod spec;
mod update;

pub use metadata::{Metadata, Pairs};
pub use record::{Client, Deployment, Kind, Member, Origin, Owner, Record, Space};
pub use spec::{Liveness, MemberSpec, NODE_ID_PREFIX, NODE_SERVICE, check_client_id, check_id, check_name};
pub use update::{MetadataUpdate, UpdateMode};

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
