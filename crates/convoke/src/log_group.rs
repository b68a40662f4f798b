//! The log of a local cluster: its first node begins it alone, and others are made voters beside it, so that it survives the loss of a node.

use convoke_client::log::{Ambassador, Change};
use convoke_proto::{Code, Error};
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

/// Takes a node out of the group, if it is in it and the others are enough to say so.
pub(crate) async fn leave(addresses: &[String], node: &str) -> Result<(), Error> {
    match settle(&Ambassador::start(addresses)?, &Change::Remove(node.to_owned()), FAREWELL).await {
        Err(error) if error.code == Code::NotFound => Ok(()),
        done => done,
    }
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
