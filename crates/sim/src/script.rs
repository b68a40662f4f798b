//! The scripted part of the world, used by scenarios.

use crate::client::Holding;
use crate::faults::Action;
use crate::host::HostState;
use crate::invariants::{self, CONVERGENCE_MAX, Violation};
use crate::network::{Micros, SECOND, Site};
use crate::stats::Convergence;
use crate::world::{Crash, World};
use convoke_core::member::{Member, Status};
use convoke_session::MemberSpec;

/// How often a condition is checked.
const POLL: Micros = SECOND / 4;
/// All clients must be attached and quiet again within this time after convergence.
const CLIENTS_SETTLE: Micros = 240 * SECOND;

impl World {
    /// Lets virtual time pass.
    pub fn advance(&mut self, duration: Micros) {
        self.run_to(self.now + duration);
    }

    /// Runs until a condition holds; an error if it does not within `deadline`, or if an invariant is violated.
    pub fn run_until(&mut self, condition: impl Fn(&World) -> bool, deadline: Micros) -> Result<(), Violation> {
        let end = self.now + deadline;
        loop {
            self.finish()?;
            if condition(self) {
                return Ok(());
            }
            if self.now >= end {
                return Err(Violation::new(
                    crate::invariants::SCENARIO,
                    self.now,
                    "the condition did not become true before the deadline".to_owned(),
                ));
            }
            self.run_to((self.now + POLL).min(end));
        }
    }

    /// The first violation so far.
    pub fn finish(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Adds and starts a client with these members (service `s`), at a node of its choice.
    pub fn add_client(&mut self, id: &str, members: &[&str]) -> usize {
        let client = self.new_client(id.to_owned());
        for member in members {
            let holding = Holding::new(MemberSpec::new(*member, "s"), false);
            self.clients[client].members.insert((*member).to_owned(), holding);
        }
        self.client_start(client);
        client
    }

    /// Like `add_client`, attached to a given node first. Its session is built when the world continues.
    pub fn add_client_at(&mut self, id: &str, members: &[&str], host: usize) -> usize {
        let client = self.add_client(id, members);
        self.clients[client].prefer = Some(host);
        client
    }

    /// Cuts two groups of hosts apart, both ways. Returns the cuts to heal.
    pub fn partition(&mut self, one: &[usize], other: &[usize]) -> [u64; 2] {
        [self.one_way(one, other), self.one_way(other, one)]
    }

    /// Drops everything that the first group sends to the second; the other direction works.
    pub fn one_way(&mut self, from: &[usize], to: &[usize]) -> u64 {
        self.note(format!("cut from {from:?} to {to:?}"));
        self.cut(host_bits(from), host_bits(to))
    }

    /// Cuts a client off from some hosts, both ways.
    pub fn cut_off(&mut self, client: usize, hosts: &[usize]) -> [u64; 2] {
        let (one, other) = (Site::Client(client).bit(), host_bits(hosts));
        [self.cut(one, other), self.cut(other, one)]
    }

    /// Both ends of every connection between two hosts see it break.
    pub fn reset_between(&mut self, one: usize, other: usize) {
        for conn in self.connections_between(one, other) {
            self.reset(conn);
        }
    }

    /// Ends all faults; hosts that are not permanently lost run again.
    pub fn heal_all(&mut self) {
        self.note("everything is healed".to_owned());
        self.faults.active = false;
        let cuts: Vec<u64> = self.network.cuts.iter().map(|cut| cut.id).collect();
        for cut in cuts {
            self.heal(cut);
        }
        let spikes: Vec<u64> = self.network.spikes.iter().map(|spike| spike.id).collect();
        for spike in spikes {
            self.end_spike(spike);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_second && self.hosts[host].running() {
                self.crash(host, Crash::Process);
            }
            if self.hosts[host].is_second {
                self.hosts[host].state = HostState::Gone;
            }
            if self.hosts[host].slow > 0 {
                let boot = self.hosts[host].boot;
                self.act(Action::EndSlow { host, boot });
            }
            self.resume(host);
            if self.hosts[host].stopping && self.hosts[host].running() {
                self.crash(host, Crash::Process);
            }
            self.start(host);
        }
        for client in 0..self.clients.len() {
            self.client_resume(client);
        }
        for watcher in 0..self.watchers.len() {
            let pace = self.watchers[watcher].pace.min(SECOND);
            self.watchers[watcher].pace = pace;
            self.watchers[watcher].generation += 1;
            self.watchers[watcher].reading = false;
            self.schedule_read(watcher);
        }
    }

    /// Heals everything, requires convergence in time and settled clients, and makes the final checks.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.heal_all();
        let healed = self.now;
        let mut awaited = String::new();
        while let Err(missing) = invariants::converged(self) {
            self.finish()?;
            if self.now - healed > CONVERGENCE_MAX {
                return self.fail("converges_in_time", format!("30 s after the last fault: {missing}"));
            }
            awaited = missing;
            self.advance(POLL);
        }
        self.finish()?;
        self.stats.convergence.push(Convergence { healed, took: self.now - healed, awaited });
        let converged = self.now;
        while let Some(unsettled) = self.unsettled_client() {
            self.finish()?;
            if self.now - converged > CLIENTS_SETTLE {
                let state = format!("c{unsettled} did not settle: {:?}", self.clients[unsettled]);
                return self.fail("no_lost_registration", state);
            }
            self.advance(SECOND);
        }
        self.settle_http()?;
        self.quiesce()
    }

