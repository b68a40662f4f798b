//! HTTP clients that number their requests and return the token of their session (C10, C11).

use super::support::ScenarioResult;
use crate::http::Balancer;
use crate::invariants::Violation;
use crate::network::SECOND;
use crate::world::{Crash, World, micros};
use convoke_core::ErrorCode;
use convoke_core::member::{MemberSpec, MetadataUpdate, Status};
use convoke_core::node::AttachMember;
use convoke_core::version::Dot;
use convoke_http_session::{Secret, SessionOperation};
use std::sync::Arc;

impl World {
    /// Adds a scripted client that orders its requests.
    fn add_http_ordered(&mut self, target: usize, members: &[&str]) -> usize {
        let client = self.add_http_script(Balancer::Fixed, target, members);
        self.http.clients[client].ordered = true;
        client
    }

    fn http_update_at(&mut self, client: usize, host: usize, id: &str, value: &str) -> ScenarioResult {
        self.http_go(client, host);
        self.http_patch(client, id, "v", value, false);
        self.http_settled(client)
    }

    fn http_delete_at(&mut self, client: usize, host: usize, id: &str) -> ScenarioResult {
        self.http_go(client, host);
        self.http_delete(client, id);
        self.http_settled(client)
    }

    /// Every node shows the members as the client last wrote them.
    fn http_last_writes_win(&mut self, client: usize, removed: &[&str]) -> ScenarioResult {
        self.pass(15 * SECOND)?;
        for host in 0..3 {
            for (id, member) in self.http.clients[client].members.clone() {
                let shown = self.member(host, &id).map(|shown| shown.metadata().to_map());
                self.require(shown == Some(member.metadata), "an acknowledged write was undone")?;
            }
            for id in removed {
                self.require(self.member(host, id).is_none(), "an unregistered member is back")?;
            }
        }
        self.settle()
    }
}

/// Two nodes without a link serve one session, and a third node connects them. No write at either of them is lost, and the
/// client need not repair anything.
pub(super) fn http_writes_at_two_nodes_with_a_cut_link(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1", "m2", "m3"]);
    world.http_settled(client)?;
    world.up(&["m1", "m2", "m3"])?;
    let cuts = world.partition(&[0], &[1]);
    world.pass(5 * SECOND)?;
    for round in 0..4 {
        for (host, id) in [(0, "m1"), (1, "m1"), (1, "m2"), (0, "m2")] {
            world.http_patch(client, id, &format!("k{round}{host}"), "v", false);
            world.http_update_at(client, host, id, &format!("{round}{host}"))?;
            let answer = world.http.clients[client].last;
            world.require(answer == Some(Ok(())), "the node did not fetch the writes from the third node")?;
        }
    }
    world.http_delete_at(client, 0, "m3")?;
    world.http_update_at(client, 1, "m1", "last")?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &["m3"])
}

/// A client writes on both sides of a partition, one request after the other. Its own order decides.
pub(super) fn http_order_of_one_client_across_a_partition(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1", "m2"]);
    world.http_settled(client)?;
    world.up(&["m1", "m2"])?;
    // No node has a link to another one, and the client reaches all of them.
    let cuts = [world.partition(&[0], &[1, 2]), world.partition(&[1], &[2])];
    world.pass(5 * SECOND)?;
    world.http_update_at(client, 1, "m1", "1")?;
    world.http_update_at(client, 2, "m1", "2")?;
    world.http_delete_at(client, 2, "m2")?;
    for cut in cuts {
        world.rejoin(cut);
    }
    world.http_last_writes_win(client, &["m2"])
}

/// No node has a link to another one, and each request of the client goes to the next node. A node that lacks the client's
/// last write reports that, and the next one executes the repeated write, because an attach is no write.
pub(super) fn http_writes_on_alternating_sides(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = [world.partition(&[0], &[1, 2]), world.partition(&[1], &[2])];
    world.pass(5 * SECOND)?;
    world.http.clients[client].balancer = Balancer::RoundRobin;
    for round in 0..5 {
        world.http_patch(client, "m1", "v", &format!("{round}"), false);
        world.http_settled(client)?;
    }
    world.require(world.http.clients[client].writes_lost > 0, "the client was not notified")?;
    for cut in cuts {
        world.rejoin(cut);
    }
    world.http_last_writes_win(client, &[])
}

