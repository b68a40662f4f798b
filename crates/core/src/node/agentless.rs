//! Agentless members: registered by an operator or a script, and kept without a client (AG1 to AG5).

use super::expiry::first_by_hash;
use super::{Archive, Effect, Node, Output, PeerState, Phase};
use crate::error::{ErrorCode, Rejection};
use crate::member::{AGENTLESS_CLIENT, Checks, MemberSpec, Metadata, Record, RecordKind, Space, Status, health_of};
use crate::mutant::seam;
use crate::time::{Duration, Time};
use crate::version::{NodeId, Version, adopted};
use crate::wire::{Item, Items, ItemsWriter, Reader, Writer, next_claim};
use bytes::Bytes;
use smol_str::SmolStr;
use std::sync::Arc;

/// How many members a node adopts from live owners with one tick.
const MOVED_AT_ONCE: usize = 256;

impl Node {
    /// Registers a member that no client keeps alive, or replaces its description (AG2). `principal` is the caller.
    pub fn register_agentless(
        &mut self,
        now: Time,
        spec: &MemberSpec,
        principal: &str,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.observe(now, out);
        let result = self.check_register_agentless(spec);
        let result = result.map(|()| self.write_agentless(spec, principal, out));
        self.count_rejection(result)
    }

    fn check_register_agentless(&self, spec: &MemberSpec) -> Result<(), Rejection> {
        self.check_serving()?;
        spec.check(&self.config.limits)?;
        let held = self.map.record(Space::Member, &spec.id).filter(|held| held.is_live());
        match held {
            Some(held) if !held.is_agentless() && self.map.shown(held) == Status::Up => {
                let message = format!("member {:?} is registered by a live client", spec.id);
                Err(Rejection::new(ErrorCode::AlreadyRegistered, message).field("id"))
            }
            None if !self.map.has_room(Space::Member) => {
                let limit = self.config.limits.members;
                let message = format!("the registry holds {limit} members or as many tombstones already");
                Err(Rejection::new(ErrorCode::ResourceExhausted, message).field("id").limit(limit))
            }
            _ => Ok(()),
        }
    }

    fn check_serving(&self) -> Result<(), Rejection> {
        if matches!(self.phase, Phase::Serving { .. }) { Ok(()) } else { Err(super::attach::not_ready()) }
    }

    fn write_agentless(&mut self, spec: &MemberSpec, principal: &str, out: &mut Output) -> Version {
        let client = self.map.interner.client(AGENTLESS_CLIENT, 0, principal);
        let held = self.map.record(Space::Member, &spec.id).cloned();
        let live = held.as_ref().filter(|held| held.is_live());
        let checks = Checks::registered(&spec.checks, live.and_then(|live| live.checks.as_ref()), self.wall_ms);
        let draft = Record {
            id: SmolStr::new(&spec.id),
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            slot: 0,
            drain: live.map_or(0, |live| live.drain),
            space: Space::Member,
            kind: RecordKind::Live,
            status: Status::Up,
            health: health_of(checks.as_ref()),
            weight: spec.weight,
            n: 0,
            claim: self.next_agentless_claim(&spec.id),
            seq: 1,
            predecessor: (0, 0),
            client,
            deployment: self.map.interner.deployment(&spec.service, &spec.locality, &spec.revision),
            created: spec.created.or(live.map(|live| live.created)).unwrap_or(self.wall_ms),
            since: self.wall_ms,
            address: SmolStr::new(&spec.address),
            endpoints: Metadata::from_map(&spec.endpoints),
            metadata: Metadata::from_map(&spec.metadata),
            checks,
            maintenance: live.and_then(|live| live.maintenance.clone()),
        };
        // The same registration again, as from a deploy script that runs twice.
        let same = live.filter(|live| live.is_agentless() && live.same_attributes(&draft));
        if let Some(live) = same.filter(|live| live.metadata == draft.metadata && live.checks == draft.checks) {
            return self.map.member(live).version();
        }
        let stored = self.write(draft, out);
        self.map.member(&stored.new).version()
    }

    /// Above every claim that may have been used for the id, and above those of all other agentless members (AG2).
    fn next_agentless_claim(&self, id: &str) -> u64 {
        let known = self.map.known_claim(Space::Member, id);
        let mut clock = self.map.agentless_clock();
        seam!(self, AgentlessClockIgnored => clock = 0);
        next_claim(known.max(clock))
    }

