//! The log group of a local cluster: the first node creates the log, and others become voters so that it survives the loss of a node.

use convoke_cli::NodeChannel;
use convoke_client::log::{Ambassador, ReplicaChange};
use convoke_proto::{Error, ErrorCode, v1};
use std::fmt;
use std::time::Duration;

/// More voters would only slow writes down.
const VOTERS_MAX: usize = 5;
/// Time for a change: a node starts a replica and catches up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time to remove a node from the group.
const FAREWELL: Duration = Duration::from_secs(5);

/// Number of voters among the nodes. An even number survives no more losses than the odd number below it.
pub(crate) fn voters(nodes: usize) -> usize {
    let most = nodes.min(VOTERS_MAX);
    if most.is_multiple_of(2) { most.saturating_sub(1) } else { most }
}

/// Makes these nodes voters, one after another. `first` is the client address of the node that created the log.
pub(crate) async fn form(first: &str, others: &[String]) -> Result<(), Error> {
    let ambassador = Ambassador::start([first])?;
    for node in others {
        make_voter(&ambassador, node, false).await?;
    }
    Ok(())
}

/// A node of the cluster and its client address.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) running: bool,
}

/// Why a node could not be removed from the group.
#[derive(Debug)]
pub(crate) enum NotRemoved {
    /// It is the only voter.
    Alone(Error),
    /// These nodes do not answer, and the others know no group.
    Unknown(Vec<String>),
    /// Other nodes hold the log, too.
    Listed(Error),
}

impl NotRemoved {
    /// The error that keeps the node in the cluster unless the caller accepts the loss of the log.
    pub(crate) fn rejection(&self, node: &str, cluster: &str) -> Option<Error> {
        let message = match self {
            NotRemoved::Alone(error) => format!(
                "{node} is the only voter of the log of {cluster}, and no other node can replace it ({}): fix that, or use force and lose the log",
                error.message
            ),
            NotRemoved::Unknown(_) => format!(
                "the voters of the log of {cluster} are unknown ({self}), and {node} may be the only one: restart or resume the nodes, or use force and risk the log"
            ),
            NotRemoved::Listed(_) => return None,
        };
        Some(Error::new(ErrorCode::FailedPrecondition, message))
    }
}

impl fmt::Display for NotRemoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRemoved::Alone(error) | NotRemoved::Listed(error) => error.fmt(f),
            NotRemoved::Unknown(silent) => write!(f, "no answer from {}", silent.join(", ")),
        }
    }
}

/// Removes a node from the group. Other nodes become voters first if too few would remain, so that the log survives.
pub(crate) async fn leave(places: &[Place], node: &str) -> Result<(), NotRemoved> {
    let Some(group) = group(places).await.map_err(NotRemoved::Unknown)? else { return Ok(()) };
    if !contains(&group.voters, node) && !contains(&group.learners, node) {
        return Ok(());
    }
    let alone = group.voters == [node];
    let mut others_vote = !alone;
    let stays = |error| if alone { NotRemoved::Alone(error) } else { NotRemoved::Listed(error) };
    if alone && places.iter().any(|place| place.id == node && !place.running) {
        return Err(stays(Error::new(ErrorCode::NotReady, format!("{node} is not running"))));
    }
    let addresses: Vec<&str> = places.iter().map(|place| place.address.as_str()).collect();
    let ambassador = Ambassador::start(addresses).map_err(stays)?;
    let staying = places.iter().filter(|place| place.id != node);
    let (voting, others): (Vec<&Place>, Vec<&Place>) = staying.partition(|place| contains(&group.voters, &place.id));
    let mut missing = voters(voting.len() + others.len()).saturating_sub(voting.len());
    let mut failed = None;
    for place in others.into_iter().filter(|place| place.running) {
        if missing == 0 {
            break;
        }
        let learns = contains(&group.learners, &place.id);
        let Err(error) = make_voter(&ambassador, &place.id, learns).await else {
            (missing, others_vote) = (missing - 1, true);
            continue;
        };
        tracing::warn!(node = place.id, %error, "cannot make the node a voter");
        // Otherwise the leader keeps trying, and later changes wait for that.
        let before =
            if learns { ReplicaChange::Demote(place.id.clone()) } else { ReplicaChange::Remove(place.id.clone()) };
        let _ = ambassador.change(&before, Duration::ZERO, Some(FAREWELL)).await;
        let took_long = matches!(error.code, ErrorCode::Timeout | ErrorCode::OutcomeUnknown);
        failed = Some(error);
        if took_long {
            // The next node would hardly be faster, and the caller waits.
            break;
        }
    }
    if let Some(error) = failed.filter(|_| !others_vote) {
        return Err(stays(error));
    }
    match settle(&ambassador, &ReplicaChange::Remove(node.to_owned()), FAREWELL).await {
        Err(error) if error.code != ErrorCode::NotFound => Err(stays(error)),
        _ => Ok(()),
    }
}

fn contains(ids: &[String], id: &str) -> bool {
    ids.iter().any(|known| known == id)
}

async fn make_voter(ambassador: &Ambassador, node: &str, learns: bool) -> Result<(), Error> {
    if !learns {
        settle(ambassador, &ReplicaChange::Add { node: node.to_owned(), address: None }, PATIENCE).await?;
    }
    settle(ambassador, &ReplicaChange::Promote(node.to_owned()), PATIENCE).await
}

/// The group as the first node that knows one reports it; `None` if all nodes know none. The error lists the nodes that did not answer.
async fn group(places: &[Place]) -> Result<Option<v1::LogStatusResponse>, Vec<String>> {
    let mut silent = Vec::new();
    for place in places {
        match status(place).await {
            Some(status) if !status.voters.is_empty() => return Ok(Some(status)),
            Some(_) => {}
            None => silent.push(place.id.clone()),
        }
    }
    if silent.is_empty() { Ok(None) } else { Err(silent) }
}

async fn status(place: &Place) -> Option<v1::LogStatusResponse> {
    if !place.running {
        return None;
    }
    let node = NodeChannel::lazy(&place.address, FAREWELL, None, None).ok()?;
    node.log().status(v1::LogStatusRequest {}).await.ok().map(tonic::Response::into_inner)
}

async fn settle(ambassador: &Ambassador, change: &ReplicaChange, patience: Duration) -> Result<(), Error> {
    let changed = ambassador.change(change, patience, Some(patience)).await?;
    if changed.settled {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Timeout,
        format!("the change {change:?} did not take effect within {} s", patience.as_secs()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_votes() {
        let counts: Vec<usize> = (0..8).map(voters).collect();
        assert_eq!(counts, [0, 1, 1, 3, 3, 5, 5, 5]);
    }
}
