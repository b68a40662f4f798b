//! Operations of applications: register, update, unregister, close; names; drains.

use crate::client::{Client, Holding, Pending, ProcessState};
use crate::faults::{Action, Fault};
use crate::network::SECOND;
use crate::world::{World, micros};
use convoke_core::ErrorCode;
use convoke_core::member::{Drain, Liveness, MetadataUpdate, UpdateMode};
use convoke_session::session::Session;
use convoke_session::{MemberSpec, Update};
use std::time::Duration;

const MEMBERS_MAX: usize = 6;
const CLIENTS_MAX: usize = 60;
const NAMES: u64 = 12;

impl World {
    /// Runs one operation of a random client or node.
    pub(crate) fn operate(&mut self) {
        match self.rng.u32(..100) {
            0..8 => self.operate_name(),
            8..12 => self.operate_drain(),
            _ => {
                if self.clients.is_empty() {
                    return;
                }
                let client = self.rng.usize(..self.clients.len());
                self.client_operation(client);
            }
        }
    }

    pub(crate) fn client_operation(&mut self, client: usize) {
        let c = &self.clients[client];
        if c.process == ProcessState::Stopped {
            self.restart_client(client);
            return;
        }
        let free = c.alive() && c.session.is_some() && !c.closing && !c.paused;
        let conditional = c.pending.values().any(|p| matches!(p, Pending::Update { conditional: true, .. }));
        if !free || conditional || c.pending.len() >= 3 || c.observes {
            return;
        }
        self.stats.operations += 1;
        let count = c.members.len();
        match self.rng.u32(..100) {
            0..2 => {
                self.note(format!("c{client} closes"));
                self.client_close(client);
            }
            2..22 if count < MEMBERS_MAX => self.register_new(client),
            22..36 if count > 0 => self.unregister_one(client),
            36..46 => self.register_again(client),
            _ if count > 0 => self.update_one(client),
            _ => self.register_new(client),
        }
    }

    /// Registers a member as the application wants it; sent at once if there is a session.
    pub fn client_register(&mut self, client: usize, spec: MemberSpec, takeover: bool) {
        if self.clients[client].closing || self.clients[client].process == ProcessState::Stopped {
            return;
        }
        let id = spec.id.clone();
        let now = self.now;
        if self.truth.get(&id).is_some_and(|claimed| claimed.wanted_by.iter().any(|other| *other != client)) {
            self.faults.count(Fault::DuplicateId);
        }
        self.truth.wanted(&id, client, now);
        let c = &mut self.clients[client];
        c.unregistered.remove(&id);
        c.changed_at = now;
        let metadata = spec.metadata.clone();
        c.members.insert(id.clone(), Holding::new(spec.clone(), takeover));
        self.note(format!("c{client} registers {id}"));
        // A process that has just been started registers it when it builds its session.
        let Some(result) = self.drive(client, |session, _, _| session.register(spec, takeover, None)) else {
            return;
        };
        let (operation, registration) = match result {
            Ok(registered) => registered,
            Err(error) => {
                // The session was superseded by another process with its id, and ends with its next attempt to connect (C2).
                assert_eq!(error.code, convoke_session::ErrorCode::Superseded, "{error}");
                self.clients[client].members.remove(&id);
                self.truth.abandoned(&id, client, now);
                return;
            }
        };
        let c = &mut self.clients[client];
        if let Some(holding) = c.members.get_mut(&id) {
            holding.registration = Some(registration);
        }
        c.pending.insert(operation, Pending::Register { id, registration, metadata });
    }

    pub fn client_unregister(&mut self, client: usize, id: &str) {
        let c = &mut self.clients[client];
        let Some(holding) = c.members.remove(id) else { return };
        let Some(registration) = holding.registration else { return };
        c.unregistered.insert(id.to_owned());
        c.changed_at = self.now;
        self.truth.releasing(id, client, self.now);
        self.note(format!("c{client} unregisters {id}"));
        let result = self.drive(client, |session, _, out| session.unregister(id, registration, None, out));
        if let Some(result) = result {
            let operation = result.expect("the application follows the rules of the SDK");
            self.clients[client].pending.insert(operation, Pending::Unregister { id: id.to_owned() });
        }
    }

