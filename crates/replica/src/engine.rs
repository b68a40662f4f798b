//! A running replica: the engine, the state, and the queue between admission and the engine.

use crate::acknowledgements::AcknowledgementTable;
use crate::config::Config;
use crate::counters::{Counting, add};
use crate::group::removal::Verdict;
use crate::handle::Settling;
use crate::keep_alives::KeepAlives;
use crate::net::Senders;
use crate::raft::{self, LeaderId, Proposal, Raft, WriteResult};
use crate::rejection::LogRejection;
use crate::state::State;
use crate::status::{Group, GroupReplica};
use crate::traces;
use convoke_log::{Command, Epoch, ReplicaId};
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Maximum number of commands handed to the engine at once.
const FORWARD_BATCH: usize = 1_024;

/// One replica of one log.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) store: crate::store::LogStore,
    pub(crate) log: u128,
    pub(crate) counting: Arc<Counting>,
    pub(crate) acknowledgements: Arc<AcknowledgementTable>,
    /// The leader whose process has ended, as this replica has seen itself (M7).
    pub(crate) lost: watch::Sender<Option<LeaderId>>,
    /// Why this replica takes no part in the group: its disk went back in time (M6).
    excluded: Mutex<Option<String>>,
    queue: mpsc::UnboundedSender<Queued>,
    proposals: Arc<Semaphore>,
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) keep_alives: KeepAlives,
    /// Whether a leader had recent contact with a majority.
    quorum: AtomicBool,
    /// When this replica last accepted a message from a leader.
    led: Mutex<Option<Instant>>,
    /// The group as reported by its leader, after this replica was removed. Cleared when a leader contacts this replica
    /// or reports it as a member.
    group_after_removal: Mutex<Option<Group>>,
    /// Nodes of replicas that no configuration lists yet (TS4).
    senders: Mutex<Senders>,
    pub(crate) config: Arc<Config>,
}

/// An admitted command. Each item holds a permit, which bounds the queue.
#[derive(Debug)]
pub(crate) struct Queued {
    epoch: Epoch,
    proposal: Proposal,
    responder: Settling<WriteResult>,
}

