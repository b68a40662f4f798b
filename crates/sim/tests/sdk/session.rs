//! Arbitrary interleavings against real nodes: losses, late messages, late answers, competing clients, bad input.
//!
//! The session talks to the core of two nodes through queues; every delivery is a step of the test. Afterwards
//! everything is healed, and the registry must show the state that was acknowledged to the application.

use crate::cluster::{Cluster, NodeOutput, client_address, node_at};
use convoke_convert::{AttachSettings, AttachState, Calls, HeartbeatCall};
use convoke_core::node::{Attach, AttachMember, ConnId, SessionId};
use convoke_core::{Time as NodeTime, member};
use convoke_proto::v1::{self, client_message::Message as ToNode, server_message::Message as FromNode};
use convoke_session::seeds::Seeds;
use convoke_session::session::{ClientIdentity, ConnectionId, Effect, Effects, OperationId, RegistrationId, Session};
use convoke_session::{Error, ErrorCode, Liveness, MemberSpec, Update};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const MEMBERS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Register {
        member: usize,
        takeover: bool,
        deadline: bool,
    },
    RegisterBad,
    Update {
        member: usize,
        key: u8,
        conditional: bool,
    },
    UpdateBad {
        member: usize,
    },
    Unregister {
        member: usize,
    },
    /// The application cancels its latest operation.
    Cancel,
    /// Messages of the latest connection, or of an older one, arrive.
    ToNode {
        older: usize,
        count: usize,
    },
    ToClient {
        older: usize,
        count: usize,
    },
    /// The client's side of the connection ends; messages in flight stay in flight.
    Lose,
    /// The node's side of some connection ends.
    NodeLoses {
        older: usize,
    },
    Pass {
        millis: u64,
    },
    /// Another client registers the same id.
    Rival {
        member: usize,
        takeover: bool,
    },
    RivalLeaves,
    Handover,
    /// The two nodes lose each other, or find each other again.
    Split {
        apart: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let member = || 0..MEMBERS;
    prop_oneof![
        4 => (member(), prop::bool::weighted(0.2), prop::bool::weighted(0.2))
            .prop_map(|(member, takeover, deadline)| Step::Register { member, takeover, deadline }),
        1 => Just(Step::RegisterBad),
        5 => (member(), 0..3u8, prop::bool::weighted(0.3))
            .prop_map(|(member, key, conditional)| Step::Update { member, key, conditional }),
        1 => member().prop_map(|member| Step::UpdateBad { member }),
        2 => member().prop_map(|member| Step::Unregister { member }),
        1 => Just(Step::Cancel),
        8 => (prop_oneof![4 => Just(0usize), 1 => 1..4usize], 1..4usize)
            .prop_map(|(older, count)| Step::ToNode { older, count }),
        8 => (prop_oneof![4 => Just(0usize), 1 => 1..4usize], 1..4usize)
            .prop_map(|(older, count)| Step::ToClient { older, count }),
        2 => Just(Step::Lose),
        1 => (0..3usize).prop_map(|older| Step::NodeLoses { older }),
        6 => prop_oneof![4 => 1..700u64, 2 => 700..6_000u64, 1 => 6_000..400_000u64]
            .prop_map(|millis| Step::Pass { millis }),
        1 => (member(), any::<bool>()).prop_map(|(member, takeover)| Step::Rival { member, takeover }),
        1 => Just(Step::RivalLeaves),
        1 => Just(Step::Handover),
        1 => any::<bool>().prop_map(|apart| Step::Split { apart }),
    ]
}

/// One connection of the client, both ends.
struct Wire {
    connection: ConnectionId,
    node: usize,
    to_node: VecDeque<ToNode>,
    to_client: VecDeque<FromNode>,
    attach: AttachState,
    node_end: bool,
    client_end: bool,
}

/// The application's knowledge of one of its members.
#[derive(Clone, Debug)]
struct Model {
    registration: RegistrationId,
    /// Registration was acknowledged.
    held: bool,
    /// All effective updates in order: initial metadata, then updates that were not rejected.
    updates: Vec<(OperationId, Update)>,
    /// An update with an unknown outcome makes the metadata uncertain.
    uncertain: bool,
    version: String,
}

