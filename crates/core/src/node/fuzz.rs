//! Sequences of valid, mutated and misplaced messages into a node (P7, P10). The node must neither panic nor send a frame
//! that its peers could not read, and afterwards it still serves clients, unless a frame made it restart or stop.

use super::{
    Attach, AttachMember, ClientOperation, ConnId, Effect, LinkId, Node, OperationResult, Output, SessionId, Start,
};
use crate::Config;
use crate::member::{MemberSpec, MetadataUpdate};
use crate::time::{Duration, Time};
use crate::version::NodeId;
use crate::wire::Message;
use std::sync::Arc;

/// Sequences in an ordinary test run, and the steps of each.
const CASES: u64 = 200;
const STEPS: usize = 60;
/// First bytes of frames.
const HELLO: u8 = 0;
const PING: u8 = 3;
const PUSH: u8 = 4;
const CHUNK: u8 = 6;

fn node(id: &str, nonce: u64, seeds: &[&str]) -> Node {
    let mut config = Config::new(NodeId::new(id).unwrap());
    config.peer_address = format!("{id}:1");
    config.seeds = seeds.iter().map(|seed| (*seed).to_owned()).collect();
    Node::new(config, Start { nonce, ..Start::default() }, Time::ZERO).unwrap()
}

fn attach(client: &str, claim: u64, ids: &[String]) -> ClientOperation {
    let member = |id: &String| AttachMember { spec: MemberSpec::new(id.as_str(), "s"), takeover: true };
    let members = ids.iter().map(member).collect();
    ClientOperation::Attach(Box::new(Attach {
        client: client.to_owned(),
        nonce: 1,
        claim,
        members,
        ..Attach::default()
    }))
}

/// Runs two correct nodes with clients, and returns the frames that they sent to each other.
fn recorded() -> Vec<Vec<u8>> {
    let mut nodes = [node("a", 1, &[]), node("b", 2, &["a:1"])];
    let (link, mut now) = (LinkId(1), Time::from_micros(1000));
    let mut frames = Vec::new();
    let mut pending: Vec<(usize, Effect)> = Vec::new();
    let mut call = |nodes: &mut [Node; 2], at: usize, now: Time, input: &dyn Fn(&mut Node, &mut Output)| {
        let mut out = Output::default();
        input(&mut nodes[at], &mut out);
        nodes[at].flush(now, &mut out);
        let mut queue: Vec<(usize, Effect)> = out.effects.into_iter().map(|effect| (at, effect)).collect();
        pending.append(&mut queue);
        while !pending.is_empty() {
            let (at, effect) = pending.remove(0);
            let mut out = Output::default();
            match effect {
                Effect::Dial { dial, .. } => {
                    nodes[1 - at].accepted(now, link, &mut out);
                    let mut dialled = Output::default();
                    nodes[at].dialled(now, dial, link, &mut dialled);
                    pending.extend(dialled.effects.into_iter().map(|effect| (at, effect)));
                }
                Effect::Send { frame, .. } => {
                    frames.push(frame.to_vec());
                    nodes[1 - at].received(now, link, &frame, &mut out);
                    nodes[1 - at].flush(now, &mut out);
                }
                _ => {}
            }
            pending.extend(out.effects.into_iter().map(|effect| (1 - at, effect)));
        }
    };
    for at in 0..2 {
        call(&mut nodes, at, now, &|node, out| node.begin(now, out));
    }
    for round in 0..200_u64 {
        now = now + Duration::from_millis(100);
        for at in 0..2 {
            call(&mut nodes, at, now, &|node, out| node.wake(now, out));
        }
        let at = usize::from(round % 3 > 0);
        let ids = [format!("m{}", round % 7), format!("n{}", round % 3)];
        call(&mut nodes, at, now, &|node, out| {
            let operation = attach(&format!("c{}", round % 5), round + 1, &ids);
            let _ = node.execute(now, ConnId(round), &operation, out);
            let _ = node.register_name(now, &format!("name{}", round % 4), "here", out);
            if round % 9 == 0 {
                let _ = node.drain(now, &ids[0], round % 2 == 0, out);
            }
        });
    }
    for kind in [HELLO, PING, PUSH, CHUNK] {
        assert!(frames.iter().any(|frame| frame[0] == kind), "no frame of kind {kind} was recorded");
    }
    assert!(nodes.iter().all(Node::is_serving));
    frames
}

struct Victim {
    node: Node,
    now: Time,
    links: u64,
    session: Option<SessionId>,
    seq: u64,
    over: bool,
}

impl Victim {
    fn new() -> Self {
        let mut victim =
            Victim { node: node("a", 1, &[]), now: Time::from_secs(1), links: 0, session: None, seq: 0, over: false };
        let now = victim.now;
        victim.call(|node, out| node.begin(now, out));
        victim
    }

