//! No node shows `down` or `left` for a member whose client is, or could be, attached to a node it can reach (L2, L3,
//! L5).

use super::{Found, Invariant, notice_time, report};
use crate::client::Client;
use crate::host::HostState;
use crate::network::{Micros, SECOND};
use crate::world::{World, micros};
use convoke_core::config::Limits;
use convoke_core::member::{Liveness, Status};
use convoke_core::node::StreamEvent;
use std::collections::BTreeMap;

const NAME: &str = "no_false_down";
/// Propagation from one region to another, with slack.
const PROPAGATION: Micros = SECOND / 20;
/// With `fast` liveness: time from losing the connection until the session is down (C6).
const FAST_GRACE: Micros = 3 * SECOND / 4;
/// Largest backoff of the SDK.
const BACKOFF_MAX: Micros = 20 * SECOND;
/// Longest time of one attempt of the SDK to attach: the pause within a round, a connection and an answer.
const ATTEMPT: Micros = SECOND / 2 + (3 + 10) * SECOND;

#[derive(Debug, Default)]
pub struct NoFalseDown {
    checks: u64,
    /// Members that a host may show for a short time as an earlier process left them, with the time of the event.
    excused: BTreeMap<(usize, String), Micros>,
}

impl Invariant for NoFalseDown {
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
        let (id, status, shown) = match event {
            StreamEvent::StatusChanged(m)
            | StreamEvent::Updated(m)
            | StreamEvent::Registered(m)
            | StreamEvent::OwnerChanged(m) => (m.id(), m.status(), Some(m)),
            StreamEvent::Unregistered { id, .. } => (id.as_str(), Status::Left, None),
            _ => return,
        };
        let window = notice_time(world);
        if !may_judge(world, host, window) {
            return;
        }
        let joined = |owner: usize, from: Micros, until: Micros| joined(world, owner, host, window, from, until);
        let held = steady_holder(world, id, window, joined);
        let Some(client) = held.or_else(|| idle_holder(world, id, host)) else { return };
        if super::is_late_removal(world, host, client, event)
            || shown.is_some_and(|member| super::is_of_an_earlier_process(world, host, client, member))
        {
            self.excused.entry((host, id.to_owned())).or_insert(world.now);
            return;
        }
        self.checks += 1;
        if status != Status::Up {
            let fault = if held.is_some() { "was never silent" } else { "could have attached for a long time" };
            let message = format!("n{host} shows {id} of c{client} {status}, whose client {fault}: {event:?}");
            report(found, NAME, world, message);
        }
    }
}

impl NoFalseDown {
    /// The owner registers a member again above the record of an earlier process, so that record is not shown for long.
    fn check_excused(&mut self, world: &World, found: &mut Found) {
        let (window, bound) = (notice_time(world), world.contact_time());
        self.excused.retain(|(host, id), since| {
            let pending = world.hosts[*host].serving().is_some() && world.status(*host, id) != Some(Status::Up);
            if pending && world.now - *since > bound && may_judge(world, *host, window) {
                let joined = |owner, from, until| joined(world, owner, *host, window, from, until);
                if let Some(client) = steady_holder(world, id, window, joined) {
                    let message = format!("n{host} still shows {id} of c{client} as its earlier process left it");
                    report(found, NAME, world, message);
                }
            }
            pending
        });
    }
}

/// Returns the client of a member if no other client had it recently, its heartbeats arrived without a gap, and `fine`
/// holds for each node it was attached to in the window, with the start and end of that attachment.
pub(super) fn steady_holder(
    world: &World,
    id: &str,
    window: Micros,
    fine: impl Fn(usize, Micros, Micros) -> bool,
) -> Option<usize> {
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    if client.shares_id {
        return None;
    }
    let since = client.steady(world.now)?;
    let holding = client.members.get(id)?;
    let long = |at: Micros| world.now.saturating_sub(at) > window;
    // Also within its current session: an attach that was rejected first may have taken a while.
    let known = holding.acknowledged.is_some() && long(claimed.wanted_at) && client.attached_to().is_some();
    if !known || !long(since) {
        return None;
    }
    let recent: Vec<_> =
        client.history.iter().filter(|(_, _, until)| *until == Micros::MAX || !long(*until)).copied().collect();
    let moved_in_time = recent.len() == 1
        || match client.liveness {
            Liveness::Normal => {
                !recent.iter().any(|(host, ..)| relinks_slowly(world, *host, window)) && !regions_apart(world, &recent)
            }
            Liveness::Fast => fast_move(world, client, &recent),
        };
    (moved_in_time && recent.iter().all(|(host, from, until)| fine(*host, *from, *until))).then_some(index)
}

/// Whether a host lost a link while its messages were delayed. An exchange over the next link takes a round trip per chunk,
/// so that the client's earlier node may state `down` before it receives the attach elsewhere.
fn relinks_slowly(world: &World, host: usize, window: Micros) -> bool {
    let held = &world.hosts[host];
    world.now.saturating_sub(held.link_lost_at) <= window && held.delays.calm_for(world.now) <= window
}

/// Whether the client moved to another region just after a link was lost. Few links connect two regions, and the search for
/// another path begins when there is no evidence, and takes up to a retry interval (P9). Until then the client's earlier
/// node cannot receive the attach, although the network has a path.
fn regions_apart(world: &World, sessions: &[(usize, Micros, Micros)]) -> bool {
    let timers = &world.setup.timers;
    let remade = micros(timers.ping_timeout) + 2 * micros(timers.peer_retry_interval);
    let lost = |host: usize| world.now.saturating_sub(world.hosts[host].link_lost_at) <= remade;
    let region = |host: usize| world.hosts[host].region;
    let moved = sessions.windows(2).any(|pair| region(pair[0].0) != region(pair[1].0));
    moved && sessions.iter().any(|(host, ..)| lost(*host))
}

