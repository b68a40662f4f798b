//! Clients, servers and the messages between them.

use super::checks::{Checks, Seen};
use super::client::{Client, Reaction};
use super::cluster::{Cluster, SERVERS};
use super::linear::Linear;
use super::reads::ReadRequest;
use super::{Check, Tally, Violation};
use convoke_base::Time;
use convoke_log::command::Body;
use convoke_log::keys::Keys;
use convoke_log::leader::{KeepAlive, NotAppended};
use convoke_log::machine::{ApplyRejection, Fate, Opened, Reply, RequestAnswer};
use convoke_log::{Command, Level, LogLimits, LogSessionId, LogTime, Mutation, RequestId};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CLIENTS: usize = 4;

/// A message from a client to a server.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) to: usize,
    pub(super) what: Wire,
}

#[derive(Clone, Debug)]
pub(super) enum Wire {
    Command(Command),
    Read(ReadRequest),
}

/// A message from a server to a client.
#[derive(Debug)]
pub(super) enum ToClient {
    /// Answer to an open, with its nonce.
    Opened(u128, Result<Opened, ApplyRejection>),
    Answer(RequestAnswer, Body, LogTime),
    Read(ReadRequest, Keys),
    /// The session is not open; the fate of the request.
    NotOpen(RequestId, Fate),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) cluster: Cluster,
    pub(super) clients: Vec<Client>,
    pub(super) sent: Vec<Sent>,
    /// Delivered copies, which may be delivered again.
    pub(super) delivered: Vec<Sent>,
    pub(super) to_clients: Vec<(usize, ToClient)>,
    /// Keep-alives that a paused server has not read.
    unread: Vec<(usize, LogSessionId)>,
    pub(super) checks: Checks,
    pub(super) linear: Linear,
    pub(super) owners: BTreeMap<LogSessionId, usize>,
    /// Requests fenced from another session.
    pub(super) fenced: BTreeSet<RequestId>,
    /// Number of events.
    pub(super) tick: u64,
    pub(super) reads: u64,
    pub(super) next_replica: u64,
}

