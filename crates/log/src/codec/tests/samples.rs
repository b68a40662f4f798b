//! Arbitrary commands.

use crate::command::{
    Body, Command, Delete, DeleteRange, DurableClient, Expire, GroupChange, Open, Opener, Put, ReplicaLocation, Request,
};
use crate::id::{Epoch, LogSessionId, ReplicaId, RequestId};
use crate::keys::KeyRange;
use crate::time::LogTime;
use bytes::Bytes;
use convoke_base::codec::COUNTER_MAX;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![1..200u64, 1..=COUNTER_MAX]
}

pub(super) fn epoch() -> impl Strategy<Value = Epoch> {
    (counter(), any::<u64>()).prop_map(|(term, leader)| Epoch::new(term, leader))
}

pub(super) fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn replicas() -> impl Strategy<Value = BTreeMap<ReplicaId, ReplicaLocation>> {
    let replica = ("[a-z]{0,8}", "[a-z0-9:]{0,12}");
    prop::collection::btree_map(any::<u64>(), replica, 0..4).prop_map(|map| {
        map.into_iter()
            .map(|(id, (node, address))| {
                (ReplicaId(id), ReplicaLocation { node: node.into(), address: address.into() })
            })
            .collect()
    })
}

fn body() -> impl Strategy<Value = Body> {
    let revision = || prop::option::of(counter());
    prop_oneof![
        (counter(), counter()).prop_map(|(session, number)| Body::Fence(RequestId::new(LogSessionId(session), number))),
        counter().prop_map(|session| Body::End(LogSessionId(session))),
        (bytes(), bytes(), revision(), any::<bool>()).prop_map(|(key, value, if_revision, previous)| Body::Put(Put {
            key,
            value,
            if_revision,
            previous
        })),
        (bytes(), revision(), any::<bool>()).prop_map(|(key, if_revision, previous)| Body::Delete(Delete {
            key,
            if_revision,
            previous
        })),
        (bytes(), prop::option::of(bytes()), any::<bool>()).prop_map(|(from, until, previous)| {
            Body::DeleteRange(DeleteRange { range: KeyRange { from, until }, previous })
        }),
        (counter(), replicas(), replicas()).prop_map(|(replaces, voters, learners)| Body::Membership(GroupChange {
            replaces,
            voters,
            learners
        })),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let numbers = counter().prop_flat_map(|number| (Just(number), 1..=number, 0..number));
    let body = prop_oneof![body(), super::coordination_samples::body()];
    (counter(), numbers, epoch(), prop::option::of(any::<u64>()), any::<bool>(), body).prop_map(
        |(session, (number, abandon_below, previous), epoch, deadline, last, body)| {
            let deadline = deadline.map(LogTime::from_micros);
            Request { session: LogSessionId(session), number, abandon_below, previous, epoch, deadline, last, body }
        },
    )
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    let client = ("[a-z]{0,10}", prop::option::of(counter()));
    prop_oneof![
        8 => request().prop_map(Command::Request),
        1 => (epoch(), counter(), any::<u128>(), prop::option::of(client), "[a-z]{0,5}", any::<bool>()).prop_map(
            |(epoch, ttl, owner, client, name, reserved)| {
            let client = client.map(|(name, replaces)| DurableClient {
                name: name.into(),
                replaces: replaces.map(LogSessionId),
            });
            let opener = Opener { name: name.into(), reserved };
            Command::Open(Open { client, opener, ..Open::new(epoch, Duration::from_micros(ttl), owner) })
        }),
        1 => (epoch(), counter(), counter()).prop_map(|(epoch, session, activity)| {
            Command::Expire(Expire { epoch, session: LogSessionId(session), activity })
        }),
        1 => super::coordination_samples::command(),
    ]
}