/// Whether the write of a client with `fast` liveness that attached elsewhere has certainly arrived before its earlier
/// node stated `down`. 750 ms do not suffice to establish a link, to replace dropped pushes by an exchange, or if the
/// hosts or the link between them are slow. Few links connect two regions, so a cut elsewhere can end the path of the write
/// although the network between both nodes works; another link is made after the silent one was noticed (P9).
fn fast_move(world: &World, client: &Client, sessions: &[(usize, Micros, Micros)]) -> bool {
    let pushed = world.setup.limits.push_backlog >= Limits::default().push_backlog;
    let timers = &world.setup.timers;
    let remade = micros(timers.ping_timeout) + 2 * micros(timers.peer_retry_interval);
    let prompt = |host: &crate::host::Host| {
        world.now.saturating_sub(host.link_lost_at) > remade && host.delays.calm_for(world.now) > FAST_GRACE
    };
    let congested =
        |(one, ..): &(usize, Micros, Micros)| sessions.iter().any(|(other, ..)| world.reach.is_congested(*one, *other));
    let region = |session: &(usize, Micros, Micros)| world.hosts[session.0].region;
    let same_region = sessions.windows(2).all(|pair| region(&pair[0]) == region(&pair[1]));
    let settled = |host: usize| world.now.saturating_sub(world.reach.settled_since(host)) > remade;
    pushed
        && (same_region || sessions.iter().all(|(host, ..)| settled(*host)))
        && !back_at_the_deadline(client, world.now)
        && sessions.iter().all(|session| prompt(&world.hosts[session.0]) && !congested(session))
}

/// Whether the observer was reachable from a node while the client was attached there, in the window. For the node it
/// is attached to now, the whole window counts: only then have links been established again after a split. A dead node
/// is no excuse: its client is attached elsewhere by then, or silent.
pub(super) fn joined(
    world: &World,
    owner: usize,
    observer: usize,
    window: Micros,
    from: Micros,
    until: Micros,
) -> bool {
    let opening = world.now.saturating_sub(window);
    let start = if until == Micros::MAX { opening } else { from.max(opening) };
    // The observer detects repairs during its pause only after it resumes.
    let (resumed, length) = world.hosts[observer].last_pause;
    let start = if resumed > start { start.saturating_sub(length) } else { start };
    let died = world.hosts[owner].last_stop;
    if until != Micros::MAX && died >= from && died <= start {
        return true;
    }
    let end = if died > start && died >= from { until.min(died) } else { until.min(world.now) };
    world.reach.joined(owner, observer, start, end)
}

/// Returns the client of a member that no node has answered for longer than an attempt takes, although at every moment some
/// node accepted it and reached the observer.
fn idle_holder(world: &World, id: &str, observer: usize) -> Option<usize> {
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    let holding = client.members.get(id)?;
    let noticed = 2 * client.heartbeat_interval + SECOND / 10;
    // The SDK tries every known node once after each backoff, up to eight in a row.
    let known = world.hosts.iter().filter(|host| !host.is_second && host.state != HostState::Gone).count() as u64;
    let patience = noticed + known.div_ceil(8) * BACKOFF_MAX + known * ATTEMPT + notice_time(world);
    let since = world.now.saturating_sub(patience);
    // A client that believes to be attached is idle as well if no node answers it.
    let idle = client.alive()
        && client.last_echo < since
        && !client.shares_id
        && holding.acknowledged_at > 0
        && [client.started_at, client.resumed_at, claimed.wanted_at].iter().all(|at| *at < since)
        && !client.paused;
    (idle && world.reach.offered(index, observer, since, world.now)).then_some(index)
}

/// Whether the client returned so late that the write could hardly arrive before the deadline (C6).
fn back_at_the_deadline(client: &Client, now: Micros) -> bool {
    let mut sessions = client.history.iter().rev();
    let (Some((_, since, _)), Some((_, _, until))) = (sessions.next(), sessions.next()) else { return false };
    since.saturating_sub(*until) + PROPAGATION > FAST_GRACE && now.saturating_sub(*since) < PROPAGATION
}

/// Whether a node ran and had peers for the whole window. Its own pause is no excuse for judging others, short of a
/// new incarnation (L5, N5).
pub(super) fn may_judge(world: &World, host: usize, window: Micros) -> bool {
    let held = &world.hosts[host];
    let dead = micros(world.setup.timers.dead_peer_timeout);
    held.serving_at.is_some_and(|at| world.now - at > window)
        && held.calm_after_pause(world.now, dead / 2) > window
        && world.reach.joined(host, host, world.now.saturating_sub(window), world.now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_return_at_the_deadline_is_excused() {
        let excused = |away: Micros, back_for: Micros| {
            let mut client = Client::new("c".to_owned(), 0, SECOND, 4 * SECOND);
            client.history.extend([(0, 0, 10 * SECOND), (1, 10 * SECOND + away, Micros::MAX)]);
            back_at_the_deadline(&client, 10 * SECOND + away + back_for)
        };
        assert!(excused(FAST_GRACE - PROPAGATION / 2, 0) && excused(FAST_GRACE, PROPAGATION - 1));
        assert!(!excused(FAST_GRACE - PROPAGATION, 0), "there was time for the write to arrive");
        assert!(!excused(FAST_GRACE, PROPAGATION), "the write has arrived by now");
    }
}
