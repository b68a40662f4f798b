//! A watch state that follows real nodes through broken streams, other nodes, lagging nodes and slow reading.

use crate::cluster::Cluster;
use convoke_core::filter::Filter;
use convoke_core::member::{MemberSpec, MetadataUpdate, Space};
use convoke_core::node::{Attach, AttachMember, ConnId, SessionId, WatchSelection, WatcherId};
use convoke_session::watch_state::{Next, WatchState};
use convoke_session::{Event, Member};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MEMBERS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Register { node: usize, member: usize, service: usize },
    Update { node: usize, member: usize },
    Unregister { node: usize, member: usize },
    Heartbeat,
    Pass { millis: u64 },
    Split { apart: bool },
    Read { batch: usize },
    Lose,
    Connect { node: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..2usize;
    let member = || 0..MEMBERS;
    prop_oneof![
        3 => (node(), member(), 0..2usize).prop_map(|(node, member, service)| Step::Register { node, member, service }),
        4 => (node(), member()).prop_map(|(node, member)| Step::Update { node, member }),
        2 => (node(), member()).prop_map(|(node, member)| Step::Unregister { node, member }),
        2 => Just(Step::Heartbeat),
        4 => prop_oneof![3 => 1..100u64, 2 => 100..8_000u64, 1 => 8_000..60_000u64, 1 => 60_000..2_500_000u64]
            .prop_map(|millis| Step::Pass { millis }),
        1 => any::<bool>().prop_map(|apart| Step::Split { apart }),
        6 => (2..8usize).prop_map(|batch| Step::Read { batch }),
        2 => Just(Step::Lose),
        4 => node().prop_map(|node| Step::Connect { node }),
    ]
}

/// Folds events as an application would, and checks that they are consistent.
#[derive(Default)]
struct Application {
    view: BTreeMap<String, Arc<Member>>,
    caught_up: bool,
}

impl Application {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Snapshot(member) | Event::Registered(member) => {
                assert_eq!(matches!(event, Event::Snapshot(_)), !self.caught_up, "{event:?}");
                assert!(self.view.insert(member.id.clone(), member.clone()).is_none(), "delivered twice: {event:?}");
            }
            Event::Updated(member) | Event::StatusChanged(member) | Event::OwnerChanged(member) => {
                let before = self.view.insert(member.id.clone(), member.clone());
                assert_ne!(before.expect("known before").version, member.version, "delivered twice: {event:?}");
            }
            Event::Unregistered { member, .. } => {
                assert_eq!(self.view.remove(&member.id).as_ref(), Some(member));
            }
            Event::CaughtUp => {
                assert!(!self.caught_up);
                self.caught_up = true;
            }
            Event::Reset(_) => *self = Application::default(),
        }
    }
}

struct World {
    cluster: Cluster,
    writers: Vec<(SessionId, u64)>,
    state: WatchState,
    application: Application,
    stream: Option<(usize, WatcherId)>,
    value: u64,
    claim: u64,
}

impl World {
    fn new() -> World {
        let mut world = World {
            cluster: Cluster::new(2),
            writers: Vec::new(),
            state: WatchState::default(),
            application: Application::default(),
            stream: None,
            value: 0,
            claim: 0,
        };
        for node in 0..2 {
            let session = world.attach(node);
            world.writers.push((session, 0));
        }
        world
    }

