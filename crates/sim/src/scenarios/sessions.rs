//! Client messages that arrive late, twice or not at all (C1–C6).

use super::log::Log;
use super::support::ScenarioResult;
use crate::client::FromClient;
use crate::network::{Item, MINUTE, SECOND, Site, Spike};
use crate::world::World;
use convoke_core::ErrorCode;
use convoke_core::member::{Liveness, MemberSpec, Status};
use convoke_core::node::{Attach, AttachMember, ConnId, Reattach, RequestOrder};
use convoke_proto::v1;
use convoke_proto::v1::request::Operation;

/// An attach is delayed; its client abandons it and attaches elsewhere before it arrives. In odd seeds the node that
/// receives it knows the newer attach, in even ones it is cut off.
pub(super) fn late_attach_does_not_win(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cut_off = world.even_seed();
    let cuts = if cut_off { world.partition(&[0], &[1, 2]).to_vec() } else { Vec::new() };
    let client = world.add_client_at("c", &["m"], 0);
    while world.clients[client].conn().is_none() {
        world.pass(20)?;
    }
    if let Some(connection) = world.clients[client].conn().and_then(|conn| world.network.connections.get_mut(&conn)) {
        connection.extra = 14 * SECOND;
    }
    world.run_until(|w| w.at(client, 1) || w.at(client, 2), 13 * SECOND)?;
    let (home, claim) = (world.stream_of(client).host, world.clients[client].claim);
    world.require(
        world.member(0, "m").is_some() != cut_off,
        "the attach arrived too early, or the move was not received",
    )?;
    world.pass(10 * SECOND)?;
    world.require(!cut_off || world.claim(0, "m") == Some(claim - 1), "the late attach was not executed")?;
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m", home), 15 * SECOND)?;
    world.throughout(MINUTE, "the late attach disturbed the real session", |w| {
        w.at(client, home)
            && w.clients[client].claim == claim
            && w.owned_by("m", home)
            && w.shown_everywhere("m", Status::Up)
    })?;
    world.settle()
}

/// A live session loses a member, or is superseded: the client is notified and acts on it.
pub(super) fn losing_session_is_notified(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.up(&["m", "kept"])?;
    let claim = world.clients[client].claim;
    let taker = world.add_taker_at("d", &["m"], 1);
    world.run_until(|w| w.attached(taker), 5 * SECOND)?;
    world.pass(SECOND)?;
    world.require(!world.holds(client, "m") && world.holds(taker, "m"), "the losing client was not notified")?;
    world.require(
        world.at(client, 0) && world.clients[client].claim == claim,
        "the rest of the session did not continue",
    )?;

    // A newer attach of the same process arrives at another node.
    let c = &world.clients[client];
    let member = AttachMember { spec: MemberSpec::new("kept", "s"), takeover: false };
    let attach = Attach {
        client: c.id.clone(),
        nonce: c.nonce,
        claim: claim + 3,
        previous_claim: c.previous_claim,
        members: vec![member],
        ..Attach::default()
    };
    let done = world.with_node(2, |node, time, out| Some(node.attach(time, ConnId(u64::MAX), &attach, out).is_ok()));
    world.require(done == Some(true), "the newer attach was rejected")?;
    world.run_until(|w| w.attached(client) && w.clients[client].claim > claim + 3, 5 * SECOND)?;
    world.up(&["m", "kept"])?;
    world.settle()
}

/// A resumed node finds an attach in its sockets whose client has long attached elsewhere, and has unregistered since.
pub(super) fn paused_node_executes_nothing_old(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let log = Log::on(world);
    world.pause(0, 30 * SECOND);
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.run_until(|w| w.at(client, 1) || w.at(client, 2), 15 * SECOND)?;
    let claim = world.clients[client].claim;
    world.run_until(|w| w.status(1, "m").is_some() && w.status(2, "m").is_some(), SECOND)?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.member(1, "m").is_none() && w.member(2, "m").is_none(), 5 * SECOND)?;
    log.clear();
    world.pass(30 * SECOND)?;
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.require(world.clients[client].claim == claim, "the real session lost")?;
    world.settle()
}

