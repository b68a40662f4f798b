//! A watcher process and the events that it has received.

use convoke_testkit::{Process, ProcessCluster, until};
use serde_json::Value;
use std::collections::BTreeMap;

/// A running `convoke watch --json`.
#[derive(Debug)]
pub struct Seen {
    pub process: Process,
}

impl Seen {
    /// Starts a watch at one node and waits until it has caught up. The client learns the other nodes from the
    /// registry.
    pub fn at(cluster: &ProcessCluster, index: usize, filter: &str) -> Seen {
        Seen::with_seeds(cluster, index, filter, cluster.clients(index))
    }

    /// Starts a watch on the host of a node, with these client addresses, and waits until it has caught up.
    pub fn with_seeds(cluster: &ProcessCluster, index: usize, filter: &str, seeds: &str) -> Seen {
        let mut command = cluster.command(index, ["watch", filter, "--json", "--timeout", "30s", "--addr"]);
        let process = Process::spawn(command.arg(seeds));
        process.line("caught-up", |line| line.contains("caught-up"));
        Seen { process }
    }

    pub fn events(&self) -> Vec<Value> {
        self.process.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for an event of this kind and member.
    #[track_caller]
    pub fn event(&self, kind: &str, id: &str) {
        self.process.line(&format!("{kind} {id}"), |line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["event"] == kind && id_of(&event) == id
        });
    }

    /// Waits until the events add up to this many members, all up.
    #[track_caller]
    pub fn all_up(&self, count: usize) {
        until(&format!("{count} members up"), || {
            let view = self.view();
            view.len() == count && view.values().all(|member| member["status"] == "up")
        });
    }

    /// Returns the members that the events add up to, by id.
    pub fn view(&self) -> BTreeMap<String, Value> {
        let mut view = BTreeMap::new();
        for event in self.events() {
            match event["event"].as_str().unwrap() {
                "caught-up" => {}
                "reset" => view.clear(),
                "unregister" => drop(view.remove(id_of(&event))),
                _ => drop(view.insert(id_of(&event).to_owned(), event["member"].clone())),
            }
        }
        view
    }

    /// Checks that no member was ever shown as down or unregistered and that the watch was never reset.
    #[track_caller]
    pub fn assert_undisturbed(&self) {
        for event in self.events() {
            let down = event["member"]["status"] == "down";
            assert!(!down && event["event"] != "unregister" && event["event"] != "reset", "{event}");
        }
    }
}

fn id_of(event: &Value) -> &str {
    event["id"].as_str().or_else(|| event["member"]["id"].as_str()).unwrap_or_default()
}
