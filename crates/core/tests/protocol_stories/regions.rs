//! Traffic between regions (P9, R-32).

use crate::cluster::{Cluster, attach};
use convoke_core::member::MetadataUpdate;
use convoke_core::node::SessionId;
use std::time::Duration;

const CHANGES: u64 = 40;

/// Two regions of so many nodes. Returns the bytes that crossed between them within 40 s: without changes, and with one
/// change per second in the first region.
fn bytes_between_regions(nodes_per_region: usize) -> (u64, u64) {
    let names: Vec<String> = (0..2 * nodes_per_region).map(|at| format!("n{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let region = |at: usize| if at < nodes_per_region { "east" } else { "west" };
    let mut cluster = Cluster::new(&names);
    for at in 0..names.len() {
        cluster.config(at).region = region(at).to_owned();
        cluster.start(at);
        cluster.run(Duration::from_secs(1));
    }
    let session = cluster.attach(0, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
    cluster.run(Duration::from_secs(60));
    let seconds = |cluster: &mut Cluster, changes: bool| {
        let before = crossed(cluster, region);
        for seq in 1..=CHANGES {
            if changes {
                update(cluster, session, seq);
            }
            cluster.run(Duration::from_secs(1));
            cluster.call(0, |node, now, out| node.heartbeat(now, session, out)).unwrap();
        }
        crossed(cluster, region) - before
    };
    let (quiet, busy) = (seconds(&mut cluster, false), seconds(&mut cluster, true));
    let value = CHANGES.to_string();
    for at in 0..names.len() {
        assert_eq!(cluster.member(at, "orders-1").metadata().get("k"), Some(value.as_str()), "at {at}");
    }
    (quiet, busy)
}

fn crossed(cluster: &Cluster, region: impl Fn(usize) -> &'static str) -> u64 {
    cluster.sent_bytes.iter().filter(|((from, to), _)| region(*from) != region(*to)).map(|(_, bytes)| bytes).sum()
}

fn update(cluster: &mut Cluster, session: SessionId, seq: u64) {
    let update = MetadataUpdate::set("k", seq.to_string());
    cluster.call(0, |node, now, out| node.update(now, session, seq, "orders-1", &update, None, out)).unwrap();
}

/// Three times as many nodes per region are nine times as many pairs.
#[test]
fn the_traffic_of_changes_between_regions_does_not_grow_with_the_pairs_of_nodes() {
    let changes = |nodes: usize| {
        let (quiet, busy) = bytes_between_regions(nodes);
        assert!(busy > quiet, "changes cross: {quiet} and {busy} bytes");
        busy - quiet
    };
    let (few, many) = (changes(3), changes(9));
    assert!(many <= 2 * few, "{few} bytes for {CHANGES} changes with 3 nodes per region, {many} with 9");
}
