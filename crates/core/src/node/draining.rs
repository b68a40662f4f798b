//! Drain marks of members and nodes, and the end of those that have one (C7, C21).

use super::{LinkId, Node, Output};
use crate::error::{ErrorCode, Rejection};
use crate::member::{Drain, Maintenance, Record, Space, Status};
use crate::mutant::seam;
use crate::time::{Duration, Time};
use crate::version::NodeId;
use crate::wire::{MAX_DRAIN_TAKEN, MaintenanceItem, Message};
use std::sync::Arc;

/// How many drains a node ends with one tick.
const ENDED_AT_ONCE: usize = 1_024;

impl Node {
    /// Sets or clears the drain mark of a member, wherever its owner is.
    pub fn drain(&mut self, now: Time, id: &str, drained: bool, out: &mut Output) -> Result<(), Rejection> {
        self.mark(now, id, drained.then(Drain::default).as_ref(), out)
    }

    /// Sets or clears this node's drain mark: it stays registered, but pickers and discovery skip it.
    pub fn drain_node(&mut self, now: Time, drained: bool, out: &mut Output) -> Result<(), Rejection> {
        let id = self.member_id.clone();
        self.drain(now, &id, drained, out)
    }

    /// Drains a member, with a reason and an end; `None` undoes a drain (C21).
    pub fn mark(&mut self, now: Time, id: &str, wanted: Option<&Drain>, out: &mut Output) -> Result<(), Rejection> {
        self.observe(now, out);
        let result = wanted.map_or(Ok(()), Drain::check).and_then(|()| self.do_mark(id, wanted, out));
        self.count_rejection(result)
    }

    fn do_mark(&mut self, id: &str, wanted: Option<&Drain>, out: &mut Output) -> Result<(), Rejection> {
        let held = self.map.record(Space::Member, id).filter(|r| self.map.shown(r) != Status::Left).cloned();
        let Some(held) = held else {
            let unknown = Rejection::new(ErrorCode::NotFound, format!("no member {id:?}")).field("id");
            return Err(if self.is_alone() { self.absence_unknown() } else { unknown });
        };
        let maintenance = wanted.and_then(|wanted| wanted.begin(self.clock)).map(Arc::new);
        let unchanged = match wanted {
            None => !held.drained(),
            // A further drain with an end begins anew.
            Some(wanted) => held.drained() && wanted.lasts.is_none() && held.maintenance == maintenance,
        };
        if unchanged {
            return Ok(());
        }
        let drain = held.drain + if wanted.is_some() == held.drained() { 2 } else { 1 };
        if held.origin.index == self.map.origins.me() {
            self.write(Record { drain, maintenance, seq: held.seq + 1, ..Record::clone(&held) }, out);
            return Ok(());
        }
        let owner = &held.origin.id.node;
        let Some(link) = self.peers.link_to(owner) else {
            let message = format!("member {id:?} belongs to node {owner}, which this node cannot reach now");
            return Err(Rejection::new(ErrorCode::NotReady, message).field("id"));
        };
        let link = link.id;
        let maintenance = maintenance.as_deref().map(|maintenance| MaintenanceItem::of(maintenance, self.clock));
        self.send(link, &Message::Drain { id, drain, maintenance }, out);
        Ok(())
    }

    /// Asks the new owner of a member to take over its drain mark (C7).
    pub(super) fn pass_on_drain(
        &mut self,
        owner: &NodeId,
        id: &str,
        drain: u32,
        maintenance: Option<&Maintenance>,
        out: &mut Output,
    ) {
        seam!(self, MoveClearsDrain => return);
        if let Some(link) = self.peers.link_to(owner) {
            let link = link.id;
            let maintenance = maintenance.map(|maintenance| MaintenanceItem::of(maintenance, self.clock));
            self.send(link, &Message::Drain { id, drain, maintenance }, out);
        }
    }

    pub(super) fn handle_drain(
        &mut self,
        link: LinkId,
        id: &str,
        drain: u32,
        maintenance: Option<&MaintenanceItem<'_>>,
        out: &mut Output,
    ) {
        if drain > MAX_DRAIN_TAKEN {
            self.counters.records_rejected += 1;
            return;
        }
        let Some(held) = self.map.record(Space::Member, id).cloned() else { return };
        if !held.is_live() || held.drain >= drain {
            return;
        }
        let maintenance = maintenance.map(|maintenance| Arc::new(maintenance.to_maintenance(self.clock)));
        if held.origin.index == self.map.origins.me() {
            self.write(Record { drain, maintenance, seq: held.seq + 1, ..Record::clone(&held) }, out);
        } else if self.peers.links.get(&link).and_then(|l| l.peer.as_ref()) != Some(&held.origin.id.node) {
            self.pass_on_drain(&held.origin.id.node.clone(), id, drain, maintenance.as_deref(), out);
        }
    }

    /// Ends the drains of this node's members whose time is over (C21). The mark that ends is the one in the record, so a
    /// newer drain has a time of its own.
    pub(super) fn end_drains(&mut self, out: &mut Output) {
        seam!(self, DrainNeverEnds => return);
        if !self.map.may_write {
            return;
        }
        let me = self.map.origins.me();
        let is_over = |record: &Record| {
            let remaining = record.maintenance.as_ref().and_then(|maintenance| maintenance.remaining(self.clock));
            record.origin.index == me && remaining == Some(Duration::ZERO)
        };
        let timed = self.map.timed_drains().filter(|record| is_over(record));
        let over: Vec<Arc<Record>> = timed.take(ENDED_AT_ONCE).cloned().collect();
        for held in over {
            let (drain, seq) = (held.drain + 1, held.seq + 1);
            self.counters.drains_ended += 1;
            self.write(Record { drain, maintenance: None, seq, ..Record::clone(&held) }, out);
        }
    }
}
