//! Operations of the ambassador besides keys: fates, status, membership, backups.

use super::ambassador::Ambassador;
use super::read::{PAUSE, at_leader, client, link, no_leader, retry, within};
use super::{Fate, RequestId, Status};
use crate::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::members_request::Change as Wire;
use convoke_proto::v1::read_request::What;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A membership change of the log. Nodes are named by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaChange {
    /// Add a running node that is not a replica as a learner. Without an address, the node's advertised address is
    /// used.
    Add {
        node: String,
        address: Option<String>,
    },
    /// Make a learner a voter.
    Promote(String),
    /// Make a voter a learner.
    Demote(String),
    Remove(String),
    /// Replace a node with another one, or with itself after it lost its disk.
    Replace {
        old: String,
        node: String,
        address: Option<String>,
    },
    /// Transfer leadership to this voter.
    Transfer(String),
}

/// Log sessions to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndSessions {
    /// The session with this id.
    One(u64),
    /// All sessions of a client address or node, as [`Ambassador::sessions`] shows it.
    OpenedBy(String),
}

impl Ambassador {
    /// Returns the current fate of a request without changing it. `Open` may still change.
    pub async fn peek(&self, request: RequestId, timeout: Option<Duration>) -> Result<Fate, Error> {
        let response = within(timeout, no_leader, at_leader(&self.shared, (What::Peek(request), 0), None)).await?;
        Ok(response.fate.unwrap_or_default())
    }

