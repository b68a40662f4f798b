//! Tests of a leader's volatile state at level 2.

use super::*;
use crate::command::{
    Acquire, Body, Command, EndBehavior, EndLease, GrantLease, LeaseCause, LeaseId, Open, Raise, Request,
};
use crate::id::{Epoch, ReplicaId};
use crate::level::Level;
use crate::limits::LogLimits;
use crate::machine::Entry;
use std::time::Duration;

const EPOCH: Epoch = Epoch { term: 1, leader: ReplicaId(1) };
const TTL: Duration = Duration::from_secs(10);

struct Leader {
    machine: Machine,
    leadership: LeaderTerm,
    number: u64,
}

impl Leader {
    fn new() -> Self {
        let machine = Machine::new(LogLimits::default()).unwrap();
        let first = Position { index: 0, epoch: EPOCH };
        let leadership = LeaderTerm::elected(Time::ZERO, first, LogTime::ZERO, &machine);
        let mut leader = Leader { machine, leadership, number: 0 };
        leader.apply(0, &Command::Open(Open::new(EPOCH, Duration::from_secs(600), 1)));
        let limits = crate::CoordinationLimits::default();
        leader.apply(0, &Command::Raise(Raise { epoch: EPOCH, level: Level::COORDINATION, configuration: 0, limits }));
        leader
    }

    fn apply(&mut self, seconds: u64, command: &Command) -> Applied {
        let now = Time::from_secs(seconds);
        let stamp = self.leadership.stamper.stamp(now);
        let index = self.machine.applied().index + 1;
        let applied = self.machine.apply(&Entry { index, epoch: EPOCH, stamp, command: command.clone() }).unwrap();
        self.leadership.applied(now, command, &applied, &self.machine);
        applied
    }

    fn request(&mut self, seconds: u64, body: Body) -> Request {
        self.number += 1;
        let request = Request::new(LogSessionId(1), self.number, EPOCH, body);
        self.apply(seconds, &Command::Request(request.clone()));
        request
    }

    fn grant(&mut self, seconds: u64) -> (LeaseId, Request) {
        let grant = GrantLease { term: LeaseTerm::Ttl(TTL), end: EndBehavior::Delete };
        let request = self.request(seconds, Body::Grant(grant));
        (LeaseId(self.machine.applied().index), request)
    }

    /// Calls `due` as often as it requires, and returns the commands without applying them.
    fn attend(&mut self, from: u64, until: u64) -> Vec<Command> {
        let ticks = from * 2..=until * 2;
        ticks.flat_map(|half| self.leadership.due(Time::from_micros(half * 500_000), &self.machine)).collect()
    }
}

#[test]
fn le3_sessions_and_leases_have_one_mechanism() {
    let mut leader = Leader::new();
    let (lease, request) = leader.grant(0);
    assert_eq!(leader.leadership.expiry.left(lease), Some(TTL));
    assert_eq!(leader.attend(0, 5), []);
    // A copy of the grant is no keep-alive.
    leader.apply(5, &Command::Request(request));
    assert_eq!(leader.leadership.expiry.left(lease), Some(Duration::from_secs(5)));
    let end = Command::EndLease(EndLease { epoch: EPOCH, lease, cause: LeaseCause::Expired });
    assert_eq!(leader.attend(5, 10), std::slice::from_ref(&end));
    assert_eq!(leader.leadership.expiry.renew(Time::from_secs(10), lease), KeepAlive::Expiring);
    // The leader could not append it: the lease has another ttl.
    leader.leadership.not_proposed(Time::from_secs(10), &end);
    assert_eq!(leader.leadership.expiry.renew(Time::from_secs(10), lease), KeepAlive::Kept);
    assert_eq!(leader.attend(11, 20), std::slice::from_ref(&end));
    let applied = leader.apply(20, &end);
    assert_eq!((applied.reply, applied.ended_leases), (Reply::LeaseEnded(Ok(())), vec![lease]));
    assert_eq!(leader.leadership.expiry.renew(Time::from_secs(20), lease), KeepAlive::Unknown);
}

#[test]
fn lo7_a_leader_ends_a_delay_once_its_time_has_passed() {
    let mut leader = Leader::new();
    let name = LockName::lock("l");
    let (holder, _) = leader.grant(0);
    let (waiter, _) = leader.grant(0);
    let delay = Duration::from_secs(5);
    leader.request(0, Body::Acquire(Acquire { delay, ..Acquire::new(name.clone(), holder) }));
    leader.request(0, Body::Acquire(Acquire::new(name.clone(), waiter)));
    leader.request(1, Body::Revoke(holder));
    assert_eq!(leader.machine.place(&name, waiter).unwrap().fence(), None);
    assert_eq!(leader.attend(1, 5), []);
    let end = Command::EndDelay(EndDelay { epoch: EPOCH, name: name.clone() });
    assert_eq!(leader.attend(6, 7), std::slice::from_ref(&end), "each is returned once");
    let applied = leader.apply(7, &end);
    assert_eq!(applied.granted.len(), 1);
    assert!(leader.machine.place(&name, waiter).unwrap().fence().is_some());
    // A release starts no delay.
    leader.request(8, Body::Acquire(Acquire { delay, ..Acquire::new(LockName::lock("m"), waiter) }));
    let place = crate::command::Place::Lease(waiter);
    leader.request(8, Body::Release(crate::command::Release { name: LockName::lock("m"), place }));
    assert!(leader.machine.lock(&LockName::lock("m")).is_none());
}
