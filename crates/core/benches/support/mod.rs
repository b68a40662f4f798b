//! Members, nodes and recorded frames for the benches. Everything is deterministic: two runs do the same work.

#![allow(dead_code, reason = "every bench compiles this module and uses its part of it")]

pub mod cluster;

use bytes::Bytes;
use cluster::Cluster;
use convoke_core::member::MemberSpec;
use convoke_core::node::{Attach, AttachMember, ConnId, Effect, LinkId, SessionId, Start};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};

/// Time does not advance in single-node benches: no timer is ever due, so only the call under test is measured.
pub const NOW: Time = Time::from_secs(1);
const WALL_MS: u64 = 1_790_000_000_000;
pub const SERVICES: usize = 1_000;
/// Members per session where it does not matter.
pub const PER_SESSION: usize = 100;

/// Whether figures are wanted; otherwise cargo only tests that the benches run.
#[allow(clippy::disallowed_methods, reason = "cargo states the mode as an argument")]
pub fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// The wanted size, or a small one when nothing is measured.
pub fn scale(count: usize) -> usize {
    if measuring() { count } else { (count / 1_000).max(200) }
}

pub fn config(name: &str) -> Config {
    let mut config = Config::new(NodeId::new(name).expect("bench names are node ids"));
    config.peer_address = format!("{name}:7400");
    config.client_address = format!("{name}:7401");
    config.hash_seed = 0x5eed;
    config.limits.sessions = 2_000_000;
    config
}

pub fn start(nonce: u64) -> Start {
    Start { nonce, wall_ms: WALL_MS, ..Start::default() }
}

/// A node without seeds: serving at once.
pub fn lone_node() -> Node {
    let mut node = Node::new(config("a"), start(1), NOW).expect("the configuration is valid");
    node.begin(NOW, &mut Output::default());
    node
}

/// Formats of ids: both are common, and only short ones fit into the record itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// 15 bytes.
    Short,
    /// 36 bytes.
    Uuid,
}

pub fn id(ids: Ids, index: usize) -> String {
    match ids {
        Ids::Short => format!("member-{index:08}"),
        Ids::Uuid => {
            let bits = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{:08x}-{:04x}-4000-8000-{:012x}", bits >> 32, bits & 0xffff, index)
        }
    }
}

pub fn service(index: usize) -> String {
    format!("service-{:04}", index % SERVICES)
}

/// The small member of the requirements: id, service, locality, revision, address, two metadata pairs.
pub fn member(ids: Ids, index: usize) -> AttachMember {
    let mut spec = MemberSpec::new(id(ids, index), service(index));
    spec.locality = format!("eu-west-1{}", ["a", "b", "c"][index % 3]);
    spec.revision = format!("v1.{}", index % 20);
    spec.address = format!("10.{}.{}.{}:8080", index >> 16 & 0xff, index >> 8 & 0xff, index & 0xff);
    spec.metadata.insert("shard".to_owned(), format!("{:04}", index % 10_000));
    spec.metadata.insert("version".to_owned(), "1.4.2".to_owned());
    AttachMember { spec, takeover: false }
}

pub fn attach(ids: Ids, session: usize, per_session: usize) -> Attach {
    let first = session * per_session;
    Attach {
        client: format!("client-{session:07}"),
        nonce: session as u64 + 1,
        claim: 1,
        members: (first..first + per_session).map(|index| member(ids, index)).collect(),
        ..Attach::default()
    }
}

/// Registers `members` members in sessions of `per_session`; the handle of member i's session is at `i / per_session`.
pub fn populate(node: &mut Node, now: Time, ids: Ids, members: usize, per_session: usize) -> Vec<SessionId> {
    let mut out = Output::default();
    let mut sessions = Vec::with_capacity(members / per_session);
    for session in 0..members / per_session {
        let request = attach(ids, session, per_session);
        let attached = node.attach(now, ConnId(session as u64), &request, &mut out).expect("a valid attach");
        assert!(attached.rejected.is_empty(), "{:?}", attached.rejected);
        sessions.push(attached.session);
        out.effects.clear();
        out.events.clear();
    }
    sessions
}

/// Two linked nodes in agreement, taken out of the network: the bench moves the frames itself.
pub struct Pair {
    pub a: Node,
    pub a_sessions: Vec<SessionId>,
    pub a_link: LinkId,
    pub b: Node,
    pub b_link: LinkId,
    pub now: Time,
}

/// Node a holds the members; b has joined and received all of them.
pub fn pair(members: usize, per_session: usize) -> Pair {
    let (mut cluster, sessions, _) = join(members, per_session);
    let [a_link, b_link] = cluster.link_between(0, 1);
    let b = cluster.nodes.pop().expect("two nodes");
    let a = cluster.nodes.pop().expect("two nodes");
    Pair { a, a_sessions: sessions, a_link, b, b_link, now: cluster.now }
}

/// The frames that a joining node receives, from the Welcome on.
pub fn recorded_join(members: usize, per_session: usize) -> Vec<Bytes> {
    join(members, per_session).2
}

fn join(members: usize, per_session: usize) -> (Cluster, Vec<SessionId>, Vec<Bytes>) {
    let mut cluster = Cluster::new(1);
    let now = cluster.now;
    let sessions = populate(&mut cluster.nodes[0], now, Ids::Short, members, per_session);
    cluster.tap = Some(Vec::new());
    // So fast that the join ends before a timer is due: a node that receives the frames again runs no timers, and would
    // neither know the counters that pings name (P10) nor follow a second exchange.
    cluster.latency = 1..2;
    cluster.add_node();
    while cluster.nodes[1].context_hash() != cluster.nodes[0].context_hash() || !cluster.nodes[1].is_serving() {
        cluster.run_for_millis(1);
    }
    let frames = cluster.tap.take().into_iter().flatten();
    let frames = frames.filter(|frame| frame.to == 1).map(|frame| frame.bytes).collect();
    (cluster, sessions, frames)
}

/// A node like the one that `recorded_join` was recorded from, about to receive those frames.
pub fn joining_node() -> (Node, LinkId) {
    let mut node = Node::new(cluster::config_of(1), cluster::start_of(1), NOW).expect("the configuration is valid");
    let mut out = Output::default();
    node.begin(NOW, &mut out);
    let dial = out.effects.iter().find_map(|effect| match effect {
        Effect::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    node.dialled(NOW, dial.expect("a node with a seed dials it"), LinkId(0), &mut out);
    (node, LinkId(0))
}

/// Feeds frames to a node and discards its answers.
pub fn receive_all<'a>(node: &mut Node, now: Time, link: LinkId, frames: impl IntoIterator<Item = &'a Bytes>) {
    let mut out = Output::default();
    for frame in frames {
        node.received(now, link, frame, &mut out);
        out.effects.clear();
        out.events.clear();
    }
}
