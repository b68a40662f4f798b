//! The state machine as the engine drives it, shared with readers.
//!
//! Apply holds the lock of the leader's volatile state, so admission sees the state and the leadership of the same
//! moment. Answers are sent after the state they refer to is readable.

mod image;
mod snapshots;
mod term;

pub(crate) use image::Image;
pub(crate) use snapshots::Snapshots;
pub(crate) use term::{Term, deposed};

use crate::counters::add;
use crate::raft::{
    self, AppliedEntry, EngineSnapshot, Entry, LogId, Payload, SnapshotMeta, StoredMembership, Types, Vote,
};
use crate::state_hashes::StateHashes;
use convoke_base::Time;
use convoke_log::command::Body;
use convoke_log::machine::{Applied, Reply};
use convoke_log::{Command, Epoch, LogTime, Machine, ReplicaId};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{ApplyResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;

/// The state shared between engine and readers.
#[derive(Debug)]
pub(crate) struct State {
    me: ReplicaId,
    /// Terms up to this one ended before this start of the replica (E1).
    over: u64,
    started: Instant,
    /// The state after the last applied entry. The lock is held for one entry at most. Apply changes the state in place,
    /// unless a reader still holds it; then it changes a copy that shares everything else.
    machine: Mutex<Arc<Machine>>,
    /// Locked before the state.
    term: Mutex<Term>,
    /// Applied index, for waiting tasks.
    progress: watch::Sender<u64>,
    /// Number of the recorded configuration, for waiting tasks.
    configured: watch::Sender<u64>,
    /// Hashes to compare with other replicas.
    pub(crate) hashes: Arc<StateHashes>,
}

impl State {
    pub(crate) fn new(me: ReplicaId, over: u64, machine: Machine) -> Self {
        State {
            me,
            over,
            started: Instant::now(),
            progress: watch::Sender::new(machine.applied().index),
            configured: watch::Sender::new(machine.configuration().number),
            machine: Mutex::new(Arc::new(machine)),
            term: Mutex::default(),
            hashes: Arc::default(),
        }
    }

    pub(crate) fn me(&self) -> ReplicaId {
        self.me
    }

    /// Returns the state after the last applied entry.
    pub(crate) fn machine(&self) -> Arc<Machine> {
        self.lock_machine().clone()
    }

    /// Looks at the state after the last applied entry without holding it afterwards. A reader that holds the state makes
    /// apply copy it, so requests must look this way. `look` must be short, because apply waits for it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.lock_machine())
    }

    pub(crate) fn now(&self) -> Time {
        let micros = self.started.elapsed().as_micros();
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Returns the volatile state of the term that this replica leads. Do not hold it across an await.
    pub(crate) fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver for the applied index. It also fires when a command turns out not to be appended.
    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Returns a receiver for the number of the recorded configuration.
    pub(crate) fn configured(&self) -> watch::Receiver<u64> {
        self.configured.subscribe()
    }

    /// Wakes tasks that wait for what was applied.
    fn publish(&self) {
        let machine = self.machine();
        let number = machine.configuration().number;
        self.configured.send_if_modified(|configured| std::mem::replace(configured, number) != number);
        self.progress.send_replace(machine.applied().index);
    }

    pub(crate) fn wake_waiting(&self) {
        self.progress.send_modify(|_| {});
    }

    /// Ends the term in memory, and wakes tasks that wait for it.
    pub(crate) fn end_term(&self) -> bool {
        self.end_term_if(|_| true)
    }

    /// Ends the term in memory if the engine's vote shows that it is over: a later vote, or the committed vote of this
    /// term although this replica does not lead. Returns whether a term ended.
    ///
    /// An earlier vote proves nothing. The first entry of a term begins it when it is applied, and the engine may
    /// publish its vote later. If a replica ended such a term, it would lead without a term until the next election.
    pub(crate) fn end_term_if_over(&self, vote: &Vote, leads: bool) -> bool {
        let seen = raft::epoch(&vote.leader_id);
        self.end_term_if(|current| current < seen || (current == seen && vote.committed && !leads))
    }

    fn end_term_if(&self, is_over: impl FnOnce(Epoch) -> bool) -> bool {
        let over = {
            let mut term = self.term();
            let over = term.epoch().is_some_and(is_over);
            if over {
                term.end();
            }
            over
        };
        if over {
            self.wake_waiting();
        }
        over
    }

    /// Returns whether an epoch can be the current one of this replica.
    fn is_mine(&self, epoch: Epoch) -> bool {
        epoch.leader == self.me && epoch.term > self.over
    }

    fn lock_machine(&self) -> MutexGuard<'_, Arc<Machine>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies entries. The engine owns the only instance.
#[derive(Debug)]
pub(crate) struct StateMachine {
    shared: Arc<State>,
    last: Option<LogId>,
    membership: StoredMembership,
    snapshots: Arc<Snapshots>,
    /// The engine's last vote: it leads only in an epoch for which it voted for itself.
    vote: crate::store::LogStore,
    #[cfg(test)]
    gaps: bool,
}

/// An applied entry and its responder.
type Answer = (Option<ApplyResponder<Types>>, AppliedEntry);

impl StateMachine {
    pub(crate) fn new(shared: Arc<State>, snapshots: Arc<Snapshots>, vote: crate::store::LogStore) -> Self {
        let meta = snapshots.current().map(|image| image.meta).unwrap_or_default();
        StateMachine {
            shared,
            last: meta.last_log_id,
            membership: meta.last_membership,
            snapshots,
            vote,
            #[cfg(test)]
            gaps: false,
        }
    }

    /// Accepts gaps in the log, which the engine's own tests produce.
    #[cfg(test)]
    pub(crate) fn with_gaps(mut self) -> Self {
        self.gaps = true;
        self
    }

    fn apply_all(&mut self, entries: Vec<(Entry, Option<ApplyResponder<Types>>)>) -> io::Result<Vec<Answer>> {
        let shared = self.shared.clone();
        let (mut term, now) = (shared.term(), shared.now());
        let mut answers = Vec::with_capacity(entries.len());
        for (entry, responder) in entries {
            let index = raft::position(&entry.log_id).index;
            let effect = self.apply_one(entry, &mut term, now)?;
            shared.hashes.applied(index, || shared.machine());
            answers.push((responder, AppliedEntry(effect)));
        }
        drop(term);
        shared.publish();
        Ok(answers)
    }

    fn apply_one(&mut self, entry: Entry, term: &mut Term, now: Time) -> io::Result<Option<Applied>> {
        let position = raft::position(&entry.log_id);
        let mut machine = self.shared.lock_machine();
        let machine = Arc::make_mut(&mut machine);
        #[cfg(test)]
        while self.gaps && machine.applied().index + 1 < position.index {
            let index = machine.applied().index + 1;
            machine.skip(convoke_log::Position { index, ..position }).map_err(io::Error::other)?;
        }
        self.last = Some(entry.log_id);
        let mut effect = None;
        match entry.payload {
            Payload::Blank => machine.skip(position).map_err(io::Error::other)?,
            Payload::Membership(membership) => {
                machine.skip(position).map_err(io::Error::other)?;
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            Payload::Normal(proposal) => {
                // Skipping what others execute would be worse than stopping (A1).
                let command = proposal.take_command().map_err(io::Error::other)?;
                let entry =
                    convoke_log::Entry { index: position.index, epoch: position.epoch, stamp: proposal.stamp, command };
                let applied = machine.apply(&entry).map_err(io::Error::other)?;
                let reported = term.applied(now, &entry.command, &applied, machine);
                self.count(&entry.command, &applied, reported);
                effect = Some(applied);
            }
        }
        if self.shared.is_mine(position.epoch) && term.epoch() != Some(position.epoch) && self.leads(position.epoch) {
            // The first entry of a term that this replica leads. All earlier entries are applied, so log time is the
            // highest stamp in the log (LS5).
            let highest: LogTime = machine.log_time();
            term.begin(now, position, highest, machine);
        }
        Ok(effect)
    }

    fn count(&self, command: &Command, applied: &Applied, reported: usize) {
        let counting = self.snapshots.counting();
        let is_grant = matches!(command, Command::Request(request) if matches!(request.body, Body::Grant(_)));
        // A copy of a grant has the same outcome, at another index.
        let granted = is_grant && self.is_granted(applied);
        add(&counting.leases_granted, u64::from(granted));
        add(&counting.lock_grants, applied.granted.len() as u64);
        add(&counting.places_reported, reported as u64);
    }

    /// Returns whether the last entry granted a lease.
    fn is_granted(&self, applied: &Applied) -> bool {
        let Reply::Request(answer) = &applied.reply else { return false };
        let index = self.last.map(|last| raft::position(&last).index);
        answer.verdict.as_ref().is_ok_and(|outcome| outcome.is_applied() && Some(outcome.index()) == index)
    }

    fn leads(&self, epoch: Epoch) -> bool {
        self.vote.vote().is_some_and(|vote| vote.committed && raft::epoch(&vote.leader_id) == epoch)
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last, last_membership: self.membership.clone() }
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<(Entry, Option<ApplyResponder<Types>>)>> + Unpin + OptionalSend,
    {
        let entries: Vec<_> = entries.try_collect().await?;
        for (responder, effect) in self.apply_all(entries)? {
            if let Some(responder) = responder {
                responder.send(effect);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let image = Image { meta: self.meta(), machine: self.shared.machine() };
        Builder { image, snapshots: self.snapshots.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let image = Image { meta: meta.clone(), ..image };
        self.snapshots.save(&image).await?;
        self.last = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        {
            let mut term = self.shared.term();
            // A leader receives no snapshots, so its term is over.
            term.end();
            *self.shared.lock_machine() = image.machine.clone();
        }
        self.shared.publish();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<EngineSnapshot>> {
        Ok(self.snapshots.current().map(Image::into_engine))
    }
}

/// Writes a snapshot while apply continues (LH5).
#[derive(Debug)]
pub(crate) struct Builder {
    image: Image,
    snapshots: Arc<Snapshots>,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> io::Result<EngineSnapshot> {
        self.snapshots.save(&self.image).await?;
        Ok(self.image.clone().into_engine())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::LeaderId;
    use convoke_log::{LogLimits, Position};

    /// A task that reads the engine's vote can be delayed while the first entry of the next term is applied.
    #[test]
    fn e1_a_vote_from_before_a_term_does_not_end_it() {
        let state = State::new(ReplicaId(1), 0, Machine::new(LogLimits::default()).unwrap());
        let begin = || {
            let position = Position { index: 2, epoch: Epoch::new(3, 1) };
            state.term().begin(state.now(), position, LogTime::ZERO, &state.machine());
        };
        let vote = |term, node_id, committed| Vote { leader_id: LeaderId { term, node_id }, committed };
        begin();
        for earlier in [vote(0, 1, true), vote(2, 5, true), vote(3, 1, false)] {
            assert!(!state.end_term_if_over(&earlier, false), "{earlier:?}");
        }
        assert!(!state.end_term_if_over(&vote(3, 1, true), true), "it leads");
        for later in [vote(3, 1, true), vote(3, 2, false), vote(4, 1, false)] {
            assert!(state.end_term_if_over(&later, false), "{later:?}");
            assert_eq!(state.term().epoch(), None);
            begin();
        }
        assert!(state.end_term());
        assert!(!state.end_term());
    }
}
