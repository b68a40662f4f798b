//! The log of a local cluster: its first node begins it alone, and others are made voters beside it, so that it survives the loss of a node.

use convoke_cli::Node;
use convoke_client::log::{Ambassador, Change};
use convoke_proto::{Error, ErrorCode, v1};
use std::fmt;
use std::time::Duration;

/// More would not make it safer, only slower.
const VOTERS_MAX: usize = 5;
/// How long a change may take: a node has to start a replica, and to catch up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node that is to go waits for the others to say so.
const FAREWELL: Duration = Duration::from_secs(5);

/// How many of so many nodes vote. An even number survives no more losses than the odd one below it.
pub(crate) fn voters(nodes: usize) -> usize {
    let most = nodes.min(VOTERS_MAX);
    if most.is_multiple_of(2) { most.saturating_sub(1) } else { most }
}

/// Makes these nodes voters, one after another. `first` is a client address of the one that has begun the log.
pub(crate) async fn form(first: &str, others: &[String]) -> Result<(), Error> {
    let ambassador = Ambassador::start([first])?;
    for node in others {
        make_voter(&ambassador, node, false).await?;
    }
    Ok(())
}

/// A node of the cluster, and where its clients connect.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) running: bool,
}

/// Why a node is still in the group.
#[derive(Debug)]
pub(crate) enum Stays {
    /// Nobody else votes: without it there is no log.
    Alone(Error),
    /// These nodes do not answer, and those that do know of no group: nobody else may be in it.
    Unknown(Vec<String>),
    /// Others have the log, too.
    Listed(Error),
}

impl Stays {
    /// Why the node is not to go either, unless what the log holds may be lost.
    pub(crate) fn refusal(&self, node: &str, cluster: &str) -> Option<Error> {
        let message = match self {
            Stays::Alone(error) => format!(
                "{node} alone has the log of {cluster}, and no other node could take it over ({}): see to that, or lose what the log holds (force)",
                error.message
            ),
            Stays::Unknown(_) => format!(
                "nobody says who has the log of {cluster} ({self}), and {node} may be the only one: restart or resume them, or risk what the log holds (force)"
            ),
            Stays::Listed(_) => return None,
        };
        Some(Error::new(ErrorCode::FailedPrecondition, message))
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stays::Alone(error) | Stays::Listed(error) => error.fmt(f),
            Stays::Unknown(silent) => write!(f, "no answer from {}", silent.join(", ")),
        }
    }
}

/// Takes a node out of the group, if it is in it and there are enough to say so. Others become voters first where too few would be left,
/// so that the log does not go with a node.
pub(crate) async fn leave(places: &[Place], node: &str) -> Result<(), Stays> {
    let Some(group) = group(places).await.map_err(Stays::Unknown)? else { return Ok(()) };
    if !is_among(&group.voters, node) && !is_among(&group.learners, node) {
        return Ok(());
    }
    let alone = group.voters == [node];
    let mut others_vote = !alone;
    let stays = |error| if alone { Stays::Alone(error) } else { Stays::Listed(error) };
    if alone && places.iter().any(|place| place.id == node && !place.running) {
        return Err(stays(Error::new(ErrorCode::NotReady, format!("{node} does not run"))));
    }
    let addresses: Vec<&str> = places.iter().map(|place| place.address.as_str()).collect();
    let ambassador = Ambassador::start(addresses).map_err(stays)?;
    let staying = places.iter().filter(|place| place.id != node);
    let (voting, others): (Vec<&Place>, Vec<&Place>) = staying.partition(|place| is_among(&group.voters, &place.id));
    let mut missing = voters(voting.len() + others.len()).saturating_sub(voting.len());
    let mut failed = None;
    for place in others.into_iter().filter(|place| place.running) {
        if missing == 0 {
            break;
        }
        let learns = is_among(&group.learners, &place.id);
        let Err(error) = make_voter(&ambassador, &place.id, learns).await else {
            (missing, others_vote) = (missing - 1, true);
            continue;
        };
        tracing::warn!("{} does not become a voter of the log: {error}", place.id);
        // The leader would go on trying, and whatever comes later would wait for that.
        let before = if learns { Change::Demote(place.id.clone()) } else { Change::Remove(place.id.clone()) };
        let _ = ambassador.change(&before, Duration::ZERO, Some(FAREWELL)).await;
        let took_long = matches!(error.code, ErrorCode::Timeout | ErrorCode::OutcomeUnknown);
        failed = Some(error);
        if took_long {
            // The next one would hardly be quicker, and somebody waits.
            break;
        }
    }
    if let Some(error) = failed.filter(|_| !others_vote) {
        return Err(stays(error));
    }
    match settle(&ambassador, &Change::Remove(node.to_owned()), FAREWELL).await {
        Err(error) if error.code != ErrorCode::NotFound => Err(stays(error)),
        _ => Ok(()),
    }
}

fn is_among(ids: &[String], id: &str) -> bool {
    ids.iter().any(|known| known == id)
}

async fn make_voter(ambassador: &Ambassador, node: &str, learns: bool) -> Result<(), Error> {
    if !learns {
        settle(ambassador, &Change::Add { node: node.to_owned(), address: None }, PATIENCE).await?;
    }
    settle(ambassador, &Change::Promote(node.to_owned()), PATIENCE).await
}

/// The group as the first node sees it that knows of one; none if all nodes say that they know of none. Else those who did not answer.
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
    let node = Node::lazy(&place.address, FAREWELL).ok()?;
    node.log().status(v1::LogStatusRequest {}).await.ok().map(tonic::Response::into_inner)
}

async fn settle(ambassador: &Ambassador, change: &Change, patience: Duration) -> Result<(), Error> {
    let changed = ambassador.change(change, patience, Some(patience)).await?;
    if changed.settled {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Timeout, format!("the log did not arrive at {change:?} within {} s", patience.as_secs())))
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
