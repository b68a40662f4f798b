//! A demo or the creation of a cluster leaves nothing behind, at whichever moment it is interrupted.
//!
//! By default each test has a few interruptions.
//! `CONVOKE_TEST_INTERRUPTS=50 cargo test -p convoke --test nothing_left` runs fifty.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
#![allow(clippy::disallowed_methods, reason = "the tests interrupt at given moments")]

mod support;

use std::time::Duration;
use support::lab::World;

/// Returns the moments of the interruptions, spread over the start of these commands.
fn moments(span: Duration) -> impl Iterator<Item = Duration> {
    let runs = std::env::var("CONVOKE_TEST_INTERRUPTS").ok().and_then(|runs| runs.parse::<u32>().ok()).unwrap_or(4);
    // Multiples of the golden ratio are spread evenly for any number of runs, without repetition.
    (0..runs).map(move |run| span.mul_f64((f64::from(run) * 0.618_034 + 0.05).fract()))
}

#[test]
fn an_interrupted_demo() {
    for moment in moments(Duration::from_secs(6)) {
        let world = World::new();
        let mut demo = world.spawn(&mut world.command(&["demo", "--speed", "10"]));
        std::thread::sleep(moment);
        demo.interrupt();
        let status = demo.wait();
        // In its first milliseconds, before it handles signals, the demo ends with the default action.
        assert!(status.success() || status.code().is_none(), "after {moment:?}: {status}: {}", demo.stderr());
        drop(demo);
        world.nothing_left();
    }
}

#[test]
fn an_interrupted_creation() {
    for moment in moments(Duration::from_secs(3)) {
        let world = World::new();
        let mut create = world.spawn(&mut world.cluster(&["create", "--nodes", "3"]));
        std::thread::sleep(moment);
        create.interrupt();
        let status = create.wait();
        if status.success() {
            // The creation was complete: the cluster exists and is deleted here.
            world.json(&["delete"]);
        } else {
            assert!(status.code().is_none_or(|code| code == 1), "after {moment:?}: {status}: {}", create.stderr());
        }
        drop(create);
        world.nothing_left();
    }
}

#[test]
fn a_creation_whose_command_is_killed() {
    for moment in moments(Duration::from_secs(2)) {
        let world = World::new();
        let mut create = world.spawn(&mut world.cluster(&["create", "--nodes", "3"]));
        std::thread::sleep(moment);
        create.kill();
        drop(create);
        // The manager detects it, unless the creation was complete.
        convoke_testkit::until("nothing is being created", || {
            let list = world.run(&["list", "--json"]);
            if String::from_utf8_lossy(&list.stdout).contains("local") {
                // The manager may end at this moment.
                world.run(&["delete"]);
            }
            std::net::TcpStream::connect(format!("127.0.0.1:{}", world.port)).is_err()
        });
        world.json(&["list"]);
        world.nothing_left();
    }
}

#[test]
fn a_killed_demo_ends_its_nodes_and_the_next_one_cleans_up() {
    let world = World::new();
    let mut demo = world.spawn(&mut world.command(&["demo", "--speed", "10"]));
    demo.line("started", |line| line.contains("registered"));
    demo.kill();
    drop(demo);
    let mut next = world.spawn(&mut world.command(&["demo", "--speed", "10"]));
    next.line("started", |line| line.contains("registered"));
    next.interrupt();
    assert!(next.wait().success());
    drop(next);
    world.nothing_left();
}
