//! Elections without waiting, after the process of the leader has ended (M7).
//!
//! The evidence of a replica is its own: the leader's connection ended, and the leader's address refuses connections. A
//! silent leader is no evidence. A majority of voters must have evidence before one of them starts an election.

use crate::counters::add;
use crate::engine::Engine;
use crate::mutant::seam;
use crate::net::client::{ANSWER_TIMEOUTS, link};
use crate::net::message::{Ballot, Lost, Target, kind};
use crate::plane::Plane;
use crate::raft::LeaderId;
use convoke_log::command::ReplicaLocation;
use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Time for the leader's address to refuse a connection. Silence is no evidence.
const DIAL_TIMEOUT: Duration = Duration::from_millis(200);
/// A process that is being killed may close its connections before its listener.
const DIALS: u32 = 4;
const DIAL_PAUSE: Duration = Duration::from_millis(15);
/// Head start of a voter over the next one, so that one of them usually wins.
const STEP: Duration = Duration::from_millis(60);
/// Time that a voter waits for its own evidence when another one asks.
const EVIDENCE_WAIT: Duration = Duration::from_millis(150);

/// Reacts to the end of a connection from a node: if it was the leader, finds out whether its process has ended.
pub(crate) fn connection_ended(plane: &Arc<Plane>, engine: &Arc<Engine>, node: &str) {
    let Some((leader, location)) = engine.followed() else { return };
    if location.node != node || engine.has_lost(&leader) {
        return;
    }
    let (plane_, engine) = (plane.clone(), engine.clone());
    plane.spawn(async move {
        let ended = has_ended(&plane_, &location).await;
        // Several connections end together; the first of them continues.
        if ended && engine.followed().is_some_and(|(followed, _)| followed == leader) && engine.set_lost(leader) {
            add(&engine.counting.leaders_lost, 1);
            tracing::info!(node = %plane_.config.node, leader = %location.node, "process of log leader ended");
            campaign(&plane_, &engine, leader).await;
        }
    });
}

/// Returns whether nothing listens at any address of a node any more.
async fn has_ended(plane: &Plane, location: &ReplicaLocation) -> bool {
    let mut addresses = vec![location.address.clone()];
    addresses.extend(plane.dialer.find(&location.node).map(Into::into).filter(|found| *found != location.address));
    for _ in 0..DIALS {
        let dials = addresses.iter().map(|address| timeout(DIAL_TIMEOUT, plane.dialer.dial(address)));
        let refused = |dialled: &Result<io::Result<_>, _>| matches!(dialled, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused);
        if join_all(dials).await.iter().all(refused) {
            return true;
        }
        sleep(DIAL_PAUSE).await;
    }
    false
}

/// Starts an election if a majority of the voters has evidence too.
async fn campaign(plane: &Plane, engine: &Engine, leader: LeaderId) {
    let (configs, nodes) = engine.voters();
    let me = engine.state.me().0;
    let candidates: BTreeSet<u64> = configs.iter().flatten().copied().filter(|id| *id != leader.node_id).collect();
    let Some(rank) = candidates.iter().position(|id| *id == me) else { return };
    sleep(STEP * u32::try_from(rank).unwrap_or(u32::MAX).min(16)).await;
    let is_current = || engine.has_lost(&leader) && engine.store.vote().is_some_and(|vote| vote.leader_id == leader);
    if !is_current() {
        return;
    }
    let question = Lost { leader, last: engine.store.last() }.encode();
    let asking = nodes.iter().filter(|(id, _)| candidates.contains(id) && *id != me).map(|(id, node)| {
        let to = (Target { log: engine.log, replica: *id }, node);
        let deadline = ANSWER_TIMEOUTS * plane.config.timers.rpc_timeout;
        let link = link(&plane.config, &plane.dialer, &plane.counting, &node.address, Some(to), deadline);
        let question = question.clone();
        async move { matches!(link.ask(kind::LOST, question).await.as_deref(), Ok([1])).then_some(*id) }
    });
    let mut agreed: BTreeSet<u64> = join_all(asking).await.into_iter().flatten().collect();
    agreed.insert(me);
    seam!(in engine.config.mutation, LossUnconfirmed => agreed = candidates);
    let is_majority = |config: &BTreeSet<u64>| 2 * config.intersection(&agreed).count() > config.len();
    if !is_current() {
        return;
    }
    if configs.iter().all(is_majority) && engine.excluded().is_none() {
        add(&engine.counting.elections_early, 1);
        // Fails only if the engine has stopped.
        let _ = engine.raft.trigger().elect(false).await;
    } else {
        add(&engine.counting.elections_early_declined, 1);
    }
}

impl Engine {
    /// Returns the leader that this replica follows, and its location.
    fn followed(&self) -> Option<(LeaderId, ReplicaLocation)> {
        let vote = self.store.vote().filter(|vote| vote.committed)?;
        let (id, me) = (vote.leader_id.node_id, self.state.me().0);
        let (_, nodes) = self.voters();
        let location = nodes.into_iter().find(|(node, _)| *node == id && *node != me)?.1;
        Some((vote.leader_id, location))
    }

    /// Returns the configurations whose majorities decide, and the locations of all replicas.
    fn voters(&self) -> (Vec<BTreeSet<u64>>, Vec<(u64, ReplicaLocation)>) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let nodes = membership.nodes().map(|(id, node)| (*id, node.clone())).collect();
        (membership.get_joint_config().clone(), nodes)
    }

    /// Answers another voter that has evidence: whether this one has evidence too, and would vote for it.
    pub(crate) async fn confirm_loss(&self, lost: &Lost) -> bool {
        let mut own = self.lost.subscribe();
        let evidence = timeout(EVIDENCE_WAIT, own.wait_for(|own| *own == Some(lost.leader))).await;
        let follows = self.store.vote().is_some_and(|vote| vote.leader_id == lost.leader);
        matches!(evidence, Ok(Ok(_))) && follows && lost.last >= self.store.last()
    }

    /// Lets the engine vote although the lease of its leader has not expired, if this replica has evidence that the
    /// leader has ended.
    pub(crate) fn waive_lease(&self, ballot: &mut Ballot) {
        seam!(in self.config.mutation, LossUnconfirmed => ballot.leadership_transfer = true);
        if self.store.vote().is_some_and(|vote| vote.committed && self.has_lost(&vote.leader_id)) {
            ballot.leadership_transfer = true;
        }
    }

    fn has_lost(&self, leader: &LeaderId) -> bool {
        self.lost.borrow().as_ref() == Some(leader)
    }

    /// Returns true if it is new.
    fn set_lost(&self, leader: LeaderId) -> bool {
        self.lost.send_replace(Some(leader)) != Some(leader)
    }

    /// Forgets the evidence: a leader has made contact.
    pub(crate) fn found_leader(&self) {
        self.lost.send_if_modified(|lost| lost.take().is_some());
    }
}