/// A client registers a member on one side of a partition and unregisters it on the other, which does not know it.
pub(super) fn http_unregister_of_a_lost_registration(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.http_put(client, "lost");
    world.http_settled(client)?;
    world.http_delete_at(client, 1, "lost")?;
    world.require(world.http.clients[client].writes_lost == 1, "the client was not notified")?;
    world.require(world.status(0, "lost") == Some(Status::Up), "the first side received the unregistration")?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &["lost"])
}

/// The same for a member that another client had before: its tombstone stays, and the session remembers the unregistration.
pub(super) fn http_unregister_of_a_lost_contested_registration(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let other = world.add_http_ordered(1, &["shared"]);
    world.http_settled(other)?;
    world.http_delete_at(other, 1, "shared")?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.http_put(client, "shared");
    world.http_settled(client)?;
    world.http_delete_at(client, 1, "shared")?;
    world.require(world.status(0, "shared") == Some(Status::Up), "the first side received the unregistration")?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &["shared"])
}

/// A client registers a member on one side of a partition and closes its session on the other, which does not know the
/// member. It is notified, and unregisters the member before it closes the session.
pub(super) fn http_close_after_a_lost_registration(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.http_put(client, "lost");
    world.http_settled(client)?;
    world.http_go(client, 1);
    world.http_close(client);
    world.http_settled(client)?;
    world.require(world.http.clients[client].writes_lost == 1, "the client was not notified")?;
    world.require(world.status(0, "lost") == Some(Status::Up), "the first side received the unregistration")?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &["m1", "lost"])
}

/// A paused node receives a request, and the client repeats it at another node and goes on. The node executes the old
/// request when it resumes, which changes nothing.
pub(super) fn http_late_request_changes_nothing(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    // A copy arrives at a node that has the later update, and at one that has to forward it.
    world.http_update_at(client, 0, "m1", "first")?;
    world.http_update_at(client, 0, "m1", "second")?;
    let second = |w: &World| (0..3).all(|host| w.http_value(host, "m1", "v").as_deref() == Some("second"));
    world.run_until(second, 5 * SECOND)?;
    for host in [0, 1] {
        let update = Arc::new(MetadataUpdate::set("v", "first".to_owned()));
        let late = SessionOperation::Update { id: "m1".to_owned(), update, expected: None };
        world.http_deliver_late(client, host, 2, late);
        world.throughout(SECOND, "a late copy of an update was executed", second)?;
    }
    world.pause(0, 12 * SECOND);
    world.http_go(client, 0);
    world.http_patch(client, "m1", "v", "old", false);
    world.pass(4 * SECOND)?;
    world.http_update_at(client, 1, "m1", "new")?;
    world.http_last_writes_win(client, &[])
}

/// A client unregisters a member, and another client registers it. A late copy of the first registration changes nothing, at
/// the node that executed the unregistration and at one that attached the session since.
pub(super) fn http_late_registration_of_a_contested_member(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let first = world.add_http_ordered(0, &["m1"]);
    world.http_settled(first)?;
    world.http_put(first, "shared");
    world.http_settled(first)?;
    world.http_delete_at(first, 0, "shared")?;
    let second = world.add_http_ordered(1, &["shared"]);
    world.http_settled(second)?;
    let name = world.http.clients[second].secret.as_ref().map(Secret::client);
    let unchanged = move |w: &World| {
        let held = |host| w.node(host).registration("shared").map(|held| (held.client, held.status));
        (0..3).all(|host| held(host) == name.clone().map(|name| (name, Status::Up)))
    };
    world.run_until(&unchanged, 5 * SECOND)?;
    let late = |world: &mut World| {
        let member = AttachMember { spec: MemberSpec::new("shared", "http"), takeover: true };
        for host in [0, 1] {
            world.http_deliver_late(first, host, 2, SessionOperation::Register(Arc::new(member.clone())));
            world.throughout(SECOND, "a late registration was executed", &unchanged)?;
        }
        Ok(())
    };
    late(world)?;
    world.http_update_at(first, 0, "m1", "later")?;
    world.crash(0, Crash::Process);
    world.http_update_at(first, 2, "m1", "last")?;
    world.start(0);
    world.run_until(World::all_serving, 10 * SECOND)?;
    late(world)?;
    world.http_last_writes_win(first, &[])
}