    /// Changes metadata; conditional on the acknowledged version if requested and known.
    pub fn client_update(&mut self, client: usize, id: &str, update: &MetadataUpdate, conditional: bool) {
        let c = &mut self.clients[client];
        c.changed_at = self.now;
        let Some(holding) = c.members.get_mut(id) else { return };
        let Some(registration) = holding.registration else { return };
        let expected = holding.acknowledged.filter(|_| conditional && c.pending.is_empty());
        let mut asked = sdk_update(update);
        match expected {
            Some(version) => asked = asked.if_version(version.to_string()),
            None => asked.apply(&mut holding.spec.metadata),
        }
        let update = asked.clone();
        let result = self.drive(client, |session, _, _| session.update(id, registration, asked, None));
        if let Some(result) = result {
            let operation = result.expect("the application follows the rules of the SDK");
            let conditional = expected.is_some();
            let pending = Pending::Update { id: id.to_owned(), registration, update, conditional };
            self.clients[client].pending.insert(operation, pending);
        }
    }

    /// Requests a clean close: everything is unregistered at once.
    pub fn client_close(&mut self, client: usize) {
        let now = self.now;
        let c = &mut self.clients[client];
        if !c.alive() || c.closing {
            return;
        }
        c.closing = true;
        let ids: Vec<String> = std::mem::take(&mut c.members).into_keys().collect();
        c.unregistered.extend(ids.iter().cloned());
        c.changed_at = now;
        for id in ids {
            self.truth.releasing(&id, client, now);
        }
        self.drive(client, Session::close);
    }

    fn register_new(&mut self, client: usize) {
        let shared = self.faults.contested_ids && self.rng.u32(..self.faults.shared_one_in.max(1)) == 0;
        let id = if shared {
            format!("shared-{}", self.rng.u64(..self.faults.shared_ids.max(1)))
        } else {
            self.faults.next_id += 1;
            format!("m{}", self.faults.next_id)
        };
        if self.clients[client].members.contains_key(&id) {
            return;
        }
        let takeover = shared && self.rng.bool();
        let spec = self.spec(&id);
        self.client_register(client, spec, takeover);
    }

    pub(crate) fn spec(&mut self, id: &str) -> MemberSpec {
        let mut spec = MemberSpec::new(id, format!("s{}", self.rng.u32(..4)));
        spec.address = "10.0.0.1:80".to_owned();
        spec.locality = format!("r{}", self.rng.u32(..3));
        for key in 0..self.rng.u32(..4) {
            spec.metadata.insert(format!("k{key}"), format!("{:x}", self.rng.u16(..)));
        }
        spec
    }

    fn random_member(&mut self, client: usize) -> Option<String> {
        let ids: Vec<String> = self.clients[client].members.keys().cloned().collect();
        self.rng.choice(ids)
    }

    fn unregister_one(&mut self, client: usize) {
        let Some(id) = self.random_member(client) else { return };
        self.client_unregister(client, &id);
        if self.rng.u32(..4) == 0 {
            let spec = self.spec(&id);
            self.client_register(client, spec, false);
        }
    }

    /// Registers an id that only this client had before.
    fn register_again(&mut self, client: usize) {
        let former: Vec<String> = self
            .truth
            .ids
            .iter()
            .filter(|(_, claimed)| claimed.wanted_by.is_empty() && claimed.ever.contains(&client))
            .map(|(id, _)| id.clone())
            .collect();
        match self.rng.choice(former) {
            Some(id) if self.clients[client].members.len() < MEMBERS_MAX => {
                let spec = self.spec(&id);
                self.client_register(client, spec, false);
            }
            _ => self.update_one(client),
        }
    }

    fn update_one(&mut self, client: usize) {
        let Some(id) = self.random_member(client) else { return };
        let key = format!("k{}", self.rng.u32(..5));
        let value = (self.rng.u32(..5) > 0).then(|| format!("{:x}", self.rng.u32(..)));
        let mode = if self.rng.u32(..8) == 0 { UpdateMode::Replace } else { UpdateMode::Merge };
        let update = MetadataUpdate { mode, changes: [(key, value)].into() };
        let conditional = self.rng.u32(..6) == 0;
        self.client_update(client, &id, &update, conditional);
    }

    /// Schedules the restart of a client that ended cleanly, as a new client.
    fn restart_client(&mut self, client: usize) {
        let number = self.rng.u32(..);
        let c = &mut self.clients[client];
        c.process = ProcessState::Dead;
        c.id = format!("c{client}-{number:x}");
        c.restart_with = None;
        c.shares_id = false;
        c.members.clear();
        self.client_start(client);
    }

    /// Two processes with one client id (C2).
    pub(crate) fn second_process(&mut self, client: usize) -> bool {
        if self.clients.len() >= CLIENTS_MAX {
            return false;
        }
        self.clients[client].shares_id = true;
        let second = self.clients[client].second();
        let index = self.clients.len();
        self.clients.push(second);
        self.client_start(index);
        true
    }

