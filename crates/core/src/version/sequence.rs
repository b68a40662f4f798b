//! The parts of a sequence number (D3, C10).
//!
//! A sequence number is compared as a whole. Its parts, from the most significant one, are the number of the client's
//! request that wrote the record, the attaches of the session since then, and the changes since the attach. Clients that do
//! not number their requests use the lowest part only; it may overflow into the next one, because it only counts.

const CHANGE_BITS: u32 = 15;
const ATTACH_BITS: u32 = 14;
const REQUEST_SHIFT: u32 = CHANGE_BITS + ATTACH_BITS;
const REQUEST_BITS: u32 = 32;

/// The highest number of a request.
pub const REQUEST_MAX: u64 = (1 << REQUEST_BITS) - 1;

/// A sequence number above this has no valid request number.
pub(crate) const MAX_SEQ_TAKEN: u64 = 1 << (REQUEST_SHIFT + REQUEST_BITS);

/// The number of the request that wrote a record, 0 if it had none.
pub(crate) fn request_of(seq: u64) -> u64 {
    seq >> REQUEST_SHIFT
}

/// Request and attaches: what the client has decided, without the changes that its owner made.
pub(crate) fn decision_of(seq: u64) -> u64 {
    seq >> CHANGE_BITS
}

/// The sequence number of a record that a request writes over one with `held`. The number is 0 if it has none.
pub(crate) fn written_by(request: u64, held: u64) -> u64 {
    (held + 1).max(request << REQUEST_SHIFT)
}

/// The sequence number of a record that moves to another node without a new claim: above every change that its last
/// owner makes. `None` if the record moved too often since its last request.
pub(crate) fn moved(held: u64) -> Option<u64> {
    let next = (decision_of(held) + 1) << CHANGE_BITS;
    (request_of(next) == request_of(held)).then_some(next)
}

/// The sequence number of an agentless member that another node adopts: above every change that its last owner makes
/// (AG3). Such a member has no requests, so the part of the request only counts.
pub(crate) fn adopted(held: u64) -> u64 {
    (decision_of(held) + 1) << CHANGE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_rank_above_moves_and_moves_above_changes() {
        let first = written_by(5, 0);
        assert_eq!((request_of(first), first), (5, 5 << REQUEST_SHIFT));
        let changed = first + 1_000;
        let moved_once = moved(changed).unwrap();
        assert!(moved_once > changed && request_of(moved_once) == 5);
        assert!(written_by(6, 0) > moved_once, "whatever the node of request 6 has received");
        assert!(written_by(5, moved_once) > moved_once && request_of(written_by(5, moved_once)) == 5);
        assert!(written_by(REQUEST_MAX, 0) < MAX_SEQ_TAKEN);
    }

    #[test]
    fn a_move_never_changes_the_request() {
        let last = ((5 << ATTACH_BITS | ((1 << ATTACH_BITS) - 1)) << CHANGE_BITS) + 3;
        assert_eq!((request_of(last), moved(last)), (5, None));
    }

    #[test]
    fn without_a_number_it_counts() {
        assert_eq!((written_by(0, 0), written_by(0, 7), request_of(8)), (1, 8, 0));
    }
}
