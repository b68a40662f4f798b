//! Peers and clients that send invalid messages (P7, C1).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{Item, MINUTE, SECOND, Site};
use crate::world::{Crash, World};
use bytes::Bytes;
use convoke_core::ErrorCode;
use convoke_core::member::{MemberSpec, Status};
use convoke_core::node::{Attach, AttachMember, ConnId, LinkId, PeerState};
use convoke_core::version::{Incarnation, NodeId, OriginId};
use convoke_core::wire::PROTOCOL_VERSION;

/// A frame under construction, in the peer format.
#[derive(Default)]
struct Frame(Vec<u8>);

impl Frame {
    fn of(kind: u8) -> Self {
        Frame(vec![kind])
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn number(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8)
    }

    fn text(self, text: &str) -> Self {
        let mut frame = self.number(text.len() as u64);
        frame.0.extend_from_slice(text.as_bytes());
        frame
    }

    fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn origin(self, origin: &OriginId) -> Self {
        let nonce = origin.incarnation.nonce.to_le_bytes();
        self.text(origin.node.as_str()).number(origin.incarnation.number).fixed(&nonce)
    }

    /// A push of one record, written by `writer` and sent as a write of `sender`.
    fn push(sender: &OriginId, writer: &OriginId, from: u64, to: u64, claim: u64) -> Self {
        Frame::push_counted(sender, writer, [from, to], [claim, 1, 0])
    }

    /// The same with any claim, sequence and drain mark.
    fn push_counted(sender: &OriginId, writer: &OriginId, [from, to]: [u64; 2], [claim, seq, drain]: [u64; 3]) -> Self {
        let items = Frame::of(4).origin(sender).number(from).number(to).byte(0);
        let items = items.number(1).origin(writer).number(1).text("mallory").fixed(&[0; 8]).number(1);
        let record =
            items.byte(0b1000).number(0).number(to.max(1)).text("evil").number(claim).number(seq).fixed(&[0; 4]);
        let record = record.number(0).number(drain).number(0).number(0).text("s").text("").text("").number(0).number(0);
        record.text("").number(0).number(0).number(0)
    }
}

/// Lengths, counts and numbers that exceed the frame; frames that are too long; messages out of order.
fn malformed(world: &World) -> Vec<(&'static str, Frame)> {
    const HUGE: u64 = u64::MAX;
    let peer = world.node(1).origin().clone();
    let limit = world.hosts[0].config.limits.frame_bytes;
    vec![
        ("an empty frame", Frame::default()),
        ("an unknown message", Frame::of(200)),
        ("a number without a last byte", Frame::of(7).fixed(&[0xff; 11])),
        ("a clock of 2^64 entries", Frame::of(5).number(1).number(HUGE)),
        ("a chunk of 2^32 origins", Frame::of(6).number(1).number(0).byte(0).number(1 << 32)),
        ("a chunk of 2^40 records", Frame::of(6).number(1).number(0).byte(0).number(0).number(0).number(1 << 40)),
        ("a name of 4 GiB", Frame::of(9).number(1).number(1 << 32).fixed(b"n1")),
        ("a liveness counter above the limit", Frame::of(3).number(1).number(0).number(HUGE)),
        ("a write number above the limit", Frame::push(&peer, &peer, 0, HUGE, 1)),
        ("a push with a descending range", Frame::push(&peer, &peer, 9, 3, 1)),
        ("a record with a claim above the limit", Frame::push(&peer, &peer, 1 << 40, (1 << 40) + 1, (1 << 48) + 1)),
        ("trailing bytes", Frame::of(12).byte(0).byte(0)),
        ("a welcome after the handshake", Frame::of(1)),
        ("more bytes than a frame may have", Frame(vec![3; limit + 1])),
    ]
}

