//! Random actions, and the final phase in which the network is reliable.

use super::bodies::{self, Surroundings};
use super::cluster::SERVERS;
use super::world::{Sent, Wire, World};
use super::{Check, Violation};
use convoke_log::command::Body;
use convoke_log::{Command, RequestId};
use std::time::Duration;

impl World {
    pub(super) fn act(&mut self) -> Check {
        let at = self.rng.usize(..SERVERS);
        let other = self.rng.usize(..SERVERS);
        let paused = self.cluster.servers[at].is_paused(self.cluster.now);
        let leaderless = self.cluster.leaders().is_empty();
        match self.rng.u32(..1_000) {
            400.. if paused => Ok(()),
            0..180 => {
                let client = self.rng.usize(..self.clients.len());
                self.client_acts(client)
            }
            180..370 => {
                self.deliver_to_a_server();
                Ok(())
            }
            370..400 => {
                // Bytes left in an old socket, a retransmission, or a late forwarder.
                if !self.delivered.is_empty() {
                    let again = self.delivered[self.rng.usize(..self.delivered.len())].clone();
                    self.sent.push(Sent { to: other, ..again });
                }
                Ok(())
            }
            400..560 if leaderless => {
                self.elect(at, other);
                Ok(())
            }
            400..590 => {
                let (count, answered) = (self.rng.usize(1..9), self.rng.u32(..10) > 0);
                self.replicate(other, count, answered)
            }
            590..760 => {
                let leaders = self.cluster.leaders();
                let leader = leaders.get(self.rng.usize(..leaders.len().max(1))).copied();
                let at = leader.filter(|_| self.rng.bool()).unwrap_or(at);
                let count = self.rng.usize(1..9);
                if self.cluster.servers[at].is_paused(self.cluster.now) { Ok(()) } else { self.apply(at, count) }
            }
            760..915 => self.deliver_to_a_client(),
            915..955 => {
                self.confirm_reads(at);
                self.finish_reads(at)
            }
            955..967 => {
                self.elect(at, other);
                Ok(())
            }
            967..985 => {
                self.cluster.take_snapshot(at);
                Ok(())
            }
            985..990 => {
                self.checks.count("server restarted");
                self.cluster.restart(at)
            }
            990..997 => {
                let before = self.cluster.servers[other].machine.applied();
                self.cluster.install_snapshot(at, other)?;
                if self.cluster.servers[other].machine.applied() != before {
                    self.checks.count("snapshot installed");
                }
                Ok(())
            }
            _ => {
                let longest = if self.rng.u32(..4) == 0 { 12_000 } else { 1_500 };
                let time = Duration::from_millis(self.rng.u64(300..longest));
                self.pause(at, time);
                Ok(())
            }
        }
    }

    fn elect(&mut self, candidate: usize, voter: usize) {
        let running = |at: usize| !self.cluster.servers[at].is_paused(self.cluster.now);
        if !running(candidate) || !running(voter) || !self.cluster.elect(candidate, voter) {
            return;
        }
        if self.cluster.leaders().len() > 1 {
            self.checks.count("leader deposed without knowing");
        }
        // Some clients learn of it at once.
        for index in 0..self.clients.len() {
            if self.rng.bool() && self.clients[index].session.is_some() {
                self.poll_for(index, candidate);
                self.read(index);
            }
        }
    }

    fn replicate(&mut self, to: usize, count: usize, answered: bool) -> Check {
        let leaders = self.cluster.leaders();
        if leaders.is_empty() {
            return Ok(());
        }
        let from = leaders[self.rng.usize(..leaders.len())];
        let to = if to == from { (to + 1) % SERVERS } else { to };
        let paused = |at: usize| self.cluster.servers[at].is_paused(self.cluster.now);
        if paused(from) || paused(to) {
            return Ok(());
        }
        let before = self.cluster.servers[to].log.len();
        self.cluster.replicate(from, to, count, answered)?;
        if self.cluster.servers[to].log.len() < before {
            self.checks.count("follower truncated its log");
        }
        Ok(())
    }

