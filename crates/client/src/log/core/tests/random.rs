//! Many random runs, each from a seed.

use super::world::World;
use crate::ErrorCode;
use crate::log::Options;
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn in_any_run_calls_are_applied_once_in_order_and_answered_truthfully() {
    for seed in 0..400 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed);
    let lanes: Vec<u64> = (0..3)
        .map(|_| {
            let mut options = Options::default().window(random.usize(1..5));
            if random.bool() {
                options = options.timeout(Duration::from_millis(random.u64(50..2_000)));
            }
            if random.u8(..4) == 0 {
                options = options.one_at_a_time();
            }
            world.lane(options)
        })
        .collect();
    let mut issued = Vec::new();
    let mut abandoned = Vec::new();
    for _ in 0..300 {
        match random.u8(..16) {
            0..4 => {
                let lane = lanes[random.usize(..lanes.len())];
                let key = format!("{lane}-{}", issued.iter().filter(|(of, _)| *of == lane).count() + 1);
                let call = world.issue(lane, &key).unwrap();
                assert_eq!(key, format!("{lane}-{}", call.1));
                issued.push(call);
            }
            4 if !issued.is_empty() => {
                let call = issued[random.usize(..issued.len())];
                if !world.done.contains_key(&call) && !abandoned.contains(&call) {
                    world.abandon(call);
                    abandoned.push(call);
                }
            }
            5..9 => drop(world.arrive()),
            9..12 => drop(world.deliver_answer()),
            12 if random.bool() => world.link_down(),
            12 => {
                world.link_down();
                world.elect();
            }
            13 if world.link.is_none() => world.link_up(),
            14 if !world.copies.is_empty() => world.arrive_late(random.usize(..world.copies.len())),
            15 => {
                world.busy = random.usize(..2);
                world.tick(Duration::from_millis(random.u64(..300)));
            }
            _ => {}
        }
    }
    world.busy = 0;
    // A last call per lane: any earlier call that is not applied by then never is (F1).
    for lane in &lanes {
        let last = issued.iter().filter(|(of, _)| of == lane).count() + 1;
        issued.push(world.issue(*lane, &format!("{lane}-{last}")).unwrap());
    }
    world.settle();
    // Everything ever sent arrives once more and must change nothing.
    let before: BTreeMap<_, _> =
        issued.iter().map(|call| (*call, world.puts(&format!("{}-{}", call.0, call.1)))).collect();
    for at in (0..world.copies.len()).rev() {
        world.arrive_late(at);
    }
    for call in &issued {
        let puts = world.puts(&format!("{}-{}", call.0, call.1));
        assert_eq!(puts, before[call], "seed {seed}: {call:?} was changed by a late copy");
        assert!(puts <= 1, "seed {seed}: {call:?} was applied {puts} times");
        match world.done.get(call) {
            None => assert!(abandoned.contains(call), "seed {seed}: {call:?} has no answer"),
            Some(Ok(decided)) => {
                assert_eq!(puts, 1, "seed {seed}: {call:?}");
                // Old outcomes may be dropped (F4).
                let index = world.index(decided.request.session, call.1);
                assert!(index.is_none_or(|index| index == decided.fate.index), "seed {seed}: {call:?}");
            }
            Some(Err(error)) => match error.code {
                ErrorCode::Timeout | ErrorCode::Superseded | ErrorCode::SessionGone => {
                    assert_eq!(puts, 0, "seed {seed}: {call:?} {error}");
                }
                ErrorCode::OutcomeUnknown => {}
                _ => panic!("seed {seed}: {call:?} {error}"),
            },
        }
    }
    for lane in lanes {
        let revisions = issued.iter().filter(|call| call.0 == lane).filter_map(|call| {
            let key = format!("{}-{}", call.0, call.1);
            world.machine.keys().get(key.as_bytes()).map(|record| record.modify_revision)
        });
        assert!(revisions.is_sorted(), "seed {seed}: lane {lane} took effect out of order");
    }
}
