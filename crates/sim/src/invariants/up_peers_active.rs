//! A peer that is shown as up has sent something recently, over a link that works in both directions (P1, P6).

use super::{Found, Invariant, report, serving};
use crate::host::HostState;
use crate::network::{Micros, SECOND, Site};
use crate::world::{World, micros};
use convoke_core::node::PeerState;

const NAME: &str = "up_peers_active";

#[derive(Debug, Default)]
pub struct UpPeersActive {
    checks: u64,
}

impl Invariant for UpPeersActive {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        let patience = 2 * micros(world.setup.timers.ping_timeout) + 3 * SECOND;
        for (host, node) in serving(world) {
            // A node that was paused itself has just started to receive; a busy node lags.
            if world.hosts[host].calm_after_pause(world.now, SECOND / 2) < patience || world.hosts[host].slow > 0 {
                continue;
            }
            for peer in node.peers().into_iter().filter(|peer| peer.state == PeerState::Up) {
                let mut runs = (0..world.hosts.len()).filter(|other| world.hosts[*other].id == peer.node);
                self.checks += 1;
                if runs.all(|other| silent_for(world, other).max(severed_for(world, host, other)) > patience) {
                    report(found, NAME, world, format!("n{host} shows {} as up, which has sent nothing", peer.node));
                }
            }
        }
    }
}

/// Returns for how long one of two hosts could not send to the other. Both notice it (P6).
fn severed_for(world: &World, host: usize, other: usize) -> Micros {
    let severed = world.network.severed_since(Site::Host(host), Site::Host(other));
    severed.map_or(0, |since| world.now - since)
}

/// Returns for how long a host has sent nothing.
fn silent_for(world: &World, host: usize) -> Micros {
    let held = &world.hosts[host];
    let since = match held.state {
        HostState::Running if held.paused() => held.paused_since,
        HostState::Running => world.now,
        HostState::Down | HostState::Gone => held.stopped_at.unwrap_or(world.now),
    };
    world.now - since
}
