//! No node shows `down` or `left` for a member whose client is attached to a node that it can reach, or could be (L2, L3, L5).

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
/// Longest time that one attempt of the SDK to attach takes: the largest backoff, a connection and an answer.
const ATTEMPT: Micros = (20 + 3 + 10) * SECOND;

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
        let (id, status, shown) = match event {
            StreamEvent::StatusChanged(m)
            | StreamEvent::Updated(m)
            | StreamEvent::Registered(m)
            | StreamEvent::OwnerChanged(m) => (m.id(), m.status(), Some(m)),
            StreamEvent::Unregistered { id, .. } => (id.as_str(), Status::Left, None),
            _ => return,
        };
        let window = notice_time(world);
        if !may_judge(world, host, window) || !findable(world, window) {
            return;
        }
        let joined = |owner: usize, from: Micros, until: Micros| joined(world, owner, host, window, from, until);
        let held = steady_holder(world, id, window, joined);
        let Some(client) = held.or_else(|| idle_holder(world, id, host)) else { return };
        if super::is_old_news(world, host, client, event)
            || shown.is_some_and(|member| super::is_of_an_earlier_process(world, client, member))
        {
            return;
        }
        self.checks += 1;
        if status != Status::Up {
            let fault = if held.is_some() { "was never silent" } else { "could have attached for long" };
            let message = format!("n{host} shows {id} of c{client} {status}, whose client {fault}: {event:?}");
            report(found, NAME, world, message);
        }
    }
}

/// The client of a member, if no other had it lately, it has been heard without a gap, and `fine` holds for each node it
/// was attached to in the window, from then until then.
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
    // Also within its present session: an attach that was rejected first may have been a while coming.
    let known = holding.acknowledged.is_some() && long(claimed.wanted_at) && client.attached_to().is_some();
    if !known || !long(since) {
        return None;
    }
    let mut recent = client.history.iter().filter(|(_, _, until)| *until == Micros::MAX || !long(*until));
    if client.liveness == Liveness::Fast {
        return fast_and_settled(world, client, window).then_some(index);
    }
    recent.all(|(host, from, until)| fine(*host, *from, *until)).then_some(index)
}

/// Whoever wants to be given up within a second cannot count on a link that is being made anew, nor on exchanges, nor on
/// another node after the death of its own.
fn fast_and_settled(world: &World, client: &Client, window: Micros) -> bool {
    let long = |at: Micros| world.now.saturating_sub(at) > window;
    let recent = client.history.iter().filter(|(_, _, until)| *until == Micros::MAX || !long(*until));
    let pushed = world.setup.limits.push_backlog >= Limits::default().push_backlog;
    let timers = &world.setup.timers;
    let remade = micros(timers.ping_timeout) + 2 * micros(timers.peer_retry_interval);
    let settled = |host: usize| world.now.saturating_sub(world.hosts[host].link_lost_at) > remade;
    let mut hosts = recent.map(|(host, ..)| *host);
    pushed
        && !back_in_the_last_moment(client, world.now)
        && hosts.all(|host| undisturbed(world, host, window) && settled(host))
}

/// Whether the observer could be reached from a node for as long as the client was attached there, in the window. Where it is
/// attached now, for all of the window: only then have links been made anew after a split. A node that died is no excuse: its
/// client is somewhere else by then, or silent.
fn joined(world: &World, owner: usize, observer: usize, window: Micros, from: Micros, until: Micros) -> bool {
    let opening = world.now.saturating_sub(window);
    let start = if until == Micros::MAX { opening } else { from.max(opening) };
    // What was mended in the observer's sleep it learns when it wakes.
    let (woken, slept) = world.hosts[observer].last_pause;
    let start = if woken > start { start.saturating_sub(slept) } else { start };
    let died = world.hosts[owner].last_stop;
    if until != Micros::MAX && died >= from && died <= start {
        return true;
    }
    let end = if died > start { until.min(died) } else { until.min(world.now) };
    world.reach.joined(owner, observer, start, end)
}

/// The client of a member that has not been attached for longer than its attempts may take, although it could have been all
/// that time.
fn idle_holder(world: &World, id: &str, observer: usize) -> Option<usize> {
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    let holding = client.members.get(id)?;
    // It notices the loss, and tries each node it knows of once: a pause, a connection and an answer each time.
    let noticed = 2 * client.heartbeat_interval + SECOND / 10;
    let patience = noticed + (world.hosts.len() as u64 + 1) * ATTEMPT;
    let since = world.now.saturating_sub(patience);
    let away = client.history.back().is_some_and(|(_, _, until)| *until < since);
    let idle = client.alive()
        && away
        && client.attached_to().is_none()
        && !client.shares_id
        && holding.acknowledged_at > 0
        && [client.started_at, client.woken_at, claimed.wanted_at].iter().all(|at| *at < since)
        && !client.hangs;
    let open = |host: usize| {
        world.reach.reached(index, host, since, world.now) && world.reach.joined(host, observer, since, world.now)
    };
    (idle && (0..world.hosts.len()).any(open)).then_some(index)
}

/// Nor can it count on the news of being back if there is hardly time for them (C6).
fn back_in_the_last_moment(client: &Client, now: Micros) -> bool {
    let mut sessions = client.history.iter().rev();
    let (Some((_, since, _)), Some((_, _, until))) = (sessions.next(), sessions.next()) else { return false };
    since.saturating_sub(*until) + NEWS > FAST_GRACE && now.saturating_sub(*since) < NEWS
}

/// Whether a node has been up and among the others for the whole window. It may have slept: that is no excuse to blame others,
/// short of a new run (L5, N5).
fn may_judge(world: &World, host: usize, window: Micros) -> bool {
    let held = &world.hosts[host];
    let dead = micros(world.setup.timers.dead_peer_timeout);
    held.ready_at.is_some_and(|at| world.now - at > window)
        && held.calm_after_pause(world.now, dead / 2) > window
        && world.reach.joined(host, host, world.now.saturating_sub(window), world.now)
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