impl World {
    pub(super) fn new(seed: u64, mutation: Mutation) -> Self {
        let mut rng = Rng::with_seed(seed);
        let limits = LogLimits {
            sessions: 6,
            reserved_sessions: 0,
            ended_sessions: 3,
            outcomes: 3,
            window: 4,
            ..LogLimits::default()
        };
        let level = if seed % 2 == 1 { Level::COORDINATION } else { Level::FIRST };
        let cluster = Cluster::new(limits, level, mutation, &mut rng);
        let clients = (0..CLIENTS).map(|id| Client::new(id, &mut rng)).collect();
        World {
            rng,
            cluster,
            clients,
            sent: Vec::new(),
            delivered: Vec::new(),
            to_clients: Vec::new(),
            unread: Vec::new(),
            checks: Checks::default(),
            linear: Linear::default(),
            owners: BTreeMap::new(),
            fenced: BTreeSet::new(),
            tick: 0,
            reads: 0,
            next_replica: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Tally, Violation> {
        let steps = self.rng.u32(200..900);
        for _ in 0..steps {
            let pause = Duration::from_millis(self.rng.u64(..60));
            self.pass(pause)?;
            self.act()?;
        }
        self.heal()?;
        self.linear.check()?;
        Ok(self.checks.tally)
    }

    /// Advances time: leaders expire sessions, clients send keep-alives.
    pub(super) fn pass(&mut self, time: Duration) -> Check {
        self.tick += 1;
        let now = self.cluster.now + time;
        self.cluster.now = now;
        for at in 0..SERVERS {
            let server = &mut self.cluster.servers[at];
            if server.is_paused(now) {
                continue;
            }
            server.running += time;
            self.propose_expiries(at)?;
            for index in (0..self.unread.len()).rev() {
                if self.unread[index].0 == at {
                    let (_, session) = self.unread.swap_remove(index);
                    self.keep_alive(at, session);
                }
            }
        }
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let Some(session) = client.session else { continue };
            if now.since(client.kept_alive) >= client.ttl / 4 {
                client.kept_alive = now;
                let leader = client.leader;
                if self.rng.u32(..10) > 0 {
                    self.keep_alive(leader, session);
                }
            }
        }
        Ok(())
    }

    /// Lets a leader propose expiries, and checks them.
    fn propose_expiries(&mut self, at: usize) -> Check {
        let now = self.cluster.now;
        let server = &mut self.cluster.servers[at];
        let clock = server.clock(now);
        let Some(lead) = &mut server.lead else { return Ok(()) };
        if clock < lead.state.expiry.wake() {
            return Ok(());
        }
        for command in lead.state.due(clock, &server.machine) {
            let Command::Expire(expire) = &command else {
                self.checks.count("end of a lease proposed");
                server.append(now, command.clone());
                self.sent.extend((0..SERVERS).map(|to| Sent { to, what: Wire::Command(command.clone()) }));
                continue;
            };
            self.checks.count("expiry proposed");
            let lead = server.lead.as_ref().expect("it leads");
            let kept_alive_at = lead.kept_alive_at.get(&expire.session).copied().unwrap_or(lead.elected);
            let silence = server.running.saturating_sub(kept_alive_at);
            let ttl = server.machine.session(expire.session).map_or(Duration::MAX, |session| session.ttl);
            if silence < ttl {
                let message = format!("session {} after {silence:?} of {ttl:?}", expire.session);
                return Err(Violation::new("expiry grace", message));
            }
            server.append(now, command.clone());
            // A copy may also reach another leader later.
            self.sent.extend((0..SERVERS).map(|to| Sent { to, what: Wire::Command(command.clone()) }));
        }
        Ok(())
    }

    fn keep_alive(&mut self, at: usize, session: LogSessionId) {
        let now = self.cluster.now;
        let server = &mut self.cluster.servers[at];
        if server.is_paused(now) {
            self.unread.push((at, session));
            return;
        }
        let (clock, running) = (server.clock(now), server.running);
        if let Some(lead) = &mut server.lead
            && lead.state.expiry.renew(clock, session) == KeepAlive::Kept
        {
            lead.kept_alive_at.insert(session, running);
        }
    }

    /// Delivers a message to a server.
    pub(super) fn deliver(&mut self, sent: Sent) {
        let now = self.cluster.now;
        let server = &mut self.cluster.servers[sent.to];
        if server.is_paused(now) {
            self.sent.push(sent);
            return;
        }
        if server.lead.is_none() {
            return;
        }
        match &sent.what {
            Wire::Read(read) => self.begin_read(sent.to, *read),
            Wire::Command(command) => {
                let command = Command::decode(&command.encode().into()).unwrap();
                let lead = server.lead.as_mut().expect("checked above");
                match lead.state.gate.admit(&command, &server.machine) {
                    Ok(admission) => {
                        let index = server.append(now, command);
                        let lead = server.lead.as_mut().expect("still");
                        lead.state.gate.settle(admission, Some(index));
                    }
                    // The check was made under another leadership than the append.
                    Err(NotAppended::StaleEpoch { .. }) if self.rng.u32(..3) == 0 => {
                        self.checks.count("propose check raced");
                        server.append(now, command);
                    }
                    Err(NotAppended::Abandoned { .. }) => self.checks.count("not admitted below a volatile floor"),
                    Err(NotAppended::SessionNotOpen) => {
                        if let Command::Request(request) = command {
                            self.not_open(sent.to, request.id());
                        }
                    }
                    Err(_) => {}
                }
            }
        }
        self.delivered.push(sent);
    }

    pub(super) fn not_open(&mut self, at: usize, id: RequestId) {
        let fate = self.cluster.servers[at].machine.peek(id);
        if let Some(client) = self.owners.get(&id.session) {
            self.to_clients.push((*client, ToClient::NotOpen(id, fate)));
        }
    }

    /// Lets a server apply up to `count` entries.
    pub(super) fn apply(&mut self, at: usize, count: usize) -> Check {
        for _ in 0..count {
            let before = Seen::of(&self.cluster.servers[at].machine);
            let Some((position, entry, applied)) = self.cluster.apply_next(at) else { break };
            let server = &self.cluster.servers[at];
            self.checks.applied(position, &entry, &before, &server.machine, applied.as_ref())?;
            let (Some(applied), Some(command)) = (applied, entry.command) else { continue };
            let own = server.epoch() == Some(position.epoch);
            match (applied.reply, command) {
                (Reply::Opened(opened), Command::Open(open)) => {
                    let client = Client::of_nonce(open.owner);
                    if let Ok(opened) = opened {
                        self.owners.insert(opened.session, client);
                    }
                    if own {
                        self.to_clients.push((client, ToClient::Opened(open.owner, opened)));
                    }
                }
                (Reply::Request(answer), Command::Request(request)) if own => {
                    if let Some(client) = self.owners.get(&request.session) {
                        self.to_clients.push((*client, ToClient::Answer(answer, request.body, applied.log_time)));
                    }
                }
                _ => {}
            }
        }
        self.finish_reads(at)
    }

    /// Delivers a message to a client.
    pub(super) fn deliver_to(&mut self, client: usize, message: ToClient) -> Check {
        self.tick += 1;
        let (now, tick) = (self.cluster.now, self.tick);
        let client = &mut self.clients[client];
        match message {
            ToClient::Opened(nonce, opened) if nonce == client.nonce() => client.opened(opened, now),
            ToClient::Opened(..) => {}
            ToClient::Read(read, keys) => {
                if client.read.is_some_and(|wanted| wanted.id == read.id) {
                    client.read = None;
                    self.linear.read_done(&read, &keys, tick);
                    client.seen = Some(keys);
                }
            }
            ToClient::NotOpen(id, fate) => {
                self.checks.fate(id, &fate)?;
                self.linear.fate(id, &fate, tick);
                // A deposed leader may not know the session.
                if fate.is_final() && client.session == Some(id.session) {
                    client.gone();
                }
            }
            ToClient::Answer(answer, body, log_time) => {
                self.checks.answered(&answer, Some(&body))?;
                client.log_time = client.log_time.max(log_time);
                if let Some((id, fate)) = &answer.previous {
                    self.linear.fate(*id, fate, tick);
                }
                let fate = match &answer.verdict {
                    Ok(outcome) => Fate::Done(outcome.clone()),
                    Err(ApplyRejection::Superseded | ApplyRejection::SessionEnded(_)) => Fate::Never,
                    Err(_) => Fate::Open,
                };
                self.linear.fate(answer.id, &fate, tick);
                if let Reaction::Lost(id) = client.answered(&answer) {
                    self.lost(id, &answer)?;
                }
            }
        }
        Ok(())
    }

    /// A wanted request can never take effect; another client must have fenced it.
    fn lost(&self, id: RequestId, answer: &RequestAnswer) -> Check {
        let last = RequestId::new(id.session, u64::MAX);
        if self.fenced.range(id..=last).next().is_some() || self.checks.has_ended(id.session) {
            return Ok(());
        }
        Err(Violation::new(
            "wanted requests",
            format!("{id} was not abandoned, but its answer is {:?}", answer.verdict),
        ))
    }

    pub(super) fn pause(&mut self, at: usize, time: Duration) {
        let until: Time = self.cluster.now + time;
        let server = &mut self.cluster.servers[at];
        server.asleep_until = server.asleep_until.max(until);
        server.running += Duration::from_secs(1);
        self.checks.count("server paused");
    }
}
