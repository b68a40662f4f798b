//! Resident memory of 1,000,000 small members, each shape in a process of its own.
//!
//! `cargo bench -p convoke-core --bench memory` prints the table; the target is 400 MB with 100 members per session.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a benchmark measures the core from outside"
)]

mod support;

use bytes::Bytes;
use convoke_core::Node;
use mimalloc::MiMalloc;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use support::{Ids, NOW, PER_SESSION};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const MEMBERS: usize = 1_000_000;
const SHAPES: [(&str, &str); 5] = [
    ("local-100", "own clients, 100 members per session"),
    ("local-1", "own clients, 1 member per session"),
    ("local-uuid", "own clients, 100 members per session, ids of 36 bytes"),
    ("peer-100", "clients of a peer, 100 members per session"),
    ("peer-1", "clients of a peer, 1 member per session"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let members = support::scale(MEMBERS).next_multiple_of(PER_SESSION);
    if let Some(at) = arguments.iter().position(|argument| argument == "--shape") {
        measure(&arguments[at + 1], members);
        return;
    }
    println!("{members} members                                            before     after      peak   per member");
    for (shape, meaning) in SHAPES {
        run(shape, meaning, members);
    }
}

/// Runs this program again, for one shape.
fn run(shape: &str, meaning: &str, members: usize) {
    let program = std::env::current_exe().expect("this program has a path");
    let bench = std::env::args().filter(|argument| argument == "--bench");
    let mut child = Command::new(program)
        .args(bench)
        .args(["--shape", shape])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started");
    let mut input = child.stdin.take().expect("stdin is a pipe");
    // The peer that sends the members runs here, so that only the receiving node is measured.
    let frames = match shape {
        "peer-100" => support::recorded_join(members, PER_SESSION),
        "peer-1" => support::recorded_join(members, 1),
        _ => Vec::new(),
    };
    for frame in frames {
        input.write_all(&(frame.len() as u32).to_le_bytes()).expect("the child reads");
        input.write_all(&frame).expect("the child reads");
    }
    drop(input);
    let output = child.wait_with_output().expect("the child exits");
    assert!(output.status.success(), "shape {shape} failed");
    print!("{meaning:<55} {}", String::from_utf8_lossy(&output.stdout));
}

fn measure(shape: &str, members: usize) {
    let before = kilobytes("VmRSS:");
    let node = match shape {
        "local-100" => local(Ids::Short, members, PER_SESSION),
        "local-1" => local(Ids::Short, members, 1),
        "local-uuid" => local(Ids::Uuid, members, PER_SESSION),
        "peer-100" | "peer-1" => joined_node(),
        other => panic!("no shape {other}"),
    };
    let (after, peak) = (kilobytes("VmRSS:"), kilobytes("VmHWM:"));
    assert!(node.sizes().members > members, "{:?}", node.sizes());
    let per_member = (after - before) * 1024 / members as u64;
    println!("{:>4} MB {:>6} MB {:>6} MB {per_member:>6} bytes", before >> 10, after >> 10, peak >> 10);
}

fn local(ids: Ids, members: usize, per_session: usize) -> Node {
    let mut node = support::lone_node();
    support::populate(&mut node, NOW, ids, members, per_session);
    node
}

fn joined_node() -> Node {
    let (mut node, link) = support::joining_node();
    let mut input = std::io::stdin().lock();
    let mut length = [0; 4];
    while input.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut frame).expect("a whole frame");
        support::receive_all(&mut node, NOW, link, [&Bytes::from(frame)]);
    }
    node
}

/// A line of `/proc/self/status`.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel reports the size of a process");
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse().ok()).expect("a number of kB")
}
