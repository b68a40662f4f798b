//! A process that has met no other node since its start, although it has seeds, asserts no absence (N7).

use super::{Found, Invariant, report};
use crate::host::Host;
use crate::world::World;
use convoke_core::node::StreamEvent;

const NAME: &str = "alone_asserts_nothing";

#[derive(Debug, Default)]
pub struct AloneAssertsNothing {
    checks: u64,
}

fn has_met_nobody(host: &Host) -> bool {
    let config = &host.config;
    !host.met && config.seeds.iter().any(|seed| *seed != config.peer_address)
}

impl Invariant for AloneAssertsNothing {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn after_input(&mut self, world: &World, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        if !has_met_nobody(held) {
            return;
        }
        self.checks += 1;
        if held.node.as_ref().is_some_and(convoke_core::Node::asserts_absence) {
            report(found, NAME, world, format!("n{host} asserts absences, and has met no node since it started"));
        }
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let Some((host, ..)) = world.watchers[watcher].at.filter(|_| *event == StreamEvent::CaughtUp) else { return };
        self.checks += 1;
        if has_met_nobody(&world.hosts[host]) {
            report(found, NAME, world, format!("n{host} reports a view as complete, and has met no node"));
        }
    }
}