    /// Deregisters an agentless member, whichever node owns it (AG2).
    pub fn deregister_agentless(&mut self, now: Time, id: &str, out: &mut Output) -> Result<(), Rejection> {
        self.observe(now, out);
        let result = self.check_deregister_agentless(id);
        let result = result.map(|held| {
            let mut claim = self.next_agentless_claim(id);
            seam!(self, DeregistrationKeepsClaim => claim = held.claim);
            let draft = Record { claim, seq: held.seq + 1, ..held.unregistered() };
            self.write(draft, out);
            self.note_unregistration();
        });
        self.count_rejection(result)
    }

    fn check_deregister_agentless(&self, id: &str) -> Result<Arc<Record>, Rejection> {
        self.check_serving()?;
        match self.map.record(Space::Member, id).filter(|held| held.is_live()) {
            Some(held) if held.is_agentless() => Ok(held.clone()),
            Some(_) => {
                let message = format!("member {id:?} belongs to a client; only its client can unregister it");
                Err(Rejection::new(ErrorCode::FailedPrecondition, message).field("id"))
            }
            None => {
                let message = format!("no member {id:?} is registered without a client");
                Err(Rejection::new(ErrorCode::NotRegistered, message).field("id"))
            }
        }
    }

    /// Takes over agentless members for which this node is responsible (AG3). Those of an owner that is lost come at once, a
    /// few of those of live owners with each tick.
    pub(super) fn adopt_agentless(&mut self, out: &mut Output) {
        if !matches!(self.phase, Phase::Serving { since, .. } if self.clock.now.since(since) >= self.adoption_delay()) {
            return;
        }
        let live: Vec<NodeId> = self.live_nodes().into_iter().filter(|node| !self.has_failed(node)).cloned().collect();
        let mut moves = MOVED_AT_ONCE;
        let mine = |held: &&Arc<Record>| {
            let owner = &held.origin.id.node;
            let orphan = !self.is_current(held) || !live.contains(owner);
            held.origin.index != self.map.origins.me()
                && self.is_responsible_for_member(held.id(), &live)
                && (orphan || {
                    moves = moves.saturating_sub(1);
                    moves > 0
                })
        };
        let adopted_now: Vec<Arc<Record>> = self.map.of_client(AGENTLESS_CLIENT).filter(mine).cloned().collect();
        for held in adopted_now {
            let mut draft = Record { seq: adopted(held.seq), since: self.wall_ms, ..Record::clone(&held) };
            seam!(self, MoveForgetsHealth => draft.forget_results());
            self.counters.agentless_adopted += 1;
            self.write(draft, out);
        }
    }

    /// A node that has just begun to serve may not know all nodes yet.
    fn adoption_delay(&self) -> Duration {
        self.config.timers.ping_interval * 2
    }

    fn has_failed(&self, node: &NodeId) -> bool {
        self.peers.peers.get(node).is_some_and(|peer| matches!(peer.state, PeerState::Failed | PeerState::Left))
    }

    /// Whether the owner is the incarnation of its node that is alive.
    fn is_current(&self, held: &Record) -> bool {
        self.map.origins.entry(held.origin.index).standing.is_admitted()
            && !self.map.origins.is_outlived(&held.origin.id)
    }

    fn is_responsible_for_member(&self, id: &str, live: &[NodeId]) -> bool {
        seam!(self, EveryNodeAdopts => return true);
        seam!(self, NobodyAdopts => return false);
        first_by_hash(id, live.iter().collect()) == Some(&self.me.node)
    }

    /// Writes the agentless members from disk that the registry lacks, when this node begins to serve (AG4). It holds the
    /// registries of all nodes that it reaches by then.
    pub(super) fn restore_archive(&mut self, out: &mut Output) {
        let archive = std::mem::take(&mut self.archive);
        seam!(self, ArchiveIgnored => return);
        let ended = self.floor_of_ended(&archive);
        self.map.raise_agentless_floor(archive.floor);
        for record in archive.records.values() {
            let Some(archived) = self.decode_archived(record) else { continue };
            if self.is_restored(&archived, ended) {
                self.counters.agentless_restored += 1;
                self.write(archived, out);
            } else if self.map.record(Space::Member, &archived.id).is_none_or(|held| !held.is_agentless()) {
                // Otherwise a later start could restore it.
                self.forget_archived(&archived, out);
            }
        }
    }

