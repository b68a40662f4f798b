//! `VectorClock` (rule D1): a partial order in which merging is the least upper bound.
//!
//! The clocks are small on purpose: with four origins and numbers up to two, equal, ordered and concurrent pairs are
//! all frequent.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::version::{Incarnation, NodeId, OriginId, VectorClock};
use proptest::prelude::*;
use std::cmp::Ordering;

/// Two incarnations of one node are two origins, as are two that share a number but not the nonce.
fn origins() -> [OriginId; 4] {
    [("a", 1, 0), ("a", 1, 7), ("a", 2, 0), ("b", 1, 0)].map(|(node, number, nonce)| OriginId {
        node: NodeId::new(node).unwrap(),
        incarnation: Incarnation { number, nonce },
    })
}

fn clock(counts: &[u64]) -> VectorClock {
    origins().into_iter().zip(counts.iter().copied()).collect()
}

fn any_clock() -> impl Strategy<Value = VectorClock> {
    prop::collection::vec(0..3u64, 4).prop_map(|counts| clock(&counts))
}

fn merged(left: &VectorClock, right: &VectorClock) -> VectorClock {
    let mut both = left.clone();
    both.merge(right);
    both
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_reflexive(a in any_clock()) {
        prop_assert_eq!(a.partial_cmp(&a), Some(Ordering::Equal));
        prop_assert!(!a.concurrent(&a));
    }

    #[test]
    fn the_order_is_antisymmetric(a in any_clock(), b in any_clock()) {
        prop_assert_eq!(a.partial_cmp(&b), b.partial_cmp(&a).map(Ordering::reverse));
        prop_assert_eq!(a <= b && b <= a, a == b);
    }

    #[test]
    fn the_order_is_transitive(a in any_clock(), b in any_clock(), c in any_clock()) {
        prop_assert!(!(a <= b && b <= c) || a <= c);
        prop_assert!(!(a < b && b <= c) || a < c);
    }

    #[test]
    fn being_concurrent_is_symmetric_and_excludes_every_order(a in any_clock(), b in any_clock()) {
        prop_assert_eq!(a.concurrent(&b), b.concurrent(&a));
        prop_assert_eq!(a.concurrent(&b), !a.includes(&b) && !b.includes(&a));
    }

    #[test]
    fn the_order_compares_every_origin(a in prop::collection::vec(0..3u64, 4), b in prop::collection::vec(0..3u64, 4)) {
        let below = a.iter().zip(&b).all(|(a, b)| a <= b);
        prop_assert_eq!(clock(&a) <= clock(&b), below);
        prop_assert_eq!(clock(&b).includes(&clock(&a)), below);
    }

    #[test]
    fn merging_gives_the_least_upper_bound(a in any_clock(), b in any_clock(), bound in any_clock()) {
        let both = merged(&a, &b);
        prop_assert!(a <= both && b <= both);
        prop_assert!(!(a <= bound && b <= bound) || both <= bound);
    }

    #[test]
    fn merging_is_commutative_associative_and_idempotent(a in any_clock(), b in any_clock(), c in any_clock()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &a), a.clone());
        prop_assert_eq!(merged(&merged(&a, &b), &b), merged(&a, &b));
    }

    #[test]
    fn counting_one_more_event_moves_only_forward_and_only_its_origin(a in any_clock(), which in 0..4usize) {
        let origin = &origins()[which];
        let mut later = a.clone();
        let n = later.increment(origin);
        prop_assert!(a < later);
        prop_assert_eq!(n, a.get(origin) + 1);
        prop_assert!(later.covers(origin, n) && !a.covers(origin, n));
        for other in origins().iter().filter(|other| *other != origin) {
            prop_assert_eq!(later.get(other), a.get(other));
        }
    }

    #[test]
    fn raising_never_lowers(a in any_clock(), which in 0..4usize, n in 0..4u64) {
        let origin = &origins()[which];
        let mut raised = a.clone();
        raised.raise(origin, n);
        prop_assert!(a <= raised);
        prop_assert_eq!(raised.get(origin), a.get(origin).max(n));
    }

    #[test]
    fn an_origin_with_zero_writes_equals_an_absent_origin(a in any_clock(), which in 0..4usize) {
        let origin = &origins()[which];
        let mut same = a.clone();
        same.raise(origin, 0);
        prop_assert_eq!(&same, &a);
        let mut without = a.clone();
        without.remove(origin);
        prop_assert_eq!(without.get(origin), 0);
        prop_assert_eq!(without == a, a.get(origin) == 0);
    }
}

#[test]
fn before_after_and_concurrent_are_distinguished() {
    let (a, b, c) = (clock(&[1, 0, 0, 0]), clock(&[1, 1, 0, 0]), clock(&[0, 0, 1, 0]));
    assert_eq!(a.partial_cmp(&b), Some(Ordering::Less));
    assert_eq!(b.partial_cmp(&a), Some(Ordering::Greater));
    assert_eq!(a.partial_cmp(&c), None);
    assert!(VectorClock::new() < a && VectorClock::new().is_empty());
}