struct World {
    cluster: Cluster,
    session: Session,
    wires: Vec<Wire>,
    pending: BTreeMap<OperationId, (usize, What)>,
    models: BTreeMap<usize, Model>,
    rival_claim: u64,
    rivals: Vec<(usize, SessionId)>,
    value: u64,
    healed: bool,
    /// Members that another client wanted, too.
    contested: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Register(RegistrationId),
    Bad,
    Update,
    Unregister,
}

fn name(member: usize) -> String {
    format!("m{member}")
}

impl World {
    fn new(seed: u64) -> World {
        let cluster = Cluster::new(2);
        let identity = ClientIdentity { client: "shop".into(), nonce: 77, liveness: Liveness::Normal, timeout: None };
        let seeds = Seeds::new(vec![client_address(0), client_address(1)], None);
        let now = time(cluster.now);
        World {
            session: Session::new(identity, seeds, fastrand::Rng::with_seed(seed), now),
            cluster,
            wires: Vec::new(),
            pending: BTreeMap::new(),
            models: BTreeMap::new(),
            rival_claim: 0,
            rivals: Vec::new(),
            value: 0,
            healed: false,
            contested: BTreeSet::new(),
        }
    }

    fn session(&mut self, call: impl FnOnce(&mut Session, Duration, &mut Effects)) {
        let mut out = Vec::new();
        call(&mut self.session, time(self.cluster.now), &mut out);
        self.session.flush(&mut out);
        for effect in out {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect { connection, address, attach } => {
                assert!(attach);
                let node = node_at(&address).expect("only nodes are dialled");
                self.wires.push(Wire {
                    connection,
                    node,
                    to_node: VecDeque::new(),
                    to_client: VecDeque::new(),
                    attach: AttachState::new(format!("node-{node}"), AttachSettings::new(1_000, 1 << 20)),
                    node_end: true,
                    client_end: true,
                });
                self.session(|session, now, out| session.connected(now, connection, out));
            }
            Effect::Disconnect { connection } => {
                for wire in self.wires.iter_mut().filter(|wire| wire.connection == connection) {
                    wire.client_end = false;
                }
            }
            Effect::Send { connection, message } => {
                let wire =
                    self.wires.iter_mut().find(|wire| wire.connection == connection).expect("an open connection");
                wire.to_node.extend(message.message);
            }
            Effect::Done { operation, result } => self.done(operation, result),
            Effect::Versioned { registration, version } => {
                for model in self.models.values_mut().filter(|model| model.registration == registration) {
                    model.version.clone_from(&version);
                }
            }
            Effect::Ended { registration, error } => {
                assert!(matches!(error.code, ErrorCode::TakenOver), "{error}");
                self.models.retain(|_, model| model.registration != registration);
            }
            Effect::State(_) => {}
            Effect::Closed { .. } => panic!("the session was not closed"),
        }
    }

