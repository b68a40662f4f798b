//! A member of an HTTP session is not shown `down` while the node that owns it executes requests of its client, and the
//! observer can reach that node (C6, C8; statement HS1 of docs/consistency.md). The session may have moved in the meantime,
//! for example because its node crashed.

use super::no_false_down::{joined, may_judge};
use super::{Found, Invariant, notice_time, report};
use crate::http::{HttpClient, is_contested};
use crate::network::Micros;
use crate::world::{World, micros};
use convoke_core::member::{Liveness, Status};
use convoke_core::node::StreamEvent;
use convoke_core::version::Version;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "http_no_false_down";

#[derive(Debug, Default)]
pub struct HttpNoFalseDown {
    checks: u64,
    /// Members that a host may show for a short time as an earlier attachment left them, with the time of the event.
    excused: BTreeMap<(usize, String), Micros>,
    /// The highest claim of each member, and when an observer saw it first.
    claims: BTreeMap<String, (u64, Micros)>,
}

impl Invariant for HttpNoFalseDown {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        self.check_excused(world, found);
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at.filter(|_| reader.observer) else { return };
        let (id, status, version) = match event {
            StreamEvent::StatusChanged(m)
            | StreamEvent::Updated(m)
            | StreamEvent::Registered(m)
            | StreamEvent::OwnerChanged(m) => (m.id(), m.status(), m.version()),
            StreamEvent::Unregistered { id, version } => (id.as_str(), Status::Left, *version),
            _ => return,
        };
        if world.http.clients.is_empty() {
            return;
        }
        let highest = self.claims.entry(id.to_owned()).or_default();
        if version.claim > highest.0 {
            *highest = (version.claim, world.now);
        }
        // The owner has just registered the member again, and this node has received only what that write outranks.
        let outranked = version.claim < highest.0 && world.now - highest.1 <= world.contact_time();
        let window = notice_time(world);
        let judges = may_judge(world, host, window);
        let Some(client) = steady_client(world, id, host, window).filter(|_| judges) else { return };
        let unknown = || is_unknown_to_the_owner(world, &world.http.clients[client], id, version);
        if status != Status::Up && (outranked || unknown()) {
            self.excused.entry((host, id.to_owned())).or_insert(world.now);
            return;
        }
        self.checks += 1;
        if status != Status::Up {
            let message =
                format!("n{host} shows {id} of http client {client} {status}, which was never silent: {event:?}");
            report(found, NAME, world, message);
        }
    }
}

impl HttpNoFalseDown {
    /// The owner registers such a member again at once (C9), or with the next request of the session (C8).
    fn check_excused(&mut self, world: &World, found: &mut Found) {
        let window = notice_time(world);
        self.excused.retain(|(host, id), since| {
            let pending = world.hosts[*host].serving().is_some() && world.status(*host, id) != Some(Status::Up);
            let client = steady_client(world, id, *host, window).filter(|_| pending && may_judge(world, *host, window));
            if let Some(client) = client
                && world.now - *since > world.contact_time() + world.http.clients[client].timing.0
            {
                let message =
                    format!("n{host} still shows {id} of http client {client} as an earlier attachment left it");
                report(found, NAME, world, message);
            }
            pending
        });
    }
}

/// Whether another node wrote a record that outranks the one of the node that executes the client's requests, which has
/// not received it yet. On two sides of a partition the session, or the session before it, can be attached twice, and the
/// claims do not say which attachment is the later one. `docs/consistency.md` states it.
fn is_unknown_to_the_owner(world: &World, client: &HttpClient, id: &str, shown: Version) -> bool {
    let Some((_, host)) = client.beats.back() else { return false };
    let own = world.hosts[*host].node.as_ref().and_then(|node| node.member(id)).map(|member| member.version());
    own.is_some_and(|own| shown.tag != own.tag && (shown.claim, shown.seq) >= (own.claim, own.seq))
}

