//! Routing a change to 10,000 watchers: the writer's turn, and the cost for each watcher to take the event.

mod support;

use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space};
use convoke_core::node::{Resume, SessionId, WatchSelection, WatcherId};
use convoke_core::{Node, Output};
use divan::Bencher;
use divan::counter::ItemsCount;
use mimalloc::MiMalloc;
use std::cell::RefCell;
use support::{Ids, NOW, SERVICES};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const SUBSCRIBERS: usize = 10_000;
const MEMBERS: usize = 10_000;

fn main() {
    divan::main();
}

/// Every watcher watches the service that changes: one change, 10,000 events.
#[divan::bench(sample_count = 100, sample_size = 1)]
fn all_on_one_service(bencher: Bencher<'_, '_>) {
    one_change(bencher, |_| support::service(0), |watchers| watchers);
}

/// Ten on each of 1,000 services: one change, 10 events. The other 9,990 must not cost anything.
#[divan::bench(sample_count = 100, sample_size = 100)]
fn ten_on_each_service(bencher: Bencher<'_, '_>) {
    one_change(bencher, support::service, |watchers| watchers.div_ceil(SERVICES));
}

/// Each watches a service of its own, only one of which changes: one change, one event.
#[divan::bench(sample_count = 100, sample_size = 100)]
fn each_on_its_own_service(bencher: Bencher<'_, '_>) {
    let own = |index| if index == 0 { support::service(0) } else { format!("other-{index}") };
    one_change(bencher, own, |_| 1);
}

fn one_change(bencher: Bencher<'_, '_>, service: impl Fn(usize) -> String, audience: impl Fn(usize) -> usize) {
    let filter = |index| Filter::parse(&format!("service == \"{}\"", service(index))).expect("a valid filter");
    measure(bencher, filter, audience);
}

/// Filters that no index helps with: each is evaluated before and after, and one in 100 matches.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn all_on_any_service_by_metadata(bencher: Bencher<'_, '_>) {
    let filter = |index: usize| {
        let text = format!("meta.shard == \"{:04}\" and locality matches \"eu-*\"", index % 100);
        Filter::parse(&text).expect("a valid filter")
    };
    measure(bencher, filter, |watchers| watchers.div_ceil(100));
}

/// Updates member 0, which is of service 0 and shard 0, once per iteration.
fn measure(bencher: Bencher<'_, '_>, filter: impl Fn(usize) -> Filter, audience: impl Fn(usize) -> usize) {
    let stage = RefCell::new(Stage::new(filter));
    let count = stage.borrow().watchers.len();
    bencher
        .counter(ItemsCount::new(audience(count)))
        .with_inputs(|| stage.borrow_mut().empty_queues())
        .bench_local_values(|()| stage.borrow_mut().change());
    let stage = stage.into_inner();
    assert_eq!(stage.node.counters().watcher_events, stage.changes * audience(count) as u64);
    assert_eq!(stage.node.counters().watcher_resets, 0);
}

/// One event taken by each of 10,000 watchers, one call each.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn take(bencher: Bencher<'_, '_>) {
    let filter = |_| Filter::parse("service == \"service-0000\"").expect("a valid filter");
    let stage = RefCell::new(Stage::new(filter));
    let count = stage.borrow().watchers.len();
    bencher
        .counter(ItemsCount::new(count))
        .with_inputs(|| stage.borrow_mut().change())
        .bench_local_values(|()| stage.borrow_mut().empty_queues());
}

struct Stage {
    node: Node,
    session: SessionId,
    watchers: Vec<WatcherId>,
    changes: u64,
    out: Output,
}

impl Stage {
    /// A node with members, and watchers that have taken their snapshots.
    fn new(filter: impl Fn(usize) -> Filter) -> Stage {
        let mut node = support::lone_node();
        let members = support::scale(MEMBERS).next_multiple_of(10);
        let sessions = support::populate(&mut node, NOW, Ids::Short, members, 10);
        let mut out = Output::default();
        let watchers = (0..support::scale(SUBSCRIBERS))
            .map(|index| {
                let selection = WatchSelection::new(Space::Member, filter(index));
                node.watch(NOW, selection, Resume::Fresh, &mut out).expect("there is room for watchers")
            })
            .collect();
        let mut stage = Stage { node, session: sessions[0], watchers, changes: 0, out };
        stage.empty_queues();
        stage
    }

    fn empty_queues(&mut self) {
        let mut events = Vec::new();
        for watcher in &self.watchers {
            while self.node.take(NOW, *watcher, 1_000, &mut events) {}
            events.clear();
        }
    }

    fn change(&mut self) {
        self.out.effects.clear();
        self.changes += 1;
        let change = MetadataUpdate::set("version", format!("1.5.{}", self.changes));
        let id = support::id(Ids::Short, 0);
        let changed = self.node.update(NOW, self.session, self.changes, &id, &change, None, &mut self.out);
        changed.expect("the member belongs to the session");
    }
}
