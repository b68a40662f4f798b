//! Dots, ranks and the version shown to users.

use super::{Incarnation, NodeId, OriginId};
use crate::member::Status;
use std::cmp::Ordering;
use std::fmt;

/// One write: the n-th of its origin (D1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    pub origin: OriginId,
    pub n: u64,
}

impl fmt::Debug for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.origin, self.n)
    }
}

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The order of two writes to one slot (D3). A total order that extends causality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank<'a> {
    pub claim: u64,
    pub seq: u64,
    pub node: &'a NodeId,
    pub incarnation: Incarnation,
    pub n: u64,
}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.claim, self.seq)
            .cmp(&(other.claim, other.seq))
            .then_with(|| self.node.cmp(other.node))
            .then_with(|| self.incarnation.cmp(&other.incarnation))
            .then_with(|| self.n.cmp(&other.n))
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The version of a member as shown (W6): equal at two nodes if and only if the member is shown the same there.
///
/// To users it is an opaque text, compared for equality.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub claim: u64,
    pub seq: u64,
    /// Represents the origin: two claims with one number are still two versions.
    pub tag: u32,
    /// Status where it was inferred from the owner's silence instead of being stated by it.
    pub inferred: Option<Status>,
}

impl Version {
    /// The version of a member that is no longer shown although nothing was written. It differs from every version
    /// that is shown, so a watcher that resumes elsewhere with it gets the member if it is shown there (W6).
    pub(crate) fn absent(self) -> Self {
        Version { inferred: Some(Status::Left), ..self }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:08x}", self.claim, self.seq, self.tag)?;
        match self.inferred {
            Some(status) => write!(f, ".{}", status.as_str()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version: copy it unchanged from a member")]
pub struct InvalidVersion(String);

impl std::str::FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        parse(text).ok_or_else(|| InvalidVersion(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Version> {
    let mut parts = text.split('.');
    let claim = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse().ok()?;
    let tag = parts.next()?;
    let tag = (tag.len() == 8).then(|| u32::from_str_radix(tag, 16).ok())??;
    let inferred = match parts.next() {
        None => None,
        Some("up") => Some(Status::Up),
        Some("down") => Some(Status::Down),
        Some("left") => Some(Status::Left),
        Some(_) => return None,
    };
    parts.next().is_none().then_some(Version { claim, seq, tag, inferred })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_round_trip_as_text() {
        for inferred in [None, Some(Status::Down), Some(Status::Left)] {
            let version = Version { claim: 7, seq: 12, tag: 0x8f3a21, inferred };
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for bad in ["", "1", "1.2", "1.2.3", "1.2.0000000g", "1.2.00000000.gone", "1.2.00000000.up.x", "-1.2.00000000"]
        {
            assert!(bad.parse::<Version>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fuzz_versions() {
        convoke_fuzz::texts(&["1.2.0000000a", "281474976710656.7.deadbeef.down", "3.4.00000001.left"], |text| {
            if let Ok(version) = text.parse::<Version>() {
                assert_eq!(version.to_string().parse(), Ok(version));
            }
        });
    }
}
