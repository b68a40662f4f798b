//! Every acknowledged registration of a live client is shown everywhere, as acknowledged (C3, C4, D4).

use super::{Found, Invariant, report, serving};
use crate::host::HostState;
use crate::world::World;
use convoke_core::member::Status;

const NAME: &str = "no_lost_registration";

#[derive(Debug, Default)]
pub struct NoLostRegistration {
    checks: u64,
}

impl Invariant for NoLostRegistration {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for (index, client) in world.clients.iter().enumerate() {
            if client.attached_to().is_none() {
                continue;
            }
            for (id, holding) in &client.members {
                if holding.acknowledged.is_none() {
                    report(found, NAME, world, format!("{id} of c{index} was never acknowledged"));
                }
                for (host, node) in serving(world) {
                    self.checks += 1;
                    let Some(member) = node.member(id) else {
                        report(
                            found,
                            NAME,
                            world,
                            format!("{id} of c{index} is not shown at n{host}: {:?}", node.slot(id)),
                        );
                        continue;
                    };
                    let same = member.status() == Status::Up
                        && member.client() == client.id
                        && member.metadata().to_map() == holding.acknowledged_metadata;
                    if !same {
                        let expected = &holding.acknowledged_metadata;
                        report(
                            found,
                            NAME,
                            world,
                            format!("{id} of c{index}: n{host} shows {member:?}, acknowledged was {expected:?}"),
                        );
                    }
                }
            }
        }
        self.names(world, found);
    }
}

impl NoLostRegistration {
    /// Checks that a name is shown as registered, unless its node was notified of its loss.
    fn names(&mut self, world: &World, found: &mut Found) {
        for (index, host) in world.hosts.iter().enumerate() {
            if host.state != HostState::Running || host.duplicate.is_some() || host.serving().is_none() {
                continue;
            }
            for (name, location) in &host.names {
                for (other, node) in serving(world) {
                    self.checks += 1;
                    let shown = node.name(name);
                    if shown.as_ref().is_none_or(|shown| shown.node != host.id || shown.location != *location) {
                        report(
                            found,
                            NAME,
                            world,
                            format!("name {name} of n{index} at {location}: n{other} shows {shown:?}"),
                        );
                    }
                }
            }
        }
    }
}
