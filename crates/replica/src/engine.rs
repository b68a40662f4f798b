//! A running replica: the engine, the state, and the one queue between who proposes and who appends.

use crate::config::Config;
use crate::counters::{Counting, add};
use crate::group::outcast::Said;
use crate::handle::Settling;
use crate::raft::{self, Proposal, Raft, WriteResult};
use crate::refusal::Refusal;
use crate::state::State;
use crate::status::{Group, Member};
use crate::traces;
use convoke_log::{Command, Epoch, ReplicaId};
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// Commands handed to the engine in one go.
const FORWARD_BATCH: usize = 1_024;

/// One replica of one log.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) store: crate::store::LogStore,
    pub(crate) log: u128,
    pub(crate) counting: Arc<Counting>,
    queue: mpsc::UnboundedSender<Queued>,
    proposals: Arc<Semaphore>,
    pub(crate) reads: Arc<Semaphore>,
    /// Whether a leader has lately heard from a majority.
    quorum: AtomicBool,
    /// When this replica last took something from a leader.
    led: Mutex<Option<Instant>>,
    /// The group as its leader told it, which goes on without this replica. Until a leader is heard again, or says otherwise.
    without: Mutex<Option<Group>>,
    pub(crate) config: Arc<Config>,
}

/// A command that was admitted. The queue is bounded by the permits that its items hold.
#[derive(Debug)]
pub(crate) struct Queued {
    epoch: Epoch,
    proposal: Proposal,
    responder: Settling<WriteResult>,
}

/// What an engine is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) store: crate::store::LogStore,
    pub(crate) log: u128,
    pub(crate) counting: Arc<Counting>,
    pub(crate) config: Arc<Config>,
}