/// A node was paused and has dropped the connections of its HTTP sessions. Before or after that, another client takes a member
/// of a session over. An update attaches the session again, and the next heartbeat names the member.
pub(super) fn http_member_lost_before_an_attach_is_named(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(1, &["m1", "m2"]);
    world.http_settled(client)?;
    let other = world.add_http_ordered(0, &["m3"]);
    world.http_settled(other)?;
    world.up(&["m1", "m2", "m3"])?;
    world.http.clients[client].heartbeats = false;
    let take_over = |world: &mut World| {
        world.http_register(other, "m1", true);
        world.http_settled(other)?;
        world.run_until(|w| w.owned_by("m1", 0), 30 * SECOND)
    };
    if !world.even_seed() {
        take_over(world)?;
    }
    let pause = micros(world.setup.timers.heartbeat_timeout) + SECOND;
    world.pause(1, pause);
    world.pass(pause + 10 * SECOND)?;
    if world.even_seed() {
        take_over(world)?;
    }
    world.http_update_at(client, 1, "m2", "1")?;
    world.http.clients[client].heartbeats = true;
    world.http_wake_at(client, world.now);
    world.run_until(|w| w.http.clients[client].taken_over == ["m1"], 15 * SECOND)?;
    world.http_delete_at(other, 0, "m1")?;
    world.http_register(client, "m1", true);
    world.http_settled(client)?;
    world.run_until(|w| w.http.clients[client].taken_over.is_empty(), 15 * SECOND)?;
    world.http_last_writes_win(client, &[])
}

/// Registers m1 at n0, cuts n0 off, and lets a heartbeat attach the session at n1. The client sends no further heartbeats.
/// Returns it with the cuts.
fn session_on_both_sides(world: &mut World) -> Result<(usize, [u64; 2]), Violation> {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.http_go(client, 1);
    let moved = |w: &World| w.member(1, "m1").is_some_and(|member| member.owner().node == "n1");
    world.run_until(moved, 15 * SECOND)?;
    world.http.clients[client].heartbeats = false;
    Ok((client, cuts))
}

/// Two nodes have parts of a session, and the client falls silent. One part expires before the client returns to the node with
/// the other one, whose heartbeats name the member that expired.
pub(super) fn http_part_of_a_session_expires(world: &mut World) -> ScenarioResult {
    let (client, cuts) = session_on_both_sides(world)?;
    world.pass(10 * SECOND)?;
    world.http_go(client, 0);
    world.http_put(client, "m2");
    world.http_settled(client)?;
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m1", 1) && w.owned_by("m2", 0), 15 * SECOND)?;
    world.run_until(|w| w.absent_everywhere("m1"), 400 * SECOND)?;
    world.require(world.shown_everywhere("m2", Status::Down), "the other part has expired as well")?;
    world.http_update_at(client, 0, "m2", "1")?;
    world.http.clients[client].heartbeats = true;
    world.http_wake_at(client, world.now);
    world.run_until(|w| w.http.clients[client].taken_over == ["m1"], 15 * SECOND)?;
    world.http_register(client, "m1", false);
    world.http_settled(client)?;
    world.run_until(|w| w.http.clients[client].taken_over.is_empty(), 15 * SECOND)?;
    world.http_last_writes_win(client, &[])
}

