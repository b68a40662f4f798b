//! Finds or creates a log for a node without one.
//!
//! If a node on the join list is a replica, this node waits to be added. If no node is, all are present and all have
//! the same list, the node with the lowest id creates a log with all of them as voters. While one is missing, no node
//! creates a log: a joining node never creates a log alone.

use super::probe;
use crate::net::message::Probed;
use crate::plane::Plane;
use crate::replica::{begin, founder};
use convoke_log::command::ReplicaLocation;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval between log lines while the node waits.
const REMIND: Duration = Duration::from_secs(10);

/// Runs until this node is a replica.
pub(crate) async fn seek(plane: Arc<Plane>) {
    let join = plane.join();
    let mut reminded = Instant::now();
    while plane.engine.load().is_none() && plane.fault().is_none() {
        let answers = join_all(join.iter().map(|address| probe(&plane, address))).await;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (address, answer) in join.iter().zip(answers) {
            match answer {
                Ok(probed) => found.push(probed),
                Err(error) => missing.push(format!("{address} ({error})")),
            }
        }
        plane.set_group_available(found.iter().any(|probed| probed.log.is_some() && probed.available));
        match judge(&plane.config.node, plane.nonce(), &plane.join(), &found) {
            Verdict::Exists(probed) => plane.learn(probed.group.clone()),
            Verdict::Begin(members) if missing.is_empty() => {
                let _becoming = plane.becoming.lock().await;
                if plane.engine.load().is_none() {
                    begin_log(&plane, members).await;
                }
            }
            Verdict::Begin(_) | Verdict::Wait => {}
            Verdict::Contradiction(what) => missing.push(what),
        }
        if !missing.is_empty() && reminded.elapsed() > REMIND {
            reminded = Instant::now();
            let missing = missing.join("; ");
            tracing::warn!(node = %plane.config.node, %missing, "waiting for founders of the log");
        }
        sleep(plane.config.timers.join_interval).await;
    }
}

async fn begin_log(plane: &Arc<Plane>, members: Vec<ReplicaLocation>) {
    let nodes: Vec<&str> = members.iter().map(|member| member.node.as_str()).collect();
    tracing::info!(node = %plane.config.node, founders = %nodes.join(","), "creating log");
    let begun = match founder(plane, members) {
        Ok(identity) => begin(plane, identity).await,
        Err(error) => Err(error),
    };
    if let Err(error) = begun {
        plane.fail(error.to_string());
    }
}

/// The result of probing the join list.
#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// A log exists; this replica has the newest knowledge of its group.
    Exists(&'a Probed),
    /// If no node is missing, this node creates a log with these founders.
    Begin(Vec<ReplicaLocation>),
    /// Another node will create the log, or this node is not on the list.
    Wait,
    /// These nodes cannot create a log together.
    Contradiction(String),
}

fn judge<'a>(node: &str, nonce: u64, join: &[smol_str::SmolStr], found: &'a [Probed]) -> Verdict<'a> {
    // Prefer the replica with the newest leader: a replica that was removed long ago knows less.
    let replicas = found.iter().filter(|probed| probed.log.is_some());
    if let Some(replica) = replicas.max_by_key(|probed| probed.group.epoch) {
        return Verdict::Exists(replica);
    }
    if !found.iter().any(|probed| probed.nonce == nonce) {
        // This node is not on its own list. A listed node may know a group.
        let knows = found.iter().filter(|probed| !probed.group.members.is_empty());
        return knows.max_by_key(|probed| probed.group.epoch).map_or(Verdict::Wait, Verdict::Exists);
    }
    let mut members = BTreeMap::new();
    for probed in found {
        if probed.join != join {
            return Verdict::Contradiction(format!(
                "node {} has another join list; start all nodes with the same one",
                probed.node
            ));
        }
        let place = ReplicaLocation { node: probed.node.clone(), address: probed.address.clone() };
        if members.insert(probed.node.clone(), place).is_some() {
            return Verdict::Contradiction(format!("node {} occurs twice in the join list", probed.node));
        }
    }
    match members.keys().next() {
        Some(lowest) if lowest == node => Verdict::Begin(members.into_values().collect()),
        _ => Verdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Group;
    use convoke_log::Epoch;
    use smol_str::SmolStr;

    fn probed(node: &str, nonce: u64, join: &[&str]) -> Probed {
        Probed {
            node: node.into(),
            address: format!("{node}:1").into(),
            nonce,
            join: join.iter().map(SmolStr::new).collect(),
            log: None,
            group: Group::default(),
            available: false,
        }
    }

    const LIST: [&str; 3] = ["a:1", "b:1", "c:1"];

    fn list() -> Vec<SmolStr> {
        LIST.iter().map(SmolStr::new).collect()
    }

    #[test]
    fn of_agreeing_nodes_the_lowest_begins_and_the_others_wait() {
        let all = [probed("b", 2, &LIST), probed("c", 3, &LIST), probed("a", 1, &LIST)];
        let Verdict::Begin(members) = judge("a", 1, &list(), &all) else { panic!("a begins") };
        assert_eq!(members.iter().map(|place| place.node.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(judge("b", 2, &list(), &all), Verdict::Wait);
    }

    #[test]
    fn a_log_that_exists_is_not_begun_again() {
        let mut all = [probed("a", 1, &LIST), probed("b", 2, &LIST), probed("c", 3, &LIST)];
        all[2].log = Some(7);
        assert_eq!(judge("a", 1, &list(), &all), Verdict::Exists(&all[2]));
        all[1].log = Some(7);
        all[1].group.epoch = Some(Epoch::new(4, 2));
        assert_eq!(judge("a", 1, &list(), &all), Verdict::Exists(&all[1]), "the newest leader's");
    }

    #[test]
    fn a_node_outside_the_list_or_with_another_list_begins_nothing() {
        let all = [probed("b", 2, &LIST), probed("c", 3, &LIST)];
        assert_eq!(judge("a", 1, &list(), &all), Verdict::Wait);
        let all = [probed("a", 1, &LIST), probed("b", 2, &["a:1"])];
        assert!(matches!(judge("a", 1, &list(), &all), Verdict::Contradiction(_)));
        let all = [probed("a", 1, &LIST), probed("a", 2, &LIST)];
        assert!(matches!(judge("a", 1, &list(), &all), Verdict::Contradiction(_)));
    }
}
