//! Three servers with logs, terms and elections: the part of Raft that decides which entries are committed.
//!
//! Replication copies directly from one log to another; the faults are in the choice of source, target and time. A
//! restarted server keeps its log and term, and takes everything else from its last snapshot.

use super::reads::PendingRead;
use super::{Check, Violation};
use convoke_base::Time;
use convoke_log::leader::LeaderTerm;
use convoke_log::machine::Applied;
use convoke_log::{Command, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine, Mutation, Position};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const SERVERS: usize = 3;
const MAJORITY: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogEntry {
    pub(super) epoch: Epoch,
    pub(super) stamp: LogTime,
    /// `None` for the first entry of a term.
    pub(super) command: Option<Command>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) log: Vec<LogEntry>,
    pub(super) term: u64,
    pub(super) lead: Option<Lead>,
    pub(super) commit: u64,
    pub(super) machine: Machine,
    snapshot: Option<Vec<u8>>,
    /// Offset of the clock.
    clock: Duration,
    pub(super) asleep_until: Time,
    /// Running time, plus one second per pause: what counts as silence of clients.
    pub(super) running: Duration,
}

/// Volatile state of a leader, and what the checks know about it.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) term: u64,
    pub(super) state: LeaderTerm,
    matched: [u64; SERVERS],
    pub(super) reads: Vec<PendingRead>,
    /// Running time at the last keep-alive of each session, or at the election.
    pub(super) kept_alive_at: BTreeMap<LogSessionId, Duration>,
    pub(super) elected: Duration,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) servers: Vec<Server>,
    pub(super) now: Time,
    pub(super) mutation: Mutation,
    limits: LogLimits,
    pub(super) level: Level,
    /// The committed entries.
    truth: Vec<LogEntry>,
}

fn restore(bytes: &[u8]) -> Result<Machine, Violation> {
    Machine::from_snapshot(bytes).map_err(|error| Violation::new("snapshots", error.to_string()))
}

impl Server {
    pub(super) fn clock(&self, now: Time) -> Time {
        now + self.clock
    }

    pub(super) fn is_paused(&self, now: Time) -> bool {
        now < self.asleep_until
    }

    fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch.term), self.log.len())
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.lead.as_ref().map(|lead| lead.state.first().epoch)
    }

    /// Appends as the leader and returns the index.
    pub(super) fn append(&mut self, now: Time, command: Command) -> u64 {
        let now = self.clock(now);
        let lead = self.lead.as_mut().expect("only a leader appends");
        let entry =
            LogEntry { epoch: lead.state.first().epoch, stamp: lead.state.stamper.stamp(now), command: Some(command) };
        self.log.push(entry);
        self.log.len() as u64
    }
}

impl Cluster {
    pub(super) fn new(limits: LogLimits, level: Level, mutation: Mutation, rng: &mut fastrand::Rng) -> Self {
        let servers = (0..SERVERS)
            .map(|_| Server {
                log: Vec::new(),
                term: 0,
                lead: None,
                commit: 0,
                machine: Machine::created(limits.clone(), level).unwrap().with_mutation(mutation),
                snapshot: None,
                clock: Duration::from_millis(rng.u64(..1_000_000)),
                asleep_until: Time::ZERO,
                running: Duration::ZERO,
            })
            .collect();
        Cluster { servers, now: Time::ZERO, mutation, limits, level, truth: Vec::new() }
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        (0..SERVERS).filter(|at| self.servers[*at].lead.is_some()).collect()
    }

    /// Lets `candidate` win a term with the vote of `voter`, unless the voter's log is longer. The third server does
    /// not learn of it.
    pub(super) fn elect(&mut self, candidate: usize, voter: usize) -> bool {
        if candidate == voter || self.servers[voter].last() > self.servers[candidate].last() {
            return false;
        }
        let term = self.servers.iter().map(|server| server.term).max().unwrap_or(0) + 1;
        for at in [candidate, voter] {
            self.servers[at].term = term;
            self.servers[at].lead = None;
        }
        let now = self.now;
        let server = &mut self.servers[candidate];
        let epoch = Epoch::new(term, candidate as u64 + 1);
        let highest = server.log.iter().map(|entry| entry.stamp).max().unwrap_or_default();
        let first = Position { index: server.log.len() as u64 + 1, epoch };
        let state = LeaderTerm::elected(server.clock(now), first, highest, &server.machine);
        server.log.push(LogEntry { epoch, stamp: highest, command: None });
        let (kept_alive_at, elected) = (BTreeMap::new(), server.running);
        server.lead = Some(Lead { term, state, matched: [0; SERVERS], reads: Vec::new(), kept_alive_at, elected });
        true
    }