impl Engine {
    /// Returns the numbers of proposals and of reads that are not answered yet.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        let limits = &self.config.limits;
        let used = |limit: usize, semaphore: &Semaphore| limit.saturating_sub(semaphore.available_permits());
        (used(limits.proposals, &self.proposals), used(limits.reads, &self.reads))
    }

    /// Creates an engine. Pass the second value to [`forward`], which runs in its own task.
    pub(crate) fn new(
        raft: Raft,
        state: Arc<State>,
        store: crate::store::LogStore,
        log: u128,
        counting: Arc<Counting>,
        acknowledgements: Arc<AcknowledgementTable>,
        config: Arc<Config>,
    ) -> (Self, mpsc::UnboundedReceiver<Queued>) {
        #[allow(clippy::disallowed_methods, reason = "each entry holds a permit of `proposals`")]
        let (queue, queued) = mpsc::unbounded_channel();
        let proposals = Arc::new(Semaphore::new(config.limits.proposals));
        let reads = Arc::new(Semaphore::new(config.limits.reads));
        let quorum = AtomicBool::new(true);
        (
            Engine {
                raft,
                state,
                store,
                log,
                counting,
                acknowledgements,
                lost: watch::Sender::new(None),
                excluded: Mutex::default(),
                queue,
                proposals,
                reads,
                keep_alives: KeepAlives::default(),
                quorum,
                led: Mutex::default(),
                group_after_removal: Mutex::default(),
                senders: Mutex::default(),
                config,
            },
            queued,
        )
    }

    /// Admits a command and queues it for the log. The order of admission is the order of the log.
    pub(crate) fn propose(&self, command: &Command) -> Result<oneshot::Receiver<WriteResult>, LogRejection> {
        let (encoded, decoded) = command.encode_checked().map_err(|error| {
            add(&self.counting.commands_rejected, 1);
            LogRejection::Unreadable(error)
        })?;
        let limits = &self.config.limits;
        if encoded.len() > limits.command_bytes {
            add(&self.counting.commands_rejected, 1);
            let (found, limit) = (encoded.len() as u64, limits.command_bytes as u64);
            return Err(LogRejection::TooLarge { found, limit });
        }
        if self.store.bytes() > limits.log_bytes {
            add(&self.counting.requests_rejected_busy, 1);
            return Err(LogRejection::Busy { what: "bytes of the log", limit: limits.log_bytes });
        }
        if !self.has_quorum() {
            add(&self.counting.commands_rejected, 1);
            return Err(self.not_leading());
        }
        let Ok(permit) = self.proposals.clone().try_acquire_owned() else {
            add(&self.counting.requests_rejected_busy, 1);
            return Err(LogRejection::Busy { what: "requests", limit: limits.proposals as u64 });
        };
        let (reply, answer) = oneshot::channel();
        let span = traces::propose(encoded.len());
        let mut term = self.state.term();
        let admitted = match term.admit(self.state.now(), command, &self.state.machine()) {
            Ok(Ok(admitted)) => admitted,
            rejected => {
                drop(term);
                add(&self.counting.commands_rejected, 1);
                traces::failed(&span, "REJECTED");
                return Err(match rejected {
                    Ok(Err(why)) => why.into(),
                    _ => self.not_leading(),
                });
            }
        };
        let proposal = Proposal::new(admitted.stamp, encoded, decoded);
        let responder = Settling::new(reply, self.state.clone(), admitted.epoch, admitted.admission, permit, span);
        // Still under the lock, so admission order equals queue order. If `forward` has ended, the responder is dropped
        // and the caller gets an unknown outcome.
        let _ = self.queue.send(Queued { epoch: admitted.epoch, proposal, responder });
        drop(term);
        add(&self.counting.proposals, 1);
        Ok(answer)
    }

    /// Returns why a replica without a term rejects requests.
    pub(crate) fn not_leading(&self) -> LogRejection {
        let group = self.group();
        if self.failed() {
            LogRejection::Stopped
        } else if group.leader == Some(self.state.me()) {
            if self.has_quorum() { LogRejection::NotReady } else { LogRejection::NoQuorum(group) }
        } else {
            LogRejection::NotLeader(group)
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.raft.metrics().borrow_watched().running_state.is_err()
    }

    /// Returns whether a majority was reachable at the last check. Without one, a leader rejects requests.
    pub(crate) fn has_quorum(&self) -> bool {
        self.quorum.load(Ordering::Relaxed)
    }

    /// Updates whether the leader had recent contact with a majority. Always true for other roles.
    pub(crate) fn update_quorum(&self) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let alone = metrics.membership_config.membership().voter_ids().eq([self.state.me().0]);
        let acked = metrics.last_quorum_acked.is_some_and(|acked| acked.elapsed() < self.contact_timeout());
        self.quorum.store(alone || acked || !metrics.state.is_leader(), Ordering::Relaxed);
    }

    /// Records contact with a leader.
    pub(crate) fn record_leader_contact(&self) {
        *self.lock_led() = Some(Instant::now());
        self.found_leader();
        *self.lock_group_after_removal() = None;
    }

    /// Returns whether a leader was in contact recently, and this replica has no evidence that it has ended (M7). The
    /// engine itself keeps the last leader indefinitely, because a replica that would lose an election does not start one.
    pub(crate) fn is_led(&self) -> bool {
        self.lost.borrow().is_none() && self.lock_led().is_some_and(|at| at.elapsed() < self.contact_timeout())
    }

    /// Records the answer of the other replicas. Returns true if it newly establishes that this replica was removed.
    pub(crate) fn record_verdict(&self, verdict: Verdict) -> bool {
        verdict.record(&mut self.lock_group_after_removal())
    }

    /// Returns the group that continues without this replica, if its leader reported so.
    pub(crate) fn group_after_removal(&self) -> Option<Group> {
        self.lock_group_after_removal().clone()
    }

    /// Returns whether this replica was removed from the group, according to the record or to a leader. Its id is never
    /// reused (M2).
    pub(crate) fn is_removed(&self) -> bool {
        self.is_recorded_removed() || self.lock_group_after_removal().is_some()
    }

    /// Returns whether the recorded configuration excludes this replica. The engine may not have completed the change
    /// yet.
    pub(crate) fn is_recorded_removed(&self) -> bool {
        let (machine, me) = (self.state.machine(), self.state.me());
        // An id above the highest recorded one belongs to a replica that is still being added.
        machine.highest_replica() >= me && machine.configuration().replica(me).is_none()
    }

    fn lock_group_after_removal(&self) -> std::sync::MutexGuard<'_, Option<Group>> {
        self.group_after_removal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_led(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why this replica takes no part in the group.
    pub(crate) fn excluded(&self) -> Option<String> {
        self.excluded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if it was not excluded before.
    pub(crate) fn set_excluded(&self, reason: String) -> bool {
        self.excluded.lock().unwrap_or_else(PoisonError::into_inner).replace(reason).is_none()
    }

    /// Checks that the node at the other end of an authenticated connection is the one that a vote names (TS4).
    pub(crate) fn check_sender(&self, leader: &LeaderId, node: &str) -> Result<(), String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let configured = metrics.membership_config.membership().get_node(&leader.node_id);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.check(leader.node_id, node, configured.map(|replica| replica.node.as_str())).inspect_err(|_| {
            add(&self.counting.senders_rejected, 1);
        })
    }

    pub(crate) fn contact_timeout(&self) -> Duration {
        2 * self.config.timers.election_timeout_max
    }

    /// Returns the group as far as this replica knows it, the leader first.
    pub(crate) fn group(&self) -> Group {
        self.group_after_removal().unwrap_or_else(|| self.own_group())
    }

    /// Returns the group according to this replica's engine.
    pub(crate) fn own_group(&self) -> Group {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        // A leader that was removed from the group still has its own vote.
        let leader = metrics.current_leader.filter(|leader| *leader != self.state.me().0 || metrics.state.is_leader());
        let voters: std::collections::BTreeSet<u64> = membership.voter_ids().collect();
        let mut replicas: Vec<GroupReplica> = membership
            .nodes()
            .map(|(id, replica)| GroupReplica {
                replica: ReplicaId(*id),
                node: replica.node.clone(),
                address: replica.address.clone(),
                voter: voters.contains(id),
                unreachable: false,
            })
            .collect();
        replicas.sort_by_key(|member| (Some(member.replica.0) != leader, !member.voter, member.replica));
        let epoch = Some(metrics.vote).filter(|vote| vote.committed).map(|vote| raft::epoch(&vote.leader_id));
        Group { epoch, leader: leader.map(ReplicaId), replicas }
    }
}

