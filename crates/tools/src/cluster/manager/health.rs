//! Checks that all nodes of a cluster agree.

use crate::cluster::api::{Health, NodeInfo};
use convoke_cli::NodeChannel;
use convoke_proto::v1::{ListRequest, NodeState, NodesRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest number of differences in an answer.
const DIFFERENCES_MAX: usize = 20;

/// The members and nodes that one node reports.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) node: String,
    /// By id: version and status.
    pub(crate) members: BTreeMap<String, String>,
    pub(crate) sees: BTreeMap<String, NodeState>,
}

/// Queries all running nodes and compares the answers.
pub(crate) async fn examine(nodes: &[NodeInfo]) -> Health {
    let (mut views, mut problems) = (Vec::new(), Vec::new());
    for node in nodes {
        if node.state != "running" {
            problems.push(format!("{} is {}", node.id, node.state));
            continue;
        }
        match ask(node).await {
            Ok(view) => views.push(view),
            Err(why) => problems.push(format!("{} does not answer: {why}", node.id)),
        }
    }
    compare(&views, &nodes.iter().map(|node| node.id.clone()).collect(), problems)
}

async fn ask(node: &NodeInfo) -> Result<View, String> {
    let to = NodeChannel::lazy(&node.address, ASK_TIMEOUT, None, None).map_err(|error| error.message)?;
    let message_of = |status: tonic::Status| status.message().to_owned();
    let nodes = to.clone().admin().nodes(NodesRequest {}).await.map_err(message_of)?.into_inner().nodes;
    let sees = nodes.into_iter().filter(|seen| !seen.self_).map(|seen| (seen.id.clone(), seen.state())).collect();
    let (mut members, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let request = ListRequest { filter: String::new(), limit: 0, cursor, partial: false };
        let page = to.clone().registry().list(request).await.map_err(message_of)?.into_inner();
        members.extend(page.members.into_iter().map(|member| {
            let status = convoke_client::Status::from(member.status());
            (member.id, format!("{} {status}", member.version))
        }));
        if page.next_cursor.is_empty() {
            return Ok(View { node: node.id.clone(), members, sees });
        }
        cursor = page.next_cursor;
    }
}

pub(crate) fn compare(views: &[View], nodes: &BTreeSet<String>, mut problems: Vec<String>) -> Health {
    for view in views {
        for other in nodes.iter().filter(|other| **other != view.node) {
            match view.sees.get(other) {
                Some(NodeState::Up | NodeState::Distant) => {}
                Some(state) => {
                    let state = state.as_str_name().trim_start_matches("NODE_STATE_").to_lowercase();
                    problems.push(format!("{} sees {other} as {state}", view.node));
                }
                None => problems.push(format!("{} does not know {other}", view.node)),
            }
        }
    }
    let ids: BTreeSet<&String> = views.iter().flat_map(|view| view.members.keys()).collect();
    let shown = |id: &String| views.iter().map(|view| view.members.get(id)).collect::<BTreeSet<_>>();
    let differing: Vec<&String> = ids.iter().filter(|id| shown(id).len() > 1).copied().collect();
    if !differing.is_empty() {
        problems.push(format!("{} of {} members differ between nodes", differing.len(), ids.len()));
    }
    let by_node = |id: &String| {
        views.iter().map(|view| (view.node.clone(), view.members.get(id).cloned())).collect::<BTreeMap<_, _>>()
    };
    let differences = differing.iter().take(DIFFERENCES_MAX).map(|id| ((*id).clone(), by_node(id))).collect();
    Health { healthy: problems.is_empty(), equal: differing.is_empty(), members: ids.len(), problems, differences }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(node: &str, sees: &[(&str, NodeState)], members: &[(&str, &str)]) -> View {
        let text = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        View {
            node: node.into(),
            members: members.iter().map(text).collect(),
            sees: sees.iter().map(|(id, state)| ((*id).to_owned(), *state)).collect(),
        }
    }

    fn nodes(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn agreement_is_healthy() {
        let a = view("n1", &[("n2", NodeState::Up)], &[("web-1", "1 up")]);
        let b = view("n2", &[("n1", NodeState::Up)], &[("web-1", "1 up")]);
        let health = compare(&[a, b], &nodes(&["n1", "n2"]), Vec::new());
        assert!(health.healthy && health.equal && health.members == 1, "{health:?}");
    }

    #[test]
    fn differences_are_reported_by_node() {
        let a = view("n1", &[("n2", NodeState::Up)], &[("web-1", "2 up"), ("web-2", "1 up")]);
        let b = view("n2", &[("n1", NodeState::Up)], &[("web-1", "1 up")]);
        let health = compare(&[a, b], &nodes(&["n1", "n2"]), Vec::new());
        assert!(!health.healthy && !health.equal);
        assert_eq!(health.problems, ["2 of 2 members differ between nodes"]);
        assert_eq!(health.differences["web-2"]["n2"], None);
        assert_eq!(health.differences["web-1"]["n1"].as_deref(), Some("2 up"));
    }

    #[test]
    fn a_lost_link_is_unhealthy_even_if_views_are_equal() {
        let a = view("n1", &[("n2", NodeState::Lost)], &[]);
        let health = compare(&[a], &nodes(&["n1", "n2", "n3"]), vec!["n2 is paused".into()]);
        assert!(!health.healthy && health.equal);
        assert_eq!(health.problems, ["n2 is paused", "n1 sees n2 as lost", "n1 does not know n3"]);
    }
}