    /// Sends up to `count` entries from a leader to another server; the leader learns of it if the answer arrives.
    pub(super) fn replicate(&mut self, from: usize, to: usize, count: usize, answered: bool) -> Check {
        let Some((term, commit)) = self.leads_over(from, to) else { return Ok(()) };
        let source = self.servers[from].log.clone();
        let follower = &mut self.servers[to];
        let common = source.iter().zip(&follower.log).take_while(|(a, b)| a.epoch == b.epoch).count();
        if common < source.len() && common < follower.log.len() {
            follower.log.truncate(common);
        }
        let until = source.len().min(common + count);
        if follower.log.len() < until {
            follower.log.extend_from_slice(&source[follower.log.len()..until]);
        }
        let matched = common.max(until) as u64;
        follower.commit = follower.commit.max(commit.min(matched));
        if answered {
            let leader = &mut self.servers[from];
            let length = leader.log.len() as u64;
            let lead = leader.lead.as_mut().expect("checked above");
            lead.matched[to] = lead.matched[to].max(matched);
            lead.matched[from] = length;
            let mut matched = lead.matched;
            matched.sort_unstable();
            let safe = matched[SERVERS - MAJORITY];
            if safe > leader.commit && leader.log[safe as usize - 1].epoch.term == term {
                leader.commit = safe;
            }
        }
        self.commit_truth()
    }

    /// Returns the term if the other server accepts the leader; a leader that meets a higher term steps down.
    fn leads_over(&mut self, from: usize, to: usize) -> Option<(u64, u64)> {
        let (term, higher) = (self.servers[from].lead.as_ref()?.term, self.servers[to].term);
        if from == to {
            return None;
        }
        if higher > term {
            self.servers[from].lead = None;
            self.servers[from].term = higher;
            return None;
        }
        if higher < term {
            self.servers[to].lead = None;
            self.servers[to].term = term;
        }
        Some((term, self.servers[from].commit))
    }

    /// Checks the harness itself: committed entries do not change.
    fn commit_truth(&mut self) -> Check {
        for server in &self.servers {
            let committed = server.commit as usize;
            let known = committed.min(self.truth.len());
            if server.log.len() < committed || server.log[..known] != self.truth[..known] {
                return Err(Violation::new("harness", "a committed entry was lost".to_owned()));
            }
            if committed > known {
                self.truth.extend_from_slice(&server.log[known..committed]);
            }
        }
        Ok(())
    }

    /// Applies the next committed entry, if there is one.
    pub(super) fn apply_next(&mut self, at: usize) -> Option<(Position, LogEntry, Option<Applied>)> {
        let now = self.now;
        let server = &mut self.servers[at];
        let index = server.machine.applied().index + 1;
        if index > server.commit {
            return None;
        }
        let entry = server.log[index as usize - 1].clone();
        let position = Position { index, epoch: entry.epoch };
        let Some(command) = &entry.command else {
            server.machine.skip(position).unwrap();
            return Some((position, entry, None));
        };
        let applied = server
            .machine
            .apply(&Entry { index, epoch: entry.epoch, stamp: entry.stamp, command: command.clone() })
            .unwrap();
        let clock = server.clock(now);
        if let Some(lead) = &mut server.lead {
            lead.state.applied(clock, command, &applied, &server.machine);
        }
        Some((position, entry, Some(applied)))
    }

    pub(super) fn take_snapshot(&mut self, at: usize) {
        let server = &mut self.servers[at];
        server.snapshot = Some(server.machine.snapshot().to_bytes());
    }

    pub(super) fn restart(&mut self, at: usize) -> Check {
        let machine = match &self.servers[at].snapshot {
            Some(bytes) => restore(bytes)?,
            None => Machine::created(self.limits.clone(), self.level).unwrap(),
        };
        let server = &mut self.servers[at];
        server.machine = machine.with_mutation(self.mutation);
        server.commit = server.machine.applied().index;
        server.lead = None;
        Ok(())
    }

    /// Sends the last snapshot of a leader instead of entries.
    pub(super) fn install_snapshot(&mut self, from: usize, to: usize) -> Check {
        if self.leads_over(from, to).is_none() {
            return Ok(());
        }
        let Some(bytes) = &self.servers[from].snapshot else { return Ok(()) };
        let machine = restore(bytes)?.with_mutation(self.mutation);
        let index = machine.applied().index;
        if index <= self.servers[to].machine.applied().index {
            return Ok(());
        }
        let source = self.servers[from].log[..index as usize].to_vec();
        let snapshot = self.servers[from].snapshot.clone();
        let follower = &mut self.servers[to];
        let common = source.iter().zip(&follower.log).take_while(|(a, b)| a.epoch == b.epoch).count();
        if common < source.len() {
            follower.log = source;
        }
        (follower.machine, follower.snapshot) = (machine, snapshot);
        follower.commit = follower.commit.max(index);
        self.commit_truth()
    }

    /// Returns whether a majority still follows the leader.
    pub(super) fn is_confirmed(&self, at: usize) -> bool {
        let term = self.servers[at].lead.as_ref().map_or(0, |lead| lead.term);
        let followers = self.servers.iter().filter(|server| server.term <= term && !server.is_paused(self.now));
        followers.count() >= MAJORITY
    }
}
