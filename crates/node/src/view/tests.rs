//! The view shows the same members as the core after every change, also to concurrent readers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use super::*;
use crate::changes::Changes;
use convoke_core::member::{MemberSpec, MetadataUpdate, Status};
use convoke_core::node::{Attach, AttachMember, ConnId, SessionId, Start};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A core and the view that is published for it.
struct World {
    core: Node,
    out: Output,
    now: Time,
    view: Arc<View>,
    publisher: Publisher,
    changes: Changes,
    seq: u64,
}

impl World {
    fn new() -> Self {
        let config = Config::new(NodeId::new("a").unwrap());
        let start = Start { nonce: 1, publish: true, ..Start::default() };
        let core = Node::new(config, start, Time::ZERO).unwrap();
        let view = Arc::new(View::new(7));
        let publisher = Publisher::new(view.clone(), 7);
        let mut world =
            World { core, out: Output::default(), now: Time::ZERO, view, publisher, changes: Changes::new(4), seq: 0 };
        world.core.begin(Time::ZERO, &mut world.out);
        world.publish();
        world
    }

    fn publish(&mut self) {
        self.publisher.publish(&mut self.out.changes, Some(&self.changes));
        self.out.effects.clear();
        self.out.events.clear();
    }

    fn attach(&mut self, client: usize, claim: u64) -> SessionId {
        let attach = Attach { client: format!("c{client}"), nonce: 1, claim, ..Attach::default() };
        self.core.attach(self.now, ConnId(client as u64), &attach, &mut self.out).unwrap().session
    }

    fn register(&mut self, session: SessionId, id: &str, service: &str) {
        self.seq += 1;
        let member = AttachMember { spec: MemberSpec::new(id, service), takeover: true };
        let _ = self.core.register(self.now, session, self.seq, &member, &mut self.out);
    }

    /// Compares every read of the view with the core.
    fn compare(&self) {
        let (mut members, _) = self.core.members(&Filter::all(), None, usize::MAX);
        members.sort_by(|a, b| (a.service(), a.id()).cmp(&(b.service(), b.id())));
        for limit in [1, 3, 1000] {
            assert_eq!(list(&self.view, &Filter::all(), limit), members);
        }
        assert_eq!(self.view.services(0.5), self.core.services());
        for service in self.core.services() {
            let filter = Filter::service(&service.service);
            let expected: Vec<Member> = members.iter().filter(|m| m.service() == service.service).cloned().collect();
            assert_eq!(list(&self.view, &filter, 2), expected);
        }
        for member in &members {
            assert_eq!(self.view.member(member.id()).as_ref(), Some(member));
        }
        for name in self.core.names() {
            assert_eq!(self.view.name(name.id()), self.core.name(name.id()));
        }
        assert_eq!(self.view.names.len(), self.core.names().count());
        assert_eq!(self.view.members.len(), members.len());
    }
}

fn list(view: &View, filter: &Filter, limit: usize) -> Vec<Member> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = view.list(filter, cursor.as_deref(), limit).unwrap();
        assert!(page.members.len() <= limit);
        found.extend(page.members);
        let Some(next) = page.next else { return found };
        cursor = Some(next);
    }
}

#[test]
fn the_view_equals_the_core() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let mut sessions: Vec<(SessionId, u64)> = (0..4).map(|client| (world.attach(client, 1), 1)).collect();
        for _ in 0..300 {
            // Several changes may be published together.
            for _ in 0..random.usize(1..4) {
                step(&mut world, &mut sessions, &mut random);
            }
            world.publish();
            world.compare();
        }
    }
}

fn step(world: &mut World, sessions: &mut [(SessionId, u64)], random: &mut fastrand::Rng) {
    let client = random.usize(..sessions.len());
    let session = sessions[client].0;
    let id = format!("m{}", random.u8(..12));
    world.seq += 1;
    let (now, seq) = (world.now, world.seq);
    match random.u8(..16) {
        0..6 => world.register(session, &id, ["s", "t", "u"][random.usize(..3)]),
        6..8 => drop(world.core.unregister(now, session, seq, &id, &mut world.out)),
        8..10 => {
            let update = MetadataUpdate::set("k", random.u8(..).to_string());
            drop(world.core.update(now, session, seq, &id, &update, None, &mut world.out));
        }
        10..12 => drop(world.core.drain(now, &id, random.bool(), &mut world.out)),
        12 => drop(world.core.register_name(now, &id, "here", &mut world.out)),
        13 => drop(world.core.unregister_name(now, &id, &mut world.out)),
        14 => {
            sessions[client].1 += 1;
            sessions[client].0 = world.attach(client, 1_000 * sessions[client].1);
        }
        // Time passes: sessions become silent, then down, then expire.
        _ => {
            let until = now + Duration::from_secs(random.u64(1..40));
            while world.core.next_wake() <= until {
                world.now = world.core.next_wake();
                world.core.wake(world.now, &mut world.out);
            }
            world.now = until;
        }
    }
}