    fn attach(&mut self, node: usize) -> SessionId {
        self.claim += 1;
        let (conn, client) = (ConnId(self.claim), format!("writer-{node}"));
        let request = Attach { client, nonce: 1, claim: self.claim, ..Attach::default() };
        let attached = self.cluster.with(node, |n, now, out| n.attach(now, conn, &request, out));
        attached.expect("each attach raises the claim").session
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { node, member, service } => {
                let mut spec = MemberSpec::new(format!("m{member}"), format!("s{service}"));
                spec.metadata.insert("v".into(), self.value.to_string());
                self.value += 1;
                let member = AttachMember { spec, takeover: true };
                let (session, seq) = self.next(node);
                let result =
                    self.cluster.with(node, |n, now, out| n.register(now, session, seq, &member, out).map(|_| ()));
                self.attach_again_if_stale(node, result);
            }
            Step::Update { node, member } => {
                self.value += 1;
                let update = MetadataUpdate::set("v", self.value.to_string());
                let (session, seq) = self.next(node);
                let id = format!("m{member}");
                let result = self
                    .cluster
                    .with(node, |n, now, out| n.update(now, session, seq, &id, &update, None, out).map(|_| ()));
                self.attach_again_if_stale(node, result);
            }
            Step::Unregister { node, member } => {
                let (session, seq) = self.next(node);
                let id = format!("m{member}");
                let result = self.cluster.with(node, |n, now, out| n.unregister(now, session, seq, &id, out));
                self.attach_again_if_stale(node, result);
            }
            Step::Heartbeat => {
                for node in 0..2 {
                    let session = self.writers[node].0;
                    let _ = self.cluster.with(node, |n, now, out| n.heartbeat(now, session, out));
                }
            }
            Step::Pass { millis } => self.cluster.run_for(Duration::from_millis(millis)),
            Step::Split { apart: true } => drop(self.cluster.cut.insert((0, 1))),
            Step::Split { apart: false } => self.cluster.cut.clear(),
            Step::Read { batch } => drop(self.read(batch)),
            Step::Lose => self.lose(),
            Step::Connect { node } => self.connect(node),
        }
    }

    fn next(&mut self, node: usize) -> (SessionId, u64) {
        self.writers[node].1 += 1;
        (self.writers[node].0, self.writers[node].1)
    }

    /// Handles a rejection: a writer whose session or claim is too old attaches again.
    fn attach_again_if_stale(&mut self, node: usize, result: Result<(), convoke_core::Rejection>) {
        if let Err(rejection) = result
            && matches!(rejection.code, convoke_core::ErrorCode::SessionGone | convoke_core::ErrorCode::StaleClaim)
        {
            self.claim = self.claim.max(rejection.known.unwrap_or(0));
            self.writers[node].0 = self.attach(node);
        }
    }

    fn lose(&mut self) {
        if let Some((node, watcher)) = self.stream.take() {
            self.cluster.nodes[node].unwatch(watcher);
        }
    }

    fn connect(&mut self, node: usize) {
        self.lose();
        let mut delivered = Vec::new();
        let resume = convoke_convert::resume(self.state.resume(&mut delivered)).expect("versions come from nodes");
        delivered.iter().for_each(|event| self.application.take(event));
        let filter = Filter::service("s0");
        let interest = WatchSelection::new(Space::Member, filter);
        let watched = self.cluster.with(node, |n, now, out| n.watch(now, interest, resume, out));
        self.stream = Some((node, watched.expect("there is room")));
    }

    /// Reads once; returns whether there was anything.
    fn read(&mut self, batch: usize) -> bool {
        let Some((node, watcher)) = self.stream else { return false };
        let (mut events, mut delivered, mut again) = (Vec::new(), Vec::new(), false);
        let more = self.cluster.nodes[node].take(self.cluster.now, watcher, batch, &mut events);
        for event in events {
            if self.state.apply(convoke_convert::event(event), &mut delivered) == Next::Resume {
                again = true;
                break;
            }
        }
        delivered.iter().for_each(|event| self.application.take(event));
        if again {
            self.connect(node);
        }
        more || again
    }

    fn heal_and_check(&mut self) {
        self.cluster.cut.clear();
        if self.stream.is_none() {
            self.connect(0);
        }
        for _ in 0..60 {
            self.step(&Step::Heartbeat);
            self.cluster.run_for(Duration::from_secs(1));
            while self.read(64) {}
        }
        assert!(self.application.caught_up);
        let (node, _) = self.stream.expect("connected");
        let (shown, _) = self.cluster.nodes[node].members(&Filter::service("s0"), None, 1000);
        let shown: BTreeMap<String, String> =
            shown.iter().map(|member| (member.id().to_owned(), member.version().to_string())).collect();
        let versions = |members: &BTreeMap<String, Arc<Member>>| -> BTreeMap<String, String> {
            members.iter().map(|(id, member)| (id.clone(), member.version.clone())).collect()
        };
        assert_eq!(versions(self.state.members()), shown);
        assert_eq!(versions(&self.application.view), shown);
    }
}

/// `PROPTEST_CASES` for a long search.
#[allow(clippy::disallowed_methods, reason = "the caller of the test chooses the number of cases")]
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_application_sees_what_the_registry_shows(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.heal_and_check();
    }
}
