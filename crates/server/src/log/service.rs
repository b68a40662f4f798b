//! The replica's interface for clients: its answers and rejections in wire types.

use super::convert::{fate, rejection, wire_epoch};
use super::directory::Directory;
use super::watch_limits::{WatchLimits, WatchPermit};
use crate::config::Config;
use crate::error::invalid;
use crate::net::Stage;
use crate::rates::RateLimiter;
use crate::service::ClientConnection;
use crate::surface::Gates;
use convoke_log::{Epoch, Machine, RequestId};
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::{ChangeError, Consistency, Edit, Group, LogHandle, LogRejection, ReplicaStatus, SubmitError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// HTTP requests that wait for locks and elections. All of them wait on one link to the leader, which has room for more.
const WAITS_MAX: usize = 5_000;
/// Concurrent backups.
const BACKUPS_MAX: usize = 4;

/// The replica of a node with its interface for clients.
#[derive(Debug)]
pub(crate) struct LogService {
    pub(crate) handle: LogHandle,
    pub(super) directory: Arc<dyn Directory>,
    links: Arc<Semaphore>,
    links_max: usize,
    backups: Arc<Semaphore>,
    watches: WatchLimits,
    waits: Arc<Semaphore>,
    /// Timeout of a read or a resolve.
    pub(super) timeout: Duration,
    /// Stage of the server; `None` without a server.
    stage: Option<watch::Receiver<Stage>>,
    pub(super) rates: Arc<RateLimiter>,
}

impl LogService {
    pub(crate) fn new(
        handle: LogHandle,
        directory: Arc<dyn Directory>,
        config: &Config,
        stage: Option<watch::Receiver<Stage>>,
        rates: Arc<RateLimiter>,
    ) -> LogService {
        let links_max = config.limits.log_links;
        let links = Arc::new(Semaphore::new(links_max.min(Semaphore::MAX_PERMITS)));
        let backups = Arc::new(Semaphore::new(BACKUPS_MAX));
        let watches = WatchLimits::new(config.limits.http_watchers);
        let timeout = config.timeouts.request;
        let waits = Arc::new(Semaphore::new(WAITS_MAX));
        LogService { handle, directory, links, links_max, backups, watches, waits, timeout, stage, rates }
    }

    /// Acquires a permit for one more ambassador.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        Gates::enter(&self.links, "links to the log", self.links_max)
    }

    /// Waits until a link to the leader of an epoch is no longer usable: another replica leads, or the server closes.
    pub(crate) async fn link_unusable(&self, epoch: Epoch) {
        tokio::select! {
            biased;
            () = self.handle.deposed(epoch) => {}
            () = self.closing() => {}
        }
    }

    /// Waits until the server closes.
    pub(crate) async fn closing(&self) {
        match self.stage.clone() {
            Some(mut stage) => drop(stage.wait_for(|stage| *stage == Stage::Closing).await),
            None => std::future::pending().await,
        }
    }

    /// Acquires a permit for one more stream of watches, which arrived on a connection (H11).
    pub(crate) fn enter_watch(
        &self,
        connection: Option<&Arc<ClientConnection>>,
        watches: usize,
    ) -> Result<WatchPermit, Error> {
        self.watches.enter(connection, watches)
    }

    /// Returns the number of streams of watches that a limit rejected.
    pub(crate) fn watches_rejected(&self) -> u64 {
        self.watches.rejected()
    }

    /// Returns the number of streams of watches of keys.
    pub(crate) fn watching(&self) -> usize {
        self.watches.open()
    }

    /// Acquires a permit for one more HTTP request that waits for a lock or an election.
    pub(crate) fn enter_wait(&self) -> Result<OwnedSemaphorePermit, Error> {
        Gates::enter(&self.waits, "requests that wait for locks", WAITS_MAX)
    }

    /// Returns the number of HTTP requests that wait for locks and elections.
    pub(crate) fn waiting(&self) -> usize {
        WAITS_MAX - self.waits.available_permits()
    }

    /// Returns the reason, with the current leader.
    pub(crate) fn unusable_reason(&self, epoch: Epoch) -> Error {
        match self.handle.epoch() {
            Err(why) => self.rejected(&why),
            Ok(current) if current != epoch => self.rejected(&LogRejection::StaleEpoch { current }),
            Ok(_) => {
                let group = self.handle.group();
                let error = Error::new(ErrorCode::NotReady, "this node is stopping; use another node");
                error.replicas(self.replicas(&group), group.epoch.map(wire_epoch))
            }
        }
    }

    /// Acquires a permit for one more backup. Each backup occupies a thread.
    pub(crate) fn enter_backup(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.backups.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{BACKUPS_MAX} backups are already running; try again when one of them is done");
            Error::new(ErrorCode::ResourceExhausted, message).limit(BACKUPS_MAX as u64)
        })
    }

    /// Returns the replicas of the group, the last known leader first, with the addresses for clients.
    fn replicas(&self, group: &Group) -> Vec<v1::Replica> {
        let replicas = group.replicas.iter().map(|member| v1::Replica {
            replica: member.replica.0,
            node: member.node.to_string(),
            address: self.client_address(&member.node),
            peer_address: member.address.to_string(),
            voter: member.voter,
            leader: group.leader == Some(member.replica),
            unreachable: member.unreachable,
        });
        replicas.collect()
    }

    /// Returns the address of a node for clients: as the registry knows it, or as the node told the replica.
    fn client_address(&self, node: &str) -> String {
        match self.directory.client_address(node) {
            address if address.is_empty() => self.handle.client_address(node).unwrap_or_default(),
            address => address,
        }
    }

    /// Converts a rejection of the replica.
    pub(crate) fn rejected(&self, why: &LogRejection) -> Error {
        let error = rejection(why);
        let group = match why {
            // The other replicas go on.
            LogRejection::Stopped => Some(self.handle.group()),
            why => why.group().cloned(),
        };
        match group {
            Some(group) => error.replicas(self.replicas(&group), group.epoch.map(wire_epoch)),
            None => error,
        }
    }

    pub(super) fn not_submitted(&self, error: &SubmitError) -> Error {
        match error {
            SubmitError::Rejected(why) => self.rejected(why),
            SubmitError::Unknown => Error::new(ErrorCode::OutcomeUnknown, error.to_string()),
        }
    }

    fn not_changed(&self, error: &ChangeError) -> Error {
        match error {
            ChangeError::Submit(error) => self.not_submitted(error),
            other => Error::new(other.code(), other.to_string()),
        }
    }

    /// Returns the state to read from, at this node.
    pub(crate) async fn read(&self, consistency: Consistency) -> Result<Arc<Machine>, Error> {
        match tokio::time::timeout(self.timeout, self.handle.read(consistency)).await {
            Ok(read) => read.map_err(|why| self.rejected(&why)),
            Err(_) => {
                Err(Error::new(ErrorCode::Timeout, "the leader could not confirm its leadership in time; try again"))
            }
        }
    }

    /// Makes the fate of a request final, if this node leads.
    pub(crate) async fn resolve(&self, id: RequestId) -> Result<v1::Fate, Error> {
        match tokio::time::timeout(self.timeout, self.handle.resolve(id)).await {
            Ok(resolved) => resolved.map(|final_fate| fate(&final_fate)).map_err(|error| self.not_submitted(&error)),
            Err(_) => Err(Error::new(ErrorCode::Timeout, "the request could not be fenced in time; resolve it again")),
        }
    }

    /// Changes the group, if this node leads.
    pub(crate) async fn change(&self, request: v1::MembersRequest) -> Result<v1::MembersResponse, Error> {
        use v1::members_request::Change;
        let log = &self.handle;
        let v1::MembersRequest { replaces, wait_ms, change } = request;
        let edit = match change.ok_or_else(|| invalid("change", "a change is required"))? {
            Change::Add(v1::AddReplica { node, address }) => {
                Edit::Add { address: self.peer_address(&node, address).await?.into(), node: named("add", node)?.into() }
            }
            Change::Promote(node) => Edit::Promote { node: named("promote", node)?.into() },
            Change::Demote(node) => Edit::Demote { node: named("demote", node)?.into() },
            Change::Remove(node) => Edit::Remove { node: named("remove", node)?.into() },
            Change::Replace(v1::ReplaceReplica { old, node, address }) => Edit::Replace {
                address: self.peer_address(&node, address).await?.into(),
                old: named("replace", old)?.into(),
                node: named("with", node)?.into(),
            },
            Change::Transfer(node) => {
                let node = named("transfer", node)?;
                log.transfer_from(&node, replaces).await.map_err(|error| self.not_changed(&error))?;
                return Ok(v1::MembersResponse { settled: true, ..v1::MembersResponse::default() });
            }
        };
        let number = log.change_from(&edit, replaces).await.map_err(|error| self.not_changed(&error))?;
        let (settled, obstacle) = match log.settled(number, Duration::from_millis(wait_ms)).await {
            Ok(()) => (true, String::new()),
            Err(ChangeError::NotSettled) => (false, log.obstacle().unwrap_or_default()),
            Err(error) => return Err(self.not_changed(&error)),
        };
        Ok(v1::MembersResponse { configuration: number, settled, obstacle })
    }

    /// Raises the feature level, if this node leads.
    pub(crate) async fn upgrade(&self) -> Result<v1::UpgradeResponse, Error> {
        match tokio::time::timeout(self.timeout, self.handle.upgrade()).await {
            Ok(Ok(level)) => Ok(v1::UpgradeResponse { level: level.0 }),
            Ok(Err(error)) => Err(self.not_changed(&error)),
            Err(_) => {
                Err(Error::new(ErrorCode::Timeout, "the level was not raised in time; run the same request again"))
            }
        }
    }

    /// Returns the address at which other replicas reach a node: the given one, or the one that this node knows.
    async fn peer_address(&self, node: &str, given: String) -> Result<String, Error> {
        if given.is_empty() { self.directory.peer_address(node).await } else { Ok(given) }
    }

    pub(crate) fn status(&self) -> v1::LogStatusResponse {
        self.shown(&self.handle.status())
    }

    fn shown(&self, status: &ReplicaStatus) -> v1::LogStatusResponse {
        let replicas = self.replicas(&status.group);
        let ids = |voter: bool| {
            let wanted = replicas.iter().filter(move |member| member.voter == voter);
            let mut ids: Vec<String> = wanted.map(|member| member.node.clone()).collect();
            ids.sort();
            ids
        };
        v1::LogStatusResponse {
            leader: status.group.leader().map(|leader| leader.node.to_string()).unwrap_or_default(),
            voters: ids(true),
            learners: ids(false),
            epoch: status.group.epoch.map(|epoch| wire_epoch(epoch).to_string()).unwrap_or_default(),
            commit: status.commit,
            applied: status.applied,
            role: status.role.as_str().to_owned(),
            node: self.directory.own(),
            log: status.log.map(|log| format!("{log:032x}")).unwrap_or_default(),
            available: status.available,
            last: status.last,
            snapshot: status.snapshot,
            purged: status.purged,
            revision: status.revision,
            keys: status.keys,
            bytes: status.bytes,
            sessions: status.sessions,
            configuration: status.configuration,
            settled: status.settled,
            fault: status.fault.clone().unwrap_or_default(),
            obstacle: status.obstacle.clone().unwrap_or_default(),
            conflict: status.conflict.as_ref().map(ToString::to_string).unwrap_or_default(),
            divergence: status.divergence.clone().unwrap_or_default(),
            level: if status.log.is_some() { status.level.0 } else { 0 },
            level_obstacle: status.level_obstacle.clone().unwrap_or_default(),
            leases: status.leases,
            locks: status.locks,
            quota: status.quota_warning().unwrap_or_default(),
            lock_holders: status.places.saturating_sub(status.waiters),
            lock_waiters: status.waiters,
            replicas,
        }
    }
}

fn named(field: &str, node: String) -> Result<String, Error> {
    if node.is_empty() { Err(invalid(field, "a node id is required")) } else { Ok(node) }
}
