//! Connections over time: dialling, delivering, closing, resetting, cutting and healing.

use crate::host::Input;
use crate::network::{Connection, Cut, End, Item, Kind, Micros, Parcel, SECOND, Site};
use crate::world::{Event, World, micros};
use convoke_core::node::{DialId, dial_order};

/// Timeout of a connection attempt.
const DIAL_TIMEOUT: Micros = 3 * SECOND;

/// A name that leads to all hosts, as that of a headless service does.
pub const EVERY_HOST: &str = "every-host:7000";

impl World {
    pub(crate) fn dial(&mut self, host: usize, dial: u64, address: &str, turn: u32) {
        let boot = self.hosts[host].boot;
        self.hosts[host].dials.insert(dial, None);
        self.schedule(self.now + DIAL_TIMEOUT, Event::DialTimeout { host, boot, dial });
        let target = if address == EVERY_HOST {
            self.dial_every_host(host, dial, turn)
        } else {
            address.strip_prefix('h').and_then(|rest| rest.split_once(':')).and_then(|(n, _)| n.parse().ok())
        };
        let Some(to) = target.filter(|to| *to < self.hosts.len()) else { return };
        let latency = self.latency(Site::Host(host), Site::Host(to));
        self.schedule(self.now + latency, Event::DialArrives { from: Site::Host(host), process: boot, dial, to });
    }

    /// The host that a dial of the name of all hosts reaches. As a resolver does, it puts the host itself first.
    fn dial_every_host(&mut self, host: usize, dial: u64, turn: u32) -> Option<usize> {
        let count = self.hosts.len();
        self.with_node(host, |node, _, _| node.resolved(DialId(dial), count));
        let preferred = std::iter::once(host).chain((0..count).filter(|other| *other != host));
        let order = dial_order(preferred.collect(), turn);
        let accepts =
            |to: &usize| self.hosts[*to].running() && !self.network.severed(Site::Host(host), Site::Host(*to));
        order.iter().find(|to| accepts(to)).or(order.first()).copied()
    }

    pub(crate) fn dial_arrives(&mut self, from: Site, process: u64, dial: u64, to: usize) {
        let target = Site::Host(to);
        if !self.process_is_current(from, process) {
            return;
        }
        if self.network.severed(from, target) {
            // TCP retransmits every second while the attempt lasts.
            if matches!(from, Site::Host(host) if self.hosts[host].dials.contains_key(&dial)) {
                self.schedule(self.now + SECOND, Event::DialArrives { from, process, dial, to });
            }
            return;
        }
        if !self.hosts[to].running() {
            if !self.hosts[to].dark {
                let latency = self.latency(target, from);
                self.schedule(self.now + latency, Event::DialRejected { from, process, dial });
            }
            return;
        }
        let kind = if matches!(from, Site::Host(_)) { Kind::Peer } else { Kind::Client };
        let dialer = End { place: from, process, open: true, ended: false };
        let acceptor = End { place: target, process: self.hosts[to].boot, open: true, ended: false };
        let conn = self.network.connect(kind, dialer, acceptor, dial);
        match from {
            Site::Host(host) => {
                self.hosts[host].dials.insert(dial, Some(conn));
                self.input(to, Input::Accepted { conn, side: 1 });
            }
            Site::Client(client) => self.client_connection(client, conn),
        }
        self.push(conn, 1, Item::Established);
    }

    pub(crate) fn dial_failed(&mut self, host: usize, boot: u64, dial: u64) {
        if self.hosts[host].boot != boot {
            return;
        }
        let Some(conn) = self.hosts[host].dials.remove(&dial) else { return };
        if let Some(conn) = conn {
            self.close_end(conn, 0, false);
        }
        self.input(host, Input::DialFailed { dial });
    }

    pub(crate) fn process_is_current(&self, place: Site, process: u64) -> bool {
        match place {
            Site::Host(host) => self.hosts[host].boot == process,
            Site::Client(client) => self.clients[client].process_number == process,
        }
    }

