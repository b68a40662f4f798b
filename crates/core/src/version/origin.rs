//! Node ids, incarnations and origins.

use std::fmt;
use std::sync::Arc;

/// The stable name of a node: 1 to 64 letters, digits, `.`, `_` or `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

/// The text is not a node id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node id {0:?} must be 1 to {max} letters, digits, '.', '_' or '-'", max = NodeId::MAX_BYTES)]
pub struct InvalidNodeId(String);

impl NodeId {
    pub const MAX_BYTES: usize = 64;

    pub fn new(text: &str) -> Result<Self, InvalidNodeId> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX_BYTES || !text.bytes().all(allowed) {
            return Err(InvalidNodeId(text.chars().take(80).collect()));
        }
        Ok(NodeId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One start of a node id. The number orders incarnations where it is known; the nonce distinguishes any two, so that
/// a lost disk or a copied configuration never makes two incarnations look like one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    pub number: u64,
    pub nonce: u64,
}

impl Incarnation {
    /// The highest incarnation with a lower number; `None` if there is none.
    pub(crate) fn below(self) -> Option<Incarnation> {
        (self.number > 1).then(|| Incarnation { number: self.number - 1, nonce: u64::MAX })
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{:04x}", self.number, self.nonce & 0xffff)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An author of records: one incarnation of one node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId {
    pub node: NodeId,
    pub incarnation: Incarnation,
}

impl fmt::Debug for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.node, self.incarnation)
    }
}

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_checked() {
        assert!(NodeId::new("node-1.eu_west").is_ok());
        for bad in ["", "a b", "ü", &"x".repeat(65)] {
            assert!(NodeId::new(bad).is_err(), "{bad:?}");
        }
    }
}