    fn deliver_to_a_server(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        // Mostly the last message; the others are delayed.
        let last = self.sent.len() - 1;
        let which = if self.rng.u32(..3) > 0 { last } else { self.rng.usize(..=last) };
        let mut sent = self.sent.remove(which);
        if self.rng.u32(..8) == 0 {
            sent.to = self.rng.usize(..SERVERS);
        }
        self.deliver(sent);
    }

    fn deliver_to_a_client(&mut self) -> Check {
        if self.to_clients.is_empty() {
            return Ok(());
        }
        let last = self.to_clients.len() - 1;
        let which = if self.rng.bool() { last } else { self.rng.usize(..=last) };
        let (client, message) = self.to_clients.remove(which);
        if self.rng.u32(..7) == 0 { Ok(()) } else { self.deliver_to(client, message) }
    }

    fn client_acts(&mut self, index: usize) -> Check {
        self.tick += 1;
        if self.rng.u32(..3) == 0 || self.cluster.servers[self.clients[index].leader].lead.is_none() {
            self.poll(index);
        }
        let client = &mut self.clients[index];
        let to = client.leader;
        if client.session.is_none() {
            let open = client.open();
            self.sent.push(Sent { to, what: Wire::Command(open) });
            return Ok(());
        }
        match self.rng.u32(..100) {
            0..40 if client.read.is_some() => {
                self.poll(index);
                self.read(index);
            }
            // The last client mostly only holds its session.
            10..55 if index == 3 => {}
            0..55 => self.submit(index),
            55..75 => {
                let numbers: Vec<u64> = client.outstanding.keys().copied().collect();
                for request in numbers.into_iter().filter_map(|number| client.again(number)) {
                    self.sent.push(Sent { to, what: Wire::Command(Command::Request(request)) });
                }
            }
            75..85 => self.read(index),
            85..95 => return self.peek(index),
            95..98 => {
                // Cut off for a while, while its messages are still in flight.
                client.kept_alive = self.cluster.now + client.ttl;
            }
            _ => {
                self.checks.count("client restarted");
                client.restart();
            }
        }
        Ok(())
    }

    /// A client looks for a leader and may find a deposed one.
    fn poll(&mut self, index: usize) {
        let leaders = self.cluster.leaders();
        let servers = &self.cluster.servers;
        let newest = leaders.iter().copied().max_by_key(|at| servers[*at].epoch());
        let any = leaders.get(self.rng.usize(..leaders.len().max(1))).copied();
        let found = if self.rng.u32(..4) == 0 { any } else { newest };
        if let Some(at) = found {
            let epoch = servers[at].epoch().expect("it leads");
            (self.clients[index].leader, self.clients[index].epoch) = (at, epoch);
        }
    }

    fn submit(&mut self, index: usize) {
        let others: Vec<RequestId> = self
            .clients
            .iter()
            .filter(|client| client.id != index)
            .filter_map(|client| client.issued.last().map(convoke_log::command::Request::id))
            .collect();
        let other = others.get(self.rng.usize(..others.len().max(1))).copied();
        let replica = self.rng.usize(..SERVERS);
        let mut around = Surroundings {
            configuration: self.cluster.servers[replica].machine.configuration(),
            machine: &self.cluster.servers[replica].machine,
            other,
            next_replica: &mut self.next_replica,
            value: self.tick,
        };
        let client = &mut self.clients[index];
        let body = bodies::choose(&mut self.rng, client, &mut around);
        if client.pipelined && client.outstanding.len() >= 4 {
            return;
        }
        if let Body::Fence(id) = body
            && Some(id.session) != client.session
        {
            self.fenced.insert(id);
        }
        let deadline = (self.rng.u32(..6) == 0).then(|| client.log_time + Duration::from_millis(self.rng.u64(..3_000)));
        let give_up = self.rng.u32(..5) == 0;
        let Some(request) = client.submit(body, deadline, give_up) else { return };
        self.linear.submitted(index as u64, &request, client.seen.as_ref(), self.tick);
        for _ in 0..self.rng.u32(1..3) {
            self.sent.push(Sent { to: client.leader, what: Wire::Command(Command::Request(request.clone())) });
        }
    }

