//! Abandoning at every point, and what is sent afterwards.

use super::super::{Barrier, StillWanted};
use super::world::World;
use crate::ErrorCode;
use crate::log::Options;
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::submit_request::Message as SubmitMessage;
use std::time::Duration;

/// Steps of a run with three calls; the link fails with everything in flight, and another leader takes over.
const STEPS: usize = 26;

fn step(world: &mut World, lane: u64, at: usize) {
    match at {
        0 => world.link_up(),
        1 => drop(world.issue(lane, "k1").unwrap()),
        2 | 3 => drop(world.arrive() | world.deliver_answer()),
        4 => drop(world.issue(lane, "k2").unwrap()),
        5 => drop(world.issue(lane, "k3").unwrap()),
        6 => drop(world.arrive()),
        7 => drop(world.arrive()),
        8 => drop(world.deliver_answer()),
        9 => world.link_down(),
        10 => world.elect(),
        11 => world.link_up(),
        _ if at.is_multiple_of(2) => drop(world.arrive()),
        _ => drop(world.deliver_answer()),
    }
}

/// The step in which a call is issued.
fn issued(call: u64) -> usize {
    match call {
        1 => 1,
        2 => 4,
        _ => 5,
    }
}

#[test]
fn ls3_remaining_calls_take_effect_in_order_after_any_abandon() {
    for abandoned in 1..=3_u64 {
        for when in 0..STEPS {
            for late in [false, true] {
                let mut world = World::new(7);
                let lane = world.lane(Options::default());
                let mut never_left = false;
                for at in 0..STEPS {
                    step(&mut world, lane, at);
                    if at == when {
                        let answered = world.done.contains_key(&(lane, abandoned));
                        let has_left = world.abandon((lane, abandoned)).is_some();
                        never_left = at >= issued(abandoned) && !answered && !has_left;
                    }
                }
                world.settle();
                if late {
                    // Every copy arrives once more, the oldest one last.
                    for at in (0..world.copies.len()).rev() {
                        world.arrive_late(at);
                    }
                }
                let session = world.core.session(lane).unwrap();
                let place = format!("call {abandoned} abandoned after step {when}");
                let indexes: Vec<Option<u64>> = (1..=3).map(|number| world.index(session, number)).collect();
                let index = indexes[usize::try_from(abandoned).unwrap() - 1].filter(|_| never_left);
                assert_eq!(index, None, "{place}: the core reported that no copy was sent");
                for number in 1..=3 {
                    let answered = world.done.get(&(lane, number));
                    if number == abandoned && answered.is_none() {
                        continue;
                    }
                    assert!(answered.is_some_and(Result::is_ok), "{place}: {answered:?}");
                    assert_eq!(world.puts(&format!("k{number}")), 1, "{place}");
                }
                let applied: Vec<u64> = indexes.into_iter().flatten().collect();
                assert!(applied.is_sorted(), "{place}: {applied:?}");
            }
        }
    }
}

#[test]
fn a_call_that_was_never_sent_has_no_effect_when_abandoned() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    let first = world.issue(lane, "a").unwrap();
    assert_eq!(world.abandon(first), None);
    let second = world.issue(lane, "b").unwrap();
    world.settle();
    assert_eq!((world.puts("a"), world.puts("b")), (0, 1));
    assert!(world.done[&second].as_ref().is_ok_and(|decided| decided.abandoned.is_none()));
}

#[test]
fn the_next_answer_carries_the_fate_of_abandoned_calls() {
    for arrived in [false, true] {
        let mut world = World::new(1);
        let lane = world.lane(Options::default());
        let before = world.issue(lane, "x").unwrap();
        world.settle();
        assert!(world.done[&before].is_ok());
        let first = world.issue(lane, "a").unwrap();
        if arrived {
            world.arrive();
        }
        let abandoned = world.abandon(first).unwrap();
        world.link_down();
        let second = world.issue(lane, "b").unwrap();
        world.settle();
        let decided = world.done[&second].as_ref().unwrap();
        let (request, fate) = decided.abandoned.as_ref().unwrap();
        assert_eq!((*request, request.number), (abandoned, first.1));
        assert_eq!(fate.kind(), if arrived { Kind::Applied } else { Kind::Never });
        assert_eq!(world.puts("a"), u64::from(arrived));
    }
}

#[test]
fn abandoned_calls_are_not_sent_again() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    let first = world.issue(lane, "a").unwrap();
    world.settle_open();
    world.link_down();
    world.abandon(first);
    let sent = world.copies.len();
    world.link_up();
    let again = world.copies[sent..].iter().any(|copy| matches!(copy.message, Some(SubmitMessage::Request(_))));
    assert!(!again);
}