/// An unregistration is executed, but its answer is lost, and the node with it.
pub(super) fn unregister_whose_answer_was_lost(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.cut_only_clients(Site::Host(0).bit(), Site::Client(client).bit());
    world.client_unregister(client, "m");
    world.run_until(|w| w.member(0, "m").is_none(), SECOND)?;
    world.require(!world.clients[client].unregistered.is_empty(), "the answer arrived")?;
    world.crash(0, crate::world::Crash::Silent);
    world.require(world.status(1, "m") == Some(Status::Up), "the others have received it")?;
    world.run_until(|w| w.at(client, 1) || w.at(client, 2), 25 * SECOND)?;
    world.run_until(|w| w.absent_everywhere("m") && w.clients[client].unregistered.is_empty(), 5 * SECOND)?;
    world.rejoin(cuts);
    world.start(0);
    world.throughout(MINUTE, "the member is back", |w| w.absent_everywhere("m"))?;
    world.up(&["kept"])?;
    world.settle()
}

/// The client received the answer, and the node was lost before another node had the unregistration.
pub(super) fn unregister_whose_node_was_lost(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.client_unregister(client, "m");
    world.run_until(|w| w.clients[client].unregistered.is_empty(), SECOND)?;
    world.require(world.at(client, 0), "the client left its node")?;
    world.require(world.status(1, "m") == Some(Status::Up), "the others have received it")?;
    // Variants: at once, after a heartbeat, and after the other nodes show the members as down.
    let wait = [0, 6 * SECOND, 40 * SECOND][usize::try_from(world.setup.seed % 3).unwrap_or(0)];
    world.pass(wait)?;
    world.crash(0, crate::world::Crash::Silent);
    world.run_until(|w| w.at(client, 1) || w.at(client, 2), 25 * SECOND)?;
    world.run_until(|w| w.absent_everywhere("m"), 5 * SECOND)?;
    world.rejoin(cuts);
    world.start(0);
    world.throughout(MINUTE, "the member is back", |w| w.absent_everywhere("m"))?;
    world.up(&["kept"])?;
    world.settle()
}

/// The node of a closing client is cut off from the others, which the client reaches. The client ends there, and its node
/// is lost.
pub(super) fn close_whose_node_was_lost(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    // Variants: before and after the nodes have lost their links.
    let wait = [0, 5 * SECOND, 15 * SECOND][usize::try_from(world.setup.seed % 3).unwrap_or(0)];
    world.pass(wait)?;
    world.client_close(client);
    world.run_until(|w| !w.clients[client].alive(), 5 * SECOND)?;
    world.crash(0, crate::world::Crash::Silent);
    world.run_until(|w| w.absent_everywhere("m"), SECOND)?;
    world.rejoin(cuts);
    world.start(0);
    world.throughout(MINUTE, "the member is back", |w| w.absent_everywhere("m"))?;
    world.settle()
}

/// Requests of a session arrive a second time, after later ones.
pub(super) fn overtaken_requests_are_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let stream = world.stream_of(client);
    world.set(client, "m", &"first");
    world.set(client, "m", &"second");
    world.register(client, "x");
    world.client_unregister(client, "x");
    world.register(client, "x");
    world.run_until(|w| w.clients[client].pending.is_empty(), 5 * SECOND)?;
    let rejected = world.node(0).counters().requests_rejected;
    let set = [("v".to_owned(), "first".to_owned())].into();
    let update = Operation::Update(v1::Update { id: "m".to_owned(), set, ..v1::Update::default() });
    let unregister = Operation::Unregister(v1::Unregister { id: "x".to_owned() });
    for (seq, operation) in [(1, update), (4, unregister)] {
        let request = v1::Request { seq, operation: Some(operation) };
        let late = FromClient::Again { session: stream.session, request };
        world.push(stream.conn, 0, Item::ToNode(Box::new(late)));
    }
    world.pass(SECOND)?;
    world
        .require(world.node(0).counters().requests_rejected == rejected + 2, "an overtaken request was not rejected")?;
    world.up(&["m", "x"])?;
    world.require((0..3).all(|host| world.value(host, "m").as_deref() == Some("second")), "an old value came back")?;
    world.settle()
}

