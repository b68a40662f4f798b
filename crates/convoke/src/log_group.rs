//! The log of a local cluster: its first node begins it alone, and others are made voters beside it, so that it survives the loss of a node.

use crate::client::Node;
use convoke_client::log::{Ambassador, Change};
use convoke_proto::{Code, Error, v1};
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
        settle(&ambassador, &Change::Add { node: node.clone(), address: None }, PATIENCE).await?;
        settle(&ambassador, &Change::Promote(node.clone()), PATIENCE).await?;
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
pub(crate) struct Stays {
    pub(crate) error: Error,
    /// Nobody else votes: without it there is no log.
    pub(crate) alone: bool,
}

/// Takes a node out of the group, if it is in it and there are enough to say so. Others become voters first where too few would be left,
/// so that the log does not go with a node.
pub(crate) async fn leave(places: &[Place], node: &str) -> Result<(), Stays> {
    let Some(group) = group(places).await else { return Ok(()) };
    let is = |ids: &[String], id: &str| ids.iter().any(|known| known == id);
    if !is(&group.voters, node) && !is(&group.learners, node) {
        return Ok(());
    }
    let alone = group.voters == [node];
    let stays = |error| Stays { error, alone };
    if alone && places.iter().any(|place| place.id == node && !place.running) {
        return Err(stays(Error::new(Code::NotReady, format!("{node} does not run"))));
    }
    let addresses: Vec<&str> = places.iter().map(|place| place.address.as_str()).collect();
    let ambassador = Ambassador::start(addresses).map_err(stays)?;
    let staying = places.iter().filter(|place| place.id != node);
    let (voting, others): (Vec<&Place>, Vec<&Place>) = staying.partition(|place| is(&group.voters, &place.id));
    let missing = voters(voting.len() + others.len()).saturating_sub(voting.len());
    for place in others.into_iter().filter(|place| place.running).take(missing) {
        if !is(&group.learners, &place.id) {
            let add = Change::Add { node: place.id.clone(), address: None };
            settle(&ambassador, &add, PATIENCE).await.map_err(stays)?;
        }
        settle(&ambassador, &Change::Promote(place.id.clone()), PATIENCE).await.map_err(stays)?;
    }
    match settle(&ambassador, &Change::Remove(node.to_owned()), FAREWELL).await {
        Err(error) if error.code != Code::NotFound => Err(stays(error)),
        _ => Ok(()),
    }
}

/// The group as the first node sees it that knows of one; none if no node runs a log.
async fn group(places: &[Place]) -> Option<v1::LogStatusResponse> {
    for place in places.iter().filter(|place| place.running) {
        let Ok(node) = Node::lazy(&place.address, FAREWELL) else { continue };
        if let Ok(status) = node.log().status(v1::LogStatusRequest {}).await
            && !status.get_ref().voters.is_empty()
        {
            return Some(status.into_inner());
        }
    }
    None
}

async fn settle(ambassador: &Ambassador, change: &Change, patience: Duration) -> Result<(), Error> {
    let changed = ambassador.change(change, patience, Some(patience)).await?;
    if changed.settled {
        return Ok(());
    }
    Err(Error::new(Code::Timeout, format!("the log did not arrive at {change:?} within {} s", patience.as_secs())))
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