/// Raw frames on an established link: each is rejected and counted, the link is closed and re-established; members
/// stay up.
pub(super) fn hostile_lengths(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 1);
    world.up(&["m"])?;
    let log = Log::on(world);
    for (what, frame) in malformed(world) {
        let before = world.node(0).counters().frames_malformed;
        inject(world, frame)?;
        world.pass(SECOND / 10)?;
        let counted = world.node(0).counters().frames_malformed == before + 1;
        world.require(counted, &format!("{what} was not rejected"))?;
        world.run_until(|w| w.peer_state(0, 1) == Some(PeerState::Up), 15 * SECOND)?;
    }

    // Well-formed, but with the receiving node as its writer: not stored.
    world.forged = true;
    let (peer, victim) = (world.node(1).origin().clone(), world.node(0).origin().clone());
    inject(world, Frame::push(&peer, &victim, 1 << 40, (1 << 40) + 1, 1 << 47))?;
    world.pass(SECOND)?;
    world.require((0..3).all(|host| world.forgotten(host, "evil")), "a record in another node's name was stored")?;
    // The link that carried it was closed (P10).
    world.run_until(|w| w.peer_state(0, 1) == Some(PeerState::Up), 15 * SECOND)?;

    // A stranger connects and sends garbage, or nothing.
    let links = world.node(0).sizes().links;
    for stranger in 0..20 {
        let link = LinkId(u64::MAX - stranger);
        world.with_node(0, |node, time, out| node.accepted(time, link, out));
        if stranger % 2 == 0 {
            world.with_node(0, |node, time, out| node.received(time, link, b"GET / HTTP/1.1\r\n\r\n", out));
        }
    }
    world.pass(5 * SECOND)?;
    world.require(world.node(0).sizes().links == links, "connections of strangers are kept")?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// Puts a frame into the link from n1 to n0.
fn inject(world: &mut World, frame: Frame) -> ScenarioResult {
    inject_between(world, 1, 0, frame)
}

fn inject_between(world: &mut World, from: usize, to: usize, frame: Frame) -> ScenarioResult {
    let conns = world.connections_between(to, from);
    let open = |conn: &&u64| world.network.connections[*conn].ends.iter().all(|end| end.open);
    let found = conns.iter().find(open).copied();
    world.require(found.is_some(), "there is no link")?;
    if let Some(conn) = found {
        let side = usize::from(world.network.connections[&conn].ends[1].place == Site::Host(from));
        world.push(conn, side, Item::Frame(Bytes::from(frame.0)));
    }
    Ok(())
}

/// Another principal attaches a client id at another node, with a higher claim. It is rejected, and the members stay where
/// they are.
pub(super) fn client_id_of_another_principal(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let attach = |principal: &str, claim| Attach {
        client: "orders".to_owned(),
        principal: principal.to_owned(),
        nonce: claim,
        claim,
        members: vec![AttachMember { spec: MemberSpec::new("orders-1", "s"), takeover: false }],
        ..Attach::default()
    };
    let (own, foreign) = (attach("token/alice", 1), attach("token/bob", 9));
    let attached = world.with_node(0, |node, time, out| node.attach(time, ConnId(u64::MAX), &own, out).ok());
    let Some(attached) = attached else { return world.require(false, "the first principal was rejected") };
    world.run_until(|w| w.claim(1, "orders-1") == Some(1), 5 * SECOND)?;
    let rejected = world.with_node(1, |node, time, out| node.attach(time, ConnId(u64::MAX), &foreign, out).err());
    let code = rejected.map(|rejection| rejection.code);
    world.require(code == Some(ErrorCode::PermissionDenied), &format!("another principal gets {code:?}"))?;
    world.pass(SECOND)?;
    world.require(world.claim(2, "orders-1") == Some(1), "the member has another owner")?;
    world.with_node(0, |node, time, out| node.close_session(time, attached.session, out).is_ok());
    world.settle()
}