/// A copy of a rejected request arrives when it would succeed: its client has acted on the rejection.
pub(super) fn rejected_request_does_not_succeed_later(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let holder = world.add_client_at("holder", &["taken"], 1);
    world.up(&["taken"])?;
    // A claim above the holder's, so that only the request number rejects the copy.
    let attach = Attach {
        client: "c".to_owned(),
        nonce: 7,
        claim: 9,
        previous_claim: 0,
        liveness: Liveness::Normal,
        timeout: None,
        members: Vec::new(),
        unregistered: Vec::new(),
        principal: String::new(),
    };
    let conn = ConnId(u64::MAX);
    let attached = world.with_node(0, |node, time, out| Some(node.attach(time, conn, &attach, out).ok())).flatten();
    let Some(attached) = attached else { return world.require(false, "the client was not attached") };
    let member = AttachMember { spec: MemberSpec::new("taken", "s"), takeover: false };
    let register = |world: &mut World| {
        world.with_node(0, |node, time, out| Some(node.register(time, attached.session, 1, &member, out).is_ok()))
    };
    let first = register(world);
    world.require(first == Some(false), "the member was not held")?;
    world.client_unregister(holder, "taken");
    world.run_until(|w| (0..3).all(|host| w.member(host, "taken").is_none()), 5 * SECOND)?;
    let copy = register(world);
    world.require(copy == Some(false), "the copy was executed")?;
    world.with_node(0, |node, time, out| Some(node.close_session(time, attached.session, out).is_ok()));
    world.settle()
}

/// Answers take longer than a client can wait: their arrival must not count as fresh evidence.
pub(super) fn old_answers_are_not_evidence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    world.pass(10 * SECOND)?;
    let id = world.network.number();
    world.network.spikes.push(Spike { id, places: Site::Client(client).bit(), extra: 4 * SECOND });
    // The delay grows in two steps, so that answers arrive all the time.
    world.pass(20 * SECOND)?;
    world.require(world.at(client, 0), "an answer after eight seconds is fresh enough")?;
    if let Some(spike) = world.network.spikes.last_mut() {
        spike.extra = 13 * SECOND / 2;
    }
    let start = world.now;
    while world.at(client, 0) && world.now < start + 30 * SECOND {
        let fresh = world.now - world.clients[client].last_echo;
        world.require(world.now < start + 13 * SECOND || fresh >= 6 * SECOND, "an old answer counts as fresh")?;
        world.pass(SECOND / 10)?;
    }
    world.require(!world.at(client, 0), "the client trusts a node whose answers are too old")?;
    world.end_spike(id);
    world.run_until(|w| w.attached(client), 20 * SECOND)?;
    world.up(&["m"])?;
    world.settle()
}

