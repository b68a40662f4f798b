//! A member of an HTTP session is not shown `down` while the node that owns it executes requests of its client, and the
//! observer can reach that node (C6, C8; statement HS1 of docs/consistency.md).

use super::{Found, Invariant, notice_time, report};
use crate::http::HttpClient;
use crate::network::Micros;
use crate::world::{World, micros};
use convoke_core::member::Status;
use convoke_core::node::StreamEvent;

const NAME: &str = "http_no_false_down";

#[derive(Debug, Default)]
pub struct HttpNoFalseDown {
    checks: u64,
}

impl Invariant for HttpNoFalseDown {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "C6, C8"
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at.filter(|_| reader.observer) else { return };
        let (id, status) = match event {
            StreamEvent::StatusChanged(m)
            | StreamEvent::Updated(m)
            | StreamEvent::Registered(m)
            | StreamEvent::OwnerChanged(m) => (m.id(), m.status()),
            StreamEvent::Unregistered { id, .. } => (id.as_str(), Status::Left),
            _ => return,
        };
        if world.http.clients.is_empty() {
            return;
        }
        let window = notice_time(world);
        let held = &world.hosts[host];
        let judges = held.ready_at.is_some_and(|at| world.now - at > window)
            && held.calm_after_pause(world.now, 0) > window
            && world.reach.joined(host, host, world.now.saturating_sub(window), world.now);
        let Some(client) = steady_client(world, id, host, window).filter(|_| judges) else { return };
        self.checks += 1;
        if status != Status::Up {
            let message =
                format!("n{host} shows {id} of http client {client} {status}, which was never silent: {event:?}");
            report(found, NAME, world, message);
        }
    }
}

/// The client of a member that was acknowledged long ago, if its requests were executed without a long gap, each by a node that
/// the observer could reach all the time, and the last one by the owner of the member. A session that moves may lose members
/// whose registration has not reached its new node.
fn steady_client(world: &World, id: &str, observer: usize, window: Micros) -> Option<usize> {
    let (index, client) = world.http.clients.iter().enumerate().find(|(_, c)| c.members.contains_key(id))?;
    let since = client.members.get(id)?.since?;
    let opening = world.now.saturating_sub(window);
    let steady = client.alive && since < opening && is_steady(world, client, opening);
    let reached = |host: usize| world.reach.joined(host, observer, opening, world.now);
    let mut hosts = client.beats.iter().rev().take_while(|(at, _)| *at > opening).map(|(_, host)| *host);
    (steady && is_owner(world, client, id) && hosts.all(reached)).then_some(index)
}

/// Whether the node that executed the client's last request is the owner of a member.
fn is_owner(world: &World, client: &HttpClient, id: &str) -> bool {
    let Some((_, host)) = client.beats.back() else { return false };
    let Some(node) = world.hosts[*host].node.as_ref() else { return false };
    node.slot(id).is_some_and(|slot| slot.origin == *node.origin())
}

fn is_steady(world: &World, client: &HttpClient, opening: Micros) -> bool {
    let timers = &world.setup.timers;
    let limit = micros(timers.heartbeat_timeout) - micros(timers.heartbeat_interval);
    let mut later = world.now;
    for (at, _) in client.beats.iter().rev() {
        if later - at > limit {
            return false;
        }
        later = *at;
        if later <= opening {
            return true;
        }
    }
    false
}