    fn done(&mut self, operation: OperationId, result: Result<String, Error>) {
        let (member, what) = self.pending.remove(&operation).expect("each operation is answered once");
        match (what, result) {
            (What::Bad, result) => {
                let code = result.expect_err("a bad member").code;
                assert!(matches!(code, ErrorCode::InvalidMember | ErrorCode::OutcomeUnknown), "{code}");
            }
            (What::Register(registration), Ok(version)) => {
                if let Some(model) = self.models.get_mut(&member).filter(|m| m.registration == registration) {
                    model.held = true;
                    model.version = version;
                }
            }
            (What::Register(registration), Err(error)) => {
                let expected =
                    [ErrorCode::AlreadyRegistered, ErrorCode::Timeout, ErrorCode::OutcomeUnknown, ErrorCode::TakenOver];
                assert!(expected.contains(&error.code), "{error}");
                self.models.retain(|_, model| model.registration != registration);
            }
            (What::Update, Ok(version)) => {
                if let Some(model) = self.models.get_mut(&member) {
                    model.version = version;
                }
            }
            (What::Update, Err(error)) => {
                let expected = [
                    ErrorCode::StaleVersion,
                    ErrorCode::OutcomeUnknown,
                    ErrorCode::InvalidMember,
                    ErrorCode::TakenOver,
                    ErrorCode::AlreadyRegistered,
                    ErrorCode::NotRegistered,
                    ErrorCode::PermissionDenied,
                ];
                assert!(expected.contains(&error.code), "{error}");
                for model in self.models.values_mut() {
                    model.updates.retain(|(update, _)| *update != operation);
                }
            }
            (What::Unregister, result) => assert_eq!(result, Ok(String::new())),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { member, takeover, deadline } => self.register(member, takeover, deadline),
            Step::RegisterBad => {
                let spec = MemberSpec::new("bad", "s\u{1}");
                if let Ok((operation, _)) = self.session.register(spec, false, None) {
                    self.pending.insert(operation, (usize::MAX, What::Bad));
                }
                self.session(|_, _, _| {});
            }
            Step::Update { member, key, conditional } => {
                self.value += 1;
                let mut update = Update::merge().set(format!("k{key}"), self.value.to_string());
                if key == 2 {
                    update = update.delete("k0");
                }
                if conditional && let Some(model) = self.models.get(&member) {
                    update = update.if_version(model.version.clone());
                }
                self.update(member, update);
            }
            Step::UpdateBad { member } => self.update(member, Update::merge().set("large", "x".repeat(5000))),
            Step::Unregister { member } => {
                let Some(model) = self.models.get(&member).filter(|model| model.held).cloned() else { return };
                self.models.remove(&member);
                let mut out = Vec::new();
                let asked = self.session.unregister(&name(member), model.registration, None, &mut out);
                self.pending.insert(asked.expect("the member is registered"), (member, What::Unregister));
                out.into_iter().for_each(|effect| self.perform(effect));
                self.session(|_, _, _| {});
            }
            Step::Cancel => {
                let Some((&operation, &(_, what))) = self.pending.last_key_value() else { return };
                self.pending.remove(&operation);
                let mut out = Vec::new();
                let fate = self.session.cancel(operation, &mut out);
                match what {
                    What::Register(registration) => self.models.retain(|_, model| model.registration != registration),
                    What::Update if fate == convoke_session::session::NotSent::TakenBack => {
                        for model in self.models.values_mut() {
                            model.updates.retain(|(update, _)| *update != operation);
                        }
                    }
                    // Its outcome stays unknown.
                    What::Update => self.forget_updates_of(operation),
                    What::Bad | What::Unregister => {}
                }
                out.into_iter().for_each(|effect| self.perform(effect));
                self.session(|_, _, _| {});
            }
            Step::ToNode { older, count } => {
                if let Some(index) = self.wires.len().checked_sub(older + 1) {
                    (0..count).for_each(|_| self.arrive_at_node(index));
                }
            }
            Step::ToClient { older, count } => {
                if let Some(index) = self.wires.len().checked_sub(older + 1) {
                    (0..count).for_each(|_| self.arrive_at_client(index));
                }
            }
            Step::Lose => {
                let Some(wire) = self.wires.last() else { return };
                let connection = wire.connection;
                let reason = Error::new(ErrorCode::NotReady, "reset");
                self.session(|session, now, out| session.disconnected(now, connection, &reason, out));
            }
            Step::NodeLoses { older } => {
                if let Some(index) = self.wires.len().checked_sub(older + 1) {
                    self.node_loses(index);
                }
            }
            Step::Pass { millis } => self.pass(Duration::from_millis(millis)),
            Step::Rival { member, takeover } => self.rival(member, takeover),
            Step::RivalLeaves => {
                if let Some((node, session)) = self.rivals.pop() {
                    let _ = self.cluster.with(node, |node, now, out| node.close_session(now, session, out));
                }
            }
            Step::Handover => {
                let Some(wire) = self.wires.last_mut() else { return };
                let target = v1::notice::Handover { node: String::new(), address: client_address(1 - wire.node) };
                let notice = Some(v1::notice::Notice::Handover(target));
                wire.to_client.push_back(FromNode::Notice(v1::Notice { notice }));
            }
            Step::Split { apart: true } => drop(self.cluster.cut.insert((0, 1))),
            Step::Split { apart: false } => self.cluster.cut.clear(),
        }
    }

