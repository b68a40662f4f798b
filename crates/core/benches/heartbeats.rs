//! Heartbeats per second, each for a random one of 100,000 sessions.
//!
//! The allocator counts: a heartbeat must not allocate, and divan prints a line of allocations if one does.

mod support;

use convoke_core::Output;
use convoke_core::node::SessionId;
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use mimalloc::MiMalloc;
use support::{Ids, NOW};

#[global_allocator]
static ALLOCATOR: AllocProfiler<MiMalloc> = AllocProfiler::new(MiMalloc);

const SESSIONS: usize = 100_000;
const BATCH: usize = 1_000_000;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn random_sessions(bencher: Bencher<'_, '_>) {
    let mut node = support::lone_node();
    let sessions = support::populate(&mut node, NOW, Ids::Short, support::scale(SESSIONS), 1);
    let mut random = fastrand::Rng::with_seed(1);
    let beats: Vec<SessionId> = (0..support::scale(BATCH)).map(|_| sessions[random.usize(..sessions.len())]).collect();
    let mut out = Output::default();
    bencher.counter(ItemsCount::new(beats.len())).bench_local(|| {
        for session in &beats {
            node.heartbeat(NOW, *session, &mut out).expect("the session exists");
        }
    });
    assert!(out.is_empty(), "a heartbeat has no effects");
}
