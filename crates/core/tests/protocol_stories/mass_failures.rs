//! The guard against mass failures (L6, R-14).

use crate::cluster::{Cluster, attach};
use convoke_core::member::Status;
use convoke_core::node::{DegradedReason, RegistryEvent, SessionId};
use std::time::Duration;

const A: usize = 0;
const CLIENTS: u64 = 20;
const SILENT: u64 = 8;

/// Twenty clients at one node, of which eight fall silent. Returns how many of their members are down after some
/// seconds, and whether the node was degraded.
fn eight_of_twenty_silent(mass_failure_share: f64, seconds: u64) -> (usize, bool) {
    let mut cluster = Cluster::new(&["a"]);
    cluster.config(A).mass_failure_share = mass_failure_share;
    cluster.start(A);
    cluster.run(Duration::from_secs(5));
    let sessions: Vec<SessionId> = (0..CLIENTS)
        .map(|client| {
            let id = format!("orders-{client}");
            cluster.attach(A, client, &attach(&format!("client-{client}"), 1, &[&id])).unwrap().session
        })
        .collect();
    for _ in 0..seconds {
        cluster.run(Duration::from_secs(1));
        for session in &sessions[SILENT as usize..] {
            cluster.call(A, |node, now, out| node.heartbeat(now, *session, out)).unwrap();
        }
    }
    let down = (0..CLIENTS).filter(|client| cluster.member(A, &format!("orders-{client}")).status() == Status::Down);
    let degraded =
        |event: &RegistryEvent| matches!(event, RegistryEvent::Degraded { reason: DegradedReason::Sessions, .. });
    (down.count(), cluster.events(A).any(degraded))
}

#[test]
fn the_configured_share_decides_what_a_mass_failure_is() {
    assert_eq!(eight_of_twenty_silent(0.5, 22), (8, false), "less than half: down after the timeout");
    assert_eq!(eight_of_twenty_silent(0.3, 22), (0, true), "more than the share: it waits");
    assert_eq!(eight_of_twenty_silent(0.3, 39), (0, true), "for one further timeout");
    assert_eq!(eight_of_twenty_silent(0.3, 43), (8, true), "and then goes ahead");
}