    /// The claim up to which stored records of unknown ids have ended. A disk that contains as high a floor as the other nodes
    /// have was updated since they collected the last tombstone: what it still has did not end (AG4).
    fn floor_of_ended(&self, archive: &Archive) -> u64 {
        let floor = self.map.agentless_floor();
        seam!(self, OwnFloorEndsRecords => return floor.max(archive.floor));
        if archive.floor >= floor { 0 } else { floor }
    }

    fn is_restored(&self, archived: &Record, ended: u64) -> bool {
        seam!(self, ArchiveOutranks => return self.map.record(Space::Member, &archived.id).is_none_or(|held| !held.is_live()));
        match self.map.record(Space::Member, &archived.id) {
            None => archived.claim > ended,
            Some(held) => archived.claim > held.claim && (held.is_agentless() || !held.is_live()),
        }
    }

    /// A stored record as a draft of this node. Damaged ones are skipped: other nodes have them too.
    fn decode_archived(&mut self, record: &[u8]) -> Option<Record> {
        let mut reader = Reader::new(record);
        let items = Items::decode(&mut reader).ok()?;
        let Some(Item::Record(item)) = items.iter().next() else { return None };
        if item.client != AGENTLESS_CLIENT || item.space != Space::Member {
            return None;
        }
        let interner = &mut self.map.interner;
        let (client, deployment) = (
            interner.client(item.client, item.nonce, item.principal),
            interner.deployment(item.service, item.locality, item.revision),
        );
        Some(Record {
            id: SmolStr::new(item.id),
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            slot: 0,
            drain: item.drain,
            space: Space::Member,
            kind: item.kind,
            status: Status::Up,
            health: item.health,
            weight: item.weight,
            n: 0,
            claim: item.claim,
            seq: adopted(item.seq),
            predecessor: (0, 0),
            client,
            deployment,
            created: item.created,
            since: self.wall_ms,
            address: SmolStr::new(item.address),
            endpoints: item.endpoints.to_metadata(),
            metadata: item.metadata.to_metadata(),
            checks: item.checks.clone(),
            maintenance: item.maintenance.map(|held| Arc::new(held.to_maintenance(self.clock))),
        })
    }

    pub(super) fn collect_agentless(&mut self, out: &mut Output) -> Vec<(u32, Arc<Record>)> {
        let collected = self.map.collect_agentless(self.clock, self.config.timers.forget_timeout);
        for (_, record) in &collected {
            self.forget_archived(record, out);
        }
        collected
    }

    /// An agentless member was collected here or elsewhere.
    pub(super) fn forget_archived(&self, record: &Record, out: &mut Output) {
        if record.is_agentless() {
            let floor = self.map.agentless_floor();
            out.effects.push(Effect::Archive { id: record.id.clone(), record: None, floor });
        }
    }
}

impl Archive {
    /// Applies an [`Effect::Archive`].
    pub fn apply(&mut self, id: SmolStr, record: Option<Bytes>, floor: u64) {
        self.floor = self.floor.max(floor);
        match record {
            Some(record) => drop(self.records.insert(id, record)),
            None => drop(self.records.remove(&id)),
        }
    }

    /// The claim of a stored member, live or left.
    pub fn claim(&self, id: &str) -> Option<u64> {
        let items = Items::decode(&mut Reader::new(self.records.get(id)?)).ok()?;
        match items.iter().next() {
            Some(Item::Record(item)) => Some(item.claim),
            _ => None,
        }
    }
}

/// Stores what a total restart must not lose: registrations, deregistrations and drain marks, but not who adopted them.
pub(super) fn archive_change(old: Option<&Arc<Record>>, new: &Record, out: &mut Output) {
    let changed = |old: &Arc<Record>| (old.claim, old.kind, old.drain) != (new.claim, new.kind, new.drain);
    let was = old.is_some_and(|old| old.is_agentless());
    if new.is_agentless() && (!was || old.is_some_and(changed)) {
        let mut items = ItemsWriter::default();
        items.record(new, Duration::ZERO);
        let mut writer = Writer::default();
        items.finish(&mut writer);
        let record = Some(Bytes::from(writer.into_bytes()));
        out.effects.push(Effect::Archive { id: new.id.clone(), record, floor: 0 });
    } else if was && !new.is_agentless() {
        out.effects.push(Effect::Archive { id: new.id.clone(), record: None, floor: 0 });
    }
}