    pub(crate) fn latency(&mut self, from: Site, to: Site) -> Micros {
        let region = |place: Site| match place {
            Site::Host(host) => self.hosts[host].region,
            Site::Client(client) => self.clients[client].region,
        };
        let base = if region(from) == region(to) { 300 } else { 15_000 };
        base + self.rng.u64(..base) + self.network.spike(from, to)
    }

    pub(crate) fn end_open(&self, conn: u64, side: usize) -> bool {
        self.network.connections.get(&conn).is_some_and(|connection| connection.ends[side].open)
    }

    /// Appends an item to a pipe.
    pub(crate) fn push(&mut self, conn: u64, side: usize, item: Item) {
        let Some(connection) = self.network.connections.get(&conn) else { return };
        if !connection.ends[side].open && !matches!(item, Item::EndOfStream) {
            return;
        }
        let (from, to) = (connection.ends[side].place, connection.ends[1 - side].place);
        let extra = if side == 0 { connection.extra } else { 0 };
        let at = self.now + self.latency(from, to) + extra;
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[side];
        pipe.last_at = pipe.last_at.max(at);
        let at = pipe.last_at;
        pipe.queue.push_back(Parcel { at, item });
        if !pipe.scheduled && pipe.stalled.is_none() {
            pipe.scheduled = true;
            self.schedule(at, Event::Deliver { conn, side });
        }
    }

    pub(crate) fn deliver(&mut self, conn: u64, side: usize) {
        let now = self.now;
        let Some(connection) = self.network.connections.get(&conn) else { return };
        let (from, to) = (connection.ends[side].place, connection.ends[1 - side].place);
        let blocked = self.network.blocked(from, to);
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[side];
        pipe.scheduled = false;
        let Some(front) = pipe.queue.front() else { return };
        if blocked {
            pipe.stalled.get_or_insert(now);
            return;
        }
        if front.at > now {
            pipe.scheduled = true;
            let at = front.at;
            self.schedule(at, Event::Deliver { conn, side });
            return;
        }
        let Some(parcel) = pipe.queue.pop_front() else { return };
        if let Some(next) = pipe.queue.front() {
            pipe.scheduled = true;
            let at = next.at;
            self.schedule(at, Event::Deliver { conn, side });
        }
        self.arrive(conn, 1 - side, parcel.item);
    }

