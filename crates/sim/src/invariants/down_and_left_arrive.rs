//! Members of a dead client become `down` and then `left`, in time (C6, L4, D10).

use super::{Found, Invariant, notice_time, report, serving};
use crate::host::HostState;
use crate::network::{MINUTE, Micros, SECOND};
use crate::world::{World, micros};
use convoke_core::member::Status;
use convoke_core::node::StreamEvent;
use convoke_core::version::OriginId;
use std::collections::BTreeMap;

const NAME: &str = "down_and_left_arrive";

#[derive(Debug, Default)]
pub struct DownAndLeftArrive {
    checks: u64,
    /// Ended node processes, and when they ended.
    dead: BTreeMap<OriginId, Micros>,
}

impl Invariant for DownAndLeftArrive {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn host_stopped(&mut self, world: &World, host: usize) {
        if let Some(node) = &world.hosts[host].node {
            self.dead.insert(node.origin().clone(), world.now);
        }
    }

    /// Members of a lost node must not become `up` again, because no new evidence can arrive.
    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let (StreamEvent::Registered(member) | StreamEvent::StatusChanged(member)) = event else { return };
        let reader = &world.watchers[watcher];
        let Some((host, ..)) =
            reader.at.filter(|_| reader.observer && member.status() == Status::Up && !member.is_agentless())
        else {
            return;
        };
        let rank = member.rank();
        let origin = OriginId { node: rank.node.clone(), incarnation: rank.incarnation };
        let Some(died) = self.dead.get(&origin) else { return };
        let window = notice_time(world);
        if world.now - died > 2 * window && world.hosts[host].calm_after_pause(world.now, SECOND) > window {
            let ago = (world.now - died) / SECOND;
            report(found, NAME, world, format!("n{host} shows up {ago} s after its owner died: {event:?}"));
        }
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        self.members(world, found);
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.members(world, found);
        self.names(world, found);
    }
}

impl DownAndLeftArrive {
    fn members(&mut self, world: &World, found: &mut Found) {
        let timers = &world.setup.timers;
        let timeout = micros(timers.heartbeat_timeout);
        // The heartbeat timeout, one further timeout if the guard holds (L6), and the propagation to the others.
        let down = world.orphan_patience() + 2 * timeout + 2 * micros(timers.admission_window()) + 5 * SECOND;
        let left = world.linger();
        for (id, claimed) in &world.truth.ids {
            if !claimed.unwanted() || claimed.silent_since == 0 {
                continue;
            }
            let gone_at = claimed.silent_since.max(claimed.freed_at);
            for (host, node) in serving(world) {
                let Some(settled) = settled_since(world, host) else { continue };
                let silent = world.now.saturating_sub(gone_at.max(settled));
                if silent < down {
                    continue;
                }
                self.checks += 1;
                match node.member(id) {
                    Some(member) if silent > left => {
                        report(
                            found,
                            NAME,
                            world,
                            format!(
                                "n{host} still shows {member:?}, whose client has been gone for {} s",
                                silent / SECOND
                            ),
                        );
                    }
                    Some(member) if member.status() == Status::Up => {
                        report(
                            found,
                            NAME,
                            world,
                            format!(
                                "n{host} still shows up: {member:?}, whose client has been gone for {} s",
                                silent / SECOND
                            ),
                        );
                    }
                    _ => {}
                }
            }
        }
    }

    /// Names of a permanently lost node are dropped.
    fn names(&mut self, world: &World, found: &mut Found) {
        let bound = micros(world.setup.timers.dead_peer_timeout) + 2 * MINUTE;
        for (index, host) in world.hosts.iter().enumerate() {
            let Some(stopped) = host.stopped_at.filter(|_| host.state == HostState::Gone && host.duplicate.is_none())
            else {
                continue;
            };
            for name in host.names.keys() {
                for (other, node) in serving(world) {
                    let settled = settled_since(world, other);
                    if settled.is_none_or(|settled| world.now.saturating_sub(stopped.max(settled)) < bound) {
                        continue;
                    }
                    self.checks += 1;
                    if let Some(shown) = node.name(name).filter(|shown| shown.node == host.id) {
                        report(
                            found,
                            NAME,
                            world,
                            format!("n{other} still shows {shown:?} of n{index}, which is lost"),
                        );
                    }
                }
            }
        }
    }
}

/// Returns the time since which a node waits for nothing but its timeouts. They start again when it begins or ceases to
/// reach another node: that node may be the owner, or the one that is responsible for the expiry (L4).
fn settled_since(world: &World, host: usize) -> Option<Micros> {
    let settled = world.settled_since(host);
    world.reach.joined(host, host, settled, world.now).then_some(settled)
}