/// Messages of a replaced stream: rejected where the move is known, outranked where it is not.
pub(super) fn late_messages_of_an_old_stream_are_ignored(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    for (from, to) in [(0, 1), (1, 1)] {
        let old = world.stream_of(client);
        world.require(old.host == from, "the client is elsewhere")?;
        world.go(client, to);
        world.run_until(|w| w.owned_by("m", to) && w.at(client, to), 5 * SECOND)?;
        world.pass(SECOND)?;
        let codes = world.with_node(from, |node, time, out| {
            vec![
                node.heartbeat(time, old.session, out).err(),
                node.unregister(time, old.session, 9, "m", out).err(),
                node.close_session(time, old.session, out).err(),
            ]
        });
        let gone = codes.iter().all(|rejection| rejection.as_ref().is_some_and(|r| r.code == ErrorCode::SessionGone));
        world.require(gone, &format!("the old stream was served: {codes:?}"))?;
        world.throughout(10 * SECOND, "an old message had an effect", |w| {
            w.owned_by("m", to) && w.shown_everywhere("m", Status::Up)
        })?;
    }
    let old = world.stream_of(client);
    let cuts = world.partition(&[1], &[0, 2]);
    world.go(client, 2);
    world.run_until(|w| w.at(client, 2), 5 * SECOND)?;
    let done = world.with_node(1, |node, time, out| Some(node.unregister(time, old.session, 9, "m", out).is_ok()));
    world.require(done == Some(true) && world.member(1, "m").is_none(), "the old node has received the move")?;
    world.pass(30 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m", 2) && w.shown_everywhere("m", Status::Up), 15 * SECOND)?;
    world.settle()
}

/// Ten clients lose their connections and attach elsewhere within ten seconds: no watcher ever sees them down.
pub(super) fn drop_and_reattach_elsewhere_in_10_s(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..10).map(|i| format!("m{i}")).collect();
    let clients: Vec<usize> = ids.iter().map(|id| world.add_client_at(id, &[id], 0)).collect();
    world.up(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
    let log = Log::on(world);
    let watcher = world.watch_at(2);
    world.run_until(|w| w.caught_up(watcher), 5 * SECOND)?;
    world.pass(MINUTE)?;
    let mut cuts = Vec::new();
    for client in &clients {
        let conn = world.stream_of(*client).conn;
        world.reset(conn);
        cuts.extend(world.unplug(*client));
    }
    world.pass(5 * SECOND)?;
    world.require(clients.iter().all(|client| !world.attached(*client)), "a client is attached without a network")?;
    world.rejoin(cuts);
    world.run_until(|w| clients.iter().all(|client| w.attached(*client)), 13 * SECOND)?;
    world.pass(MINUTE)?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// The registry restores a client without state of its own (C8): a node that has no session of it attaches it with the
/// members that the registry has, in one step.
pub(super) fn registry_restores_a_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let reattach = |fresh: bool| Reattach {
        client: "web".to_owned(),
        nonce: 7,
        liveness: Liveness::Normal,
        timeout: None,
        raise: 3,
        order: RequestOrder::Arrival,
        fresh,
        creator: None,
        principal: String::new(),
    };
    let mut session = None;
    for (host, request) in [(0, reattach(true)), (1, reattach(false))] {
        let conn = ConnId(u64::MAX - host as u64);
        let member = AttachMember { spec: MemberSpec::new("m", "s"), takeover: false };
        let attached = world.with_node(host, |node, time, out| {
            let mut attached = node.reattach(time, conn, &request, out).ok()?;
            if request.fresh {
                let version = node.register(time, attached.session, 1, &member, out).ok()?;
                attached.versions.push(("m".to_owned(), version));
            }
            Some(attached)
        });
        let named = attached.as_ref().is_some_and(|attached| attached.versions.iter().any(|(id, _)| id == "m"));
        world.require(named, "the session was attached without its member")?;
        world.run_until(|w| w.owned_by("m", host), 5 * SECOND)?;
        session = attached.map(|attached| attached.session);
    }
    let closed = session.map(|session| {
        world.with_node(1, |node, time, out| Some(node.close_session(time, session, out).is_ok())) == Some(true)
    });
    world.require(closed == Some(true), "the session cannot be closed")?;
    world.run_until(|w| (0..3).all(|host| w.member(host, "m").is_none()), 5 * SECOND)?;
    world.settle()
}

/// With `fast` liveness a lost connection means down within a second, unless the client is back at once.
pub(super) fn fast_liveness(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let fast = world.add_client_at("fast", &["fast"], 0);
    world.clients[fast].liveness = Liveness::Fast;
    let moving = world.add_client_at("moving", &["moving"], 0);
    world.clients[moving].liveness = Liveness::Fast;
    let normal = world.add_client_at("normal", &["normal"], 0);
    world.up(&["fast", "moving", "normal"])?;
    let log = Log::on(world);
    world.go(moving, 1);
    world.client_crash(fast, false);
    world.client_crash(normal, false);
    world.pass(SECOND)?;
    world.require(world.shown_everywhere("fast", Status::Down), "a fast client's member is not down after a second")?;
    world.throughout(12 * SECOND, "down before the heartbeat timeout", |w| w.shown_everywhere("normal", Status::Up))?;
    world.run_until(|w| w.shown_everywhere("normal", Status::Down), 15 * SECOND)?;
    world.require(world.shown_everywhere("moving", Status::Up), "the client that moved at once is not up")?;
    let down = log.of("moving").into_iter().any(|seen| seen.shown().is_some_and(|(_, status)| status != Status::Up));
    world.require(!down, "the client that moved at once was seen down")?;
    world.client_start(fast);
    world.up(&["fast"])?;
    world.settle()
}

/// A client with `fast` liveness moves between two nodes that have no link. Its first node receives the write from a third
/// one before it would state `down`.
pub(super) fn fast_client_moves_where_a_link_is_missing(world: &mut World) -> ScenarioResult {
    fast_client_moves(world, 0, 1)
}

/// A client with `fast` liveness moves from one host to another. The link between them is cut.
pub(super) fn fast_client_moves(world: &mut World, from: usize, to: usize) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("fast", &["fast"], from);
    world.clients[client].liveness = Liveness::Fast;
    world.up(&["fast"])?;
    world.partition(&[from], &[to]);
    world.pass(10 * SECOND)?;
    let log = Log::on(world);
    world.go(client, to);
    world.run_until(|w| w.at(client, to), 2 * SECOND)?;
    world.pass(3 * SECOND)?;
    world.require(world.shown_everywhere("fast", Status::Up), "the client that moved is not up")?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// A client attaches elsewhere and no longer names a member. That member keeps the timers of the old session, whatever
/// the old stream still sends (C4).
pub(super) fn members_not_named_keep_their_timers(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "dropped"], 0);
    world.up(&["m", "dropped"])?;
    let old = world.stream_of(client);
    world.pass(2 * SECOND)?;
    // Its next process does not want the member any more. The connection of the old one stays open.
    world.clients[client].link = None;
    world.client_crash(client, true);
    if let Some(members) = &mut world.clients[client].restart_with {
        members.remove("dropped");
    }
    world.clients[client].prefer = Some(1);
    world.client_start(client);
    world.run_until(|w| w.owned_by("m", 1), 5 * SECOND)?;
    for beat in 1..=64 {
        let accepted = world.with_node(0, |node, time, out| Some(node.heartbeat(time, old.session, out).is_ok()));
        world.require(accepted == Some(false), "a heartbeat of the old stream counts")?;
        let shown = world.status(2, "dropped");
        world.require(beat > 3 || shown == Some(Status::Up), "not up before its timeout")?;
        world.require(beat <= 5 || shown != Some(Status::Up), "up although its client is silent")?;
        world.pass(5 * SECOND)?;
    }
    world.run_until(|w| w.absent_everywhere("dropped"), 20 * SECOND)?;
    world.require(world.shown_everywhere("m", Status::Up) && world.at(client, 1), "the newer session was disturbed")?;
    world.settle()
}

/// A client is paused for longer than the heartbeat timeout and continues the same session: down, and up again (C6).
pub(super) fn paused_client_is_down_and_up_again(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let stream = world.stream_of(client);
    let claim = world.claim(0, "m");
    world.clients[client].paused = true;
    world.throughout(19 * SECOND, "down before the timeout", |w| w.shown_everywhere("m", Status::Up))?;
    world.run_until(|w| w.shown_everywhere("m", Status::Down), 3 * SECOND)?;
    world.pass(MINUTE)?;
    let beat = v1::client_message::Message::Heartbeat(v1::Heartbeat { sent: world.now });
    let message = FromClient::Message(v1::ClientMessage { message: Some(beat) });
    world.push(stream.conn, 0, Item::ToNode(Box::new(message)));
    world.pass(SECOND / 10)?;
    world.require(world.shown_everywhere("m", Status::Up), "a heartbeat does not bring it up")?;
    world.client_resume(client);
    world.throughout(MINUTE, "not up any more", |w| w.shown_everywhere("m", Status::Up) && w.at(client, 0))?;
    world.require(world.claim(2, "m") == claim, "a new session was needed")?;
    world.settle()
}
