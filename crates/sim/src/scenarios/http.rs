//! HTTP sessions (C8).

use super::support::ScenarioResult;
use crate::http::Balancer;
use crate::invariants::Violation;
use crate::network::SECOND;
use crate::world::{Crash, World};
use convoke_core::ErrorCode;
use convoke_core::member::Status;
use convoke_core::version::Version;

impl World {
    /// Runs until the client has no request in flight or queued.
    pub(super) fn http_settled(&mut self, client: usize) -> ScenarioResult {
        self.run_until(|w| w.http.clients[client].is_settled(), 30 * SECOND)
    }

    pub(super) fn http_value(&self, host: usize, id: &str, key: &str) -> Option<String> {
        self.member(host, id)?.metadata().get(key).map(str::to_owned)
    }

    fn http_owner(&self, host: usize, id: &str) -> Option<String> {
        Some(self.member(host, id)?.owner().node.to_string())
    }

    pub(super) fn http_go(&mut self, client: usize, host: usize) {
        self.http.clients[client].target = host;
    }

    /// Updates `m1` and returns the version that it had before.
    fn http_first_version(&mut self, client: usize) -> Result<Option<Version>, Violation> {
        let version = self.http.clients[client].members["m1"].version;
        self.http_patch(client, "m1", "k", "v", false);
        self.http_settled(client)?;
        Ok(version)
    }

    /// Sends an update of `m1` that expects an older version. It is rejected.
    fn http_stale_patch(&mut self, client: usize, version: Option<Version>) {
        if let Some(member) = self.http.clients[client].members.get_mut("m1") {
            member.version = version;
        }
        self.http_patch(client, "m1", "k", "w", true);
    }

    /// Runs until the next answer to a client, and returns it.
    pub(super) fn http_next_answer(&mut self, client: usize) -> Result<Option<Result<(), ErrorCode>>, Violation> {
        self.http.clients[client].last = None;
        self.run_until(|w| w.http.clients[client].last.is_some(), 10 * SECOND)?;
        Ok(self.http.clients[client].last)
    }
}

/// The node crashes. The session continues at another node with all members, and they are never `down`.
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

/// Nodes without the session forward requests to its owner. Two of them have no link to each other: if one of them attached
/// the session itself, it would undo the writes of the other.
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

/// A request with another secret and the same client id changes nothing, at any node.
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

/// Every request is a heartbeat, even one that is rejected: a client that only sends stale updates stays `up`.
pub(super) fn http_requests_are_heartbeats(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::RoundRobin, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let version = world.http_first_version(client)?;
    world.pass(60 * SECOND)?;
    world.http.clients[client].heartbeats = false;
    for _ in 0..20 {
        world.http_stale_patch(client, version);
        world.throughout(2 * SECOND, "it is up all the time", |w| w.shown_everywhere("m1", Status::Up))?;
    }
    Ok(())
}

/// The same after the session moved, because its node crashed or stopped.
pub(super) fn http_requests_are_heartbeats_after_a_move(world: &mut World) -> ScenarioResult {
    world.begin()?;
    // The first node was serving before it had a peer, so the checks excuse it (`Host::alone`).
    let client = world.add_http_script(Balancer::Sticky, 1, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let version = world.http_first_version(client)?;
    world.pass(60 * SECOND)?;
    world.http.clients[client].heartbeats = false;
    if world.even_seed() {
        world.stop(1);
    } else {
        world.crash(1, Crash::Process);
    }
    for _ in 0..20 {
        world.http_stale_patch(client, version);
        world.throughout(2 * SECOND, "it is up all the time", |w| w.shown_everywhere("m1", Status::Up))?;
    }
    world.require(world.http.clients[client].target != 1, "it uses another node")
}

/// The owner executes a forwarded request, and its answer is lost. The contacted node finds no session, and answers
/// `OUTCOME_UNKNOWN`.
pub(super) fn http_unanswered_request_is_not_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    world.http_go(client, 1);
    world.http.lose_answer_of = Some(0);
    world.http_delete(client, "m1");
    let answer = world.http_next_answer(client)?;
    world.require(answer == Some(Err(ErrorCode::OutcomeUnknown)), "the outcome is unknown")?;
    world.require(world.member(0, "m1").is_none(), "it was executed")
}

/// The same, and the contacted node cannot execute the request itself: its session table or its queue is full.
pub(super) fn http_full_node_does_not_reject_an_executed_request(world: &mut World) -> ScenarioResult {
    world.http.session_limit = 1;
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    let other = world.add_http_script(Balancer::Fixed, 1, &["m2"]);
    world.http_settled(other)?;
    world.up(&["m1", "m2"])?;
    world.http_go(client, if world.even_seed() { 1 } else { 2 });
    world.http.lose_answer_of = Some(0);
    world.http_delete(client, "m1");
    if !world.even_seed() {
        world.http.full_queue_of = Some(2);
    }
    let answer = world.http_next_answer(client)?;
    world.require(answer == Some(Err(ErrorCode::OutcomeUnknown)), "the outcome is unknown")?;
    world.require(world.member(0, "m1").is_none(), "it was executed")
}

