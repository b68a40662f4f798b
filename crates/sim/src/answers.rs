//! What clients make of what nodes tell them (C1–C5).

use crate::client::{Client, ClientState, NodeMessage, Pending};
use crate::host::Host;
use crate::invariants::Violation;
use crate::network::Micros;
use crate::truth::Claimed;
use crate::world::{ClientTimer, Event, World, micros};
use convoke_core::member::Status;
use convoke_core::node::{Attached, Notice, SlotView};
use convoke_core::version::{Dot, Version};
use convoke_core::{ErrorCode, Refusal};

impl World {
    pub(crate) fn client_message(&mut self, client: usize, conn: u64, message: NodeMessage) {
        if self.clients[client].conn() != Some(conn) {
            return;
        }
        self.trace.event(self.now, 5, client as u64, conn);
        match message {
            NodeMessage::Attached { claim, result } => {
                let ClientState::Attaching { host, sent, .. } = self.clients[client].state else { return };
                if claim != self.clients[client].claim {
                    return;
                }
                match result {
                    Ok(attached) => self.client_attached(client, conn, host, sent, &attached),
                    Err(refusal) => self.client_attach_refused(client, conn, host, &refusal),
                }
            }
            NodeMessage::Beat { sent, result } => {
                if !matches!(self.clients[client].state, ClientState::Attached { .. }) {
                    return;
                }
                match result {
                    Ok(()) => self.clients[client].heard(sent),
                    Err(refusal) => self.client_lost(client, &format!("heartbeat refused: {refusal}")),
                }
            }
            NodeMessage::Answer { seq, result } => self.client_answer(client, conn, seq, result),
            NodeMessage::Closed(result) => {
                if matches!(self.clients[client].state, ClientState::Closing { .. }) {
                    match result {
                        Ok(()) => self.client_closed_cleanly(client),
                        Err(refusal) => self.client_lost(client, &format!("close refused: {refusal}")),
                    }
                }
            }
            NodeMessage::Notice(notice) => self.client_notice(client, notice),
        }
    }

    fn client_attached(&mut self, client: usize, conn: u64, host: usize, sent: Micros, attached: &Attached) {
        let now = self.now;
        self.note(format!(
            "c{client} is attached to n{host}, claim {}, refused {:?}",
            self.clients[client].claim, attached.refused
        ));
        let c = &mut self.clients[client];
        c.state = ClientState::Attached { conn, host, session: attached.session };
        c.previous_claim = c.claim;
        c.attempts = 0;
        c.superseded = 0;
        c.seq = 0;
        c.changed_at = now;
        c.heartbeat_interval = micros(attached.heartbeat_interval);
        c.heartbeat_timeout = micros(attached.timeout);
        c.heard(sent);
        c.generation += 1;
        if c.history.len() == 8 {
            c.history.pop_front();
        }
        c.history.push_back((host, now, Micros::MAX));
        let generation = c.generation;
        let interval = c.heartbeat_interval;
        for (id, version) in &attached.versions {
            if let (Some(holding), Some(metadata)) = (c.members.get_mut(id), c.attach_members.get(id)) {
                holding.acknowledged = Some(*version);
                holding.acknowledged_metadata = metadata.clone();
                holding.acknowledged_at = now;
            }
        }
        let missing: Vec<String> = c
            .attach_members
            .keys()
            .filter(|id| {
                !attached.versions.iter().any(|(v, _)| v == *id) && !attached.refused.iter().any(|(r, _)| r == *id)
            })
            .cloned()
            .collect();
        let mut acknowledged = std::mem::take(&mut c.attach_unregistered);
        acknowledged.retain(|id| c.unregistered.remove(id) && !c.members.contains_key(id));
        for id in &acknowledged {
            self.unregistration_acknowledged(id, client, host);
        }
        if !missing.is_empty() {
            self.violate(Violation::new(
                "answers",
                now,
                format!("attach of c{client} at n{host} says nothing of {missing:?}"),
            ));
        }
        for (id, refusal) in &attached.refused {
            match refusal.code {
                ErrorCode::AlreadyRegistered | ErrorCode::TakenOver => self.client_gives_up(client, id),
                _ => self.unexpected(client, &format!("attach of {id}"), refusal),
            }
        }
        self.schedule(now + interval, Event::ClientTimer { client, generation, timer: ClientTimer::Heartbeat });
        if self.clients[client].closing {
            self.client_close(client);
        }
    }

