//! Tests of a leader's volatile state, rule by rule.

use super::*;
use crate::command::{Body, Command, Open, Request};
use crate::id::{Epoch, LogSessionId};
use crate::limits::LogLimits;
use crate::machine::{Entry, Machine};
use crate::mutant::{Mutant, Mutation};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
const FIRST: Position = Position { index: 3, epoch: EPOCH };
const EPOCH: Epoch = Epoch { term: 2, leader: crate::ReplicaId(1) };
const ONE: LogSessionId = LogSessionId(1);

fn seconds(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// Two sessions that were opened under an earlier leader, and the first entry of the term.
fn machine() -> Machine {
    let mut machine = Machine::new(LogLimits::default()).unwrap();
    for index in [1, 2] {
        let epoch = Epoch::new(1, 1);
        let open = Open::new(epoch, TTL, index.into());
        machine.apply(&Entry { index, epoch, stamp: LogTime::ZERO, command: Command::Open(open) }).unwrap();
    }
    machine.skip(FIRST).unwrap();
    machine
}

fn request(session: LogSessionId, number: u64) -> Command {
    Command::Request(Request::new(session, number, EPOCH, Body::delete("k")))
}

/// Calls [`Expiry::due`] as often as it requires.
fn attend(leadership: &mut LeaderTerm, from: u64, until: u64, machine: &Machine) -> Vec<LogSessionId> {
    let mut found = Vec::new();
    for millis in (from * 1_000..=until * 1_000).step_by(250) {
        let due = leadership.due(Time::from_micros(millis * 1_000), machine);
        found.extend(due.into_iter().map(|command| match command {
            Command::Expire(expire) => expire.session,
            other => panic!("{other:?}"),
        }));
    }
    found
}

#[test]
fn ls5_stamps_continue_from_the_highest_in_the_log_and_never_fall() {
    let mut stamper = Stamper::elected(seconds(100), LogTime::from_micros(5));
    assert_eq!(stamper.stamp(seconds(100)), LogTime::from_micros(5));
    assert_eq!(stamper.stamp(seconds(102)), LogTime::from_micros(2_000_005));
    assert_eq!(stamper.stamp(seconds(101)), LogTime::from_micros(2_000_005));
}

#[test]
fn ls6_no_session_is_expired_before_a_ttl_of_the_term_has_passed() {
    let machine = machine();
    let mut leadership = LeaderTerm::elected(seconds(100), FIRST, LogTime::ZERO, &machine);
    assert_eq!(attend(&mut leadership, 100, 109, &machine), []);
    assert_eq!(leadership.expiry.renew(seconds(109), ONE), KeepAlive::Kept);
    assert_eq!(attend(&mut leadership, 109, 111, &machine), [LogSessionId(2)]);
    assert_eq!(leadership.expiry.renew(seconds(111), LogSessionId(2)), KeepAlive::Expiring);
    assert_eq!(attend(&mut leadership, 111, 118, &machine), [], "each is returned once");
    assert_eq!(attend(&mut leadership, 118, 120, &machine), [ONE]);
    assert_eq!(leadership.expiry.renew(seconds(120), LogSessionId(9)), KeepAlive::Unknown);
}

#[test]
fn ls6_a_session_that_was_not_expired_has_another_ttl() {
    let machine = machine();
    let mut leadership = LeaderTerm::elected(seconds(0), FIRST, LogTime::ZERO, &machine);
    assert_eq!(attend(&mut leadership, 0, 10, &machine), [ONE, LogSessionId(2)]);
    leadership.expiry.not_expired(seconds(10), ONE);
    assert_eq!(leadership.expiry.renew(seconds(11), ONE), KeepAlive::Kept);
    leadership.expiry.ended(LogSessionId(2));
    assert_eq!(leadership.expiry.len(), 1);
    assert_eq!(attend(&mut leadership, 11, 20, &machine), []);
    assert_eq!(attend(&mut leadership, 20, 22, &machine), [ONE]);
}

#[test]
fn ls6_a_leader_does_not_count_its_own_pause_as_silence() {
    let due = |mutation| {
        let machine = machine().with_mutation(mutation);
        let mut leadership = LeaderTerm::elected(seconds(0), FIRST, LogTime::ZERO, &machine);
        assert!(leadership.expiry.wake() <= Time::from_micros(500_000));
        attend(&mut leadership, 0, 5, &machine);
        // A pause of a minute; the keep-alives of that minute are still unread.
        leadership.due(seconds(65), &machine).len()
    };
    assert_eq!(due(Mutation::none()), 0);
    assert_eq!(due(Mutation::of(Mutant::PauseCountedAsSilence)), 2);
}

#[test]
fn e3_a_command_of_another_epoch_is_not_appended() {
    let machine = machine();
    let mut gate = Gate::new(FIRST, Mutation::none());
    let Command::Request(mut stale) = request(ONE, 1) else { unreachable!() };
    stale.epoch = Epoch::new(1, 1);
    assert_eq!(gate.admit(&Command::Request(stale), &machine), Err(NotAppended::StaleEpoch { current: EPOCH }));
    assert_eq!(gate.admit(&request(LogSessionId(7), 1), &machine), Err(NotAppended::SessionNotOpen));
    let later = Position { index: 9, ..FIRST };
    assert_eq!(Gate::new(later, Mutation::none()).admit(&request(ONE, 1), &machine), Err(NotAppended::NotReady));
}

#[test]
fn lr4_a_barrier_read_waits_for_appended_requests_and_blocks_abandoned_ones() {
    let machine = machine();
    let mut gate = Gate::new(FIRST, Mutation::none());
    let first = gate.admit(&request(ONE, 1), &machine).unwrap();
    let second = gate.admit(&request(ONE, 2), &machine).unwrap();
    gate.settle(first, Some(7));
    let barrier = gate.barrier(ONE, EPOCH, 3, &machine).unwrap();
    assert_eq!(gate.admit(&request(ONE, 2), &machine), Err(NotAppended::Abandoned { floor: 3 }));
    assert_eq!(gate.wait_for(&barrier, 3), None, "the position of request 2 is unknown");
    gate.settle(second, Some(8));
    let third = gate.admit(&request(ONE, 3), &machine).unwrap();
    assert_eq!(gate.wait_for(&barrier, 3), Some(8), "later admissions are not waited for");
    assert_eq!(gate.wait_for(&barrier, 12), Some(12));
    gate.settle(third, None);
    let other = gate.barrier(LogSessionId(2), EPOCH, 9, &machine).unwrap();
    assert_eq!(gate.wait_for(&other, 1), Some(FIRST.index), "at least the first entry of the term");
    assert_eq!(
        gate.barrier(ONE, Epoch::new(1, 1), 3, &machine).unwrap_err(),
        NotAppended::StaleEpoch { current: EPOCH }
    );
    assert_eq!(gate.barrier(LogSessionId(7), EPOCH, 3, &machine).unwrap_err(), NotAppended::SessionNotOpen);
}

#[test]
fn applied_entries_reach_expiry_and_gate() {
    let mut machine = machine();
    let mut leadership = LeaderTerm::elected(seconds(0), FIRST, LogTime::ZERO, &machine);
    let mut apply = |leadership: &mut LeaderTerm, now, index, command: Command| {
        let entry = Entry { index, epoch: EPOCH, stamp: leadership.stamper.stamp(now), command };
        let applied = machine.apply(&entry).unwrap();
        leadership.applied(now, &entry.command, &applied, &machine);
        machine.clone()
    };
    let open = Command::Open(Open::new(EPOCH, TTL, 9));
    let machine = apply(&mut leadership, seconds(1), 4, open);
    assert_eq!(leadership.expiry.len(), 3);
    assert_eq!(attend(&mut leadership, 1, 10, &machine), [ONE, LogSessionId(2)]);
    // Request 1 of session 1 was in flight when its expiry was proposed, so the session stays open.
    apply(&mut leadership, seconds(10), 5, request(ONE, 1));
    let expire = |session, activity| Command::Expire(Expire { epoch: EPOCH, session: LogSessionId(session), activity });
    apply(&mut leadership, seconds(11), 6, expire(1, 1));
    let machine = apply(&mut leadership, seconds(11), 7, expire(2, 2));
    assert_eq!(machine.sessions().map(|session| session.id.0).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(leadership.expiry.renew(seconds(11), ONE), KeepAlive::Kept);
    assert_eq!(leadership.expiry.len(), 2);
}
