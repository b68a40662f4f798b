//! After the faults, exactly the owner of a member runs its checks, with its current claim and definitions (HC3).

use super::{Found, Invariant, report, serving};
use crate::world::World;
use std::collections::BTreeMap;

const NAME: &str = "one_checker";

#[derive(Debug, Default)]
pub struct OneChecker {
    checks: u64,
}

impl Invariant for OneChecker {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        let mut checkers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (host, _) in serving(world) {
            for id in world.hosts[host].checks.keys() {
                checkers.entry(id.as_str()).or_default().push(host);
            }
        }
        for (host, node) in serving(world) {
            for (id, (claim, checks)) in &world.hosts[host].checks {
                self.checks += 1;
                let held = node.member(id).filter(|member| member.origin() == node.origin());
                if !held.is_some_and(|member| member.rank().claim == *claim && member.checks() == Some(checks)) {
                    report(found, NAME, world, format!("n{host} checks {id} as of claim {claim} with {checks:?}"));
                }
            }
        }
        for (id, hosts) in checkers {
            self.checks += 1;
            if hosts.len() > 1 {
                report(found, NAME, world, format!("{hosts:?} all check {id}"));
            }
        }
        for (host, node) in serving(world) {
            for member in world.agentless.expected.keys().filter_map(|id| node.member(id)) {
                let is_mine = member.origin() == node.origin() && member.checks().is_some();
                if is_mine && !world.hosts[host].checks.contains_key(member.id()) {
                    report(found, NAME, world, format!("n{host} owns {member:?} and does not check it"));
                }
            }
        }
    }
}