/// A client that only sends heartbeats keeps its members `up`.
pub(super) fn http_heartbeats_are_enough(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::RoundRobin, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    world.pass(60 * SECOND)?;
    world.settle()
}

/// A request attaches the session at another node after the owner crashed. The update must take effect.
pub(super) fn http_update_after_a_crash_is_executed(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Sticky, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    world.crash(0, Crash::Process);
    world.pass(SECOND)?;
    world.http_patch(client, "m1", "k", "v", false);
    world.http_settled(client)?;
    world.pass(SECOND)?;
    world.require(world.http_value(1, "m1", "k").is_some(), "the update took effect")?;
    world.settle()
}

/// A session has no member yet. Every node serves it, because it asks the node that created it.
pub(super) fn http_session_without_members_is_served_anywhere(world: &mut World) -> ScenarioResult {
    world.begin()?;
    // The session is created at n0, and the next request goes to n1.
    let client = world.add_http_script(Balancer::RoundRobin, 2, &["m1"]);
    world.http_settled(client)?;
    let secret = world.http.clients[client].secret.clone();
    world.up(&["m1"])?;
    world.require(world.http_owner(2, "m1") == Some("n0".to_owned()), "the session was replaced")?;
    world.pass(60 * SECOND)?;
    world.require(world.http.clients[client].secret == secret, "the session was replaced later")?;
    world.settle()
}

/// The members of a session have expired. Another node answers `SESSION_GONE`, and the client registers them again.
pub(super) fn http_session_gone_starts_over(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let first = world.http.clients[client].secret.clone();
    // Until no node has a record of its members.
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

impl World {
    /// A client has an earlier session at host 0, which is cut off, and a later one with a lower claim at host 1. Both have
    /// `m1`, and the later one also has `m2`. The client is silent now.
    fn http_two_sessions_of_one_client(&mut self) -> Result<(usize, [u64; 2]), Violation> {
        self.begin()?;
        let cuts = self.partition(&[0], &[1, 2]);
        self.pass(10 * SECOND)?;
        let client = self.add_http_script(Balancer::Fixed, 0, &["m1"]);
        self.http.clients[client].ordered = true;
        self.http.clients[client].settings.client = Some("app".to_owned());
        self.http_settled(client)?;
        // The first claim at the other side is at most 64.
        while self.claim(0, "m1") <= Some(64) {
            self.http.clients[client].start_over();
            self.http_wake_at(client, self.now);
            self.http_settled(client)?;
        }
        self.http_go(client, 1);
        self.http_patch(client, "m1", "k", "v", false);
        self.http_put(client, "m2");
        self.http_settled(client)?;
        self.require(self.claim(1, "m1") < self.claim(0, "m1"), "the claims do not test the rule")?;
        Ok((client, cuts))
    }

    /// The client sends heartbeats again. It is notified that it lost `m1`, and takes it back.
    fn http_lost_member_is_named(&mut self, client: usize) -> ScenarioResult {
        self.http.clients[client].heartbeats = true;
        self.http_wake_at(client, self.now);
        self.run_until(|w| w.http.clients[client].taken_over == ["m1"], 15 * SECOND)?;
        self.http_register(client, "m1", true);
        self.http_settled(client)?;
        self.up(&["m1", "m2"])?;
        self.run_until(|w| w.http.clients[client].taken_over.is_empty(), 15 * SECOND)?;
        self.settle()
    }
}

/// The earlier session of a client has expired on its side of a partition. Its tombstone arrives while the later session is
/// `down`, and wins by its claim.
pub(super) fn http_expired_session_meets_a_later_one(world: &mut World) -> ScenarioResult {
    let (client, cuts) = world.http_two_sessions_of_one_client()?;
    world.run_until(|w| w.status(0, "m1").is_none(), 600 * SECOND)?;
    world.http.clients[client].heartbeats = false;
    world.run_until(|w| w.status(1, "m1") == Some(Status::Down), 60 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| w.absent_everywhere("m1"), 15 * SECOND)?;
    world.http_lost_member_is_named(client)
}

/// Both sessions of a client are `down` when a partition heals, and the record of the earlier one wins by its claim. The
/// node of the later one is lost, so that another node attaches it.
pub(super) fn http_silent_session_meets_a_later_one(world: &mut World) -> ScenarioResult {
    let (client, cuts) = world.http_two_sessions_of_one_client()?;
    world.http.clients[client].heartbeats = false;
    world.run_until(|w| w.status(1, "m1") == Some(Status::Down), 60 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| w.claim(1, "m1") == w.claim(0, "m1") && w.owned_by("m1", 0), 15 * SECOND)?;
    if world.even_seed() {
        world.crash(1, Crash::Process);
        world.http_go(client, 2);
    }
    world.http_lost_member_is_named(client)
}