/// A node acknowledges writes, and crashes before another node has them. The client is notified at its next request, and
/// can repair them.
pub(super) fn http_lost_writes_are_reported(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1", "m2"]);
    world.http_settled(client)?;
    world.up(&["m1", "m2"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.http_update_at(client, 0, "m1", "lost")?;
    world.http_delete_at(client, 0, "m2")?;
    world.crash(0, Crash::Process);
    world.rejoin(cuts);
    world.http_go(client, 1);
    world.run_until(|w| w.http.clients[client].writes_lost > 0, 10 * SECOND)?;
    world.http_settled(client)?;
    world.require(world.http.clients[client].writes_lost == 1, "the client was notified twice")?;
    world.start(0);
    world.http_last_writes_win(client, &["m2"])
}

/// A client sends an update and, with the same token, one that is rejected. It keeps the greater one of the two tokens, which
/// covers the update. So a node that lacks the update does not execute its next request.
pub(super) fn http_parallel_requests_at_one_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1", "m2"]);
    world.http.clients[client].greatest_only = true;
    world.http_settled(client)?;
    world.up(&["m1", "m2"])?;
    let cuts = world.partition(&[1], &[0, 2]);
    world.pass(5 * SECOND)?;
    let sent = world.http.clients[client].tokens.clone();
    world.http_update_at(client, 0, "m1", "acknowledged")?;
    world.http_parallel_update(client, 0, &sent, "unregistered", "1");
    world.http_settled(client)?;
    world.http_go(client, 1);
    world.http_patch(client, "m1", "w", "1", false);
    world.run_until(|w| w.http.clients[client].writes_lost > 0, 10 * SECOND)?;
    world.http_settled(client)?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &[])
}

/// A client sends two updates in parallel to two nodes without a link, and their tokens do not cover each other. With both
/// of them, a node that lacks one of the updates does not execute the next request.
pub(super) fn http_parallel_requests_at_two_nodes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1", "m2"]);
    world.http_settled(client)?;
    world.up(&["m1", "m2"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    let sent = world.http.clients[client].tokens.clone();
    world.http_update_at(client, 0, "m1", "acknowledged")?;
    world.http_parallel_update(client, 1, &sent, "m2", "1");
    world.http_settled(client)?;
    world.require(world.http.clients[client].writes_lost == 0, "a token covers a parallel request")?;
    world.require(world.http.clients[client].tokens.len() == 2, "the client forgot a token")?;
    world.http_go(client, 2);
    world.http_patch(client, "m1", "w", "1", false);
    world.run_until(|w| w.http.clients[client].writes_lost > 0, 10 * SECOND)?;
    world.http_settled(client)?;
    world.require(world.http.clients[client].tokens.len() == 1, "an answer replaces the tokens of its request")?;
    world.rejoin(cuts);
    world.http_last_writes_win(client, &[])
}

/// A token names a write that no node has, of a node that is alive, so that every node expects the write. The client asks
/// one node after the other and waits for each of them for 3 s. It gets answers, and learns that the write is lost.
pub(super) fn http_search_does_not_outlast_the_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    // Only serving peers are asked, and a ping tells that they are.
    world.pass(2 * SECOND)?;
    let origin = world.node(2).origin().clone();
    if let Some(token) = world.http.clients[client].tokens.first_mut() {
        token.write(Dot { origin, n: 1_000_000 }, None);
    }
    world.http.clients[client].balancer = Balancer::RoundRobin;
    world.http_patch(client, "m1", "v", "1", false);
    let answer = world.http_next_answer(client)?;
    world.require(answer == Some(Err(ErrorCode::NotReady)), "the write is not expected")?;
    world.run_until(|w| w.http.clients[client].writes_lost > 0, 30 * SECOND)?;
    world.http_settled(client)?;
    world.http_last_writes_win(client, &[])
}

/// A client without a token reaches a node that has no link to the owner of its session. The node rejects the request while
/// another node has such a link, because the writes exist.
pub(super) fn http_request_without_a_token_is_not_served_beside_its_owner(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_script(Balancer::Fixed, 0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1]);
    world.pass(5 * SECOND)?;
    world.http_go(client, 1);
    world.http_patch(client, "m1", "v", "1", false);
    let answer = world.http_next_answer(client)?;
    world.require(answer == Some(Err(ErrorCode::NotReady)), "the node served a session whose writes it may lack")?;
    world.rejoin(cuts);
    world.http_settled(client)?;
    world.http_last_writes_win(client, &[])
}