/// Hands admitted commands to the engine in order, until the queue is closed.
pub(crate) async fn forward(raft: Raft, mut queued: mpsc::UnboundedReceiver<Queued>) {
    let mut batch = Vec::with_capacity(FORWARD_BATCH);
    while queued.recv_many(&mut batch, FORWARD_BATCH).await > 0 {
        for Queued { epoch, proposal, responder } in batch.drain(..) {
            // The engine compares the epoch and appends in one step. The responder reports the result.
            let written = raft.write(proposal).with_leader(raft::leader_id(epoch)).responder(responder).await;
            if written.is_err() {
                return;
            }
        }
    }
}

/// Builds the engine's configuration. A restarted leader starts a new term (E1); pre-vote protects a working leader.
pub(crate) fn config(config: &Config) -> Result<openraft::Config, String> {
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (timers, limits) = (&config.timers, &config.limits);
    let engine = openraft::Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: millis(timers.heartbeat_interval),
        election_timeout_min: millis(timers.election_timeout_min),
        election_timeout_max: millis(timers.election_timeout_max),
        install_snapshot_timeout: millis(timers.snapshot_stall),
        max_payload_entries: APPEND_ENTRIES,
        api_channel_size: Some(2 * limits.proposals as u64),
        // Housekeeping decides about both by bytes.
        snapshot_policy: openraft::SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: u64::MAX,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    engine.validate().map_err(|error| error.to_string())
}

/// Maximum entries per message; in practice the byte limit applies.
const APPEND_ENTRIES: u64 = 4_096;
