//! Replaced processes that keep sending heartbeats, such as a hung shutdown or a forgotten container (C2, C4).

use crate::client::{FromClient, Link};
use crate::faults::Action;
use crate::network::{Item, MINUTE, Micros, SECOND};
use crate::world::World;
use convoke_proto::v1;

/// The stream of a replaced process, which only sends heartbeats.
#[derive(Clone, Debug)]
pub struct ReplacedProcess {
    client: usize,
    /// The process that replaced it.
    successor: u64,
    conn: u64,
    until: Micros,
    /// Members that the successor also registers.
    common: Vec<String>,
}

impl World {
    /// Replaces a client's process with a new one that has fewer members. The old process handles no messages and
    /// keeps sending heartbeats. Members that the successor does not name must expire nevertheless.
    pub(crate) fn keep_replaced_process(&mut self, client: usize) -> bool {
        let c = &self.clients[client];
        let Some(Link { conn: Some(conn), host, attached: true, .. }) = c.link else { return false };
        let sole = |id: &String| self.truth.get(id).is_some_and(|claimed| !claimed.contested());
        let known = c.members.iter().all(|(id, holding)| holding.acknowledged.is_some() && sole(id));
        if !known || c.members.len() < 2 || c.shares_id || c.closing || !c.pending.is_empty() {
            return false;
        }
        let ids: Vec<String> = c.members.keys().cloned().collect();
        let dropped = self.rng.usize(1..ids.len());
        // The connection stays open, but its messages do not reach the new process.
        self.clients[client].link = None;
        self.client_crash(client, true);
        self.note(format!(
            "c{client} is replaced without {:?}; the old process keeps sending heartbeats",
            &ids[..dropped]
        ));
        if let Some(members) = &mut self.clients[client].restart_with {
            members.retain(|id, _| !ids[..dropped].contains(id));
        }
        self.clients[client].prefer = Some(self.rng.usize(..self.setup.nodes)).filter(|other| *other != host);
        self.client_start(client);
        let length = self.duration(10 * SECOND, 3 * MINUTE);
        let (successor, until) = (self.clients[client].process_number, self.now + length);
        let process = ReplacedProcess { client, successor, conn, until, common: ids[dropped..].to_vec() };
        self.schedule_action(0, Action::ReplacedProcessHeartbeat { process });
        true
    }

    /// Sends a heartbeat of the replaced process. It ends once its successor is gone or lost all common members,
    /// because then no node can distinguish it from a live process (C2).
    pub(crate) fn replaced_process_heartbeat(&mut self, process: ReplacedProcess) {
        let c = &self.clients[process.client];
        let replaced =
            c.process_number == process.successor && process.common.iter().any(|id| c.members.contains_key(id));
        if self.now >= process.until || !replaced || !c.alive() {
            self.close_end(process.conn, 0, true);
            return;
        }
        let interval = c.heartbeat_interval;
        let beat = v1::client_message::Message::Heartbeat(v1::Heartbeat { sent: self.now });
        let message = v1::ClientMessage { message: Some(beat) };
        self.push(process.conn, 0, Item::ToNode(Box::new(FromClient::Message(message))));
        self.schedule_action(interval, Action::ReplacedProcessHeartbeat { process });
    }
}