#[test]
fn a_timeout_is_reported_as_not_sent_or_unknown() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().timeout(Duration::from_secs(1)));
    let unsent = world.issue(lane, "a").unwrap();
    world.tick(Duration::from_secs(2));
    let error = world.done[&unsent].as_ref().unwrap_err();
    assert_eq!((error.code, error.about()), (ErrorCode::Timeout, None));

    let sent = world.issue(lane, "b").unwrap();
    world.settle_open();
    world.tick(Duration::from_secs(2));
    let error = world.done[&sent].as_ref().unwrap_err();
    assert_eq!(error.code, ErrorCode::OutcomeUnknown);
    assert_eq!(error.about().map(|request| request.number), Some(sent.1));

    // Rejected by the leader: that copy did nothing, but the network may have duplicated it.
    world.busy = usize::MAX;
    let rejected = world.issue(lane, "c").unwrap();
    while world.arrive() | world.deliver_answer() {}
    world.busy = 0;
    world.link_down();
    world.tick(Duration::from_secs(2));
    assert_eq!(world.done[&rejected].as_ref().unwrap_err().code, ErrorCode::OutcomeUnknown);
    world.settle();
    assert_eq!(world.puts("c"), 0);
}

#[test]
fn one_at_a_time_the_next_call_abandons_the_one_before() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default().one_at_a_time());
    let unsent = world.issue(lane, "a").unwrap();
    let first = world.issue(lane, "b").unwrap();
    assert_eq!(world.done[&unsent].as_ref().unwrap_err().code, ErrorCode::Superseded);
    world.settle();
    assert!(world.done[&first].is_ok());

    // Sent and then superseded: its own answer or that of the next call carries the fate.
    let (second, third) = (world.issue(lane, "c").unwrap(), world.issue(lane, "d").unwrap());
    world.settle();
    assert!(world.done[&second].is_ok() && world.done[&third].is_ok());

    // Superseded with its answer lost.
    let fourth = world.issue(lane, "e").unwrap();
    world.arrive();
    world.link_down();
    let fifth = world.issue(lane, "f").unwrap();
    world.settle();
    assert!(world.done[&fourth].is_ok(), "{:?}", world.done[&fourth]);
    assert!(world.done[&fifth].is_ok());

    // Superseded before it arrived: never.
    let sixth = world.issue(lane, "g").unwrap();
    world.link_down();
    let seventh = world.issue(lane, "h").unwrap();
    world.settle();
    assert_eq!(world.done[&sixth].as_ref().unwrap_err().code, ErrorCode::Superseded);
    assert!(world.done[&seventh].is_ok());
    assert_eq!(world.puts("g"), 0);
}

#[test]
fn a_barrier_covers_abandoned_calls_and_waits_for_earlier_wanted_ones() {
    let mut world = World::new(1);
    let lane = world.lane(Options::default());
    let first = world.issue(lane, "a").unwrap();
    world.settle();
    assert_eq!(world.core.barrier(lane), Ok(None), "nothing was abandoned");
    let (second, third) = (world.issue(lane, "b").unwrap(), world.issue(lane, "c").unwrap());
    world.abandon(third);
    assert_eq!(world.core.barrier(lane), Err(StillWanted), "{second:?} is wanted");
    world.abandon(second);
    let Ok(Some(Barrier { below, .. })) = world.core.barrier(lane) else { panic!("no barrier") };
    assert_eq!(below, third.1 + 1);
    world.core.barrier_passed(lane, below);
    assert_eq!(world.core.barrier(lane), Ok(None));
    // A later request with an outcome is a fence as well (LR3).
    let fourth = world.issue(lane, "d").unwrap();
    world.abandon(fourth);
    assert!(world.core.barrier(lane).is_ok_and(|barrier| barrier.is_some()));
    world.issue(lane, "e").unwrap();
    world.settle();
    assert_eq!(world.core.barrier(lane), Ok(None));
    assert!(world.done.contains_key(&first));
}

#[test]
fn a_pipelined_call_waits_for_the_one_before_it_that_was_rejected() {
    let mut world = World::new(3);
    let lane = world.lane(Options::default());
    world.issue(lane, "x").unwrap();
    world.settle();
    world.busy = 1;
    let calls: Vec<_> = ["a", "b", "c"].map(|key| world.issue(lane, key).unwrap()).into();
    world.settle();
    let session = world.core.session(lane).unwrap();
    let indexes: Vec<u64> = calls.iter().map(|(_, number)| world.index(session, *number).unwrap()).collect();
    assert!(indexes.is_sorted(), "{indexes:?}");
    assert!(calls.iter().all(|call| world.done[call].is_ok()));
}

#[test]
fn at_most_a_window_of_calls_is_in_flight() {
    let mut world = World::new(3);
    let lane = world.lane(Options::default().window(2));
    world.issue(lane, "x").unwrap();
    world.settle();
    for number in 0..5 {
        world.issue(lane, &format!("k{number}")).unwrap();
    }
    assert_eq!(world.wire.len(), 2);
    world.arrive();
    world.deliver_answer();
    assert_eq!(world.wire.len(), 2);
    world.settle();
    assert!((0..5).all(|number| world.puts(&format!("k{number}")) == 1));
}

impl World {
    /// Opens a session and sends all waiting calls.
    fn settle_open(&mut self) {
        self.link_up();
        while !self.wire.iter().any(|message| matches!(message.message, Some(SubmitMessage::Request(_)))) {
            assert!(self.arrive() | self.deliver_answer(), "a message is in flight");
        }
    }
}
