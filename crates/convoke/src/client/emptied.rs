//! Waiting until a drained member or node has no connections (`convoke drain --wait`).
//!
//! The registry does not see the connections of an application. A member can report their number as the metadata
//! `connections`. Of a node, its own sessions count.

use convoke_cli::{CommandError, ConnectArgs, Result, call};
use convoke_proto::{json::Member, v1};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Metadata key with which a member reports its connections.
const CONNECTIONS: &str = "connections";
/// Pause between two questions.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A count from before the drain says nothing: it counts once the drain was visible for this long. The counts of nodes
/// travel with pings, once a second.
const SETTLE: Duration = Duration::from_secs(2);

/// What was drained.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Member(String),
    Node(String),
}

/// What is known about the connections of a member or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It does not show the drain yet.
    NotDrained,
    /// It has left: there is nothing to wait for.
    Left,
    /// It reports no number.
    Unknown,
    Connections(u64),
}

/// The id of the node that answers.
pub(super) async fn own_id(connect: &ConnectArgs) -> Result<String> {
    let nodes = call(connect, async |node| node.admin().nodes(v1::NodesRequest {}).await).await?;
    let own = nodes.nodes.into_iter().find(|node| node.self_);
    own.map(|node| node.id).ok_or_else(|| CommandError::failed("the node did not list itself"))
}

/// Waits until no connection is left, at most for the grace. Returns the last number, or `None` if none was reported; that
/// is no failure.
pub(super) async fn wait(connect: &ConnectArgs, named: &Named, grace: Duration) -> Result<Option<u64>> {
    let end = Instant::now() + grace;
    let mut visible = None;
    loop {
        let seen = look(connect, named).await?;
        let now = Instant::now();
        if seen != Seen::NotDrained {
            visible.get_or_insert(now);
        }
        match seen {
            Seen::Left => return Ok(Some(0)),
            Seen::Connections(0) if visible.is_some_and(|since| now - since >= SETTLE) => return Ok(Some(0)),
            _ if now < end => sleep(POLL_INTERVAL.min(end - now)).await,
            _ => return over(named, seen, grace),
        }
    }
}

/// The grace is over.
fn over(named: &Named, seen: Seen, grace: Duration) -> Result<Option<u64>> {
    let (kind, id, what) = match named {
        Named::Member(id) => ("member", id, "connections"),
        Named::Node(id) => ("node", id, "sessions"),
    };
    match seen {
        Seen::Unknown => Ok(None),
        Seen::Left | Seen::Connections(0) => Ok(Some(0)),
        Seen::Connections(count) => Err(CommandError::failed(format!(
            "{kind} {id:?} has {count} {what} after {grace:?}; it stays drained (wait longer with --grace)"
        ))),
        Seen::NotDrained => Err(CommandError::failed(format!(
            "{kind} {id:?} does not show the drain after {grace:?}; send the command again"
        ))),
    }
}

async fn look(connect: &ConnectArgs, named: &Named) -> Result<Seen> {
    match named {
        Named::Member(id) => {
            let request = v1::GetRequest { id: id.clone() };
            match call(connect, async |node| node.registry().get(request.clone()).await).await {
                Ok(answer) => Ok(of_member(&Member::from(answer.member.unwrap_or_default()))),
                Err(error) if error.exit == convoke_cli::exit::NOT_FOUND => Ok(Seen::Left),
                Err(error) => Err(error),
            }
        }
        Named::Node(id) => {
            let nodes = call(connect, async |node| node.admin().nodes(v1::NodesRequest {}).await).await?;
            Ok(nodes.nodes.iter().find(|node| node.id == *id).map_or(Seen::Left, of_node))
        }
    }
}

fn of_member(member: &Member) -> Seen {
    if !member.drained {
        return Seen::NotDrained;
    }
    let reported = member.metadata.get(CONNECTIONS).and_then(|count| count.trim().parse().ok());
    reported.map_or(Seen::Unknown, Seen::Connections)
}

/// The count of a node that this one does not reach is of the time before.
fn of_node(node: &v1::Node) -> Seen {
    match (node.state(), node.drained) {
        (v1::NodeState::Left, _) => Seen::Left,
        (_, false) => Seen::NotDrained,
        (v1::NodeState::Up, true) => Seen::Connections(node.sessions),
        (_, true) => Seen::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::members::tests::member;
    use convoke_proto::json::Status;

    #[test]
    fn a_member_reports_its_connections_as_metadata() {
        let with = |drained, count: Option<&str>| {
            let mut shown = member("orders-1", Status::Up, drained);
            shown.metadata.extend(count.map(|count| (CONNECTIONS.to_owned(), count.to_owned())));
            of_member(&shown)
        };
        assert_eq!(with(false, Some("0")), Seen::NotDrained);
        assert_eq!(with(true, None), Seen::Unknown);
        assert_eq!(with(true, Some("many")), Seen::Unknown);
        assert_eq!(with(true, Some("12")), Seen::Connections(12));
    }

    #[test]
    fn a_node_is_empty_when_its_sessions_have_moved() {
        let node = |state: v1::NodeState, drained| v1::Node {
            state: state.into(),
            drained,
            sessions: 3,
            ..Default::default()
        };
        assert_eq!(of_node(&node(v1::NodeState::Up, true)), Seen::Connections(3));
        assert_eq!(of_node(&node(v1::NodeState::Up, false)), Seen::NotDrained);
        assert_eq!(of_node(&node(v1::NodeState::Lost, true)), Seen::Unknown);
        assert_eq!(of_node(&node(v1::NodeState::Left, false)), Seen::Left);
    }

    #[test]
    fn connections_after_the_grace_are_a_failure() {
        let (named, grace) = (Named::Member("web-1".into()), Duration::from_secs(30));
        assert_eq!(over(&named, Seen::Unknown, grace), Ok(None));
        assert_eq!(over(&named, Seen::Connections(0), grace), Ok(Some(0)));
        let error = over(&named, Seen::Connections(2), grace).unwrap_err();
        assert_eq!(
            error.message,
            "member \"web-1\" has 2 connections after 30s; it stays drained (wait longer with --grace)"
        );
        assert_eq!(error.exit, convoke_cli::exit::FAILED);
    }
}
