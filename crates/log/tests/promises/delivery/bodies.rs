//! Random bodies of requests.

use super::client::Client;
use convoke_log::command::{
    Acquire, Body, Compare, Delete, EndBehavior, GrantLease, GroupChange, LeaseId, LeaseTerm, LockName, Op, Place, Put,
    Release, ReplicaLocation, Txn, TxnPut,
};
use convoke_log::keys::{KeyRange, Query};
use convoke_log::machine::Configuration;
use convoke_log::{Level, LockPlace, Machine, ReplicaId, RequestId};
use fastrand::Rng;
use std::time::Duration;

pub(super) const KEYS: [&str; 3] = ["a", "b", "c"];

/// The lock that all clients compete for.
pub(super) fn lock() -> LockName {
    LockName::lock("l")
}

/// State of the world that clients need for their bodies.
pub(super) struct Surroundings<'a> {
    /// The configuration of some replica.
    pub(super) configuration: &'a Configuration,
    /// The state of the same replica, for leases and locks.
    pub(super) machine: &'a Machine,
    /// A request of another client.
    pub(super) other: Option<RequestId>,
    pub(super) next_replica: &'a mut u64,
    /// A unique value per write.
    pub(super) value: u64,
}

pub(super) fn choose(rng: &mut Rng, client: &Client, around: &mut Surroundings<'_>) -> Body {
    let key = KEYS[rng.usize(..KEYS.len())];
    let revision = |client: &Client| {
        let record = client.seen.as_ref().and_then(|keys| keys.get(key.as_bytes()).cloned());
        record.map_or(0, |record| record.modify_revision)
    };
    if around.machine.level() >= Level::COORDINATION && rng.u32(..4) < 3 {
        return coordination(rng, around);
    }
    match rng.u32(..100) {
        0..40 => Body::Put(Put {
            key: key.into(),
            value: around.value.to_string().into(),
            if_revision: None,
            previous: rng.bool(),
        }),
        40..55 => Body::Delete(Delete { key: key.into(), if_revision: None, previous: rng.bool() }),
        55..70 => Body::compare_and_set(key, around.value.to_string(), revision(client)),
        70..72 => Body::delete_range(KeyRange::prefix("z")),
        72..76 => match client.issued.last() {
            Some(request) => Body::Fence(request.id()),
            None => Body::delete(key),
        },
        76..79 => around.other.map_or(Body::delete(key), Body::Fence),
        79..98 => Body::Membership(change(rng, around)),
        _ => client.session.map_or(Body::delete(key), Body::End),
    }
}

/// Leases, one lock, and transactions on keys of their own, which the history of plain keys does not contain.
fn coordination(rng: &mut Rng, around: &Surroundings<'_>) -> Body {
    let leases: Vec<LeaseId> = around.machine.leases().map(|lease| lease.id).collect();
    let holder = around.machine.places(&lock()).next().and_then(LockPlace::fence);
    let lease = |rng: &mut Rng| leases.get(rng.usize(..leases.len().max(1))).copied();
    let put = |lease| Op::Put(TxnPut { lease, ..TxnPut::new("t", around.value.to_string()) });
    match (rng.u32(..10), lease(rng)) {
        (0..6, lease) if lease.is_none() || leases.len() < 2 => {
            let term = LeaseTerm::Ttl(Duration::from_millis(rng.u64(2_000..20_000)));
            Body::Grant(GrantLease { term, end: EndBehavior::Delete })
        }
        (0..6, Some(lease)) => Body::Acquire(Acquire { wait: rng.u32(..4) > 0, ..Acquire::new(lock(), lease) }),
        (6, Some(lease)) => Body::Release(Release { name: lock(), place: Place::Lease(lease) }),
        (7, Some(lease)) => Body::Revoke(lease),
        (8, lease) => Body::Txn(Txn { then: vec![put(lease), Op::Read(Query::prefix(""))], ..Txn::default() }),
        (_, _) => {
            let compares = vec![Compare::Lock { name: lock(), fence: holder.unwrap_or(1) }];
            Body::Txn(Txn { compares, then: vec![put(None)], otherwise: Vec::new() })
        }
    }
}

/// Adds a replica and removes one; sometimes reuses an id.
fn change(rng: &mut Rng, around: &mut Surroundings<'_>) -> GroupChange {
    let replica = |id: u64| (ReplicaId(id), ReplicaLocation { node: format!("n{id}").into(), address: "h:1".into() });
    let mut voters = around.configuration.voters.clone();
    let gone = (1..=*around.next_replica).rev().find(|id| !voters.contains_key(&ReplicaId(*id)));
    let new = match gone.filter(|_| rng.bool()) {
        Some(gone) => gone,
        None => {
            *around.next_replica += 1;
            *around.next_replica
        }
    };
    if voters.len() > 1 {
        let gone = *voters.keys().nth(rng.usize(..voters.len())).expect("within bounds");
        voters.remove(&gone);
    }
    voters.extend([replica(new)]);
    GroupChange { replaces: around.configuration.number, voters, learners: [].into() }
}
