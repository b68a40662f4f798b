//! Golden bytes of commands of level 2, which detect format changes: old logs must stay readable.

use super::golden::{REQUEST, assert_golden, epoch, request};
use crate::command::{
    Acquire, Body, Command, Compare, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm,
    LockName, MemberBinding, Op, Place, Proclaim, Raise, Relation, Release, Test, Txn, TxnPut,
};
use crate::keys::{Content, KeyRange, Order, Query, Selection, SortBy};
use crate::level::Level;
use crate::limits::CoordinationLimits;
use std::time::Duration;

#[test]
fn commands_of_a_leader() {
    let limits = CoordinationLimits {
        keys: 300,
        answer_bytes: 2,
        history_bytes: 3,
        history_age: Duration::from_micros(4),
        leases: 5,
        lease_ttl_min: Duration::from_micros(6),
        lease_ttl_max: Duration::from_micros(7),
        keys_per_lease: 8,
        places_per_lease: 9,
        waiters: 10,
        places: 11,
        lock_value_bytes: 12,
        lock_delay_max: Duration::from_micros(13),
    };
    let raise = Raise { epoch: epoch(), level: Level::COORDINATION, configuration: 300, limits };
    let golden = "02 04 ac02 02 02 ac02 ac02 02 03 04 05 06 07 08 09 0a 0b 0c 0d";
    assert_golden(&Command::Raise(raise), golden);
    let end = |cause| Command::EndLease(EndLease { epoch: epoch(), lease: LeaseId(300), cause });
    assert_golden(&end(LeaseCause::Expired), "02 05 ac02 02 ac02 00");
    let gone = LeaseCause::MemberGone { registration: "r".into() };
    assert_golden(&end(gone), "02 05 ac02 02 ac02 01 0172");
    let end = EndDelay { epoch: epoch(), name: LockName::election("n") };
    assert_golden(&Command::EndDelay(end), "02 06 ac02 02 01 016e");
}

#[test]
fn leases_and_locks() {
    let grant = |term, end| request(Body::Grant(GrantLease { term, end }));
    let ttl = LeaseTerm::Ttl(Duration::from_micros(300));
    assert_golden(&grant(ttl, EndBehavior::Delete), &format!("{REQUEST} 07 00 ac02 00"));
    let bound = MemberBinding { member: "m".into(), client: "c".into(), registration: "r".into() };
    let golden = format!("{REQUEST} 07 01 016d 0163 0172 01");
    assert_golden(&grant(LeaseTerm::Member(bound), EndBehavior::Release), &golden);
    assert_golden(&request(Body::Revoke(LeaseId(300))), &format!("{REQUEST} 08 ac02"));
    let acquire = Acquire {
        permits: 3,
        value: "v".into(),
        delay: Duration::from_micros(300),
        ..Acquire::new(LockName::lock("n"), LeaseId(7))
    };
    assert_golden(&request(Body::Acquire(acquire.clone())), &format!("{REQUEST} 09 00 016e 07 03 0176 01 ac02"));
    let bound = Acquire { waits_with: Some(LeaseId(300)), ..acquire.clone() };
    assert_golden(&request(Body::Acquire(bound)), &format!("{REQUEST} 09 00 016e 07 03 0176 02 ac02 ac02"));
    let hurried = Acquire { wait: false, ..acquire };
    assert_golden(&request(Body::Acquire(hurried)), &format!("{REQUEST} 09 00 016e 07 03 0176 00 ac02"));
    let release = |place| request(Body::Release(Release { name: LockName::election("n"), place }));
    assert_golden(&release(Place::Lease(LeaseId(7))), &format!("{REQUEST} 0a 01 016e 00 07"));
    assert_golden(&release(Place::Fence(300)), &format!("{REQUEST} 0a 01 016e 01 ac02"));
    let proclaim = Proclaim { name: LockName::election("n"), fence: 300, value: "v".into() };
    assert_golden(&request(Body::Proclaim(proclaim)), &format!("{REQUEST} 0b 01 016e ac02 0176"));
}

#[test]
fn transactions() {
    let all = Txn {
        compares: vec![
            Compare::key("k", Test::Value(Relation::Equal, "v".into())),
            Compare::prefix("k", Test::Version(Relation::NotEqual, 300)),
            Compare::key("k", Test::CreateRevision(Relation::Less, 1)),
            Compare::key("k", Test::ModifyRevision(Relation::Greater, 1)),
            Compare::key("k", Test::Lease(Relation::Equal, 1)),
            Compare::key("k", Test::Exists(true)),
            Compare::Lock { name: LockName::lock("n"), fence: 300 },
        ],
        then: vec![
            Op::Put(TxnPut {
                lease: Some(LeaseId(7)),
                flags: 1,
                lock_index: 2,
                previous: true,
                ..TxnPut::new("k", "v")
            }),
            Op::Delete { selection: Selection::Key("l".into()), previous: true },
        ],
        otherwise: vec![
            Op::Delete { selection: Selection::Range(KeyRange::all()), previous: false },
            Op::Read(Query {
                selection: Selection::Key("k".into()),
                limit: Some(300),
                content: Content::Keys,
                order: Order { by: SortBy::Value, descending: true },
            }),
        ],
    };
    let compares =
        "07 00016b000001 76 01016b01016c0101ac02 00016b020201 00016b030301 00016b040001 00016b0501 0200016eac02";
    let then = "02 00 016b 0176 07 01 02 01 01 00016c 01";
    let otherwise = "02 01 010000 00 02 00016b 01ac02 01 04 01";
    assert_golden(&request(Body::Txn(all)), &format!("{REQUEST} 06 {compares} {then} {otherwise}"));
}
