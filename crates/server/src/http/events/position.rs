//! The position of a reader in the history of events: the `id` of an event. It is valid only for one incarnation of one node.

use std::fmt::{self, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryPosition {
    nonce: u64,
    /// Sequence number of the last event of the node's timeline.
    pub(super) node_event: u64,
    /// Sequence number of the last change of a member.
    pub(super) change: u64,
}

impl HistoryPosition {
    pub(super) fn start(nonce: u64) -> Self {
        HistoryPosition { nonce, node_event: 0, change: 0 }
    }

    /// Returns `None` if the text is not a position, or is one of another incarnation.
    pub(super) fn read(nonce: u64, text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (of, node_event, change) = (parts.next()?, parts.next()?, parts.next()?);
        let of = u64::from_str_radix(of, 16).ok()?;
        let position = HistoryPosition { nonce, node_event: node_event.parse().ok()?, change: change.parse().ok()? };
        (of == nonce && parts.next().is_none()).then_some(position)
    }
}

impl HistoryPosition {
    /// Appends the text of the position.
    pub(super) fn write(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(text, "{self}");
    }
}

impl fmt::Display for HistoryPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}", self.nonce, self.node_event, self.change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_valid_for_its_incarnation_only() {
        let position = HistoryPosition { nonce: 0xabc, node_event: 7, change: 12 };
        assert_eq!(position.to_string(), "abc.7.12");
        assert_eq!(HistoryPosition::read(0xabc, "abc.7.12"), Some(position));
        for other in ["abd.7.12", "abc.7", "abc.7.12.1", "abc.x.12", "", "abc.-1.2"] {
            assert_eq!(HistoryPosition::read(0xabc, other), None, "{other}");
        }
    }

    #[test]
    fn fuzz_event_positions() {
        convoke_fuzz::texts(&["abc.7.12", "abc.18446744073709551615.0", "abc.0.0"], |text| {
            if let Some(position) = HistoryPosition::read(0xabc, text) {
                assert_eq!(HistoryPosition::read(0xabc, &position.to_string()), Some(position));
            }
        });
    }
}
