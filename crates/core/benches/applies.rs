//! Applying frames from peers: real frames through `Node::received`, decoding included.

mod support;

use bytes::Bytes;
use convoke_core::Output;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::Effect;
use divan::Bencher;
use divan::counter::ItemsCount;
use mimalloc::MiMalloc;
use support::{Ids, NOW, PER_SESSION, Pair};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const BATCH: usize = 20_000;

fn main() {
    divan::main();
}

/// A new node joins and receives everything.
#[divan::bench(args = [100_000, 1_000_000], sample_count = 5, sample_size = 1)]
fn join(bencher: Bencher<'_, '_>, members: usize) {
    let members = support::scale(members).next_multiple_of(PER_SESSION);
    let frames = support::recorded_join(members, PER_SESSION);
    bencher.counter(ItemsCount::new(members)).with_inputs(support::joining_node).bench_local_values(
        |(mut node, link)| {
            support::receive_all(&mut node, NOW, link, &frames);
            assert_eq!(node.sizes().members, members + 2, "all members and the two nodes");
            node
        },
    );
}

/// Updates of random members, each in its own push: a cluster with a low rate of changes.
#[divan::bench(args = [10_000, 1_000_000], sample_count = 10, sample_size = 1)]
fn pushes_of_1(bencher: Bencher<'_, '_>, held: usize) {
    pushes(bencher, held, 1);
}

/// Updates of random members, a hundred per push: a busy peer.
#[divan::bench(args = [10_000, 1_000_000], sample_count = 10, sample_size = 1)]
fn pushes_of_100(bencher: Bencher<'_, '_>, held: usize) {
    pushes(bencher, held, 100);
}

fn pushes(bencher: Bencher<'_, '_>, held: usize, per_frame: usize) {
    let held = support::scale(held).next_multiple_of(PER_SESSION);
    let Pair { mut a, a_sessions, mut b, b_link, now, .. } = support::pair(held, PER_SESSION);
    let batch = support::scale(BATCH);
    let mut random = fastrand::Rng::with_seed(3);
    let (mut round, mut seq) = (0, 0);
    let applied_before = b.counters().records_applied;
    bencher
        .counter(ItemsCount::new(batch))
        .with_inputs(|| {
            round += 1;
            let change = MetadataUpdate::set("shard", format!("round {round}"));
            let mut out = Output::default();
            for number in 1..=batch {
                seq += 1;
                let member = random.usize(..held);
                let session = a_sessions[member / PER_SESSION];
                let id = support::id(Ids::Short, member);
                a.update(now, session, seq, &id, &change, None, &mut out).expect("the member is the session's");
                if number % per_frame == 0 {
                    a.flush(now, &mut out);
                }
            }
            out.effects.into_iter().filter_map(frame).collect::<Vec<Bytes>>()
        })
        .bench_local_refs(|frames| support::receive_all(&mut b, now, b_link, frames.iter()));
    assert!(b.counters().records_applied > applied_before && b.counters().pushes_gapped == 0);
}

fn frame(effect: Effect) -> Option<Bytes> {
    match effect {
        Effect::Send { frame, .. } => Some(frame),
        _ => None,
    }
}
