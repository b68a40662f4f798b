//! Watch streams (W1–W5).

use crate::cluster::{Cluster, attach};
use convoke_core::Output;
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{Resume, StreamEvent, WatchSelection};

/// A filter that matches almost nothing: the walk pauses, reports that there is more, and completes in the end.
#[test]
fn a_walk_over_non_matching_members_pauses() {
    let mut cluster = Cluster::settled(&["a"]);
    let ids: Vec<String> = (0..10_000).map(|i| format!("m{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    cluster.attach(0, 1, &attach("c", 1, &ids)).unwrap();
    let selection = WatchSelection::new(Space::Member, Filter::parse("id == 'm9999'").unwrap());
    cluster.call(0, |node, now, _| {
        let mut out = Output::default();
        let watcher = node.watch(now, selection, Resume::Fresh, &mut out).unwrap();
        let (mut events, mut pauses) = (Vec::new(), 0);
        while node.take(now, watcher, 100, &mut events) {
            pauses += 1;
        }
        assert_eq!(pauses, 2);
        assert!(matches!(&events[..], [StreamEvent::Snapshot(m), StreamEvent::CaughtUp, StreamEvent::Mark(_)] if m.id() == "m9999"));
    });
}
