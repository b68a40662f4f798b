//! The delta for a returning peer: 1,000 changes among 10,000, 100,000 and 1,000,000 members (D6).
//!
//! A request that was recorded when the peer returned is answered repeatedly; answering changes nothing.

mod support;

use bytes::Bytes;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{Effect, LinkId};
use convoke_core::{Node, Output, Time};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use mimalloc::MiMalloc;
use support::Ids;
use support::cluster::Cluster;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const MEMBERS: [usize; 3] = [10_000, 100_000, 1_000_000];
const CHANGES: usize = 1_000;
/// The same for every size, because a frame names each client once: only the number of members differs.
const SESSIONS: usize = 100;
/// More than the processor's caches hold.
const CACHE_BYTES: usize = 128 << 20;
const WANT: u8 = 5;

fn main() {
    divan::main();
}

/// Found, encoded, chunked.
#[divan::bench(args = MEMBERS, sample_count = 200, sample_size = 1)]
fn since_context(bencher: Bencher<'_, '_>, members: usize) {
    let mut returned = Returned::new(members);
    let mut out = Output::default();
    bencher.counter(ItemsCount::new(returned.changes)).bench_local(|| {
        out.effects.clear();
        returned.node.received(returned.now, returned.link, &returned.want, &mut out);
    });
    assert!(bytes_sent(&out) > 40 * returned.changes, "the delta was sent");
}

/// The same with cold caches, as for the first peer that returns.
#[divan::bench(args = MEMBERS, sample_count = 20, sample_size = 1)]
fn since_context_cold(bencher: Bencher<'_, '_>, members: usize) {
    let mut returned = Returned::new(members);
    let mut out = Output::default();
    let mut other_work = vec![0u8; CACHE_BYTES];
    bencher
        .counter(ItemsCount::new(returned.changes))
        .with_inputs(|| {
            for line in other_work.chunks_mut(64) {
                line[0] = line[0].wrapping_add(1);
            }
            black_box(&other_work[0]);
        })
        .bench_local_values(|()| {
            out.effects.clear();
            returned.node.received(returned.now, returned.link, &returned.want, &mut out);
        });
    assert!(bytes_sent(&out) > 40 * returned.changes, "the delta was sent");
}

/// A node to which a peer has just reconnected, and that peer's request.
struct Returned {
    node: Node,
    link: LinkId,
    want: Bytes,
    now: Time,
    changes: usize,
}

impl Returned {
    fn new(members: usize) -> Returned {
        let members = support::scale(members).next_multiple_of(SESSIONS);
        let changes = CHANGES.min(members);
        let mut cluster = Cluster::new(1);
        let now = cluster.now;
        let per_session = members / SESSIONS;
        let sessions = support::populate(&mut cluster.nodes[0], now, Ids::Short, members, per_session);
        cluster.add_node();
        while !cluster.agrees() {
            cluster.run_for_millis(1);
        }
        cluster.cut(0, 1);
        // The dialling side asks first; here that has to be the peer that misses something.
        cluster.cannot_dial = Some(0);
        cluster.tap = Some(Vec::new());
        let mut random = fastrand::Rng::with_seed(4);
        let change = MetadataUpdate::set("shard", "changed");
        let mut changed: Vec<usize> = (0..members).collect();
        random.shuffle(&mut changed);
        for (before, member) in changed.into_iter().take(changes).enumerate() {
            let id = support::id(Ids::Short, member);
            let (session, seq, now) = (sessions[member / per_session], before as u64 + 1, cluster.now);
            let updated = cluster.nodes[0].update(now, session, seq, &id, &change, None, &mut Output::default());
            updated.expect("the member belongs to the session");
        }
        let want = loop {
            cluster.run_for_millis(100);
            let mut tapped = cluster.tap.iter().flatten();
            if let Some(frame) = tapped.find(|frame| frame.to == 0 && frame.bytes[0] == WANT) {
                break frame.bytes.clone();
            }
        };
        let [link, _] = cluster.link_between(0, 1);
        let now = cluster.now;
        Returned { node: cluster.nodes.swap_remove(0), link, want, now, changes }
    }
}

fn bytes_sent(out: &Output) -> usize {
    let sent = out.effects.iter().map(|effect| match effect {
        Effect::Send { frame, .. } => frame.len(),
        _ => 0,
    });
    sent.sum()
}