    /// Makes the fate of a request final and returns it: applied, never, or too old to know. Later calls return
    /// the same.
    pub async fn resolve(&self, request: RequestId, timeout: Option<Duration>) -> Result<Fate, Error> {
        // Resolving twice fences twice, which has the effect of one fence.
        let resolving = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
                let asking = leader.resolve(v1::ResolveRequest { request: Some(request) });
                match self.shared.answer_over(linked.link, asking).await {
                    Some(Ok(response)) => return Ok(response.into_inner().fate.unwrap_or_default()),
                    Some(Err(status)) => match Error::from(status) {
                        // The request belongs to another log.
                        error if error.code == ErrorCode::SessionGone => return Err(error),
                        error => retry(&self.shared, linked.link, error).await?,
                    },
                    None => {}
                }
            }
        };
        within(timeout, no_leader, resolving).await
    }

    /// Returns the status of the log at the leader.
    pub async fn status(&self, timeout: Option<Duration>) -> Result<Status, Error> {
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
                match self.shared.answer_over(linked.link, leader.status(v1::LogStatusRequest {})).await {
                    Some(Ok(response)) => return Ok(response.into_inner()),
                    Some(Err(status)) => retry(&self.shared, linked.link, status.into()).await?,
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await
    }

    /// Returns a page of open log sessions after the session `after`, in order of their ids.
    pub async fn sessions(
        &self,
        after: u64,
        limit: u64,
        timeout: Option<Duration>,
    ) -> Result<v1::SessionsResponse, Error> {
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
                let asked = leader.sessions(v1::SessionsRequest { after, limit });
                match self.shared.answer_over(linked.link, asked).await {
                    Some(Ok(response)) => return Ok(response.into_inner()),
                    Some(Err(status)) => retry(&self.shared, linked.link, status.into()).await?,
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await
    }

    /// Ends one log session, or all sessions of a client address or node. Returns how many were open. Their requests
    /// never take effect afterwards. Ending twice has the effect of ending once. If the time is over before all are ended,
    /// the error says how many were.
    pub async fn end_sessions(&self, which: &EndSessions, timeout: Option<Duration>) -> Result<u64, Error> {
        let (session, opened_by) = match which {
            EndSessions::One(session) => (*session, String::new()),
            EndSessions::OpenedBy(opener) => (0, opener.clone()),
        };
        let ended = AtomicU64::new(0);
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
                let asked = leader.end_sessions(v1::EndSessionsRequest { session, opened_by: opened_by.clone() });
                match self.shared.answer_over(linked.link, asked).await {
                    Some(Ok(response)) => {
                        let v1::EndSessionsResponse { ended: more_ended, more } = response.into_inner();
                        let all = ended.fetch_add(more_ended, Ordering::Relaxed) + more_ended;
                        if !more {
                            return Ok(all);
                        }
                    }
                    Some(Err(status)) => match Error::from(status) {
                        error if error.code == ErrorCode::ResourceExhausted => return Err(error),
                        error => retry(&self.shared, linked.link, error).await?,
                    },
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await.map_err(|error| match ended.load(Ordering::Relaxed) {
            0 => error,
            ended => {
                let message = format!("{ended} sessions were ended, and more are open: repeat the request to end them");
                Error { message, ..error }
            }
        })
    }

    /// Raises the log to the highest feature level that all replicas support, and returns the level. If a replica holds
    /// the level back, the error names it.
    pub async fn upgrade(&self, timeout: Option<Duration>) -> Result<u64, Error> {
        // Raising twice has the effect of raising once.
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
                match self.shared.answer_over(linked.link, leader.upgrade(v1::UpgradeRequest {})).await {
                    Some(Ok(response)) => return Ok(response.into_inner().level),
                    Some(Err(status)) => match Error::from(status) {
                        error if error.code == ErrorCode::FailedPrecondition => return Err(error),
                        error => retry(&self.shared, linked.link, error).await?,
                    },
                    None => {}
                }
            }
        };
        within(timeout, no_leader, asking).await
    }

    /// Changes the group of replicas and waits up to `wait` until the change is complete. Returns the number of the
    /// recorded configuration and whether the change is complete.
    ///
    /// The change names the configuration it replaces, so a delayed change does nothing. It is resent only if a node
    /// reported that it was not recorded.
    pub async fn change(
        &self,
        change: &ReplicaChange,
        wait: Duration,
        timeout: Option<Duration>,
    ) -> Result<v1::MembersResponse, Error> {
        self.change_from(change, None, wait, timeout).await
    }

    /// Changes the group if the given configuration is the current one, or unconditionally without one.
    pub async fn change_from(
        &self,
        change: &ReplicaChange,
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
                            // The leader has not recorded the founders yet.
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                        present => present,
                    },
                };

                let request = v1::MembersRequest { replaces: Some(replaces), wait_ms, change: Some(change.wire()) };
                let linked = link(&self.shared).await;
                match client(&self.shared, linked.channel).members(request).await {
                    Ok(response) => return Ok(response.into_inner()),
                    // An answer of a node has details. Without them the connection failed, and the change may have been
                    // recorded.
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
                let message = "no answer in time; the change may or may not have been recorded (check the log status)";
                Err(Error::new(ErrorCode::OutcomeUnknown, message))
            }
            result => result,
        }
    }

    /// Returns the whole state in pieces, to be written one after the other; the first one describes the content. A
    /// leader that already serves several backups rejects the call with `RESOURCE_EXHAUSTED` at once.
    pub async fn backup(&self, timeout: Option<Duration>) -> Result<tonic::Streaming<v1::BackupResponse>, Error> {
        let asking = async {
            loop {
                let linked = link(&self.shared).await;
                let mut leader = client(&self.shared, linked.channel);
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
    let message = "no answer; the change may or may not have been recorded (check the log status)";
    Error::new(ErrorCode::OutcomeUnknown, message)
}

impl ReplicaChange {
    fn wire(&self) -> Wire {
        let address = |address: &Option<String>| address.clone().unwrap_or_default();
        match self {
            ReplicaChange::Add { node, address: at } => {
                Wire::Add(v1::AddReplica { node: node.clone(), address: address(at) })
            }
            ReplicaChange::Promote(node) => Wire::Promote(node.clone()),
            ReplicaChange::Demote(node) => Wire::Demote(node.clone()),
            ReplicaChange::Remove(node) => Wire::Remove(node.clone()),
            ReplicaChange::Replace { old, node, address: at } => {
                Wire::Replace(v1::ReplaceReplica { old: old.clone(), node: node.clone(), address: address(at) })
            }
            ReplicaChange::Transfer(node) => Wire::Transfer(node.clone()),
        }
    }
}
