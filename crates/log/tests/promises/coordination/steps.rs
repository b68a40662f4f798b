//! Random commands of level 2, with few names, so that they meet.

use super::reference::Model;
use bytes::Bytes;
use convoke_log::command::{
    Acquire, Body, Compare, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, LockName,
    MemberBinding, Op, Place, Proclaim, Relation, Release, Test, Txn, TxnPut,
};
use convoke_log::keys::{Content, KeyRange, Order, Query, Selection, SortBy};
use convoke_log::{Command, Epoch};
use fastrand::Rng;
use std::time::Duration;

const KEYS: [&str; 6] = ["a", "aa", "ab", "b", "ba", "c"];

pub(super) fn names() -> [LockName; 3] {
    [LockName::lock("l"), LockName::lock("m"), LockName::election("l")]
}

fn key(rng: &mut Rng) -> Bytes {
    match rng.u32(..30) {
        0 => Bytes::new(),
        1 => Bytes::from("a key that is too long"),
        _ => Bytes::from(KEYS[rng.usize(..KEYS.len())]),
    }
}

fn value(rng: &mut Rng) -> Bytes {
    Bytes::from(vec![b'x' + rng.u8(..3); rng.usize(..5)])
}

fn selection(rng: &mut Rng) -> Selection {
    match rng.u32(..6) {
        0 => Selection::Range(KeyRange::all()),
        1 => Selection::Range(KeyRange::new("aa", "bb")),
        2 | 3 => Selection::Range(KeyRange::prefix(["a", "b"][rng.usize(..2)])),
        _ => Selection::Key(key(rng)),
    }
}

fn lease(rng: &mut Rng, model: &Model) -> LeaseId {
    let known: Vec<u64> = model.leases.keys().copied().collect();
    match known.len() {
        0 => LeaseId(1),
        _ if rng.u32(..20) == 0 => LeaseId(1),
        count => LeaseId(known[rng.usize(..count)]),
    }
}

fn fence(rng: &mut Rng, model: &Model, name: &LockName) -> u64 {
    let holders = model.locks.0.get(name).map_or(&[][..], |lock| &lock.holders);
    match holders.len() {
        0 => rng.u64(..6),
        _ if rng.u32(..5) == 0 => rng.u64(..6),
        count => holders[rng.usize(..count)].fence,
    }
}

fn relation(rng: &mut Rng) -> Relation {
    [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater][rng.usize(..4)]
}

fn compare(rng: &mut Rng, model: &Model) -> Compare {
    if rng.u32(..4) == 0 {
        let name = names()[rng.usize(..3)].clone();
        let fence = fence(rng, model, &name);
        return Compare::Lock { name, fence };
    }
    let relation = relation(rng);
    let revision = model.revision.saturating_sub(rng.u64(..6));
    let test = match rng.u32(..7) {
        0 => Test::Value(relation, value(rng)),
        1 => Test::Version(relation, rng.u64(..3)),
        2 => Test::CreateRevision(relation, revision),
        3 => Test::ModifyRevision(relation, revision),
        4 => Test::Lease(relation, lease(rng, model).0),
        _ => Test::Exists(rng.bool()),
    };
    Compare::Keys { selection: selection(rng), test }
}

fn operation(rng: &mut Rng, model: &Model) -> Op {
    match rng.u32(..10) {
        0..5 => Op::Put(TxnPut {
            key: key(rng),
            value: value(rng),
            lease: (rng.u32(..3) == 0).then(|| lease(rng, model)),
            flags: rng.u64(..2),
            lock_index: rng.u64(..2),
            previous: rng.bool(),
        }),
        5..7 => Op::Delete { selection: selection(rng), previous: rng.bool() },
        _ => Op::Read(Query {
            selection: selection(rng),
            limit: rng.bool().then(|| rng.u64(..3)),
            content: [Content::Records, Content::Records, Content::Keys, Content::Count][rng.usize(..4)],
            order: Order {
                by: [SortBy::Key, SortBy::Version, SortBy::CreateRevision, SortBy::ModifyRevision, SortBy::Value]
                    [rng.usize(..5)],
                descending: rng.bool(),
            },
        }),
    }
}

fn txn(rng: &mut Rng, model: &Model) -> Txn {
    let list = |most: usize, rng: &mut Rng| (0..rng.usize(..=most)).map(|_| operation(rng, model)).collect::<Vec<Op>>();
    let (then, otherwise) = (list(4, rng), list(2, rng));
    let compares = (0..rng.usize(..3)).map(|_| compare(rng, model)).collect();
    Txn { compares, then, otherwise }
}

fn grant(rng: &mut Rng) -> GrantLease {
    let term = if rng.bool() {
        LeaseTerm::Ttl(Duration::from_micros(rng.u64(8..64)))
    } else {
        let registration = ["r1", "r2", ""][rng.usize(..3).min(rng.usize(..3))].into();
        LeaseTerm::Member(MemberBinding { member: "m".into(), client: "c".into(), registration })
    };
    GrantLease { term, end: if rng.bool() { EndBehavior::Delete } else { EndBehavior::Release } }
}

fn acquire(rng: &mut Rng, model: &Model) -> Acquire {
    let at = rng.usize(..3);
    let usual = if at == 1 { 2 } else { 1 };
    let wait = rng.u32(..4) > 0;
    Acquire {
        name: names()[at].clone(),
        lease: lease(rng, model),
        permits: if rng.u32(..20) == 0 { rng.u64(..4) } else { usual },
        value: Bytes::from(vec![b'v'; rng.usize(..5)]),
        wait,
        delay: Duration::from_micros(if rng.u32(..3) == 0 { rng.u64(..34) } else { 0 }),
        waits_with: (wait && rng.u32(..3) == 0).then(|| lease(rng, model)),
    }
}

/// A body of level 2.
pub(super) fn body(rng: &mut Rng, model: &Model) -> Body {
    let name = names()[rng.usize(..3)].clone();
    match rng.u32(..100) {
        0..45 => Body::Txn(txn(rng, model)),
        45..57 => Body::Grant(grant(rng)),
        57..61 => Body::Revoke(lease(rng, model)),
        61..82 => Body::Acquire(acquire(rng, model)),
        82..94 => {
            let place =
                if rng.bool() { Place::Lease(lease(rng, model)) } else { Place::Fence(fence(rng, model, &name)) };
            Body::Release(Release { name, place })
        }
        _ => {
            let fence = fence(rng, model, &name);
            Body::Proclaim(Proclaim { name, fence, value: Bytes::from(vec![b'p'; rng.usize(..5)]) })
        }
    }
}

/// A plain put or delete of level 1.
pub(super) fn plain(rng: &mut Rng) -> Body {
    match rng.u32(..4) {
        0 => Body::delete(key(rng)),
        1 => Body::delete_range(KeyRange::prefix(["a", "b"][rng.usize(..2)])),
        _ => Body::put(key(rng), value(rng)),
    }
}

/// A command of a leader; sometimes of a deposed one.
pub(super) fn of_leader(rng: &mut Rng, model: &Model, epoch: Epoch) -> Command {
    let epoch = if rng.u32(..6) == 0 { Epoch::new(epoch.term - 1, 1) } else { epoch };
    if rng.u32(..3) == 0 {
        return Command::EndDelay(EndDelay { epoch, name: names()[rng.usize(..3)].clone() });
    }
    let cause = if rng.bool() {
        LeaseCause::Expired
    } else {
        LeaseCause::MemberGone { registration: ["r1", "r2"][rng.usize(..2)].into() }
    };
    Command::EndLease(EndLease { epoch, lease: lease(rng, model), cause })
}