    fn client_attach_refused(&mut self, client: usize, conn: u64, host: usize, refusal: &Refusal) {
        self.note(format!("c{client} is refused by n{host}: {refusal}"));
        match refusal.code {
            ErrorCode::StaleClaim => {
                let c = &mut self.clients[client];
                c.claim = c.claim.max(refusal.known.unwrap_or(0));
                self.client_attach(client, conn, host);
            }
            ErrorCode::Superseded => self.client_superseded(client),
            ErrorCode::NotReady | ErrorCode::ResourceExhausted => self.client_lost(client, "not ready"),
            _ => self.unexpected(client, "attach", refusal),
        }
    }

    /// Told that another process holds the client id: it may be an echo of the past, so look again, then give in (C2).
    fn client_superseded(&mut self, client: usize) {
        self.client_drop_connection(client, false);
        let c = &mut self.clients[client];
        c.superseded += 1;
        c.changed_at = self.now;
        if c.superseded <= 2 {
            let delay = c.heartbeat_timeout + c.heartbeat_timeout / 4;
            self.client_wait(client, delay);
            return;
        }
        self.note(format!("c{client} stops: superseded"));
        self.client_stop(client);
    }

    fn client_stop(&mut self, client: usize) {
        let now = self.now;
        let c = &mut self.clients[client];
        c.state = ClientState::Stopped;
        c.generation += 1;
        c.changed_at = now;
        let ids: Vec<String> = c.members.keys().chain(c.unregistered.iter()).cloned().collect();
        c.members.clear();
        c.unregistered.clear();
        for id in ids {
            self.truth.abandoned(&id, client, now);
        }
    }

    fn client_gives_up(&mut self, client: usize, id: &str) {
        self.note(format!("c{client} gives up {id}"));
        let now = self.now;
        self.clients[client].members.remove(id);
        self.clients[client].changed_at = now;
        self.truth.abandoned(id, client, now);
    }

    /// The tombstone of an earlier registration takes nothing from a living client (C4).
    fn require_taker(&mut self, client: usize, id: &str) {
        let c = &self.clients[client];
        let slot = c.attached_to().and_then(|host| self.hosts[host].node.as_ref()?.slot(id));
        let ended = slot.is_some_and(|slot| slot.stated == Status::Left && slot.client != c.id);
        // Whoever unregistered it a moment ago may have taken it before.
        let patience = self.linger();
        let long_ago = |claimed: &Claimed| {
            let sole = claimed.wanted_by.len() == 1 && claimed.wanted_by.contains(&client);
            sole && claimed.releasing.is_empty() && self.now - claimed.freed_at > patience
        };
        if ended && self.truth.get(id).is_some_and(long_ago) {
            self.violate(Violation::new("answers", self.now, format!("c{client} lost {id} to a tombstone")));
        }
    }

    /// Nor does the record of an owner that is silent, unless it was written over that of this client, not over an earlier one of the same node (C4).
    /// A client that has left without a word is not one it is taken from: the node shows it as down, and its end of the connection is all there is of it.
    pub(crate) fn require_living_taker(&mut self, host: usize, conn: u64, id: &str) {
        let attached = |c: &Client| c.conn() == Some(conn) && c.attached_to() == Some(host);
        let Some(node) = self.hosts[host].node.as_ref().filter(|_| self.clients.iter().any(attached)) else { return };
        let leftover = |slot: &SlotView| slot.stated != Status::Left && slot.shown != Status::Up;
        let registered = self.network.connections.get(&conn).and_then(|held| held.registered.get(id));
        let knew = |over: Dot| over.origin == *node.origin() && registered.is_some_and(|n| over.n >= *n);
        let taker = node.slot(id).filter(|slot| leftover(slot) && !node.written_over(id).is_some_and(knew));
        if let Some(taker) = taker {
            self.violate(Violation::new("answers", self.now, format!("n{host} gives {id} away to {taker:?}")));
        }
    }

