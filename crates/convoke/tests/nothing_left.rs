//! Whatever interrupts a demo or the creation of a cluster, at whatever moment, nothing stays behind.
//!
//! A few runs each; all fifty: `CONVOKE_TEST_INTERRUPTS=50 cargo test -p convoke --test nothing_left`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use std::time::Duration;
use support::lab::World;

/// How many runs, spread over how long these commands take to come up.
fn moments(span: Duration) -> impl Iterator<Item = Duration> {
    let runs = std::env::var("CONVOKE_TEST_INTERRUPTS").ok().and_then(|runs| runs.parse::<u32>().ok()).unwrap_or(4);
    // The golden ratio spreads them evenly however many there are, without repeating any.
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
        // In its first milliseconds, before it listens for signals, it just ends.
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
            // It was complete: then it is there, and wanted.
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
        // The manager notices by itself, unless all was complete.
        convoke_testkit::until("nothing is being created", || {
            let list = world.run(&["list", "--json"]);
            if String::from_utf8_lossy(&list.stdout).contains("local") {
                world.json(&["delete"]);
            }
            std::net::TcpStream::connect(format!("127.0.0.1:{}", world.port)).is_err()
        });
        world.json(&["list"]);
        world.nothing_left();
    }
}

#[test]
fn a_killed_demo_takes_its_nodes_along_and_the_next_one_cleans_up() {
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
