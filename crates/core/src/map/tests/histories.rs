//! Random histories: D4 holds after every step, and all copies converge.

use super::map_copy::{Key, MapCopy, SlotState};
use super::steps::{Rules, Step, keys, steps};
use super::world::World;
use crate::map::{Delta, ItemRef};
use crate::member::Status;
use crate::version::VectorClock;
use crate::wire::Context;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
}

/// The winner of every key among all copies.
fn winners(world: &World) -> BTreeMap<Key, SlotState> {
    let mut winners: BTreeMap<Key, SlotState> = BTreeMap::new();
    for (key, state) in world.copies.iter().flat_map(MapCopy::slots) {
        match winners.get(&key) {
            Some(best) if best.rank >= state.rank => {}
            _ => drop(winners.insert(key, state)),
        }
    }
    winners
}

proptest! {
    #![proptest_config(config())]

    /// Claims of any clients at any copy, in any order, interrupted and repeated: the highest rank wins everywhere.
    #[test]
    fn copies_converge_to_the_highest_ranks(steps in steps(Rules::AnyClaims, 60)) {
        let mut world = World::after(Rules::AnyClaims, &steps);
        let expected = winners(&world);
        world.heal();
        for copy in &world.copies {
            prop_assert_eq!(copy.slots(), expected.clone());
            prop_assert_eq!(copy.inferred(), world.copies[0].inferred());
        }
    }

    /// One client per key: all copies show its last call in the end, however tombstones were collected.
    #[test]
    fn the_last_call_of_a_client_stands_whatever_was_collected(steps in steps(Rules::Collection, 60)) {
        last_calls_stand(Rules::Collection, &steps);
    }

    /// The same while lagging third copies keep sending to the receiver of a full merge.
    #[test]
    fn the_last_call_of_a_client_stands_despite_interleaved_full_merges(
        steps in steps(Rules::CollectionInterleaved, 60),
    ) {
        last_calls_stand(Rules::CollectionInterleaved, &steps);
    }

    /// D6 and D8: a delta is exactly the slots whose dots are not covered, or everything if something is below the floor.
    #[test]
    fn a_delta_is_exactly_what_is_not_covered(
        steps in steps(Rules::Collection, 40),
        lowered in prop::collection::vec(0..6u64, 3),
    ) {
        let world = World::after(Rules::Collection, &steps);
        for copy in &world.copies {
            for other in &world.copies {
                let clock: VectorClock = other
                    .context()
                    .clock
                    .iter()
                    .zip(lowered.iter().cycle())
                    .map(|((origin, n), less)| (origin.clone(), n.saturating_sub(*less)))
                    .collect();
                let context = Context { clock, ..Context::default() };
                let below = copy.map.origins.floor().iter().any(|(origin, n)| !context.covers(origin, n));
                prop_assert_eq!(copy.map.below_floor(&context), below);
                match copy.map.delta(&context) {
                    Delta::Full => prop_assert!(below),
                    Delta::Items(items) => {
                        prop_assert!(!below);
                        let found: BTreeSet<ItemRef> = items.iter().cloned().collect();
                        prop_assert_eq!(found.len(), items.len(), "an item is listed twice");
                        let uncovered = copy.everything().into_iter().filter(|item| match item {
                            ItemRef::Stated(slot) => {
                                let record = copy.map.at(*slot);
                                !context.covers(&record.origin.id, record.n)
                            }
                            ItemRef::Inferred(id) => {
                                let inferred = copy.map.inferred(id).expect("just listed");
                                !context.covers(&inferred.origin.id, inferred.n)
                            }
                        });
                        prop_assert_eq!(found, uncovered.collect::<BTreeSet<ItemRef>>());
                    }
                }
            }
        }
    }
}

#[track_caller]
fn last_calls_stand(rules: Rules, steps: &[Step]) {
    let mut world = World::after(rules, steps);
    world.heal();
    for at in 0..3 {
        world.step(&Step::Collect { at, all: true });
        world.check();
    }
    world.heal();
    for copy in &mut world.copies {
        copy.collect_all();
    }
    for key in keys() {
        let last = world.writes.iter().filter(|write| write.key == key).max_by_key(|write| &write.rank);
        let live = last.filter(|last| world.writes.iter().any(|w| w.rank == last.rank && is_registration(w)));
        for copy in &world.copies {
            let shown = copy.live_slots().remove(&key);
            assert_eq!(
                shown.as_ref().map(|state| &state.rank),
                live.map(|write| &write.rank),
                "{key:?} at {:?}",
                copy.origin()
            );
        }
    }
    assert!(world.copies.iter().all(|copy| copy.slots().values().all(|state| state.stated != Status::Left)));
}

/// Whether a write is a live record.
fn is_registration(write: &super::world::Write) -> bool {
    let mut reader = crate::wire::Reader::new(&write.frame);
    let items = crate::wire::Items::decode(&mut reader).unwrap();
    items.iter().any(|item| matches!(item, crate::wire::Item::Record(r) if r.kind == crate::member::RecordKind::Live))
}

/// The generator covers deltas, full merges, gaps and concurrent claims.
#[test]
fn the_histories_cover_every_kind_of_step() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut full_merges, mut writes, mut collected) = (0, 0, 0);
    for _ in 0..64 {
        let history = steps(Rules::Collection, 60).new_tree(&mut runner).unwrap().current();
        let world = World::after(Rules::Collection, &history);
        full_merges += world.full_merges;
        writes += world.writes.len();
        collected += world.copies.iter().map(|copy| copy.map.origins.floor().len()).sum::<usize>();
    }
    assert!(full_merges >= 10 && writes >= 300 && collected >= 20, "{full_merges} {writes} {collected}");
}