    fn client_notice(&mut self, client: usize, notice: Notice) {
        self.note(format!("c{client} hears {notice:?}"));
        match notice {
            Notice::Lost { known } => {
                let c = &mut self.clients[client];
                // About a session that this client has itself replaced.
                if known < c.previous_claim {
                    return;
                }
                c.claim = c.claim.max(known);
                self.client_lost(client, "lost its session");
            }
            Notice::Superseded { known } => {
                if known >= self.clients[client].previous_claim {
                    self.client_superseded(client);
                }
            }
            Notice::TakenOver { id } => {
                self.require_taker(client, &id);
                self.client_gives_up(client, &id);
            }
            Notice::Handover { target } => {
                let to = target.and_then(|target| {
                    let alive = |h: &Host| h.id == target.node && !h.is_second;
                    self.hosts.iter().position(alive)
                });
                self.client_move(client, to);
            }
        }
    }

    fn client_answer(&mut self, client: usize, conn: u64, seq: u64, result: Result<Option<Version>, Refusal>) {
        let now = self.now;
        let ClientState::Attached { host, .. } = self.clients[client].state else { return };
        let Some(pending) = self.clients[client].pending.remove(&seq) else { return };
        self.clients[client].changed_at = now;
        match (pending, result) {
            (Pending::Register { id, after }, Ok(version)) => {
                if let Some(holding) = self.clients[client].members.get_mut(&id) {
                    holding.acknowledged = version;
                    holding.acknowledged_metadata = after;
                    holding.acknowledged_at = now;
                }
            }
            (Pending::Update { id, after, conditional }, Ok(version)) => {
                if let Some(holding) = self.clients[client].members.get_mut(&id) {
                    holding.acknowledged = version;
                    holding.acknowledged_metadata = after.clone();
                    holding.acknowledged_at = now;
                    if conditional {
                        holding.spec.metadata = after;
                    }
                }
            }
            (Pending::Unregister { id }, Ok(_)) => {
                if self.clients[client].unregistered.remove(&id) && !self.clients[client].members.contains_key(&id) {
                    self.unregistration_acknowledged(&id, client, host);
                }
            }
            (pending, Err(refusal)) => self.client_request_refused(client, conn, host, &pending, &refusal),
        }
    }

    fn client_request_refused(&mut self, client: usize, conn: u64, host: usize, pending: &Pending, refusal: &Refusal) {
        self.note(format!("c{client} is refused by n{host}: {pending:?}: {refusal}"));
        match (refusal.code, pending) {
            (
                ErrorCode::AlreadyRegistered | ErrorCode::TakenOver | ErrorCode::PermissionDenied,
                Pending::Register { id, .. } | Pending::Update { id, .. },
            ) => {
                let id = id.clone();
                self.client_gives_up(client, &id);
            }
            (
                ErrorCode::AlreadyRegistered | ErrorCode::TakenOver | ErrorCode::PermissionDenied,
                Pending::Unregister { id },
            ) => {
                let (id, now) = (id.clone(), self.now);
                self.clients[client].unregistered.remove(&id);
                self.truth.abandoned(&id, client, now);
            }
            (ErrorCode::StaleVersion, Pending::Update { conditional: true, .. }) => {}
            (ErrorCode::StaleClaim, Pending::Register { .. }) => {
                let c = &mut self.clients[client];
                c.claim = c.claim.max(refusal.known.unwrap_or(0));
                self.client_attach(client, conn, host);
            }
            (
                ErrorCode::SessionGone
                | ErrorCode::NotRegistered
                | ErrorCode::NotReady
                | ErrorCode::ResourceExhausted
                | ErrorCode::StaleClaim,
                _,
            ) => {
                self.client_lost(client, "request refused");
            }
            _ => self.unexpected(client, &format!("{pending:?}"), refusal),
        }
    }
}
