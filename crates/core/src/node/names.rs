//! Names: registrations of a node for its own application, and its own member record.

use super::{NameView, Node, Output, Phase, RegistryEvent};
use crate::error::{ErrorCode, Rejection};
use crate::member::{Health, Metadata, NODE_SERVICE, Record, RecordKind, Space, Status, check_name};
use crate::mutant::seam;
use crate::time::Time;
use crate::version::Version;
use crate::wire::next_claim;
use smol_str::SmolStr;
use std::sync::Arc;

impl Node {
    /// Registers a name at a location, or changes its location. A name held by another live node is rejected.
    pub fn register_name(
        &mut self,
        now: Time,
        name: &str,
        location: &str,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.observe(now, out);
        let result = self.check_register_name(name, location);
        let result = result.map(|()| {
            self.own_names.insert(SmolStr::new(name), SmolStr::new(location));
            self.write_name(name, location, out)
        });
        self.count_rejection(result)
    }

    fn check_register_name(&self, name: &str, location: &str) -> Result<(), Rejection> {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return Err(super::attach::not_ready());
        }
        check_name(name, location, &self.config.limits)?;
        let held = self.map.record(Space::Name, name).filter(|record| record.is_live());
        match held {
            Some(record) if record.origin.id.node != self.me.node && self.map.shown(record) == Status::Up => {
                let message = format!("name {name:?} is registered by node {}", record.origin.id.node);
                Err(Rejection::new(ErrorCode::AlreadyRegistered, message).field("name"))
            }
            None if !self.map.has_room(Space::Name) => {
                let limit = self.config.limits.names;
                let message = format!("the registry holds {limit} names or as many tombstones of names already");
                Err(Rejection::new(ErrorCode::ResourceExhausted, message).field("name").limit(limit))
            }
            _ => Ok(()),
        }
    }

    fn write_name(&mut self, name: &str, location: &str, out: &mut Output) -> Version {
        let draft = self.own_record(Space::Name, name, "", location, Metadata::default());
        let stored = self.write(draft, out);
        self.map.member(&stored.new).version()
    }

    /// A record this node writes for itself: a new claim if another origin has the key, an update otherwise.
    fn own_record(&mut self, space: Space, id: &str, service: &str, address: &str, metadata: Metadata) -> Record {
        let me = self.map.origins.me();
        let known = self.map.known_claim(space, id);
        let held = self.map.record(space, id);
        let (claim, seq) = match held {
            Some(held) if held.origin.index == me && held.claim >= known => (held.claim, held.seq + 1),
            Some(held) => (next_claim(known), held.seq + 1),
            None => (next_claim(known), 1),
        };
        let (created, drain) = held.map_or((self.wall_ms, 0), |held| (held.created, held.drain));
        let maintenance = held.and_then(|held| held.maintenance.clone());
        Record {
            id: SmolStr::new(id),
            origin: self.map.origins.entry(me).origin.clone(),
            slot: 0,
            drain,
            space,
            kind: RecordKind::Live,
            status: Status::Up,
            health: Health::Passing,
            weight: 0,
            n: 0,
            claim,
            seq,
            predecessor: (0, 0),
            client: self.self_client.clone(),
            deployment: self.map.interner.deployment(service, "", ""),
            created,
            since: self.wall_ms,
            address: SmolStr::new(address),
            endpoints: Metadata::default(),
            metadata,
            checks: None,
            maintenance,
        }
    }

    /// Claims this node's own records again where an older incarnation of it, dropped by some nodes and still held by
    /// others, may have claimed more (D10): otherwise nodes that hold its records would always consider the current
    /// ones older.
    pub(super) fn claim_above(&mut self, floor: u64, out: &mut Output) {
        let claim = next_claim(floor);
        let names = self.own_names.keys().map(|name| (Space::Name, name.clone()));
        let own: Vec<(Space, SmolStr)> = names.chain([(Space::Member, self.member_id.clone())]).collect();
        for (space, id) in own {
            let held = self.map.record(space, &id).filter(|record| {
                record.is_live() && record.origin.index == self.map.origins.me() && record.claim < claim
            });
            if let Some(held) = held {
                let draft = Record { claim, seq: held.seq + 1, ..Record::clone(held) };
                self.write(draft, out);
            }
        }
    }

    /// Claims a live record of this node above every collected claim: a node that collected a higher-ranked record has
    /// received this one without keeping it (D12).
    pub(super) fn claim_again(&mut self, slot: u32, out: &mut Output) {
        let held = self.map.at(slot);
        let claim = next_claim(held.claim.max(self.map.claim_floor()));
        let draft = Record { claim, seq: held.seq + 1, ..Record::clone(held) };
        self.write(draft, out);
    }

    /// Unregisters a name of this node.
    pub fn unregister_name(&mut self, now: Time, name: &str, out: &mut Output) -> Result<(), Rejection> {
        self.observe(now, out);
        let result = if self.own_names.remove(name).is_some() {
            if let Some(slot) = self.map.slot_of(Space::Name, name)
                && self.map.at(slot).origin.index == self.map.origins.me()
                && self.map.at(slot).is_live()
            {
                self.write_unregistered(slot, out);
            }
            Ok(())
        } else {
            let message = format!("name {name:?} is not registered by this node");
            Err(Rejection::new(ErrorCode::NotRegistered, message).field("name"))
        };
        self.count_rejection(result)
    }

    /// Returns the location of a name. It is shown while its node is silent and expires like the members of a
    /// silent node (L4).
    pub fn name(&self, name: &str) -> Option<NameView> {
        let record = self.map.record(Space::Name, name).filter(|record| self.map.shown(record) != Status::Left)?;
        Some(NameView {
            name: record.id.to_string(),
            location: record.address.to_string(),
            node: record.origin.id.node.clone(),
            version: self.map.member(record).version(),
        })
    }

    /// The application has registered all its names: names of older incarnations that it did not repeat are dropped
    /// (N2).
    pub fn names_complete(&mut self, now: Time, out: &mut Output) {
        self.observe(now, out);
        if matches!(self.phase, Phase::Serving { .. }) {
            self.settle_names(out);
        }
    }

    pub(super) fn settle_names_in_time(&mut self, out: &mut Output) {
        if let Phase::Serving { since, .. } = self.phase
            && !self.names_settled
            && self.clock.now >= since + self.config.timers.heartbeat_timeout
        {
            self.settle_names(out);
        }
    }

    fn settle_names(&mut self, out: &mut Output) {
        self.names_settled = true;
        let stale = self.map.iter().filter(|record| self.is_stale_name(record)).map(|record| record.slot);
        for slot in stale.collect::<Vec<u32>>() {
            self.write_unregistered(slot, out);
        }
    }

    /// Whether a record is a name of an older incarnation of this node that the current one did not register.
    fn is_stale_name(&self, record: &Record) -> bool {
        seam!(self, StaleNamesKept => return false);
        record.space == Space::Name
            && record.is_live()
            && record.origin.id.node == self.me.node
            && record.origin.index != self.map.origins.me()
            && !self.own_names.contains_key(&record.id)
    }

    /// Handles a record that replaces a key of this node, or that revives one of its older incarnations.
    pub(super) fn defend_own(&mut self, new: &Arc<Record>, out: &mut Output) {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        match new.space {
            Space::Member => {
                if new.id == self.member_id && !self.gives_way_to(new) {
                    self.write_node_record(out);
                }
            }
            Space::Name => {
                if let Some(location) = self.own_names.get(&new.id).cloned() {
                    // A record of an older incarnation, or the tombstone of another's earlier claim: this registration
                    // applies.
                    if new.origin.id.node == self.me.node || !new.is_live() {
                        self.write_name(&new.id, &location, out);
                    } else {
                        self.own_names.remove(&new.id);
                        let winner = new.origin.id.node.clone();
                        out.events.push(RegistryEvent::NameLost { name: new.id.to_string(), winner });
                    }
                } else if self.names_settled && self.is_stale_name(new) {
                    self.write_unregistered(new.slot, out);
                }
            }
        }
    }

    /// The node as a member of service `convoke` (R-10, P8).
    pub(super) fn write_node_record(&mut self, out: &mut Output) {
        let id = self.member_id.clone();
        let incarnation = self.me.incarnation.number.to_string();
        let log = Some(("log", self.log.as_str())).filter(|(_, log)| !log.is_empty());
        let tls = Some(("tls", self.config.tls.as_str())).filter(|(_, tls)| !tls.is_empty());
        let metadata = [("incarnation", incarnation.as_str())]
            .into_iter()
            .chain(log)
            .chain([("peer_address", self.config.peer_address.as_str()), ("region", self.config.region.as_str())])
            .chain(tls);
        let metadata = Metadata::from_sorted(metadata.collect::<Vec<_>>().into_iter());
        let address = self.config.client_address.clone();
        let draft = self.own_record(Space::Member, &id, NODE_SERVICE, &address, metadata);
        self.write(draft, out);
    }

    /// Publishes the id of the log that this node holds a replica of, empty for none, in its member record.
    pub fn set_log(&mut self, now: Time, log: &str, out: &mut Output) {
        self.observe(now, out);
        if self.log == log {
            return;
        }
        self.log = SmolStr::new(log);
        if matches!(self.phase, Phase::Serving { .. }) {
            self.write_node_record(out);
        }
    }
}