    fn arrive(&mut self, conn: u64, side: usize, item: Item) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let end = connection.ends[side];
        let dial = connection.dial;
        if !end.open || end.ended {
            return;
        }
        if matches!(item, Item::EndOfStream) {
            self.end_of_stream(conn, side, end.place);
            return;
        }
        match (end.place, item) {
            (Site::Host(host), Item::Established) => {
                if self.hosts[host].dials.remove(&dial).is_some() {
                    self.input(host, Input::Dialled { dial, conn, side });
                }
            }
            (Site::Host(host), Item::Frame(frame)) => self.input(host, Input::Frame { conn, side, frame }),
            (Site::Host(host), Item::ToNode(message)) => self.input(host, Input::Client { conn, message }),
            (Site::Client(client), Item::Established) => self.client_established(client, conn),
            (Site::Client(client), Item::ToClient(message)) => self.client_message(client, conn, *message),
            (place, item) => unreachable!("{item:?} cannot arrive at {place:?}"),
        }
    }

    /// A host processes the end of a stream in order, after everything that arrived before; a client at once.
    fn end_of_stream(&mut self, conn: u64, side: usize, place: Site) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        connection.ends[side].ended = true;
        let (kind, dial) = (connection.kind, connection.dial);
        match (place, kind) {
            (Site::Host(host), Kind::Peer) => {
                if self.hosts[host].dials.get(&dial) == Some(&Some(conn)) && side == 0 {
                    self.hosts[host].dials.remove(&dial);
                    self.close_end(conn, side, false);
                    self.input(host, Input::DialFailed { dial });
                } else {
                    self.input(host, Input::Closed { conn, side });
                }
            }
            (Site::Host(host), Kind::Client) => self.input(host, Input::ClientGone { conn }),
            (Site::Client(client), _) => {
                self.close_end(conn, side, false);
                self.client_closed(client, conn);
            }
        }
    }

    /// Closes one end. Unless the power is off, the other end detects it after everything that was sent before.
    pub(crate) fn close_end(&mut self, conn: u64, side: usize, silent: bool) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        if !connection.ends[side].open {
            return;
        }
        connection.ends[side].open = false;
        if !connection.ends[1 - side].open {
            self.network.connections.remove(&conn);
        } else if !silent {
            self.push(conn, side, Item::EndOfStream);
        }
    }

    /// Resets a connection at both ends; items in flight are lost.
    pub fn reset(&mut self, conn: u64) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let ends = connection.ends;
        for pipe in &mut connection.pipes {
            pipe.queue.clear();
        }
        for (side, end) in ends.iter().enumerate() {
            if end.open && !end.ended {
                self.end_of_stream(conn, side, end.place);
            }
        }
    }

    /// Blocks everything from one set of places to another, in one direction. Returns the cut's number.
    pub fn cut(&mut self, from: u128, to: u128) -> u64 {
        let id = self.network.number();
        self.network.cuts.push(Cut { id, since: self.now, from, to, clients_only: false });
        let (now, touched) = (self.now, from | to);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if Site::Host(index).bit() & touched != 0 {
                host.fault_period.begin(now);
            }
        }
        self.update_reach();
        id
    }

    /// Heals a cut: held-back items are delivered, unless their sender abandoned them long ago.
    pub fn heal(&mut self, id: u64) {
        let now = self.now;
        let mut touched = 0;
        self.network.cuts.retain(|cut| {
            if cut.id == id && !cut.clients_only {
                touched |= cut.from | cut.to;
            }
            cut.id != id
        });
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if Site::Host(index).bit() & touched != 0 {
                host.fault_period.end(now);
            }
        }
        self.update_reach();
        self.resume_flow();
    }

    fn resume_flow(&mut self) {
        let now = self.now;
        let patience = self.orphan_patience();
        let stalled: Vec<(u64, usize)> = self
            .network
            .connections
            .iter()
            .flat_map(|(id, connection)| (0..2).map(move |side| (*id, side, connection)))
            .filter(|(_, side, c)| {
                c.pipes[*side].stalled.is_some() && !self.network.blocked(c.ends[*side].place, c.ends[1 - *side].place)
            })
            .map(|(id, side, _)| (id, side))
            .collect();
        for (conn, side) in stalled {
            let delay = self.rng.u64(..SECOND);
            let Some(connection) = self.network.connections.get_mut(&conn) else { continue };
            let closed = !connection.ends[side].open;
            let pipe = &mut connection.pipes[side];
            let since = pipe.stalled.take().unwrap_or(now);
            if closed && now - since > patience {
                pipe.queue.clear();
                pipe.queue.push_back(Parcel { at: now, item: Item::EndOfStream });
            }
            let at = now + delay;
            for parcel in &mut pipe.queue {
                parcel.at = parcel.at.max(at);
            }
            pipe.last_at = pipe.last_at.max(at);
            pipe.scheduled = true;
            self.schedule(at, Event::Deliver { conn, side });
        }
    }

    /// How long the network keeps trying to deliver items that their sender no longer waits for.
    pub(crate) fn orphan_patience(&self) -> Micros {
        micros(self.setup.timers.heartbeat_timeout).min(30 * SECOND)
    }

    pub(crate) fn connections_between(&self, one: usize, other: usize) -> Vec<u64> {
        let pair = [Site::Host(one), Site::Host(other)];
        let joins = |c: &Connection| pair.contains(&c.ends[0].place) && pair.contains(&c.ends[1].place);
        self.network.connections.iter().filter(|(_, c)| joins(c)).map(|(id, _)| *id).collect()
    }
}
