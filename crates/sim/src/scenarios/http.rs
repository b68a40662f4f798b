//! Sessions over HTTP (C8).

use super::support::ScenarioResult;
use crate::http::Balancer;
use crate::network::SECOND;
use crate::world::{Crash, World};
use convoke_core::ErrorCode;
use convoke_core::member::Status;

impl World {
    /// Runs until the client has nothing under way.
    fn http_settled(&mut self, client: usize) -> ScenarioResult {
        self.run_until(|w| w.http.clients[client].is_settled(), 30 * SECOND)
    }

    fn http_value(&self, host: usize, id: &str, key: &str) -> Option<String> {
        self.member(host, id)?.metadata().get(key).map(str::to_owned)
    }

    fn http_owner(&self, host: usize, id: &str) -> Option<String> {
        Some(self.member(host, id)?.owner().node.to_string())
    }

    fn http_go(&mut self, client: usize, host: usize) {
        self.http.clients[client].target = host;
    }
}

/// The node dies, the session goes on at another one, with all members and never `down`.
pub(super) fn http_session_outlives_its_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Sticky, 0, &["m1", "m2"]);
    world.http_settled(client)?;
    world.up(&["m1", "m2"])?;
    let crash = if world.even_seed() { Crash::Silent } else { Crash::Process };
    world.crash(0, crash);
    let up = |w: &World| w.shown_everywhere("m1", Status::Up) && w.shown_everywhere("m2", Status::Up);
    world.throughout(60 * SECOND, "both are up all the time", up)?;
    world.require(world.http.clients[client].target != 0, "it uses another node")?;
    let owner = world.http_owner(1, "m1");
    world.require(owner == Some("n1".to_owned()) || owner == Some("n2".to_owned()), "another node owns them")?;
    world.settle()
}

/// Nodes without the session forward requests to its owner. Two of them have no link to each other: one that attached the session
/// itself would undo what the other has written.
pub(super) fn http_request_is_forwarded_to_the_owner(world: &mut World) -> ScenarioResult {
    world.begin()?;
    // The next node is n0.
    let client = world.add_http_script(Balancer::RoundRobin, 2, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[1], &[2]);
    for step in 0..6 {
        world.http_patch(client, "m1", &format!("k{step}"), "v", false);
    }
    world.http_settled(client)?;
    world.require(world.http_owner(1, "m1") == Some("n0".to_owned()), "the session stays where it is")?;
    world.rejoin(cuts);
    world.pass(5 * SECOND)?;
    for step in 0..6 {
        let key = format!("k{step}");
        world.require(world.http_value(2, "m1", &key).is_some(), "every update lasts")?;
    }
    world.settle()
}

/// Another secret with the same client id changes nothing, at the owner or elsewhere.
pub(super) fn http_secret_is_needed(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    for _ in 0..8 {
        world.http_forge(client);
        world.pass(SECOND)?;
    }
    for host in 0..3 {
        world.require(world.http_value(host, "m1", "forged").is_none(), "nothing was changed")?;
    }
    world.settle()
}

/// A client that only updates lives: every request is a heartbeat.
pub(super) fn http_requests_are_heartbeats(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::RoundRobin, 0, &["m1"]);
    world.http.clients[client].heartbeats = false;
    world.http_settled(client)?;
    world.up(&["m1"])?;
    for step in 0..40 {
        world.http_patch(client, "m1", "step", &step.to_string(), false);
        world.throughout(2 * SECOND, "it is up all the time", |w| w.shown_everywhere("m1", Status::Up))?;
    }
    Ok(())
}

/// The owner executes a forwarded request, and its answer is lost. The next node finds no session: the client is not told that
/// its request was rejected.
pub(super) fn http_unanswered_request_is_not_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    world.http_go(client, 1);
    world.http.clients[client].last = None;
    world.http.lose_answer_of = Some(0);
    world.http_delete(client, "m1");
    world.run_until(|w| w.http.clients[client].last.is_some(), 10 * SECOND)?;
    let last = world.http.clients[client].last;
    world.require(last == Some(Err(ErrorCode::OutcomeUnknown)), "the outcome is unknown")?;
    world.require(world.member(0, "m1").is_none(), "it was executed")
}

/// Nothing is left of a session that closed: another node says so, and the client registers anew.
pub(super) fn http_session_gone_starts_over(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let first = world.http.clients[client].secret.clone();
    // Longer than any record of its members is kept.
    world.http.clients[client].heartbeats = false;
    world.run_until(|w| w.absent_everywhere("m1"), 600 * SECOND)?;
    world.http_go(client, 1);
    world.http_patch(client, "m1", "k", "v", false);
    world.http_settled(client)?;
    world.http.clients[client].heartbeats = true;
    world.require(world.http.clients[client].secret != first, "it has another session")?;
    world.up(&["m1"])?;
    world.settle()
}