#[test]
fn readers_see_complete_members_in_order_during_changes() {
    let mut world = World::new();
    let session = world.attach(0, 1);
    for index in 0..500 {
        world.register(session, &format!("m{index:03}"), if index % 2 == 0 { "even" } else { "odd" });
    }
    world.publish();
    let (view, done) = (world.view.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds < 10 {
                let members = list(&view, &Filter::all(), 50);
                let ordered = members.is_sorted_by(|a, b| (a.service(), a.id()) < (b.service(), b.id()));
                assert!(ordered, "out of order");
                // Unchanged members are always there, exactly once.
                assert_eq!(members.iter().filter(|member| member.id().ends_with('0')).count(), 50);
                assert!(members.iter().all(|member| member.status() == Status::Up));
                rounds += 1;
            }
        });
        for round in 0..2_000_usize {
            let id = format!("m{:03}", (round * 7) % 500);
            if !id.ends_with('0') {
                world.seq += 1;
                let (now, seq) = (world.now, world.seq);
                if round % 3 == 0 {
                    let _ = world.core.unregister(now, session, seq, &id, &mut world.out);
                } else {
                    let service = if round % 2 == 0 { "even" } else { "odd" };
                    world.register(session, &id, service);
                }
                world.publish();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    world.compare();
}

#[test]
fn a_page_ends_after_the_examination_limit_and_the_next_one_continues() {
    let mut world = World::new();
    let session = world.attach(0, 1);
    for index in 0..EXAMINED_MAX + 10 {
        world.register(session, &format!("m{index:06}"), "s");
    }
    world.publish();
    let filter = Filter::parse("id == 'm065540'").unwrap();
    let page = world.view.list(&filter, None, 10).unwrap();
    assert_eq!(page.members, []);
    let page = world.view.list(&filter, page.next.as_deref(), 10).unwrap();
    assert_eq!((page.members.len(), page.next), (1, None));
}

/// Returns kind and id of the kept changes above this sequence.
fn kept(changes: &Changes, after: u64) -> Vec<String> {
    let changes = changes.after(after);
    changes
        .iter()
        .map(|change| format!("{} {} {}", change.sequence, change.kind.as_str(), change.member.id()))
        .collect()
}

#[test]
fn the_last_changes_of_members_are_kept() {
    let mut world = World::new();
    let mut receiver = world.changes.listen();
    let before = *receiver.borrow_and_update();
    let session = world.attach(0, 1);
    let now = world.now;
    world.core.register_name(now, "name", "here", &mut world.out).unwrap();
    world.register(session, "a", "s");
    world.register(session, "b", "s");
    world.publish();
    world.core.drain(now, "a", true, &mut world.out).unwrap();
    world.publish();
    world.seq += 1;
    world.core.unregister(now, session, world.seq, "b", &mut world.out).unwrap();
    world.publish();
    let all = ["register a", "register b", "update a", "unregister b"];
    let all: Vec<String> = (before + 1..).zip(all).map(|(sequence, what)| format!("{sequence} {what}")).collect();
    assert_eq!(kept(&world.changes, before), all);
    assert_eq!(world.changes.after(before)[3].member.service(), "s", "the last state");
    assert_eq!(kept(&world.changes, before + 3), all[3..]);
    assert!(receiver.has_changed().unwrap());
    assert_eq!(*receiver.borrow_and_update(), before + 4);
    world.publish();
    assert!(!receiver.has_changed().unwrap(), "nothing happened");
    // More changes at once than are kept: the last ones keep their sequence numbers.
    for index in 0..6 {
        world.register(session, &format!("c{index}"), "s");
    }
    world.publish();
    let last: Vec<String> = (before + 7..).zip(2..6).map(|(n, index)| format!("{n} register c{index}")).collect();
    assert_eq!(kept(&world.changes, 0), last);
}

#[test]
fn large_changes_displace_earlier_ones() {
    let mut world = World { changes: Changes::new(10_000), ..World::new() };
    let session = world.attach(0, 1);
    let now = world.now;
    let mut member = AttachMember { spec: MemberSpec::new("a", "s"), takeover: false };
    let value = "v".repeat(2_000);
    member.spec.metadata.extend((0..7).map(|key| (key.to_string(), value.clone())));
    for seq in 1..=700 {
        member.spec.metadata.insert("seq".to_owned(), seq.to_string());
        world.core.register(now, session, seq, &member, &mut world.out).unwrap();
        world.publish();
    }
    let kept = world.changes.after(0);
    let bytes: usize = kept.iter().map(|change| change.member.metadata().packed_len()).sum();
    assert!(
        kept.len() < 700 && bytes <= 8 * 1024 * 1024 && bytes > 7 * 1024 * 1024,
        "{} with {bytes} bytes",
        kept.len()
    );
    assert_eq!(kept.last().map(|change| change.sequence), Some(*world.changes.listen().borrow()));
}