    /// Calls the node, and checks what it does.
    fn call<T>(&mut self, input: impl FnOnce(&mut Node, &mut Output) -> T) -> T {
        let mut out = Output::default();
        let result = input(&mut self.node, &mut out);
        self.node.flush(self.now, &mut out);
        for effect in &out.effects {
            match effect {
                Effect::Send { frame, .. } => {
                    let decoded = Message::decode(frame).map(|_| ());
                    assert_eq!(decoded, Ok(()), "the node sends a frame that nobody can read: {frame:02x?}");
                }
                Effect::Restart { .. } | Effect::Stop { .. } => self.over = true,
                _ => {}
            }
        }
        result
    }

    fn connect(&mut self, hello: &[u8]) {
        self.links += 1;
        let (now, link) = (self.now, LinkId(self.links));
        self.call(|node, out| node.accepted(now, link, out));
        self.call(|node, out| node.received(now, link, hello, out));
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while !self.over && self.node.next_wake() <= end {
            self.now = self.node.next_wake().max(self.now);
            let now = self.now;
            self.call(|node, out| node.wake(now, out));
        }
        self.now = end;
    }

    fn request(&mut self, random: &mut fastrand::Rng) {
        self.seq += 1;
        let (now, seq, id) = (self.now, self.seq, format!("m{}", random.u8(..9)));
        let session = self.session;
        let operation = match (random.u8(..5), session) {
            (0, Some(session)) => {
                let member = AttachMember { spec: MemberSpec::new(id, "s"), takeover: random.bool() };
                ClientOperation::Register { session, seq, member: Arc::new(member) }
            }
            (1, Some(session)) => ClientOperation::Unregister { session, seq, id },
            (2, Some(session)) => {
                let update = Arc::new(MetadataUpdate::set("k", "v"));
                ClientOperation::Update { session, seq, id, update, expected: None }
            }
            (3, Some(session)) => ClientOperation::Heartbeat { session },
            _ => attach(&format!("c{}", random.u8(..4)), random.u64(1..1000), &[id]),
        };
        let result = self.call(|node, out| node.execute(now, ConnId(seq), &operation, out));
        if let OperationResult::Attached(Ok(attached)) = result {
            self.session = Some(attached.session);
        }
        let id = format!("m{}", random.u8(..9));
        let drained = random.bool();
        // Both may be rejected, with a code.
        let _ = self.call(|node, out| node.drain(now, &id, drained, out));
        let _ = self.call(|node, out| node.register_name(now, &id, "here", out));
    }

    /// A new client gets a member, however far the claims were raised.
    fn serves(&mut self) {
        let (now, ids) = (self.now, ["last".to_owned()]);
        let mut claim = 1;
        for _ in 0..3 {
            let operation = attach("last", claim, &ids);
            match self.call(|node, out| node.execute(now, ConnId(u64::MAX), &operation, out)) {
                OperationResult::Attached(Ok(attached)) if attached.rejected.is_empty() => break,
                OperationResult::Attached(Err(rejection)) => claim = rejection.known.map_or(claim, |known| known + 1),
                other => panic!("{other:?}"),
            }
        }
        assert!(self.node.member("last").is_some(), "the node does not serve clients any more");
    }
}

#[test]
fn fuzz_message_sequences() {
    let frames = recorded();
    let hello = frames.iter().find(|frame| frame[0] == HELLO).cloned().expect("a Hello was recorded");
    let mut random = convoke_fuzz::random();
    let mut survived = 0;
    for case in 0..convoke_fuzz::cases(CASES) {
        let seed = random.u64(..);
        convoke_fuzz::reported(case, &format!("seed {seed}"), || {
            survived += u32::from(sequence(&frames, &hello, seed));
        });
    }
    assert!(survived > 0, "every sequence made the node restart or stop");
}

/// Returns whether the node still runs.
fn sequence(frames: &[Vec<u8>], hello: &[u8], seed: u64) -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut victim = Victim::new();
    victim.connect(hello);
    for _ in 0..STEPS {
        if victim.over {
            return false;
        }
        let (now, link) = (victim.now, LinkId(random.u64(..=victim.links)));
        match random.u8(..10) {
            0 => victim.connect(hello),
            1 => victim.connect(&convoke_fuzz::mutated(&[hello.to_vec()], &mut random)),
            2 => victim.call(|node, out| node.closed(now, link, out)),
            3 => victim.advance(Duration::from_millis(random.u64(..4_000))),
            4 => victim.request(&mut random),
            5 | 6 => {
                let frame = random.choice(frames).cloned().unwrap_or_default();
                victim.call(|node, out| node.received(now, link, &frame, out));
            }
            _ => {
                let frame = convoke_fuzz::mutated(frames, &mut random);
                victim.call(|node, out| node.received(now, link, &frame, out));
            }
        }
    }
    if !victim.over {
        victim.serves();
    }
    !victim.over
}
