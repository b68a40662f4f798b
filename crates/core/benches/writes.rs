//! Local writes through sessions: registering new members and updating existing ones.

mod support;

use convoke_core::member::MetadataUpdate;
use convoke_core::node::{AttachMember, SessionId};
use convoke_core::{Node, Output, Time};
use divan::Bencher;
use divan::counter::ItemsCount;
use mimalloc::MiMalloc;
use support::cluster::Cluster;
use support::{Ids, NOW, PER_SESSION};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const BATCH: usize = 10_000;
const HELD: [usize; 2] = [10_000, 1_000_000];

fn main() {
    divan::main();
}

/// New members on top of those held, a hundred per session.
#[divan::bench(args = HELD, sample_count = 20, sample_size = 1)]
fn register(bencher: Bencher<'_, '_>, held: usize) {
    let held = support::scale(held).next_multiple_of(PER_SESSION);
    let mut node = support::lone_node();
    let sessions = support::populate(&mut node, NOW, Ids::Short, held, PER_SESSION);
    let batch = support::scale(BATCH);
    let (mut next, mut seq) = (held, 0);
    let mut out = Output::default();
    bencher
        .counter(ItemsCount::new(batch))
        .with_inputs(|| {
            let members = (next..next + batch).map(|index| support::member(Ids::Short, index));
            next += batch;
            members.collect::<Vec<AttachMember>>()
        })
        .bench_local_refs(|members| {
            for (number, member) in members.iter().enumerate() {
                let session = sessions[number % sessions.len()];
                seq += 1;
                node.register(NOW, session, seq, member, &mut out).expect("a valid member");
            }
        });
}

/// One metadata pair of a random member changes; no peer is connected.
#[divan::bench(args = HELD, sample_count = 20, sample_size = 1)]
fn update(bencher: Bencher<'_, '_>, held: usize) {
    let held = support::scale(held).next_multiple_of(PER_SESSION);
    let mut node = support::lone_node();
    let sessions = support::populate(&mut node, NOW, Ids::Short, held, PER_SESSION);
    let mut out = Output::default();
    let (mut round, mut seq) = (0, 0);
    bencher
        .counter(ItemsCount::new(support::scale(BATCH)))
        .with_inputs(|| {
            round += 1;
            Updates::new(round, held)
        })
        .bench_local_refs(|updates| {
            for (member, id) in &updates.ids {
                seq += 1;
                let session = sessions[*member / PER_SESSION];
                let updated = node.update(NOW, session, seq, id, &updates.change, None, &mut out);
                updated.expect("the member belongs to the session");
            }
        });
}

/// The same with two peers, each write pushed on its own: encoding included, the network not.
#[divan::bench(args = HELD, sample_count = 20, sample_size = 1)]
fn update_and_push_to_two(bencher: Bencher<'_, '_>, held: usize) {
    let held = support::scale(held).next_multiple_of(PER_SESSION);
    let (mut node, now, sessions) = node_with_two_peers(held);
    let mut out = Output::default();
    let (mut round, mut seq) = (0, 0);
    bencher
        .counter(ItemsCount::new(support::scale(BATCH)))
        .with_inputs(|| {
            round += 1;
            Updates::new(round, held)
        })
        .bench_local_refs(|updates| {
            for (member, id) in &updates.ids {
                seq += 1;
                let session = sessions[*member / PER_SESSION];
                let updated = node.update(now, session, seq, id, &updates.change, None, &mut out);
                updated.expect("the member belongs to the session");
                node.flush(now, &mut out);
                out.effects.clear();
            }
        });
    assert!(node.counters().pushes_sent > 0);
}

fn node_with_two_peers(held: usize) -> (Node, Time, Vec<SessionId>) {
    let mut cluster = Cluster::new(1);
    let now = cluster.now;
    let sessions = support::populate(&mut cluster.nodes[0], now, Ids::Short, held, PER_SESSION);
    cluster.add_node();
    cluster.add_node();
    while !cluster.agrees() {
        cluster.run_for_millis(1);
    }
    (cluster.nodes.swap_remove(0), cluster.now, sessions)
}

/// Random members, and a value that none of them has yet.
struct Updates {
    ids: Vec<(usize, String)>,
    change: MetadataUpdate,
}

impl Updates {
    fn new(round: u64, held: usize) -> Updates {
        let mut random = fastrand::Rng::with_seed(round);
        let members = (0..support::scale(BATCH)).map(|_| random.usize(..held));
        let ids = members.map(|member| (member, support::id(Ids::Short, member))).collect();
        Updates { ids, change: MetadataUpdate::set("shard", format!("round {round}")) }
    }
}
