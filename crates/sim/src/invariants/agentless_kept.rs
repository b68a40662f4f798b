//! An agentless member never shows `down`. After the faults, every node shows what was registered last, with one live owner,
//! and nothing that was deregistered (AG1 to AG5).

use super::{Found, Invariant, notice_time, report, serving};
use crate::world::World;
use convoke_core::member::{Member, Status};
use convoke_core::node::StreamEvent;

const NAME: &str = "agentless_kept";

#[derive(Debug, Default)]
pub struct AgentlessKept {
    checks: u64,
}

impl Invariant for AgentlessKept {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let (StreamEvent::Registered(member)
        | StreamEvent::StatusChanged(member)
        | StreamEvent::OwnerChanged(member)
        | StreamEvent::Updated(member)
        | StreamEvent::Snapshot(member)) = event
        else {
            return;
        };
        if !member.is_agentless() {
            return;
        }
        self.checks += 1;
        if member.status() != Status::Up {
            report(found, NAME, world, format!("watcher {watcher} gets {event:?}"));
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for (id, expected) in world.agentless.expected.iter().filter(|(_, expected)| !expected.open) {
            for (host, node) in serving(world) {
                self.checks += 1;
                let shown = node.member(id);
                let value = shown.as_ref().and_then(|member| member.metadata().get("value"));
                if value != expected.value.as_deref() {
                    let message = format!("n{host} shows {shown:?} for {id}, expected {expected:?}");
                    report(found, NAME, world, message);
                }
                if let Some(member) = shown.filter(|member| !has_live_owner(world, member)) {
                    report(found, NAME, world, format!("n{host} shows {member:?}, whose owner is lost"));
                }
            }
        }
    }
}

/// Whether the owner runs, or stopped so recently that no other node had the time to adopt the member (AG3).
fn has_live_owner(world: &World, member: &Member) -> bool {
    let recently = |at| world.now.saturating_sub(at) < notice_time(world);
    let owner = member.origin();
    serving(world).any(|(_, node)| node.origin() == owner)
        || world.hosts.iter().any(|host| {
            let started = host.serving_at.is_some_and(recently);
            host.id == owner.node && (started || host.stopped_at.is_some_and(recently))
        })
}