    /// A client with no members yet; start it with `client_start`.
    pub fn new_client(&mut self, id: String) -> usize {
        let timers = &self.setup.timers;
        let (interval, timeout) = (micros(timers.heartbeat_interval), micros(timers.heartbeat_timeout));
        let region = self.rng.usize(..self.setup.regions.max(1));
        self.clients.push(Client::new(id, region, interval, timeout));
        self.clients.len() - 1
    }

    /// Adds the clients of the workload, some with `fast` liveness, some as observers only.
    pub(crate) fn populate(&mut self, clients: usize, members: usize) {
        for index in 0..clients {
            let client = self.new_client(format!("c{index}"));
            if self.rng.u32(..6) == 0 {
                self.clients[client].liveness = Liveness::Fast;
            }
            if self.rng.u32(..12) == 0 {
                self.clients[client].observes = true;
            } else {
                for _ in 0..self.rng.usize(1..=members) {
                    self.faults.next_id += 1;
                    let id = format!("m{}", self.faults.next_id);
                    let spec = self.spec(&id);
                    self.clients[client].members.insert(id, Holding::new(spec, false));
                }
            }
            let delay = self.rng.u64(..10 * SECOND);
            self.schedule_action(delay, Action::StartClient { client });
        }
    }

    // ---- names and drains ----

    /// The application of a node that began to serve registers its names again (N2).
    pub(crate) fn application_serving(&mut self, host: usize, boot: u64) {
        if self.hosts[host].boot != boot || !self.hosts[host].running() {
            return;
        }
        if self.hosts[host].paused() {
            self.schedule_action(SECOND / 5, Action::Serving { host, boot });
            return;
        }
        let names = self.hosts[host].names.clone();
        for (name, location) in names {
            self.register_name(host, &name, &location);
        }
        if self.rng.u32(..10) > 0 {
            self.with_node(host, convoke_core::Node::names_complete);
        }
    }

    /// A node registers a name on behalf of the application around it.
    pub fn register_name(&mut self, host: usize, name: &str, location: &str) {
        if self.hosts[host].paused() {
            return;
        }
        let done = self.with_node(host, |node, time, out| Some(node.register_name(time, name, location, out)));
        self.note(format!("n{host} registers name {name} at {location}: {done:?}"));
        match done {
            Some(Ok(_)) => {
                self.hosts[host].names.insert(name.to_owned(), location.to_owned());
            }
            Some(Err(rejection)) if rejection.code == ErrorCode::AlreadyRegistered => {
                self.hosts[host].names.remove(name);
            }
            _ => {}
        }
    }

    pub fn unregister_name(&mut self, host: usize, name: &str) {
        if self.hosts[host].paused() {
            return;
        }
        let done = self.with_node(host, |node, time, out| Some(node.unregister_name(time, name, out)));
        self.note(format!("n{host} unregisters name {name}: {done:?}"));
        if let Some(Ok(())) = done {
            self.hosts[host].names.remove(name);
        }
    }

    fn operate_name(&mut self) {
        let running = self.running_hosts();
        let Some(host) = self.rng.choice(running) else { return };
        self.stats.operations += 1;
        let held: Vec<String> = self.hosts[host].names.keys().cloned().collect();
        if self.rng.u32(..3) == 0
            && let Some(name) = self.rng.choice(held)
        {
            self.unregister_name(host, &name);
            return;
        }
        let name = format!("name-{}", self.rng.u64(..NAMES));
        let location = format!("at-n{host}-{:x}", self.rng.u16(..));
        self.register_name(host, &name, &location);
    }

    fn operate_drain(&mut self) {
        let running = self.running_hosts();
        let Some(host) = self.rng.choice(running) else { return };
        let wanted: Vec<String> =
            self.truth.ids.iter().filter(|(_, c)| !c.wanted_by.is_empty()).map(|(id, _)| id.clone()).collect();
        let Some(id) = self.rng.choice(wanted) else { return };
        if self.hosts[host].paused() {
            return;
        }
        self.stats.operations += 1;
        let drained = self.rng.bool();
        // Every other drain ends by itself, soon enough for the peace that follows.
        let lasts = (self.now / SECOND).is_multiple_of(2).then_some(Duration::from_secs(3));
        let wanted = drained.then(|| Drain { lasts, ..Drain::default() });
        let done = self.with_node(host, |node, time, out| Some(node.mark(time, &id, wanted.as_ref(), out)));
        self.note(format!("n{host} drains {id} ({drained}): {done:?}"));
    }
}

/// The change as the SDK takes it.
fn sdk_update(update: &MetadataUpdate) -> Update {
    let start = if update.mode == UpdateMode::Replace { Update::replace() } else { Update::merge() };
    update.changes.iter().fold(start, |asked, (key, value)| match value {
        Some(value) => asked.set(key, value),
        None => asked.delete(key),
    })
}
