//! Acknowledged registrations, heartbeats and reads through the handle of one node in this process, with the CPU time
//! of each operation.
//!
//! `cargo bench -p convoke-node --bench throughput`

#![allow(clippy::unwrap_used, reason = "in a bench a panic is the message")]

mod support;

use convoke_node::{ClientOperation, Config, Delivery, Node, OperationResult};
use std::sync::Arc;
use std::time::Instant;
use support::{attach, cpu, member, scale};

/// Concurrent clients.
const CLIENTS: usize = 100;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    println!("{:<58} {:>12} {:>12}", "", "per second", "CPU each");
    for batch in [1, 10, 100] {
        registrations(batch).await;
    }
    for (what, answered) in [("heartbeats without an answer", false), ("heartbeats with an answer", true)] {
        heartbeats(what, answered).await;
    }
    reads().await;
}

fn report(what: &str, count: usize, began: Instant, cpu_before: std::time::Duration) {
    let seconds = began.elapsed().as_secs_f64();
    let used = (cpu() - cpu_before).as_secs_f64() / count as f64 * 1e6;
    println!("{what:<58} {:>12.0} {used:>9.2} µs", count as f64 / seconds);
}

/// Each client registers a member, waits for the answer and registers the next one.
async fn registrations(batch: usize) {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let rounds = scale(400_000) / CLIENTS / batch;
    let mut tasks = Vec::new();
    let (began, used) = (Instant::now(), cpu());
    for client in 0..CLIENTS {
        let mut connection = node.connect().unwrap();
        tasks.push(tokio::spawn(async move {
            let session = connection.attach(attach(client, 0)).await.unwrap().session;
            for round in 0..rounds {
                let operations = (0..batch).map(|i| {
                    let seq = (round * batch + i + 1) as u64;
                    let member = Arc::new(member((client * rounds + round) * batch + i));
                    ClientOperation::Register { session, seq, member }
                });
                connection.submit(operations.collect()).unwrap();
                let Some(Delivery::Answers(answers)) = connection.next().await else { panic!("no answers") };
                assert!(answers.iter().all(|answer| matches!(answer, OperationResult::Written(Ok(_)))), "{answers:?}");
            }
            connection
        }));
    }
    let mut connections = Vec::new();
    for task in tasks {
        connections.push(task.await.unwrap());
    }
    let what = format!("registrations, {CLIENTS} clients, {batch} at a time, acknowledged");
    report(&what, CLIENTS * rounds * batch, began, used);
    node.stop().await;
}

async fn heartbeats(what: &str, answered: bool) {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let rounds = scale(1_000_000) / CLIENTS;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let connection = node.connect().unwrap();
        let session = connection.attach(attach(client, 1)).await.unwrap().session;
        clients.push((connection, session));
    }
    let (began, used) = (Instant::now(), cpu());
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|(mut connection, session)| {
            tokio::spawn(async move {
                for _ in 0..rounds {
                    if answered {
                        connection.submit(vec![ClientOperation::Heartbeat { session }]).unwrap();
                        assert!(matches!(connection.next().await, Some(Delivery::Answers(_))));
                    } else if connection.heartbeat(session).is_err() {
                        // The node's queue is full: let other tasks run.
                        tokio::task::yield_now().await;
                        connection.heartbeat(session).unwrap_or_default();
                    }
                }
                connection
            })
        })
        .collect();
    let mut connections = Vec::new();
    for task in tasks {
        connections.push(task.await.unwrap());
    }
    let taken = node.counters().await.unwrap().registry.heartbeats as usize;
    report(what, taken, began, used);
    drop(connections);
    node.stop().await;
}

/// Lookups while another task registers.
async fn reads() {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let members = scale(1_000_000);
    let connection = node.connect().unwrap();
    for session in 0..members / 100 {
        connection.attach(attach(session, 100)).await.unwrap();
    }
    let rounds = scale(2_000_000);
    let ids: Vec<String> = (0..members).map(|index| member(index).spec.id).collect();
    let (began, used) = (Instant::now(), cpu());
    let (mut found, mut index) = (0, 0);
    for _ in 0..rounds {
        index = (index + 7_919) % members;
        found += usize::from(node.member(&ids[index]).is_some());
    }
    assert_eq!(found, rounds);
    report(&format!("lookups by id among {members}, one reader"), rounds, began, used);
    let filter = convoke_core::filter::Filter::service("service-0007");
    let (began, used) = (Instant::now(), cpu());
    let pages = scale(2_000);
    for _ in 0..pages {
        assert!(!node.members(&filter, None, 100).unwrap().members.is_empty());
    }
    report("pages of 100 members of one service", pages, began, used);
    let (began, used) = (Instant::now(), cpu());
    for _ in 0..pages {
        assert!(node.services().len() > 10);
    }
    report("counts of 1,000 services", pages, began, used);
}
