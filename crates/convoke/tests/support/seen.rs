//! What somebody who watches has seen, through the binary itself.

use convoke_testkit::{Process, ProcessCluster, until};
use serde_json::Value;
use std::collections::BTreeMap;

/// A running `convoke watch --json`.
#[derive(Debug)]
pub struct Seen {
    pub process: Process,
}

impl Seen {
    /// A watch at one node that has caught up; it knows of the others by itself.
    pub fn at(cluster: &ProcessCluster, index: usize, filter: &str) -> Seen {
        let mut command = cluster.command(index, ["watch", filter, "--json", "--timeout", "30s", "--addr"]);
        let process = Process::spawn(command.arg(cluster.clients(index)));
        process.line("caught-up", |line| line.contains("caught-up"));
        Seen { process }
    }

    pub fn events(&self) -> Vec<Value> {
        self.process.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for an event of this kind about this member.
    #[track_caller]
    pub fn event(&self, kind: &str, id: &str) {
        self.process.line(&format!("{kind} {id}"), |line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["event"] == kind && id_of(&event) == id
        });
    }

    /// Waits until somebody who starts with nothing and follows these events holds so many members, all up.
    #[track_caller]
    pub fn all_up(&self, count: usize) {
        until(&format!("{count} members up"), || {
            let view = self.view();
            view.len() == count && view.values().all(|member| member["status"] == "up")
        });
    }

    /// What such a follower holds: id → member.
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

    /// No member was ever shown as down, or gone, and the story was never interrupted.
    #[track_caller]
    pub fn nothing_bad(&self) {
        for event in self.events() {
            let down = event["member"]["status"] == "down";
            assert!(!down && event["event"] != "unregister" && event["event"] != "reset", "{event}");
        }
    }
}

fn id_of(event: &Value) -> &str {
    event["id"].as_str().or_else(|| event["member"]["id"].as_str()).unwrap_or_default()
}
