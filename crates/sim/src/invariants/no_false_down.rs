//! No node shows `down` or `left` for a member whose client never missed its timeout at a reachable node (L2, L3, L5).

use super::{Found, Invariant, findable, notice_time, report, undisturbed};
use crate::client::Client;
use crate::network::{Micros, SECOND};
use crate::world::{World, micros};
use convoke_core::config::Limits;
use convoke_core::member::{Liveness, Status};
use convoke_core::node::StreamEvent;

const NAME: &str = "no_false_down";
/// From one region to another, and some slack.
const NEWS: Micros = SECOND / 20;
/// With `fast` liveness: how long after losing its connection a session is down (C6).
const FAST_GRACE: Micros = 3 * SECOND / 4;

#[derive(Debug, Default)]
pub struct NoFalseDown {
    checks: u64,
}

impl Invariant for NoFalseDown {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "L2, L3, L5, L6, C6"
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
        let Some(client) = steady_holder(world, id, notice_time(world)) else { return };
        if super::is_old_news(world, host, client, event) {
            return;
        }
        if !observer_is_calm(world, host) || !findable(world, notice_time(world)) {
            return;
        }
        self.checks += 1;
        if status != Status::Up {
            report(
                found,
                NAME,
                world,
                format!("n{host} shows {id} of c{client} {status}, whose client was never silent: {event:?}"),
            );
        }
    }
}

/// The client of a member, if no other had it lately and it has been heard without a gap, by nodes with which nothing was
/// wrong.
pub(super) fn steady_holder(world: &World, id: &str, window: Micros) -> Option<usize> {
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    if client.shares_id {
        return None;
    }
    let since = client.steady(world.now)?;
    let holding = client.members.get(id)?;
    let long = |at: Micros| world.now.saturating_sub(at) > window;
    // Also within its present session: an attach that was rejected first may have been a while coming.
    let known = holding.acknowledged.is_some() && long(claimed.wanted_at) && client.attached_to().is_some();
    if !known || !long(since) {
        return None;
    }
    let recent = client.history.iter().filter(|(_, _, until)| *until == Micros::MAX || !long(*until));
    let mut hosts = recent.map(|(host, ..)| *host);
    // Whoever wants to be given up within a second cannot count on a link that is being made anew, nor on exchanges.
    let pushed = world.setup.limits.push_backlog >= Limits::default().push_backlog;
    let timers = &world.setup.timers;
    let remade = micros(timers.ping_timeout) + 2 * micros(timers.peer_retry_interval);
    let settled = |host: usize| world.now.saturating_sub(world.hosts[host].link_lost_at) > remade;
    let linked = |host: usize| client.liveness != Liveness::Fast || (pushed && settled(host));
    if client.liveness == Liveness::Fast && back_in_the_last_moment(client, world.now) {
        return None;
    }
    hosts.all(|host| undisturbed(world, host, window) && linked(host)).then_some(index)
}

/// Nor can it count on the news of being back if there is hardly time for them (C6).
fn back_in_the_last_moment(client: &Client, now: Micros) -> bool {
    let mut sessions = client.history.iter().rev();
    let (Some((_, since, _)), Some((_, _, until))) = (sessions.next(), sessions.next()) else { return false };
    since.saturating_sub(*until) + NEWS > FAST_GRACE && now.saturating_sub(*since) < NEWS
}

/// The one that judges may have slept itself: that is no excuse to blame others, short of a new run (L5, N5).
pub(super) fn observer_is_calm(world: &World, host: usize) -> bool {
    let window = notice_time(world);
    let held = &world.hosts[host];
    let dead = micros(world.setup.timers.dead_peer_timeout);
    held.awake_since_trouble(world.now) > window
        && held.ready_at.is_some_and(|at| world.now - at > window)
        && held.calm_after_pause(world.now, dead / 2) > window
        && held.twin.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_back_in_the_last_moment_is_excused() {
        let excused = |away: Micros, back_for: Micros| {
            let mut client = Client::new("c".to_owned(), 0, SECOND, 4 * SECOND);
            client.history.extend([(0, 0, 10 * SECOND), (1, 10 * SECOND + away, Micros::MAX)]);
            back_in_the_last_moment(&client, 10 * SECOND + away + back_for)
        };
        assert!(excused(FAST_GRACE - NEWS / 2, 0) && excused(FAST_GRACE, NEWS - 1));
        assert!(!excused(FAST_GRACE - NEWS, 0), "there was time for the news");
        assert!(!excused(FAST_GRACE, NEWS), "by now they have arrived");
    }
}