    /// Waits for quiescence, then makes the final checks.
    pub fn quiesce(&mut self) -> Result<(), Violation> {
        let start = self.now;
        self.advance(5 * SECOND);
        while let Err(missing) = invariants::converged(self) {
            self.finish()?;
            if self.now - start > CONVERGENCE_MAX {
                return self.fail("converges_in_time", format!("30 s without faults: {missing}"));
            }
            self.advance(POLL);
        }
        self.finish()?;
        self.check(|invariant, world, found| invariant.at_quiescence(world, found));
        self.finish()
    }

    /// All HTTP clients have repaired what was lost, and are quiet.
    fn settle_http(&mut self) -> Result<(), Violation> {
        self.http_calm();
        let start = self.now;
        let unsettled = |world: &World| {
            let clients = &world.http.clients;
            clients.iter().position(|client| !client.is_settled() || world.http_uninformed(client, start))
        };
        while let Some(client) = unsettled(self) {
            self.finish()?;
            if self.now - start > CLIENTS_SETTLE {
                let state = format!("http client {client} did not settle: {:?}", self.http.clients[client]);
                return self.fail("http_sessions_converge", state);
            }
            self.advance(SECOND);
        }
        Ok(())
    }

    fn fail(&mut self, invariant: &'static str, message: String) -> Result<(), Violation> {
        self.violate(Violation::new(invariant, self.now, message));
        self.finish()
    }

    /// Returns a client that has not settled.
    fn unsettled_client(&self) -> Option<usize> {
        self.clients.iter().position(|client| {
            // A client whose node died without an EOF has not detected it yet.
            let served = client.attached_to().is_some_and(|host| self.hosts[host].serving().is_some());
            let still = served && client.pending.is_empty() && !client.paused;
            client.alive() && !(still && self.now - client.changed_at >= 3 * SECOND)
        })
    }

    // ---- queries ----

    pub fn node(&self, host: usize) -> &convoke_core::Node {
        self.hosts[host].node.as_ref().expect("the host is running")
    }

    pub fn all_serving(&self) -> bool {
        self.hosts.iter().all(|host| !host.running() || host.serving().is_some())
    }

    pub fn member(&self, host: usize, id: &str) -> Option<Member> {
        self.hosts[host].node.as_ref()?.member(id)
    }

    pub fn status(&self, host: usize, id: &str) -> Option<Status> {
        self.member(host, id).map(|member| member.status())
    }

    /// Whether every running node shows the member with this status.
    pub fn shown_everywhere(&self, id: &str, status: Status) -> bool {
        self.running_hosts().into_iter().all(|host| self.status(host, id) == Some(status))
    }

    pub fn absent_everywhere(&self, id: &str) -> bool {
        self.running_hosts().into_iter().all(|host| self.member(host, id).is_none())
    }

    pub fn attached(&self, client: usize) -> bool {
        self.clients[client].attached_to().is_some()
    }

    /// Fails a scenario with a reason.
    pub fn require(&self, holds: bool, what: &str) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(crate::invariants::SCENARIO, self.now, what.to_owned())) }
    }
}

fn host_bits(hosts: &[usize]) -> u128 {
    hosts.iter().fold(0, |bits, host| bits | Site::Host(*host).bit())
}