impl World {
    /// Another client registers and unregisters a member at host 0, which is cut off, with a claim that no other node knows.
    fn raise_claim_at_first_node(&mut self, id: &str) -> ScenarioResult {
        let rival = self.add_client_at("rival", &[id], 0);
        // The HTTP client is on the same machine, so the cut ends before it goes to another node.
        let kept = self.keep_to(rival, &[0]);
        self.raise_claim(rival, 500);
        self.run_until(|w| w.status(0, id) == Some(Status::Up), 10 * SECOND)?;
        self.client_unregister(rival, id);
        self.run_until(|w| w.status(0, id).is_none(), 10 * SECOND)?;
        self.rejoin(kept);
        // From here on an HTTP client uses the id, whose members other invariants follow.
        self.truth.ids.remove(id);
        self.require(self.claim(0, id) >= Some(500), "the claim does not test the rule")
    }
}

/// A registration gets a high claim, because another client used the id at its node. The client unregisters the member at a
/// node that knows neither. Its later request decides, although the claim is lower.
pub(super) fn http_unregister_with_a_lower_claim(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.raise_claim_at_first_node("late")?;
    world.http_put(client, "late");
    world.http_settled(client)?;
    world.http_delete_at(client, 1, "late")?;
    world.run_until(|w| w.claim(2, "late") == w.claim(1, "late"), 5 * SECOND)?;
    world.require(world.claim(0, "late") > world.claim(1, "late"), "the claims do not test the rule")?;
    // Its node is lost, and with it the session that remembers the unregistration.
    world.crash(1, Crash::Process);
    world.rejoin(cuts);
    world.pass(SECOND)?;
    world.start(1);
    world.run_until(World::all_serving, 10 * SECOND)?;
    world.http_last_writes_win(client, &["late"])
}

/// As before, with an update in place of the unregistration, and the node that executed the update is lost.
pub(super) fn http_update_with_a_lower_claim(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_http_ordered(0, &["m1"]);
    world.http_settled(client)?;
    world.up(&["m1"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(5 * SECOND)?;
    world.raise_claim_at_first_node("late")?;
    world.http_put(client, "late");
    world.http_settled(client)?;
    world.http_update_at(client, 1, "late", "last")?;
    world.run_until(|w| w.http_value(2, "late", "v").as_deref() == Some("last"), 5 * SECOND)?;
    world.require(world.claim(0, "late") > world.claim(1, "late"), "the claims do not test the rule")?;
    // Nothing but the registry has the update until the sides have met.
    world.http.clients[client].heartbeats = false;
    world.crash(1, Crash::Process);
    world.rejoin(cuts);
    world.pass(8 * SECOND)?;
    for host in [0, 2] {
        world.require(world.http_value(host, "late", "v").as_deref() == Some("last"), "an update was undone")?;
    }
    world.http.clients[client].heartbeats = true;
    world.http_go(client, 2);
    world.http_wake_at(client, world.now);
    world.start(1);
    world.http_last_writes_win(client, &[])
}

/// Two nodes without a link have one session, and each of them owns some of its members. Once they have met, the node that
/// the client uses owns all of them.
pub(super) fn http_members_of_two_nodes_are_gathered(world: &mut World) -> ScenarioResult {
    let (client, cuts) = session_on_both_sides(world)?;
    world.http_go(client, 0);
    world.http_put(client, "m2");
    world.http_settled(client)?;
    world.require(world.http.clients[client].writes_lost == 0, "both nodes have the writes of the client")?;
    world.rejoin(cuts);
    world.run_until(|w| w.shown_everywhere("m2", Status::Up) && w.owned_by("m1", 1), 15 * SECOND)?;
    world.http_go(client, 1);
    world.http.clients[client].heartbeats = true;
    world.http_wake_at(client, world.now);
    let up = |w: &World| w.shown_everywhere("m1", Status::Up) && w.shown_everywhere("m2", Status::Up);
    world.throughout(60 * SECOND, "a member of the session is not up", up)?;
    world.require(world.owned_by("m2", 1), "the node that the client uses does not own all members")?;
    world.http_last_writes_win(client, &[])
}
