//! Applies faults to the connections and processes of a cluster.

use crate::cluster::api::Fault;
use convoke_lab::{Direction, LocalCluster, NodeError};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeSet;
use std::time::Duration;

const DELAY_MAX: Duration = Duration::from_secs(60);

/// Applies a fault. After an error nothing has changed.
pub(crate) async fn apply(cluster: &mut LocalCluster, fault: Fault) -> Result<(), Error> {
    match fault {
        Fault::Drop { nodes } => {
            let directions = both_directions(cluster, &nodes)?;
            directions.iter().for_each(|direction| cluster.network().reset(*direction));
        }
        Fault::Blackhole { nodes } if nodes.is_empty() => {
            return Err(invalid("nodes", "name one or two nodes"));
        }
        Fault::Blackhole { nodes } => {
            let directions = both_directions(cluster, &nodes)?;
            directions.iter().for_each(|direction| cluster.network().cut(*direction));
        }
        Fault::Partition { groups } => {
            let directions = across(cluster, groups)?;
            directions.iter().for_each(|direction| cluster.network().cut(*direction));
        }
        Fault::OneWay { from, to } => {
            let direction = direction(cluster, &from, &to)?;
            cluster.network().cut(direction);
        }
        Fault::Delay { ms, .. } if Duration::from_millis(ms) > DELAY_MAX => {
            let limit = u64::try_from(DELAY_MAX.as_millis()).unwrap_or(u64::MAX);
            return Err(invalid("ms", &format!("{ms} ms is too long: use at most {limit} ms")).limit(limit));
        }
        Fault::Delay { ms, nodes } => {
            let directions = both_directions(cluster, &nodes)?;
            directions.iter().for_each(|direction| cluster.network().delay(*direction, Duration::from_millis(ms)));
        }
        Fault::Heal { nodes } if nodes.is_empty() => cluster.network().heal_all(),
        Fault::Heal { nodes } => {
            let directions = both_directions(cluster, &nodes)?;
            directions.iter().for_each(|direction| cluster.network().heal(*direction));
        }
        Fault::Pause { node } => done(cluster.pause(&node), cluster, &node)?,
        Fault::Resume { node } => done(cluster.resume(&node), cluster, &node)?,
        Fault::Restart { node } => {
            let restarted = cluster.restart(&node).await;
            done(restarted, cluster, &node)?;
        }
        Fault::Kill { node } => {
            let killed = cluster.kill(&node).await;
            done(killed.map(Ok), cluster, &node)?;
        }
    }
    Ok(())
}

fn done(outcome: Option<Result<(), NodeError>>, cluster: &LocalCluster, node: &str) -> Result<(), Error> {
    match outcome {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(node_error(&error)),
        None => Err(unknown(cluster, node)),
    }
}

pub(crate) fn node_error(error: &NodeError) -> Error {
    let code = match error {
        NodeError::NotRunning { .. } | NodeError::Running { .. } => ErrorCode::FailedPrecondition,
        NodeError::Spawn { .. } | NodeError::Ended { .. } | NodeError::Slow { .. } | NodeError::Signal { .. } => {
            ErrorCode::Internal
        }
    };
    Error::new(code, error.to_string())
}

pub(crate) fn unknown(cluster: &LocalCluster, node: &str) -> Error {
    let ids: Vec<&str> = cluster.nodes().iter().map(convoke_lab::LocalNode::id).collect();
    let message = format!("cluster {} has no node {node:?}: there are {}", cluster.name(), ids.join(", "));
    Error::new(ErrorCode::NotFound, message).field("node")
}

fn invalid(field: &str, message: &str) -> Error {
    Error::new(ErrorCode::InvalidArgument, message).field(field)
}

fn direction(cluster: &LocalCluster, from: &str, to: &str) -> Result<Direction, Error> {
    if let Some(missing) = [from, to].into_iter().find(|id| cluster.node(id).is_none()) {
        return Err(unknown(cluster, missing));
    }
    if from == to {
        return Err(invalid("to", &format!("{from} cannot be cut from itself: name two nodes")));
    }
    cluster.direction(from, to).ok_or_else(|| unknown(cluster, from))
}

/// Both directions between all nodes, between one and all others, or between two.
fn both_directions(cluster: &LocalCluster, nodes: &[String]) -> Result<Vec<Direction>, Error> {
    let ids = || cluster.nodes().iter().map(convoke_lab::LocalNode::id);
    let pairs: Vec<(String, String)> = match nodes {
        [] => ids().flat_map(|a| ids().filter(move |b| a < *b).map(move |b| (a.to_owned(), b.to_owned()))).collect(),
        [one] if cluster.node(one).is_none() => return Err(unknown(cluster, one)),
        [one] => ids().filter(|id| id != one).map(|id| (one.clone(), id.to_owned())).collect(),
        [a, b] => vec![(a.clone(), b.clone())],
        _ => return Err(invalid("nodes", "name at most two nodes")),
    };
    let mut directions = Vec::new();
    for (a, b) in pairs {
        let direction = direction(cluster, &a, &b)?;
        directions.extend([direction, direction.back()]);
    }
    Ok(directions)
}

/// Both directions between groups. Nodes that are not named form the last group.
fn across(cluster: &LocalCluster, mut groups: Vec<Vec<String>>) -> Result<Vec<Direction>, Error> {
    let mut named = BTreeSet::new();
    for id in groups.iter().flatten() {
        if cluster.node(id).is_none() {
            return Err(unknown(cluster, id));
        }
        if !named.insert(id.clone()) {
            return Err(invalid("groups", &format!("{id} is in two groups: name each node once")));
        }
    }
    let rest = cluster.nodes().iter().map(|node| node.id().to_owned()).filter(|id| !named.contains(id));
    groups.push(rest.collect());
    groups.retain(|group| !group.is_empty());
    if groups.len() < 2 {
        return Err(invalid("groups", "all nodes are in one group: name fewer nodes or several groups"));
    }
    let mut directions = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        for (a, b) in groups[index + 1..].iter().flatten().flat_map(|b| group.iter().map(move |a| (a, b))) {
            let direction = direction(cluster, a, b)?;
            directions.extend([direction, direction.back()]);
        }
    }
    Ok(directions)
}
