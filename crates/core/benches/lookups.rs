//! Lookups of random ids over a million members.

mod support;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use mimalloc::MiMalloc;
use support::{Ids, NOW, PER_SESSION};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const MEMBERS: usize = 1_000_000;
const BATCH: usize = 1_000_000;

fn main() {
    divan::main();
}

/// Returns the whole member, as a caller gets it: found, judged (L3), shared.
#[divan::bench(args = [10_000, MEMBERS], sample_count = 10, sample_size = 1)]
fn random_ids(bencher: Bencher<'_, '_>, members: usize) {
    look_up(bencher, Ids::Short, members);
}

#[divan::bench(args = [MEMBERS], sample_count = 10, sample_size = 1)]
fn random_uuids(bencher: Bencher<'_, '_>, members: usize) {
    look_up(bencher, Ids::Uuid, members);
}

fn look_up(bencher: Bencher<'_, '_>, ids: Ids, members: usize) {
    let members = support::scale(members).next_multiple_of(PER_SESSION);
    let mut node = support::lone_node();
    support::populate(&mut node, NOW, ids, members, PER_SESSION);
    let mut random = fastrand::Rng::with_seed(2);
    let wanted: Vec<String> = (0..support::scale(BATCH)).map(|_| support::id(ids, random.usize(..members))).collect();
    bencher.counter(ItemsCount::new(wanted.len())).bench_local(|| {
        for id in &wanted {
            black_box(node.member(id)).expect("the member is there");
        }
    });
}

/// Ids that are not registered: the cost of a mistyped name.
#[divan::bench(args = [MEMBERS], sample_count = 10, sample_size = 1)]
fn unknown_ids(bencher: Bencher<'_, '_>, members: usize) {
    let members = support::scale(members).next_multiple_of(PER_SESSION);
    let mut node = support::lone_node();
    support::populate(&mut node, NOW, Ids::Short, members, PER_SESSION);
    let wanted: Vec<String> = (0..support::scale(BATCH)).map(|i| support::id(Ids::Short, members + i)).collect();
    bencher.counter(ItemsCount::new(wanted.len())).bench_local(|| {
        for id in &wanted {
            assert!(black_box(node.member(id)).is_none());
        }
    });
}