    /// Begins a barrier read, or repeats an unanswered one.
    fn read(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let read = match client.read {
            Some(read) => {
                // A new attempt in the current epoch.
                let read = super::reads::ReadRequest { epoch: client.epoch, ..read };
                client.read = Some(read);
                Some(read)
            }
            None => {
                self.reads += 1;
                client.start_read(self.reads).inspect(|read| self.linear.read_started(read, self.tick))
            }
        };
        if let Some(read) = read {
            self.sent.push(Sent { to: client.leader, what: Wire::Read(read) });
        }
    }

    fn peek(&mut self, index: usize) -> Check {
        let issued = &self.clients[index].issued;
        if issued.is_empty() {
            return Ok(());
        }
        let id = issued[self.rng.usize(..issued.len())].id();
        let fate = self.cluster.servers[self.rng.usize(..SERVERS)].machine.peek(id);
        self.checks.fate(id, &fate)?;
        self.linear.fate(id, &fate, self.tick);
        Ok(())
    }

    /// Makes the network reliable: every wanted request gets its answer, and all fates are resolved.
    pub(super) fn heal(&mut self) -> Check {
        self.pass(Duration::from_secs(20))?;
        let settled = (0..12).find_map(|_| self.heal_round().transpose());
        match settled {
            Some(Ok(())) => {}
            Some(Err(violation)) => return Err(violation),
            None => {
                let left: Vec<_> = self.clients.iter().map(|client| (&client.outstanding, client.read)).collect();
                return Err(Violation::new("liveness", format!("still waiting: {left:?}")));
            }
        }
        let machine = self.cluster.servers[self.best()].machine.clone();
        for index in 0..self.clients.len() {
            for id in self.clients[index].issued.iter().map(convoke_log::command::Request::id) {
                let fate = machine.peek(id);
                self.checks.fate(id, &fate)?;
                self.linear.fate(id, &fate, self.tick);
            }
        }
        Ok(())
    }

    /// Returns a server that can win an election.
    fn best(&self) -> usize {
        let log = |at: &usize| &self.cluster.servers[*at].log;
        let last = |at: &usize| (log(at).last().map_or(0, |entry| entry.epoch.term), log(at).len());
        (0..SERVERS).max_by_key(last).expect("there are servers")
    }

    /// Runs one round; returns something once no client waits any more.
    fn heal_round(&mut self) -> Result<Option<()>, Violation> {
        self.pass(Duration::from_millis(50))?;
        let best = self.best();
        if self.cluster.servers[best].lead.is_none() {
            let voter = (best + 1) % SERVERS;
            if !self.cluster.elect(best, voter) {
                return Err(Violation::new("harness", "the longest log lost an election".to_owned()));
            }
        }
        for index in 0..self.clients.len() {
            self.poll_for(index, best);
            let client = &self.clients[index];
            if client.session.is_none() {
                continue;
            }
            let numbers: Vec<u64> = client.outstanding.keys().copied().collect();
            let again: Vec<_> = numbers.into_iter().filter_map(|number| client.again(number)).collect();
            for request in again {
                self.deliver(Sent { to: best, what: Wire::Command(Command::Request(request)) });
            }
            if self.clients[index].read.is_some() {
                self.read(index);
            }
        }
        for sent in std::mem::take(&mut self.sent) {
            self.deliver(sent);
        }
        for _ in 0..2 {
            for to in (0..SERVERS).filter(|to| *to != best) {
                self.cluster.replicate(best, to, usize::MAX / 2, true)?;
            }
        }
        for at in 0..SERVERS {
            self.apply(at, usize::MAX)?;
        }
        self.confirm_reads(best);
        self.finish_reads(best)?;
        for (client, message) in std::mem::take(&mut self.to_clients) {
            self.deliver_to(client, message)?;
        }
        let waiting = self.clients.iter().any(|client| !client.outstanding.is_empty() || client.read.is_some());
        Ok((!waiting).then_some(()))
    }

    fn poll_for(&mut self, index: usize, leader: usize) {
        if let Some(epoch) = self.cluster.servers[leader].epoch() {
            (self.clients[index].leader, self.clients[index].epoch) = (leader, epoch);
        }
    }
}
