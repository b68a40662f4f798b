//! Clients that are killed or lose their connection.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ProcessCluster, Proxy, until};
use std::time::{Duration, Instant};
use support::plan;
use support::seen::Seen;

/// R-11 with shorter timers: `down` after 3 s of silence, `left` after 2 s more.
#[test]
fn the_member_of_a_killed_client_goes_down_and_expires() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path())
        .environment("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "3s")
        .environment("CONVOKE_TIMERS_RECONNECT_TIMEOUT", "2s");
    let cluster = plan.start(2).unwrap();
    let seen = Seen::at(&cluster, 1, "service == \"web\"");
    let mut web = support::registered(cluster.clients(0), "web-1");
    let _other = support::registered(cluster.clients(0), "web-2");
    seen.all_up(2);
    web.kill();
    let killed = Instant::now();
    seen.event("status", "web-1");
    let down = killed.elapsed();
    seen.event("unregister", "web-1");
    let left = killed.elapsed();
    println!("down {:.2} s after the kill, left {:.2} s later", down.as_secs_f64(), (left - down).as_secs_f64());
    // The last heartbeat was up to one interval (0.5 s) before the kill. Nothing may happen early; delays depend on the
    // machine.
    assert!(down > Duration::from_millis(2_400), "{down:?}");
    assert!(left - down > Duration::from_millis(1_900), "{left:?}");
    assert!(left < Duration::from_secs(20), "{left:?}");
    let other = seen.view();
    assert_eq!(other["web-2"]["status"], "up", "{other:?}");
    assert_eq!(other.len(), 1);
}

/// a lost connection has no effect, whichever node the client reconnects to.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_has_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = plan(dir.path()).start(2).unwrap();
    let seen = Seen::at(&cluster, 1, "service == \"web\"");
    // A closed connection, and one that swallows everything without an end of file.
    let closed = |proxy: &Proxy| proxy.drop_connections();
    let swallowing = |proxy: &Proxy| proxy.block(true);
    let mut clients = Vec::new();
    for (id, fault) in [("web-1", &closed as &dyn Fn(&Proxy)), ("web-2", &swallowing)] {
        let proxy = Proxy::start(cluster.clients(0)).await;
        let client = support::registered(proxy.address(), id);
        seen.event("register", id);
        assert_eq!(attaches(&cluster, id), 1);
        fault(&proxy);
        until("it has attached again", || attaches(&cluster, id) > 1);
        clients.push((client, proxy));
    }
    // Longer than the heartbeat and reconnect timeouts.
    tokio::time::sleep(Duration::from_secs(7)).await;
    seen.assert_undisturbed();
    seen.all_up(2);
}

/// Returns how often the client of a member has attached.
fn attaches(cluster: &ProcessCluster, id: &str) -> u64 {
    cluster.ask(1, &["explain", id]).unwrap()["claim"].as_u64().unwrap()
}
