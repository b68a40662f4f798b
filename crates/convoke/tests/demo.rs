//! `convoke demo`: reports what happens to real nodes and leaves nothing behind (docs/demo-and-clusters.md).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use serde_json::Value;
use support::lab::World;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(line: &str, event: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|line| line["event"] == event)
}

#[test]
fn a_partition_and_a_crash_are_reported() {
    let world = World::new();
    let mut demo = world.spawn(&mut world.command(&["demo", "--json", "--speed", "3", "--seed", "7"]));
    let started: Value = serde_json::from_str(&demo.line("started", |line| of(line, "started"))).unwrap();
    let nodes: Vec<&str> = started["nodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap()).collect();
    assert_eq!(nodes.len(), 3);
    assert!(started["members"].as_u64().unwrap() >= 23, "{started}");
    assert!(support::lab::answers(nodes[0]), "the nodes are real");
    let healed: Value = serde_json::from_str(&demo.line("healed", |line| of(line, "healed"))).unwrap();
    assert_eq!(healed["noticed"], true, "{healed}");
    assert_eq!((&healed["linked"], &healed["same"]), (&true.into(), &true.into()), "{healed}");
    assert_eq!(healed["kept"], healed["of"], "{healed}");
    let back: Value = serde_json::from_str(&demo.line("back", |line| of(line, "back"))).unwrap();
    assert_eq!(back["same"], true, "{back}");
    demo.interrupt();
    assert!(demo.wait().success(), "{}", demo.stderr());
    let events = lines(&demo.stdout());
    let ended = events.last().unwrap();
    assert_eq!(ended["event"], "ended");
    let flaps: Vec<&Value> = events.iter().filter(|line| line["event"] == "flap").collect();
    assert_eq!(ended["flaps"].as_u64(), Some(flaps.len() as u64), "every flap has a line with its member: {flaps:?}");
    assert!(flaps.iter().all(|flap| flap["member"].is_string() && flap["at"].is_string()), "{flaps:?}");
    assert!(events.iter().any(|line| line["event"] == "moved" && line["complete"] == true));
    let log = events.iter().find(|line| line["event"] == "log").expect("the log works after the crash");
    assert_eq!(log["lost"], 0, "{log}");
    assert!(log["leader"].is_string() && log["leader"] != back["node"], "a dead node does not lead: {log}");
    assert!(ended["entries"].as_u64().unwrap() >= 1 && ended["lost"] == 0, "{ended}");
    drop(demo);
    world.nothing_left();
    for node in nodes {
        assert!(std::net::TcpStream::connect(node).is_err(), "{node} is still there");
    }
}

#[test]
fn the_same_seed_does_the_same_in_the_same_order() {
    let play = || {
        let world = World::new();
        let mut demo = world.spawn(&mut world.command(&["demo", "--json", "--speed", "10", "--seed", "3"]));
        demo.line("the first fault", |line| of(line, "partition"));
        demo.terminate();
        assert!(demo.wait().success(), "{}", demo.stderr());
        let events = lines(&demo.stdout());
        let done = events
            .iter()
            .filter(|line| ["join", "leave", "update", "move", "partition"].iter().any(|e| line["event"] == *e));
        let done: Vec<_> =
            done.map(|line| (line["event"].clone(), line["member"].clone(), line["at"].clone())).collect();
        world.nothing_left();
        done
    };
    let first = play();
    assert!(first.len() >= 4, "{first:?}");
    assert_eq!(first, play());
}

#[test]
fn quiet_output_is_text_and_a_closed_pipe_ends_the_demo() {
    let world = World::new();
    let mut demo = world.spawn(&mut world.command(&["demo", "--quiet", "--speed", "10", "--seed", "3"]));
    demo.line("the dashboard", |line| line.contains("/ui/"));
    demo.line("unreachable", |line| line.contains(" reports "));
    demo.interrupt();
    assert!(demo.wait().success());
    assert!(!demo.stdout().contains("joined at"), "{}", demo.stdout());
    drop(demo);
    world.nothing_left();
    let mut piped = world.command(&["demo", "--speed", "10"]);
    let mut piped = piped.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(piped.stdout.take());
    assert!(piped.wait().unwrap().success());
    world.nothing_left();
}

#[test]
fn invalid_arguments_are_rejected() {
    let world = World::new();
    for arguments in [["demo", "--speed", "0"], ["demo", "--speed", "100"], ["demo", "--seed", "x"]] {
        let output = world.command(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