impl Engine {
    /// The second value is to be given to [`forward`], which runs beside.
    pub(crate) fn new(parts: Parts) -> (Self, mpsc::UnboundedReceiver<Queued>) {
        let (queue, queued) = mpsc::unbounded_channel();
        let Parts { raft, state, store, log, counting, config } = parts;
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
                queue,
                proposals,
                reads,
                quorum,
                led: Mutex::default(),
                without: Mutex::default(),
                config,
            },
            queued,
        )
    }

    /// Admits a command and puts it in line for the log. The order of admission is the order of the log.
    pub(crate) fn propose(&self, command: &Command) -> Result<oneshot::Receiver<WriteResult>, Refusal> {
        let encoded = command.encode_checked().map_err(|error| {
            add(&self.counting.commands_rejected, 1);
            Refusal::Unreadable(error)
        })?;
        let limits = &self.config.limits;
        if encoded.len() > limits.command_bytes {
            add(&self.counting.commands_rejected, 1);
            let (found, limit) = (encoded.len() as u64, limits.command_bytes as u64);
            return Err(Refusal::TooLarge { found, limit });
        }
        if self.store.bytes() > limits.log_bytes {
            add(&self.counting.requests_rejected_busy, 1);
            return Err(Refusal::Busy { what: "bytes of the log", limit: limits.log_bytes });
        }
        if !self.has_quorum() {
            add(&self.counting.commands_rejected, 1);
            return Err(self.not_leading());
        }
        let Ok(permit) = self.proposals.clone().try_acquire_owned() else {
            add(&self.counting.requests_rejected_busy, 1);
            return Err(Refusal::Busy { what: "requests", limit: limits.proposals as u64 });
        };
        let (reply, answer) = oneshot::channel();
        let span = traces::propose(encoded.len());
        let mut term = self.state.term();
        let admitted = match term.admit(self.state.now(), command, &self.state.machine()) {
            Ok(Ok(admitted)) => admitted,
            refused => {
                drop(term);
                add(&self.counting.commands_rejected, 1);
                traces::failed(&span, "REFUSED");
                return Err(match refused {
                    Ok(Err(why)) => why.into(),
                    _ => self.not_leading(),
                });
            }
        };
        let proposal = Proposal { stamp: admitted.stamp, command: encoded };
        let responder = Settling::new(reply, self.state.clone(), admitted.epoch, admitted.admission, permit, span);
        // Still under the lock: nobody can get between admission and queue. If nobody forwards any more, the answer
        // never comes, and the sender learns that.
        let _ = self.queue.send(Queued { epoch: admitted.epoch, proposal, responder });
        drop(term);
        add(&self.counting.proposals, 1);
        Ok(answer)
    }

    /// Why a replica without a term refuses.
    pub(crate) fn not_leading(&self) -> Refusal {
        let group = self.group();
        if self.failed() {
            Refusal::Stopped
        } else if group.leader == Some(self.state.me()) {
            if self.has_quorum() { Refusal::NotReady } else { Refusal::NoQuorum(group) }
        } else {
            Refusal::NotLeader(group)
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.raft.metrics().borrow_watched().running_state.is_err()
    }

    /// Whether a majority was there when somebody last looked; if not, this replica refuses what it leads.
    pub(crate) fn has_quorum(&self) -> bool {
        self.quorum.load(Ordering::Relaxed)
    }

    /// Whether a leader has lately heard from a majority. Others need not know.
    pub(crate) fn look_for_quorum(&self) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let alone = metrics.membership_config.membership().voter_ids().eq([self.state.me().0]);
        let heard = metrics.last_quorum_acked.is_some_and(|acked| acked.elapsed() < self.patience());
        self.quorum.store(alone || heard || !metrics.state.is_leader(), Ordering::Relaxed);
    }

    /// A leader was heard.
    pub(crate) fn heard_leader(&self) {
        *self.lock_led() = Some(Instant::now());
        *self.lock_without() = None;
    }

    /// Whether a leader was lately heard. The engine remembers the last one for ever, since nobody stands for election who
    /// would not be elected.
    pub(crate) fn is_led(&self) -> bool {
        self.lock_led().is_some_and(|at| at.elapsed() < self.patience())
    }

    /// What was answered while no leader was heard. True if it is news that the group goes on without this replica.
    pub(crate) fn was_told(&self, said: Said) -> bool {
        said.note(&mut self.lock_without())
    }

    /// The group that goes on without this replica, if its leader said so.
    pub(crate) fn without(&self) -> Option<Group> {
        self.lock_without().clone()
    }

    /// Whether this replica was taken out of the group, as far as it knows: by what is recorded, or by what it was told. Its id is never
    /// used again (M2).
    pub(crate) fn is_removed(&self) -> bool {
        self.is_recorded_out() || self.lock_without().is_some()
    }

    /// Whether the record has a group without this replica. The engine may be on its way there.
    pub(crate) fn is_recorded_out(&self) -> bool {
        let (machine, me) = (self.state.machine(), self.state.me());
        // Below the highest id: not one that is yet to be recorded, which has only begun to catch up.
        machine.highest_replica() >= me && machine.configuration().replica(me).is_none()
    }

    fn lock_without(&self) -> std::sync::MutexGuard<'_, Option<Group>> {
        self.without.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_led(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self) -> Duration {
        2 * self.config.timers.election_timeout_max
    }

    /// The group as far as this replica knows it, the leader first.
    pub(crate) fn group(&self) -> Group {
        self.without().unwrap_or_else(|| self.own_group())
    }

    /// The same as the engine has it.
    pub(crate) fn own_group(&self) -> Group {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        // A leader that was removed from the group still has its own vote.
        let leader = metrics.current_leader.filter(|leader| *leader != self.state.me().0 || metrics.state.is_leader());
        let voters: std::collections::BTreeSet<u64> = membership.voter_ids().collect();
        let mut members: Vec<Member> = membership
            .nodes()
            .map(|(id, replica)| Member {
                replica: ReplicaId(*id),
                node: replica.node.clone(),
                address: replica.address.clone(),
                voter: voters.contains(id),
            })
            .collect();
        members.sort_by_key(|member| (Some(member.replica.0) != leader, !member.voter, member.replica));
        let epoch = Some(metrics.vote).filter(|vote| vote.committed).map(|vote| raft::epoch(&vote.leader_id));
        Group { epoch, leader: leader.map(ReplicaId), members }
    }
}

/// Hands admitted commands to the engine in their order, until there are no more.
pub(crate) async fn forward(raft: Raft, mut queued: mpsc::UnboundedReceiver<Queued>) {
    let mut batch = Vec::with_capacity(FORWARD_BATCH);
    while queued.recv_many(&mut batch, FORWARD_BATCH).await > 0 {
        for Queued { epoch, proposal, responder } in batch.drain(..) {
            // The engine compares the epoch and appends in one step; whoever waits is told what came of it.
            let written = raft.write(proposal).with_leader(raft::leader_id(epoch)).responder(responder).await;
            if written.is_err() {
                return;
            }
        }
    }
}

/// The engine's settings. A restarted leader begins a new term (E1); nobody disturbs a leader that is heard (pre-vote).
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
        // Both by bytes, in housekeeping.
        snapshot_policy: openraft::SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: u64::MAX,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    engine.validate().map_err(|error| error.to_string())
}

/// Entries in one message; bytes are the limit that counts.
const APPEND_ENTRIES: u64 = 4_096;
