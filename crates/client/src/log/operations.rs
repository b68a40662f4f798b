//! What operators and the careful ask: fates, status, membership, backups.

use super::ambassador::Ambassador;
use super::read::{PAUSE, at_leader, client, link, no_leader, retry, within};
use super::{Fate, RequestId, Status};
use crate::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::members_request::Change as Wire;
use convoke_proto::v1::read_request::What;
use std::time::Duration;

/// A change of the group of replicas. Nodes are named by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A running node that is no replica becomes a learner. Without an address it is the one its node advertises.
    Add {
        node: String,
        address: Option<String>,
    },
    /// A learner becomes a voter.
    Promote(String),
    /// A voter becomes a learner.
    Demote(String),
    Remove(String),
    /// A node takes the place of another one, or of itself after it lost its disk.
    Replace {
        old: String,
        node: String,
        address: Option<String>,
    },
    /// The leader hands over to this voter.
    Transfer(String),
}

impl Ambassador {
    /// What became of a request, so far. Changes nothing; `Open` may still become anything.
    pub async fn peek(&self, request: RequestId, timeout: Option<Duration>) -> Result<Fate, Error> {
        let response = within(timeout, no_leader, at_leader(&self.shared, What::Peek(request), None)).await?;
        Ok(response.fate.unwrap_or_default())
    }

    /// Makes the fate of a request final and tells it: applied, or never; or that it is too long ago to be known. Whoever asks again
    /// is told the same.
    pub async fn resolve(&self, request: RequestId, timeout: Option<Duration>) -> Result<Fate, Error> {
        // Asking twice fences twice, which is the same as once.
        let resolving = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(linked.channel);
                let asking = leader.resolve(v1::ResolveRequest { request: Some(request) });
                match self.shared.answer_over(linked.link, asking).await {
                    Some(Ok(response)) => return Ok(response.into_inner().fate.unwrap_or_default()),
                    Some(Err(status)) => retry(&self.shared, linked.link, status.into()).await?,
                    None => {}
                }
            }
        };
        within(timeout, no_leader, resolving).await
    }

    /// How the leader sees the log.
    pub async fn status(&self, timeout: Option<Duration>) -> Result<Status, Error> {
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(linked.channel);
                match self.shared.answer_over(linked.link, leader.status(v1::LogStatusRequest {})).await {
                    Some(Ok(response)) => return Ok(response.into_inner()),
                    Some(Err(status)) => retry(&self.shared, linked.link, status.into()).await?,
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await
    }

    /// Changes the group of replicas and waits for `wait` until it has arrived there. The number of the configuration recorded, and whether
    /// it has.
    ///
    /// It says which configuration it is to replace: if that is not the present one when it arrives, however late, it does nothing. It is sent
    /// again only if a node said that it was not taken.
    pub async fn change(
        &self,
        change: &Change,
        wait: Duration,
        timeout: Option<Duration>,
    ) -> Result<v1::MembersResponse, Error> {
        self.change_from(change, None, wait, timeout).await
    }

    /// The same for a configuration that was seen before; without one, the present.
    pub async fn change_from(
        &self,
        change: &Change,
        replaces: Option<u64>,
        wait: Duration,
        timeout: Option<Duration>,
    ) -> Result<v1::MembersResponse, Error> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let changing = async {
            loop {
                let replaces = match replaces {
                    Some(replaces) => replaces,
                    None => match self.status(None).await?.configuration {
                        0 => {
                            // The leader has yet to record whom the log was begun with.
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                        present => present,
                    },
                };

                let request = v1::MembersRequest { replaces: Some(replaces), wait_ms, change: Some(change.wire()) };
                let linked = link(&self.shared).await;
                match client(linked.channel).members(request).await {
                    Ok(response) => return Ok(response.into_inner()),
                    // A node's own words have details; without them the way there broke, and it may have been recorded.
                    Err(status) if status.details().is_empty() => return Err(change_unknown()),
                    Err(status) => match Error::from(status) {
                        error if error.code == ErrorCode::OutcomeUnknown => return Err(error),
                        error => retry(&self.shared, linked.link, error).await?,
                    },
                }
            }
        };
        let timeout = timeout.map(|timeout| timeout.saturating_add(wait));
        match within(timeout, no_leader, changing).await {
            Err(error) if error.code == ErrorCode::Timeout => {
                let message =
                    "no answer in time; the change may or may not have been recorded: the status of the log tells";
                Err(Error::new(ErrorCode::OutcomeUnknown, message))
            }
            result => result,
        }
    }

    /// The whole state, in pieces to be written one behind the other; the first names what it contains. A leader that gives several already
    /// refuses with `RESOURCE_EXHAUSTED`, at once: they may take long.
    pub async fn backup(&self, timeout: Option<Duration>) -> Result<tonic::Streaming<v1::BackupResponse>, Error> {
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(linked.channel);
                match self.shared.answer_over(linked.link, leader.backup(v1::BackupRequest {})).await {
                    Some(Ok(response)) => return Ok(response.into_inner()),
                    Some(Err(status)) => match Error::from(status) {
                        error if error.code == ErrorCode::ResourceExhausted => return Err(error),
                        error => retry(&self.shared, linked.link, error).await?,
                    },
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await
    }
}

fn change_unknown() -> Error {
    let message = "no answer; the change may or may not have been recorded: the status of the log tells";
    Error::new(ErrorCode::OutcomeUnknown, message)
}

impl Change {
    fn wire(&self) -> Wire {
        let address = |address: &Option<String>| address.clone().unwrap_or_default();
        match self {
            Change::Add { node, address: at } => Wire::Add(v1::AddReplica { node: node.clone(), address: address(at) }),
            Change::Promote(node) => Wire::Promote(node.clone()),
            Change::Demote(node) => Wire::Demote(node.clone()),
            Change::Remove(node) => Wire::Remove(node.clone()),
            Change::Replace { old, node, address: at } => {
                Wire::Replace(v1::ReplaceReplica { old: old.clone(), node: node.clone(), address: address(at) })
            }
            Change::Transfer(node) => Wire::Transfer(node.clone()),
        }
    }
}