/// Returns the client of a member that was acknowledged long ago, under these conditions. Its requests were executed
/// without a long gap, and the owner of the member executed the last one. The observer could reach each node while the
/// session was attached there. A session that moves may lose members whose registration has not reached its new node.
fn steady_client(world: &World, id: &str, observer: usize, window: Micros) -> Option<usize> {
    let (index, client) = world.http.clients.iter().enumerate().find(|(_, c)| c.members.contains_key(id))?;
    let since = client.members.get(id)?.since.filter(|_| !is_contested(id))?;
    let window = window + client.timing.1.saturating_sub(micros(world.setup.timers.heartbeat_timeout));
    let opening = world.now.saturating_sub(window);
    let steady = client.alive && since < opening && is_steady(world, client, opening);
    let reached = |(host, from, until): (usize, Micros, Micros)| {
        // A node that runs again has attached the session after its last stop.
        let stopped = if until == Micros::MAX { world.hosts[host].last_stop + 1 } else { 0 };
        joined(world, host, observer, window, from.max(stopped), until)
    };
    let attachments = attachments(&client.beats, opening);
    let fine = steady
        && is_owner(world, client, id)
        && !moved_without_a_link(world, &attachments)
        && attachments.into_iter().all(reached);
    fine.then_some(index)
}

/// Whether the session moved so recently that its earlier node may not have received this: one of the two has lost a link
/// since, so the write may take another path. That takes a new link and, at each relaying node, two pings (D7).
fn moved_without_a_link(world: &World, attachments: &[(usize, Micros, Micros)]) -> bool {
    let timers = &world.setup.timers;
    let relays = world.hosts.len().saturating_sub(2) as u64;
    let arrives = world.contact_time() + relays * 3 * micros(timers.ping_interval);
    let recent = |at: Micros| world.now.saturating_sub(at) < arrives;
    match attachments {
        [(_, from, _), _, ..] => {
            recent(*from) && attachments.iter().any(|(host, ..)| recent(world.hosts[*host].link_lost_at))
        }
        _ => false,
    }
}

/// The nodes that executed requests of a client in the window, newest first, with the start and end of each attachment.
/// The current one has no end.
fn attachments(beats: &VecDeque<(Micros, usize)>, opening: Micros) -> Vec<(usize, Micros, Micros)> {
    let mut found: Vec<(usize, Micros, Micros)> = Vec::new();
    let mut until = Micros::MAX;
    for (at, host) in beats.iter().rev() {
        match found.last_mut().filter(|(last, ..)| last == host) {
            Some((_, from, _)) => *from = *at,
            None if until <= opening => break,
            None => found.push((*host, *at, until)),
        }
        until = *at;
    }
    found
}

/// Whether the node that executed the client's last request is the owner of a member.
fn is_owner(world: &World, client: &HttpClient, id: &str) -> bool {
    let Some((_, host)) = client.beats.back() else { return false };
    let Some(node) = world.hosts[*host].node.as_ref() else { return false };
    node.slot(id).is_some_and(|slot| slot.origin == *node.origin())
}

fn is_steady(world: &World, client: &HttpClient, opening: Micros) -> bool {
    if client.secret.as_ref().is_some_and(|secret| secret.liveness == Liveness::Fast) {
        return false;
    }
    let (interval, timeout) = client.timing;
    let limit = timeout.saturating_sub(interval);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_judged_over_its_own_part_of_the_window() {
        let beats = [(10, 2), (20, 0), (30, 0), (40, 1), (50, 1)];
        assert_eq!(attachments(&beats.into(), 25), [(1, 40, Micros::MAX), (0, 20, 40)]);
        assert_eq!(attachments(&beats.into(), 5), [(1, 40, Micros::MAX), (0, 20, 40), (2, 10, 20)]);
        assert_eq!(attachments(&beats.into(), 45), [(1, 40, Micros::MAX)]);
    }
}
