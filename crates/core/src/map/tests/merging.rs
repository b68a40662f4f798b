//! Merging is a lattice (D11): any order, any batches, any number of times.

use super::map_copy::MapCopy;
use super::steps::{Rules, steps};
use super::world::World;
use crate::map::{Delta, ItemRef, Outcome};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() }
}

/// Everything that was ever written, one frame each, as sent by the writer at once.
fn frames(world: &World) -> Vec<Vec<u8>> {
    let stated = world.writes.iter().map(|write| write.frame.clone());
    stated.chain(world.inferred.iter().map(|write| write.frame.clone())).collect()
}

fn observer(frames: &[Vec<u8>]) -> MapCopy {
    let mut copy = MapCopy::new("observer");
    for frame in frames {
        copy.apply(frame);
        copy.check_indexes();
    }
    copy
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn records_may_arrive_in_any_order_and_more_than_once(
        steps in steps(Rules::AnyClaims, 50),
        twice in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed in any::<u64>(),
    ) {
        let world = World::after(Rules::AnyClaims, &steps);
        let as_written = frames(&world);
        let mut shuffled = as_written.clone();
        if !as_written.is_empty() {
            shuffled.extend(twice.iter().map(|at| at.get(&as_written).clone()));
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
        let (straight, mixed) = (observer(&as_written), observer(&shuffled));
        prop_assert_eq!(straight.slots(), mixed.slots());
        prop_assert_eq!(straight.inferred(), mixed.inferred());
        // The same again: everything is known or outranked by now, and nothing changes.
        let mut again = mixed;
        let before = again.slots();
        for frame in &shuffled {
            let outcomes = again.apply(frame);
            let nothing = |o: &Outcome| matches!(o, Outcome::Outranked(_) | Outcome::Known | Outcome::Inferred);
            prop_assert!(outcomes.iter().all(nothing), "{outcomes:?}");
        }
        prop_assert_eq!(again.slots(), before);
    }

    /// Whole states, records and context together, joined in different orders.
    #[test]
    fn states_may_be_merged_in_any_order_and_more_than_once(
        steps in steps(Rules::AnyClaims, 50),
        first in Just([0usize, 1, 2]).prop_shuffle(),
        second in prop::collection::vec(0..3usize, 0..4),
    ) {
        let world = World::after(Rules::AnyClaims, &steps);
        let merged = |order: &[usize]| {
            let mut copy = MapCopy::new("observer");
            for at in order {
                copy.pull(&world.copies[*at]);
                copy.check_indexes();
            }
            copy
        };
        let straight = merged(&[0, 1, 2]);
        let mixed = merged(&[&first[..], &second[..]].concat());
        prop_assert_eq!(straight.slots(), mixed.slots());
        prop_assert_eq!(straight.inferred(), mixed.inferred());
        prop_assert_eq!(straight.context(), mixed.context());
        prop_assert_eq!(straight.map.origins.context_hash(), mixed.map.origins.context_hash());
        prop_assert_eq!(straight.map.contents_digest(), mixed.map.contents_digest());
    }

    /// Merging pairwise first and then together gives the same result as merging one after the other.
    #[test]
    fn merging_is_associative(steps in steps(Rules::AnyClaims, 50)) {
        let world = World::after(Rules::AnyClaims, &steps);
        let [a, b, c] = [0, 1, 2].map(|at| &world.copies[at]);
        let (mut left, mut pair) = (MapCopy::new("left"), MapCopy::new("pair"));
        left.pull(a);
        left.pull(b);
        left.pull(c);
        pair.pull(b);
        pair.pull(c);
        let mut right = MapCopy::new("right");
        right.pull(a);
        right.pull(&pair);
        prop_assert_eq!(left.slots(), right.slots());
        prop_assert_eq!(left.inferred(), right.inferred());
        prop_assert_eq!(left.context(), right.context());
    }

    /// A delta in each direction is enough for two copies to agree.
    #[test]
    fn a_delta_each_way_makes_two_copies_equal(steps in steps(Rules::AnyClaims, 60)) {
        let mut world = World::after(Rules::AnyClaims, &steps);
        let [a, b, _] = &mut world.copies[..] else { unreachable!() };
        a.pull(b);
        b.pull(a);
        prop_assert_eq!(a.slots(), b.slots());
        prop_assert_eq!(a.inferred(), b.inferred());
        prop_assert_eq!(a.context(), b.context());
        // Only items that neither context may cover are left: parts of deltas that a third copy did not finish.
        let Delta::Items(rest) = a.map.delta(&b.context()) else { panic!("nothing was collected") };
        let claimed = rest.iter().filter(|item| match item {
            ItemRef::Stated(slot) => a.context().covers(&a.map.at(*slot).origin.id, a.map.at(*slot).n),
            ItemRef::Inferred(id) => a.map.inferred(id).is_some_and(|i| a.context().covers(&i.origin.id, i.n)),
        });
        prop_assert_eq!(claimed.count(), 0);
    }

    /// If nothing was collected, a full merge has the effect of a delta.
    #[test]
    fn a_full_merge_without_collections_is_a_large_delta(steps in steps(Rules::AnyClaims, 50)) {
        let world = World::after(Rules::AnyClaims, &steps);
        let (mut by_delta, mut by_full) = (MapCopy::new("observer"), MapCopy::new("observer"));
        for copy in &world.copies {
            by_delta.pull(copy);
            prop_assert_eq!(by_full.pull_full(copy), Vec::new());
            by_full.check_indexes();
        }
        prop_assert_eq!(by_delta.slots(), by_full.slots());
        prop_assert_eq!(by_delta.inferred(), by_full.inferred());
        prop_assert_eq!(by_delta.context(), by_full.context());
    }
}