/// Clients with claims that cannot be reached by counting are rejected. A client that is merely far ahead harms no
/// other client, even after its records have been collected.
pub(super) fn hostile_claim_jumps(world: &mut World) -> ScenarioResult {
    const AHEAD: u64 = 1 << 40;
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 1);
    world.up(&["m"])?;
    let attach = |claim| Attach {
        client: "mallory".to_owned(),
        nonce: 1,
        claim,
        members: vec![AttachMember { spec: MemberSpec::new("evil", "s"), takeover: true }],
        ..Attach::default()
    };
    for claim in [0, 1 << 48, (1 << 48) + 1, u64::MAX] {
        let rejected =
            world.with_node(0, |node, time, out| node.attach(time, ConnId(u64::MAX), &attach(claim), out).err());
        let code = rejected.map(|rejection| rejection.code);
        world.require(code == Some(ErrorCode::InvalidArgument), &format!("claim {claim} leads to {code:?}"))?;
    }
    let attached = world.with_node(0, |node, time, out| node.attach(time, ConnId(u64::MAX), &attach(AHEAD), out).ok());
    let Some(attached) = attached else { return world.require(false, "a claim that is a little ahead was rejected") };
    world.run_until(|w| w.claim(2, "evil") == Some(AHEAD), 5 * SECOND)?;
    world.with_node(0, |node, time, out| node.close_session(time, attached.session, out).is_ok());
    let claim = world.clients[client].claim;
    world.go(client, 2);
    world.run_until(|w| w.owned_by("m", 2), 5 * SECOND)?;
    world.require(world.claim(0, "m") == Some(claim + 1), "the claims of other clients were raised")?;
    world.register(client, "more");
    world.up(&["m", "more"])?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "evil")), 33 * MINUTE)?;
    world.register(client, "late");
    world.add_client_at("d", &["later"], 0);
    world.up(&["late", "later"])?;
    world.settle()
}

/// Sequences and drain counters at the maximum of the encoding: a node that incremented them could not encode its next
/// write.
pub(super) fn hostile_counters(world: &mut World) -> ScenarioResult {
    const SEQ_MAX: u64 = 1 << 62;
    const DRAIN_MAX: u64 = (u32::MAX / 2) as u64;
    world.begin()?;
    world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let peer = world.node(1).origin().clone();
    for (n, counters) in [(1 << 40, [1, SEQ_MAX, 0]), (1 << 41, [2, 1, DRAIN_MAX])] {
        inject(world, Frame::push_counted(&peer, &peer, [n, n + 1], counters))?;
        world.pass(SECOND)?;
    }
    inject(world, Frame::of(11).text("m").number(DRAIN_MAX).number(0))?;
    world.pass(SECOND)?;
    let victim = world.add_client_fixed("victim", &["evil"], 0);
    world.run_until(|w| w.attached(victim), 5 * SECOND)?;
    for id in ["evil", "m"] {
        for drained in [true, false] {
            let done = world.with_node(0, |node, time, out| Some(node.drain(time, id, drained, out).is_ok()));
            world.require(done == Some(true), &format!("{id} is not marked"))?;
        }
    }
    world.set(victim, "evil", &"changed");
    world.run_until(|w| (0..3).all(|host| w.value(host, "evil").as_deref() == Some("changed")), 10 * SECOND)?;
    world.require((0..3).all(|host| world.node(host).counters().frames_malformed == 0), "a frame was malformed")?;
    world.require(world.node(0).counters().records_rejected >= 3, "a counter at the limit was accepted")?;
    world.up(&["m", "evil"])?;
    world.settle()
}