    fn register(&mut self, member: usize, takeover: bool, deadline: bool) {
        if self.models.contains_key(&member) {
            return;
        }
        let spec = MemberSpec::new(name(member), "s").metadata("k0", "initial");
        let deadline = deadline.then(|| time(self.cluster.now) + Duration::from_secs(2));
        let asked = self.session.register(spec, takeover, deadline);
        let (operation, registration) = asked.expect("the model has no registration");
        self.pending.insert(operation, (member, What::Register(registration)));
        let initial = (operation, Update::replace().set("k0", "initial"));
        let model =
            Model { registration, held: false, updates: vec![initial], uncertain: false, version: String::new() };
        self.models.insert(member, model);
        self.session(|_, _, _| {});
    }

    fn update(&mut self, member: usize, update: Update) {
        let Some(model) = self.models.get_mut(&member).filter(|model| model.held) else { return };
        let asked = self.session.update(&name(member), model.registration, update.clone(), None);
        let operation = asked.expect("the member is registered");
        model.updates.push((operation, update));
        self.pending.insert(operation, (member, What::Update));
        self.session(|_, _, _| {});
    }

    fn forget_updates_of(&mut self, operation: OperationId) {
        for model in self.models.values_mut() {
            if model.updates.iter().any(|(update, _)| *update == operation) {
                model.uncertain = true;
            }
        }
    }

    fn rival(&mut self, member: usize, takeover: bool) {
        let mut spec = member::MemberSpec::new(name(member), "s");
        spec.metadata.insert("rival".into(), "yes".into());
        self.rival_claim += 1000;
        self.contested.insert(member);
        let request = Attach {
            client: format!("rival-{}", self.rivals.len()),
            nonce: 5,
            claim: self.rival_claim,
            members: vec![AttachMember { spec, takeover }],
            ..Attach::default()
        };
        let node = self.rival_claim as usize / 1000 % 2;
        let conn = ConnId(1_000_000 + self.rival_claim);
        let attached = self.cluster.with(node, |node, now, out| node.attach(now, conn, &request, out));
        if let Ok(attached) = attached {
            self.rivals.push((node, attached.session));
        }
        self.spread();
    }

    /// Moves the nodes' outputs to their connections.
    fn spread(&mut self) {
        for output in std::mem::take(&mut self.cluster.outputs) {
            match output {
                NodeOutput::Notice { conn, notice } => {
                    if let Some(wire) = self.wires.iter_mut().find(|wire| wire.connection.0 == conn.0) {
                        wire.to_client.push_back(FromNode::Notice(convoke_convert::notice(notice)));
                    }
                }
                NodeOutput::Close { conn } => {
                    if let Some(index) = self.wires.iter().position(|wire| wire.connection.0 == conn.0) {
                        self.node_loses(index);
                    }
                }
                NodeOutput::CloseAll { node } => {
                    let of = |index: &usize| self.wires[*index].node == node;
                    let indices: Vec<usize> = (0..self.wires.len()).filter(of).collect();
                    indices.into_iter().for_each(|index| self.node_loses(index));
                }
            }
        }
    }

    fn node_loses(&mut self, index: usize) {
        let wire = &mut self.wires[index];
        if !wire.node_end {
            return;
        }
        wire.node_end = false;
        wire.to_node.clear();
        let (node, conn, connection) = (wire.node, ConnId(wire.connection.0), wire.connection);
        self.cluster.with(node, |node, now, out| node.disconnected(now, conn, out));
        self.spread();
        let reason = Error::new(ErrorCode::NotReady, "closed by the node");
        self.session(|session, now, out| session.disconnected(now, connection, &reason, out));
    }

    fn arrive_at_node(&mut self, index: usize) {
        let wire = &mut self.wires[index];
        let Some(message) = wire.to_node.pop_front().filter(|_| wire.node_end) else { return };
        let (node, conn) = (wire.node, ConnId(wire.connection.0));
        let mut calls = Calls::default();
        let message = v1::ClientMessage { message: Some(message) };
        wire.attach.message(message, &mut calls).expect("the SDK follows the protocol");
        let (heartbeats, results, replicated) = self.cluster.with(node, |node, now, out| {
            let heartbeat = |call: &HeartbeatCall| (call.sent, node.heartbeat(now, call.session, out));
            let heartbeats: Vec<_> = calls.heartbeats.iter().map(heartbeat).collect();
            let execute = |operation| node.execute(now, conn, operation, out);
            (heartbeats, calls.operations.iter().map(execute).collect(), node.replicated())
        });
        let wire = &mut self.wires[index];
        for (sent, result) in heartbeats {
            wire.attach.heartbeat_answered(sent, result, 0, replicated);
        }
        wire.attach.answered(results);
        wire.to_client.extend(std::iter::from_fn(|| wire.attach.next_message()));
        self.spread();
    }

