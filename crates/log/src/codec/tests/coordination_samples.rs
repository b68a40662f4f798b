//! Arbitrary commands of level 2.

use super::samples::{bytes, counter, epoch};
use crate::command::{
    Acquire, Body, Command, Compare, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm,
    LockName, LockSpace, MemberBinding, Op, Place, Proclaim, Raise, Relation, Release, Test, Txn, TxnPut,
};
use crate::keys::{Content, KeyRange, Order, Query, Selection, SortBy};
use crate::level::Level;
use crate::limits::CoordinationLimits;
use proptest::prelude::*;
use std::time::Duration;

fn name() -> impl Strategy<Value = LockName> {
    (any::<bool>(), bytes()).prop_map(|(election, name)| LockName {
        space: if election { LockSpace::Election } else { LockSpace::Lock },
        name,
    })
}

fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![
        bytes().prop_map(Selection::Key),
        (bytes(), prop::option::of(bytes())).prop_map(|(from, until)| Selection::Range(KeyRange { from, until })),
    ]
}

fn relation() -> impl Strategy<Value = Relation> {
    prop_oneof![Just(Relation::Equal), Just(Relation::NotEqual), Just(Relation::Less), Just(Relation::Greater)]
}

fn test() -> impl Strategy<Value = Test> {
    prop_oneof![
        (relation(), bytes()).prop_map(|(relation, value)| Test::Value(relation, value)),
        (relation(), counter()).prop_map(|(relation, number)| Test::Version(relation, number)),
        (relation(), counter()).prop_map(|(relation, number)| Test::CreateRevision(relation, number)),
        (relation(), counter()).prop_map(|(relation, number)| Test::ModifyRevision(relation, number)),
        (relation(), counter()).prop_map(|(relation, number)| Test::Lease(relation, number)),
        any::<bool>().prop_map(Test::Exists),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    prop_oneof![
        3 => (selection(), test()).prop_map(|(selection, test)| Compare::Keys { selection, test }),
        1 => (name(), counter()).prop_map(|(name, fence)| Compare::Lock { name, fence }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let content = prop_oneof![Just(Content::Records), Just(Content::Keys), Just(Content::Count)];
    let by = prop_oneof![
        Just(SortBy::Key),
        Just(SortBy::Version),
        Just(SortBy::CreateRevision),
        Just(SortBy::ModifyRevision),
        Just(SortBy::Value)
    ];
    (selection(), prop::option::of(any::<u64>()), content, by, any::<bool>()).prop_map(
        |(selection, limit, content, by, descending)| Query {
            selection,
            limit,
            content,
            order: Order { by, descending },
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (bytes(), bytes(), prop::option::of(counter()), any::<u64>(), any::<bool>()).prop_map(
            |(key, value, lease, flags, previous)| {
                let lease = lease.map(LeaseId);
                Op::Put(TxnPut { key, value, lease, flags, lock_index: flags / 3, previous })
            }
        ),
        (selection(), any::<bool>()).prop_map(|(selection, previous)| Op::Delete { selection, previous }),
        query().prop_map(Op::Read),
    ]
}

fn txn() -> impl Strategy<Value = Txn> {
    let list = || prop::collection::vec(op(), 0..4);
    let txn = (prop::collection::vec(compare(), 0..3), list(), list());
    txn.prop_map(|(compares, then, otherwise)| Txn { compares, then, otherwise })
        .prop_filter("a valid form", |txn| txn.check().is_ok())
}

fn grant() -> impl Strategy<Value = GrantLease> {
    let member = ("[a-z]{0,5}", "[a-z]{0,5}", "[a-z]{0,5}").prop_map(|(member, client, registration)| {
        let binding = [member, client, registration].map(smol_str::SmolStr::from);
        let [member, client, registration] = binding;
        LeaseTerm::Member(MemberBinding { member, client, registration })
    });
    let term = prop_oneof![counter().prop_map(|ttl| LeaseTerm::Ttl(Duration::from_micros(ttl))), member];
    (term, any::<bool>()).prop_map(|(term, release)| GrantLease {
        term,
        end: if release { EndBehavior::Release } else { EndBehavior::Delete },
    })
}

pub(super) fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        3 => txn().prop_map(Body::Txn),
        1 => grant().prop_map(Body::Grant),
        1 => counter().prop_map(|lease| Body::Revoke(LeaseId(lease))),
        1 => (name(), counter(), counter(), bytes(), 0..3u8, counter()).prop_map(
            |(name, lease, permits, value, wait, delay)| {
                let waits_with = (wait == 2).then_some(LeaseId(permits));
                let (lease, delay, wait) = (LeaseId(lease), Duration::from_micros(delay), wait > 0);
                Body::Acquire(Acquire { name, lease, permits, value, wait, delay, waits_with })
            }
        ),
        1 => (name(), counter(), any::<bool>()).prop_map(|(name, number, fence)| {
            let place = if fence { Place::Fence(number) } else { Place::Lease(LeaseId(number)) };
            Body::Release(Release { name, place })
        }),
        1 => (name(), counter(), bytes())
            .prop_map(|(name, fence, value)| Body::Proclaim(Proclaim { name, fence, value })),
    ]
}

/// Commands of a leader.
pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (epoch(), counter(), 1..1_000u64).prop_map(|(epoch, configuration, keys)| {
            let limits = CoordinationLimits { keys, ..CoordinationLimits::default() };
            Command::Raise(Raise { epoch, level: Level::COORDINATION, configuration, limits })
        }),
        (epoch(), counter(), prop::option::of("[a-z]{0,5}")).prop_map(|(epoch, lease, registration)| {
            let gone = |registration: String| LeaseCause::MemberGone { registration: registration.into() };
            let cause = registration.map_or(LeaseCause::Expired, gone);
            Command::EndLease(EndLease { epoch, lease: LeaseId(lease), cause })
        }),
        (epoch(), name()).prop_map(|(epoch, name)| Command::EndDelay(EndDelay { epoch, name })),
    ]
}