/// Frames that claim more than a correct node can: each is rejected and counted, the link is closed and re-established.
fn excessive(world: &World) -> Vec<(&'static str, Frame)> {
    const HUGE: u64 = 1 << 56;
    let (me, peer) = (world.node(0).origin().clone(), world.node(1).origin().clone());
    let run = |origin: &OriginId, number| OriginId { incarnation: Incarnation { number, nonce: 9 }, ..origin.clone() };
    let want = |clock: &[(&OriginId, u64)], written_off: &[(&OriginId, u64)], floor| {
        let entries = |frame: Frame, clock: &[(&OriginId, u64)]| {
            let frame = frame.number(clock.len() as u64);
            clock.iter().fold(frame, |frame, (origin, n)| frame.origin(origin).number(*n))
        };
        let frame = entries(entries(Frame::of(5).number(1), clock).number(0), written_off);
        frame.number(floor).number(0).number(0)
    };
    let evidence = |counter, written| want(&[], &[], 0).number(1).origin(&me).number(counter).number(written).number(0);
    vec![
        ("more writes of the receiver", want(&[(&me, 1 << 30)], &[], 0).number(0)),
        ("more written-off writes of the receiver", want(&[], &[(&me, 1 << 30)], 0).number(0)),
        ("a push of the receiver", Frame::push(&me, &peer, 0, 1 << 30, 1)),
        ("a record of the receiver", Frame::push(&peer, &me, 1 << 40, (1 << 40) + 1, 1)),
        ("evidence of more writes of the receiver", evidence(0, 1 << 30)),
        ("a higher liveness counter of the receiver", evidence(1 << 30, 0)),
        ("a far incarnation of the receiver", want(&[(&run(&me, 1 << 50), 1)], &[], 0).number(0)),
        ("a far incarnation of the sender", want(&[(&run(&peer, 1 << 50), 1)], &[], 0).number(0)),
        ("a far write of the sender", want(&[(&peer, HUGE)], &[], 0).number(0)),
        ("a far claim floor", want(&[], &[], 1 << 48).number(0)),
    ]
}

/// A frame that claims too much closes its link and changes nothing. If a forged push has raised the contexts of the
/// other nodes above the writes of a node, that node begins a new incarnation, and its writes count again (P10).
pub(super) fn excessive_numbers_are_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    world.forged = true;
    let first = world.node(0).origin().clone();
    for (what, frame) in excessive(world) {
        let before = world.node(0).counters().frames_excessive;
        inject(world, frame)?;
        world.pass(SECOND / 10)?;
        let counted = world.node(0).counters().frames_excessive == before + 1;
        world.require(counted, &format!("{what} was not rejected"))?;
        world.run_until(|w| w.peer_state(0, 1) == Some(PeerState::Up), 15 * SECOND)?;
    }
    world.require(world.node(0).origin() == &first, "one lying peer makes a node restart")?;
    let mute = Frame::of(4).origin(&first).number(0).number(1 << 20).byte(0).number(0).number(0).number(0).number(0);
    inject_between(world, 2, 1, mute)?;
    world.run_until(|w| w.node(0).origin() != &first, 60 * SECOND)?;
    world.add_client_at("d", &["late"], 0);
    world.up(&["m", "late"])?;
    world.settle()
}