    fn arrive_at_client(&mut self, index: usize) {
        let wire = &mut self.wires[index];
        let Some(message) = wire.to_client.pop_front() else { return };
        let connection = wire.connection;
        let message = v1::ServerMessage { message: Some(message) };
        self.session(|session, now, out| session.received(now, connection, message, out));
    }

    /// Advances the time of nodes and client.
    fn pass(&mut self, duration: Duration) {
        let end = self.cluster.now + duration;
        while self.cluster.now < end {
            let wake = self.session.next_wake().expect("never closed");
            let wake = NodeTime::from_micros(wake.as_micros() as u64 + 1).max(self.cluster.now);
            let pause = if self.healed { self.cluster.now + Duration::from_millis(250) } else { end };
            self.cluster.run_until(end.min(wake).min(pause));
            self.spread();
            self.session(Session::wake);
            if self.healed {
                self.deliver();
            }
        }
    }

    /// Delivers all messages in flight, also on old connections.
    fn deliver(&mut self) {
        for index in 0..self.wires.len() {
            while !self.wires[index].to_node.is_empty() && self.wires[index].node_end {
                self.arrive_at_node(index);
            }
            while !self.wires[index].to_client.is_empty() {
                self.arrive_at_client(index);
            }
            if !self.wires[index].client_end {
                self.node_loses(index);
            }
        }
    }

    /// Lets everything work for long enough; then all views must agree.
    fn heal_and_check(&mut self) {
        self.healed = true;
        self.cluster.cut.clear();
        for _ in 0..10 {
            self.pass(Duration::from_secs(30));
            if self.pending.is_empty() {
                break;
            }
        }
        self.pass(Duration::from_secs(60));
        let shown = |world: &World, member: usize| {
            world.cluster.nodes.iter().any(|node| node.member(&name(member)).is_some_and(|m| m.client() == "shop"))
        };
        if self.contested.iter().any(|member| !self.models.contains_key(member) && shown(self, *member)) {
            // A late attach was executed after this client had lost the member to a competing client. That member has
            // no live client.
            self.pass(Duration::from_secs(400));
        }
        assert!(self.pending.is_empty(), "not answered: {:?}\n{:#?}", self.pending, self.session);
        for member in 0..MEMBERS {
            let id = name(member);
            for index in 0..2 {
                let shown = self.cluster.nodes[index].member(&id).filter(|shown| shown.client() == "shop");
                match (self.models.get(&member).filter(|model| model.held), shown) {
                    (Some(model), Some(shown)) => {
                        assert_eq!(shown.status(), member::Status::Up, "{id} at node {index}");
                        let mut metadata = BTreeMap::new();
                        model.updates.iter().for_each(|(_, update)| update.apply(&mut metadata));
                        if !model.uncertain {
                            assert_eq!(shown.metadata().to_map(), metadata, "{id} at node {index}");
                        }
                        // Its node may have claimed it again, above the tombstone of another client's earlier
                        // registration (C4).
                        let acknowledged: convoke_core::version::Version =
                            model.version.parse().expect("the node's own format");
                        if shown.version().claim <= acknowledged.claim {
                            assert_eq!(shown.version(), acknowledged, "{id} at node {index}");
                        }
                    }
                    (None, None) => {}
                    (Some(_), None) => panic!("{id} is registered, but node {index} does not have it"),
                    (None, Some(shown)) => panic!("no client wants {id}, but node {index} shows {shown:?}"),
                }
            }
        }
    }
}

fn time(now: NodeTime) -> Duration {
    Duration::from_micros(now.as_micros())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_registry_shows_what_the_application_was_told(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(seed);
        for step in &steps {
            world.step(step);
        }
        world.heal_and_check();
    }
}
