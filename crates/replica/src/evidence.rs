//! Collects and uses the evidence of what replicas have acknowledged (M6).

use crate::acknowledgements::{AcknowledgementTable, RolledBack, Seen};
use crate::engine::Engine;
use crate::mutant::seam;
use crate::net::message::{AppendExtras, Ballot};
use crate::plane::Plane;
use crate::raft::Vote;
use crate::state_hashes::Divergence;
use crate::store::disk::{Disk, read, replace};
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const FILE: &str = "evidence";
/// How often a leader updates what it tells others. Younger acknowledgements are unknown to them.
const COLLECT_INTERVAL: Duration = Duration::from_millis(50);
/// How often changed evidence is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest time between two comparisons of state hashes. They cost as much as encoding all log sessions.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Reads saved evidence. It is a help and not a part of the log, so a damaged file is ignored.
pub(crate) fn load(disk: &dyn Disk, acknowledgements: &AcknowledgementTable) {
    let loaded = match read(disk, FILE) {
        Ok(bytes) => checked(&bytes).map_or(Err("wrong checksum".to_owned()), |content| {
            acknowledgements.load(content).map_err(|error| error.to_string())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = loaded {
        tracing::warn!(path = %disk.path(FILE).display(), %error, "evidence of other replicas ignored");
    }
}

fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(content)
}

/// Collects evidence while this replica leads, and saves it from time to time.
pub(crate) async fn keep(plane: Arc<Plane>, engine: Arc<Engine>) {
    let mut saved = Instant::now();
    let mut stall = Stall::default();
    loop {
        engine.collect_evidence(&mut stall);
        if let Some(divergence) = engine.acknowledgements.hashes.compute(engine.config.mutation) {
            engine.report(&divergence);
        }
        if saved.elapsed() >= SAVE_INTERVAL {
            saved = Instant::now();
            save(&plane, &engine).await;
        }
        tokio::time::sleep(COLLECT_INTERVAL).await;
    }
}

async fn save(plane: &Plane, engine: &Engine) {
    let members = engine.state.machine();
    engine.acknowledgements.retain(|replica| {
        let id = convoke_log::ReplicaId(replica);
        members.highest_replica() < id || members.configuration().replica(id).is_some()
    });
    let (Some(disk), Some(mut bytes)) = (plane.disk(), engine.acknowledgements.take_unsaved()) else { return };
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let written = match disk.simulated_latency() {
        Some(latency) => {
            tokio::time::sleep(latency).await;
            replace(&*disk, FILE, &bytes)
        }
        None => {
            let written = tokio::task::spawn_blocking(move || replace(&*disk, FILE, &bytes)).await;
            written.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
    };
    if let Err(error) = written {
        tracing::warn!(node = %plane.config.node, %error, "evidence of other replicas not saved");
    }
}

/// State of a leader between two collections: since when it leads, and since when it has committed nothing although
/// entries wait.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<(u64, Instant)>,
    /// Since when this replica leads.
    led: Option<Instant>,
    /// When it last named an index for state hashes, and its last entry at the last collection.
    checked: Option<Instant>,
    last: u64,
}

impl Stall {
    /// Returns how long this replica has led.
    fn led_for(&mut self) -> Duration {
        self.led.get_or_insert_with(Instant::now).elapsed()
    }

    /// Returns whether the commit index has not moved for `timeout` although it lags behind.
    fn is_stalled(&mut self, commit: u64, last: u64, timeout: Duration) -> bool {
        if commit >= last {
            self.since = None;
            return false;
        }
        match self.since {
            Some((at, since)) if at == commit => since.elapsed() >= timeout,
            _ => {
                self.since = Some((commit, Instant::now()));
                false
            }
        }
    }
}

impl Engine {
    fn collect_evidence(&self, stall: &mut Stall) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if !metrics.state.is_leader() {
            *stall = Stall::default();
            self.acknowledgements.clear_refused();
            return;
        }
        let index = |log_id: Option<u64>| log_id.map_or(0, |index| index + 1);
        let commit = index(metrics.local_committed.map(|log_id| log_id.index));
        let last = index(metrics.last_log_index);
        self.acknowledgements.set_stalled(stall.is_stalled(commit, last, 2 * self.contact_timeout()));
        self.name_check(stall);
        let me = self.state.me().0;
        let (timeout, is_new) = (self.contact_timeout(), stall.led_for() < self.contact_timeout());
        let heartbeats = metrics.heartbeat.iter().flatten();
        let unreachable = heartbeats
            .filter(|(id, acked)| **id != me && acked.as_ref().map_or(!is_new, |acked| acked.elapsed() >= timeout));
        // A process that has ended refuses connections long before it counts as silent.
        let refused = self.acknowledgements.refused();
        let unreachable = unreachable.map(|(id, _)| *id).chain(refused).collect();
        self.acknowledgements.set_unreachable(unreachable);
        for (replica, matched) in metrics.replication.iter().flatten() {
            let matched = index(matched.map(|log_id| log_id.index));
            if matched == 0 {
                // It has not answered this leader yet.
                continue;
            }
            let seen = Seen { leader: metrics.vote.leader_id, matched, committed: matched.min(commit) };
            self.acknowledgements.record(*replica, seen);
        }
    }

    /// Names the next index at which replicas compare their states (LH6). It must be an index that no message contains
    /// yet, so a busy leader adds what it may append before its next message.
    fn name_check(&self, stall: &mut Stall) {
        let last = self.store.last().map_or(0, |last| last.index + 1);
        let grown = last.saturating_sub(std::mem::replace(&mut stall.last, last));
        let is_due = stall.checked.is_none_or(|checked| checked.elapsed() >= CHECK_INTERVAL);
        if is_due && last >= self.acknowledgements.hashes.wanted() {
            stall.checked = Some(Instant::now());
            self.acknowledgements.hashes.want(last + 1 + 2 * grown);
        }
    }

    fn report(&self, divergence: &Divergence) {
        crate::counters::add(&self.counting.divergences, 1);
        let Divergence { index, own, leader } = divergence;
        tracing::error!(
            node = %self.config.node, replica = %self.state.me(), index,
            own = %format_args!("{own:032x}"), leader = %format_args!("{leader:032x}"),
            "replica state differs from the leader"
        );
    }

    /// Returns the index up to which this replica has entries or state.
    fn has(&self) -> u64 {
        let last = self.store.last().map_or(0, |last| last.index + 1);
        last.max(self.state.machine().applied().index)
    }

    /// Adds evidence about this replica, and rejects the message that carried it if this replica has lost data.
    fn check_own_data(&self, about_me: Option<Seen>) -> Result<(), String> {
        seam!(in self.config.mutation, EvidenceIgnored => return Ok(()));
        if let Some(seen) = about_me {
            // First the entries, then the vote: a later leader may truncate in between.
            let has = self.has();
            if let Err(lost) = seen.check(self.store.vote(), has) {
                self.exclude(lost);
            }
        }
        self.excluded().map_or(Ok(()), Err)
    }

    /// Rejects a candidate that has lost data.
    fn check_candidate(&self, vote: &Vote, has: u64) -> Result<(), String> {
        seam!(in self.config.mutation, EvidenceIgnored => return Ok(()));
        let candidate = vote.leader_id.node_id;
        let Some(seen) = self.acknowledgements.of(candidate) else { return Ok(()) };
        seen.check_candidate(has).map_err(|lost| format!("the data of replica {candidate} went back in time: {lost}"))
    }

    /// Adds the evidence in a leader's message, and rejects the message if this replica has lost data.
    pub(crate) fn apply_extras(&self, vote: &Vote, extras: &AppendExtras) -> Result<(), String> {
        let me = self.state.me().0;
        // An outdated leader's extras are ignored: they may no longer hold.
        if self.store.vote().is_none_or(|own| own <= *vote) {
            self.acknowledgements.set_stalled(extras.stalled);
            self.acknowledgements.set_unreachable(extras.unreachable.clone());
            self.acknowledgements.hashes.want(extras.check);
            if let Some(divergence) = extras.checked.and_then(|checked| self.acknowledgements.hashes.compare(checked)) {
                self.report(&divergence);
            }
        }
        for (replica, seen) in &extras.seen {
            self.acknowledgements.record(*replica, *seen);
        }
        self.check_own_data(extras.seen.iter().find(|(replica, _)| *replica == me).map(|(_, seen)| *seen))
    }

    /// Rejects a candidacy if the candidate or this replica has lost data.
    pub(crate) fn judge(&self, ballot: &Ballot, about_me: Option<Seen>) -> Result<(), String> {
        self.check_own_data(about_me)?;
        self.check_candidate(&ballot.vote, ballot.last_log_id.map_or(0, |last| last.index + 1))
    }

    /// Stops taking part in the group: this replica has lost data that it acknowledged.
    fn exclude(&self, lost: RolledBack) {
        let node = &self.config.node;
        let reason = format!(
            "the log data of node {node} went back in time: {lost}; stop the node, move its log directory away, start \
             it and run `convoke log replace {node} {node}`"
        );
        if self.set_excluded(reason.clone()) {
            tracing::error!(%node, replica = %self.state.me(), %reason, "replica excluded: its data went back in time");
            self.raft.runtime_config().elect(false);
        }
    }
}