/// One node reports to another that a newer incarnation of it exists, that a newer process uses its id, and that it has retired
/// its number. It also reports the incarnation to the others, which then report it too. The node keeps its number and runs (N9).
pub(super) fn reports_of_one_node_change_no_number(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    world.forged = true;
    let log = Log::on(world);
    let me = world.node(0).origin().clone();
    let newer = OriginId { incarnation: Incarnation { number: 40, nonce: 9 }, ..me.clone() };
    let known = |frame: Frame| frame.byte(1).number(40).fixed(&9u64.to_le_bytes());
    let evidence = |counter| {
        let frame = Frame::of(5).number(1).number(0).number(0).number(0).number(0).number(0).number(0);
        frame.number(1).origin(&newer).number(counter).number(1).number(0)
    };
    let reports = vec![
        known(Frame::of(2).byte(2).text("n1")),
        known(Frame::of(2).byte(7).text("n1")).text("h1:7000"),
        Frame::of(5)
            .number(1)
            .number(1)
            .origin(&newer)
            .number(1)
            .number(0)
            .number(0)
            .number(0)
            .number(0)
            .number(0)
            .number(0),
        Frame::of(5).number(1).number(0).number(1).origin(&newer).number(0).number(0).number(0).number(0).number(0),
        evidence(1),
        evidence(2),
        evidence(3),
    ];
    for frame in reports {
        inject(world, frame)?;
        world.pass(2 * SECOND)?;
        world.require(*world.node(0).origin() == me, "the report of one node changed a running node")?;
    }
    for counter in 1..4 {
        inject_between(world, 1, 2, evidence(counter))?;
        inject_between(world, 2, 1, evidence(counter))?;
        world.pass(2 * SECOND)?;
    }
    world.require(world.node(0).is_id_disputed(), "the node does not report the dispute")?;
    world.throughout(2 * MINUTE, "a report that correct nodes repeat changed a running node", |w| {
        w.hosts[0].running() && *w.node(0).origin() == me && w.at(client, 0)
    })?;
    world.require(world.node(0).counters().frames_malformed == 0, "a report was malformed")?;
    world.add_client_fixed("d", &["late"], 0);
    world.up(&["m", "late"])?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// A node lost a record that it claims to have, or holds another one: it and its peers report that, and a restart repairs
/// it (D16).
pub(super) fn lost_record_is_reported(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 1);
    world.up(&["m"])?;
    world.forged = true;
    world.truth.ids.entry("evil".to_owned()).or_default();
    let incarnation = Incarnation { number: 1, nonce: 7 };
    let writer = OriginId { node: NodeId::new("zz").expect("a valid id"), incarnation };
    let right = || Frame::push_counted(&writer, &writer, [0, 1], [1, 1, 0]);
    let wrong = if world.even_seed() {
        Frame::push_counted(&writer, &writer, [0, 1], [1, 2, 0])
    } else {
        Frame::of(4).origin(&writer).number(0).number(1).byte(0).number(0).number(0).number(0).number(0)
    };
    inject_between(world, 1, 0, wrong)?;
    inject_between(world, 0, 1, right())?;
    inject_between(world, 1, 2, right())?;
    let diverged = |w: &World| (0..3).map(|host| w.node(host).diverged_peers()).collect::<Vec<_>>();
    let ids: Vec<NodeId> = (0..3).map(|host| world.node(host).origin().node.clone()).collect();
    let expected = vec![ids[1..].to_vec(), vec![ids[0].clone()], vec![ids[0].clone()]];
    world.run_until(|w| diverged(w) == expected, 15 * SECOND)?;
    let counted = |w: &World| (0..3).map(|host| w.node(host).counters().divergences).collect::<Vec<_>>();
    world.require(counted(world) == [2, 1, 1], &format!("the reports are {:?}", counted(world)))?;

    world.crash(0, Crash::Process);
    world.start(0);
    let restarted = |w: &World| w.linked() && w.rank(0, "evil") == w.rank(1, "evil") && w.rank(0, "evil").is_some();
    world.run_until(restarted, 30 * SECOND)?;
    world.throughout(15 * SECOND, "a divergence is reported after the restart", |w| {
        diverged(w).iter().all(Vec::is_empty)
    })?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "evil")), 40 * MINUTE)?;
    world.settle()
}

/// A node of another cluster connects, as when an address is used again: it is rejected and counted (P2).
pub(super) fn foreign_cluster_is_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let link = LinkId(u64::MAX);
    let incarnation = Incarnation { number: 1, nonce: 7 };
    let foreign = OriginId { node: NodeId::new("zz").expect("a valid id"), incarnation };
    let region = world.hosts[0].config.region.clone();
    let hello = Frame::of(0).number(u64::from(PROTOCOL_VERSION)).text("another").origin(&foreign).text(&region);
    let hello = hello.text("").text("").byte(0).byte(0).number(0);
    world.with_node(0, |node, time, out| {
        node.accepted(time, link, out);
        node.received(time, link, &hello.0, out);
    });
    let known = world.node(0).peers().into_iter().any(|peer| peer.node == foreign.node);
    world.require(!known, "a node of another cluster became a peer")?;
    world.require(world.node(0).counters().handshakes_rejected == 1, "the rejection was not counted")?;
    world.settle()
}

