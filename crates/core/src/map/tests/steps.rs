//! Steps of a history, with small numbers that are taken modulo the available range. Any list of steps is a history,
//! and a failing one can be shortened.

use super::map_copy::{Key, member, name};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A client attaches with the lowest valid claim, or one that is higher by this.
    Register {
        at: usize,
        key: usize,
        ahead: u64,
    },
    Update {
        at: usize,
        key: usize,
    },
    Down {
        at: usize,
        key: usize,
    },
    Unregister {
        at: usize,
        key: usize,
    },
    /// An attach repeats an unregistration.
    Repeat {
        at: usize,
        key: usize,
    },
    Infer {
        at: usize,
        key: usize,
    },
    /// A copy receives evidence of an origin.
    Life {
        at: usize,
        of: usize,
    },
    /// Pushes the writes since the last push; `lost` on the way.
    Push {
        from: usize,
        to: usize,
        lost: bool,
    },
    /// Starts a delta, or a full merge where one is needed or requested.
    Begin {
        from: usize,
        to: usize,
        full: bool,
    },
    /// Some more items of a transfer in progress; after the last ones the receiver joins the context.
    Continue {
        transfer: usize,
        items: usize,
    },
    /// The link breaks.
    Cut {
        transfer: usize,
    },
    /// Frames that were already sent are sent again.
    Again {
        transfer: usize,
    },
    /// A node restarts without its state.
    Restart {
        at: usize,
    },
    /// Tombstones are collected, the oldest or all of them.
    Collect {
        at: usize,
        all: bool,
    },
    /// One copy is cut off from the others, or (if there is no such copy) none is.
    Split {
        away: usize,
    },
}

/// Which steps a history is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rules {
    /// Any client may register any key at any copy; nothing is collected.
    AnyClaims,
    /// Each key has one client, whose claims rise; tombstones are collected. During a full merge, its receiver
    /// receives from no other copy.
    Collection,
    /// As before, but other copies keep sending to the receiver of a full merge.
    CollectionInterleaved,
}

pub(super) fn keys() -> [Key; 4] {
    // One id in both spaces: they are different keys.
    [member("x"), member("y"), member("z"), name("x")]
}

/// Histories of up to `len` steps. Transfers are started and continued often; otherwise copies would hardly
/// communicate.
pub(super) fn steps(rules: Rules, len: usize) -> impl Strategy<Value = Vec<Step>> {
    let at = || 0..3usize;
    let key = || 0..4usize;
    let common = prop_oneof![
        6 => (at(), key(), 0..3u64).prop_map(|(at, key, ahead)| Step::Register { at, key, ahead }),
        3 => (at(), key()).prop_map(|(at, key)| Step::Update { at, key }),
        1 => (at(), key()).prop_map(|(at, key)| Step::Down { at, key }),
        4 => (at(), key()).prop_map(|(at, key)| Step::Unregister { at, key }),
        2 => (at(), key()).prop_map(|(at, key)| Step::Repeat { at, key }),
        5 => (at(), at(), prop::bool::weighted(0.2)).prop_map(|(from, to, lost)| Step::Push { from, to, lost }),
        6 => (at(), at(), prop::bool::weighted(0.2)).prop_map(|(from, to, full)| Step::Begin { from, to, full }),
        9 => (0..4usize, 1..4usize).prop_map(|(transfer, items)| Step::Continue { transfer, items }),
        1 => (0..4usize).prop_map(|transfer| Step::Cut { transfer }),
        1 => (0..4usize).prop_map(|transfer| Step::Again { transfer }),
    ];
    let special = if rules == Rules::AnyClaims {
        prop_oneof![
            3 => (at(), key()).prop_map(|(at, key)| Step::Infer { at, key }),
            1 => (at(), at()).prop_map(|(at, of)| Step::Life { at, of }),
            1 => at().prop_map(|at| Step::Restart { at }),
        ]
        .boxed()
    } else {
        prop_oneof![
            3 => (at(), any::<bool>()).prop_map(|(at, all)| Step::Collect { at, all }),
            1 => (0..4usize).prop_map(|away| Step::Split { away }),
        ]
        .boxed()
    };
    let step = prop_oneof![8 => common, 1 => special];
    prop::collection::vec(step, 0..len)
}
