//! No queue or table of a node grows beyond its limit (P7, W5).

use super::{Found, Invariant, report};
use crate::world::World;

const NAME: &str = "queues_bounded";

#[derive(Debug, Default)]
pub struct QueuesBounded {
    checks: u64,
}

impl Invariant for QueuesBounded {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        let hosts = world.hosts.len();
        let ids = world.truth.ids.len() + world.http.ids + world.agentless.expected.len() + hosts;
        // An incarnation that raised its number while it started may be known by both numbers (N1).
        let origins = 2 * world.hosts.iter().map(|host| host.boot).sum::<u64>() as usize;
        for (index, host) in world.hosts.iter().enumerate() {
            let Some(node) = &host.node else { continue };
            let limits = &host.config.limits;
            let sizes = node.sizes();
            // Connections that are not yet accepted, rejected or detected as dead count too (P5).
            let links = 4 * hosts + 16;
            let timers = 16 * (sizes.sessions + sizes.links + sizes.watchers + sizes.origins + hosts)
                + 8 * (sizes.tombstones + sizes.members + sizes.names)
                + 64;
            for (what, is, limit) in [
                ("watcher queue", sizes.watcher_queue, limits.watcher_queue + 1),
                ("watchers", sizes.watchers, world.watchers.len()),
                (
                    "sessions",
                    sizes.sessions,
                    limits.sessions.min(world.clients.len() * 8 + world.http_attaches(index) + 8),
                ),
                ("links", sizes.links, links),
                ("retired", sizes.retired, hosts),
                ("origins", sizes.origins, origins),
                ("members", sizes.members, ids),
                ("timers", sizes.timers, timers),
            ] {
                self.checks += 1;
                if is > limit {
                    report(found, NAME, world, format!("n{index} holds {is} {what}, more than {limit}: {sizes:?}"));
                }
            }
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.periodically(world, found);
    }
}