fn hello_of_host_1(world: &World) -> Frame {
    let (cluster, region) = (world.hosts[0].config.cluster.clone(), world.hosts[1].config.region.clone());
    let hello = Frame::of(0).number(u64::from(PROTOCOL_VERSION)).text(&cluster).origin(world.node(1).origin());
    hello.text(&region).text("h1:7000").text("h1:7001").byte(1).byte(0).number(0)
}

/// A second connection in the name of a linked peer, as from a dial that was delayed: it waits, and the link that works
/// stays (P5).
pub(super) fn second_connection_of_a_peer_waits(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let (link, hello) = (LinkId(u64::MAX), hello_of_host_1(world));
    let before = world.hosts[1].link_lost_at;
    world.with_node(0, |node, time, out| {
        node.accepted(time, link, out);
        node.received(time, link, &hello.0, out);
    });
    world.pass(5 * SECOND)?;
    world.require(world.node(0).counters().handshakes_rejected == 0, "the connection was rejected")?;
    world.require(world.hosts[1].link_lost_at == before, "the link that worked was replaced")?;
    world.settle()
}

/// A peer that has dialled twice crashes without closing its connections: the second connection does not delay the
/// detection (P5).
pub(super) fn crash_of_a_peer_with_two_connections(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let (link, hello) = (LinkId(u64::MAX), hello_of_host_1(world));
    world.crash(1, Crash::Silent);
    world.with_node(0, |node, time, out| {
        node.accepted(time, link, out);
        node.received(time, link, &hello.0, out);
    });
    world.pass(5 * SECOND)?;
    let id = world.hosts[1].id.clone();
    let up = world.node(0).peers().iter().any(|peer| peer.node == id && peer.state == PeerState::Up);
    world.require(!up, "the crash was not detected")
}

/// A peer that sends pings, each of which reports that it receives nothing: that link is useless (P6).
pub(super) fn peer_that_receives_nothing_is_lost(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let link = LinkId(u64::MAX);
    let incarnation = Incarnation { number: 1, nonce: 7 };
    let origin = OriginId { node: NodeId::new("zz").expect("a valid id"), incarnation };
    let cluster = world.hosts[0].config.cluster.clone();
    let region = world.hosts[0].config.region.clone();
    let hello = Frame::of(0).number(u64::from(PROTOCOL_VERSION)).text(&cluster).origin(&origin).text(&region);
    let hello = hello.text("").text("").byte(0).byte(0).number(0);
    let state = |w: &World| w.node(0).peers().into_iter().find(|peer| peer.node == origin.node).map(|peer| peer.state);
    world.with_node(0, |node, time, out| {
        node.accepted(time, link, out);
        node.received(time, link, &hello.0, out);
    });
    world.require(state(world) == Some(PeerState::Up), "the peer was not accepted")?;
    for seq in 1..=20 {
        let ping = Frame::of(3)
            .number(seq)
            .number(0)
            .number(seq)
            .number(0)
            .fixed(&[0; 8])
            .byte(0)
            .byte(0)
            .number(0)
            .number(0)
            .number(0)
            .number(0);
        world.with_node(0, |node, time, out| node.received(time, link, &ping.0, out));
        world.pass(SECOND / 2)?;
        world.require(seq > 4 || state(world) == Some(PeerState::Up), "the link was closed at once")?;
    }
    world.require(state(world) != Some(PeerState::Up), "a peer that receives nothing counts as up")?;
    world.require(world.node(0).counters().frames_malformed == 0, "the pings were malformed")?;
    let forgotten = world.with_node(0, |node, time, out| Some(node.forget(time, &origin.node, out).is_ok()));
    world.require(forgotten == Some(true), "it cannot be forgotten")?;
    world.settle()
}
