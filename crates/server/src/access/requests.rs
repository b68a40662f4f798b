//! Decisions about requests to the log: every key, range and lock that a request names (AU9). They are made before the
//! request is proposed, on the message as it arrived.

use super::caller::Caller;
use convoke_access::{Kind, Resource, Verb};
use convoke_proto::v1::log_request::Body;
use convoke_proto::v1::read_request::What;
use convoke_proto::v1::{compare, delete_keys, key_query, key_watch, txn_delete, txn_operation};
use convoke_proto::{Error, v1};

/// A message without its selection is not valid; it is rejected where it is converted.
fn key(caller: &Caller, verbs: &[Verb], key: &[u8]) -> Result<(), Error> {
    verbs.iter().try_for_each(|verb| caller.check(*verb, Resource::Key(key)))
}

fn range(caller: &Caller, verbs: &[Verb], range: &v1::KeyRange) -> Result<(), Error> {
    let resource = Resource::KeyRange { from: &range.from, until: range.until.as_deref() };
    verbs.iter().try_for_each(|verb| caller.check(*verb, resource))
}

/// A write that shows the previous value, or that compares, also reads.
fn writing(verb: Verb, reads: bool) -> &'static [Verb] {
    match (verb, reads) {
        (Verb::Put, false) => &[Verb::Put],
        (Verb::Put, true) => &[Verb::Put, Verb::Read],
        (_, false) => &[Verb::Delete],
        (_, true) => &[Verb::Delete, Verb::Read],
    }
}

/// Authorises a write over HTTP. `reads`: it shows the previous value, or it compares.
pub(crate) fn authorize_write(caller: &Caller, verb: Verb, named: Resource<'_>, reads: bool) -> Result<(), Error> {
    writing(verb, reads).iter().try_for_each(|verb| caller.check(*verb, named))
}

pub(crate) fn authorize_request(caller: &Caller, request: &v1::LogRequest) -> Result<(), Error> {
    match &request.body {
        // A session is ended by its owner, who knows its secret.
        None | Some(Body::End(_)) => Ok(()),
        Some(Body::Put(put)) => key(caller, writing(Verb::Put, put.previous || put.if_revision.is_some()), &put.key),
        Some(Body::Delete(delete)) => {
            let verbs = writing(Verb::Delete, delete.previous || delete.if_revision.is_some());
            match &delete.which {
                None => Ok(()),
                Some(delete_keys::Which::Key(name)) => key(caller, verbs, name),
                Some(delete_keys::Which::Range(wanted)) => range(caller, verbs, wanted),
            }
        }
        Some(Body::Txn(txn)) => authorize_txn(caller, txn),
        Some(Body::Grant(_)) => caller.check_any(LEASES),
        Some(Body::Revoke(_)) => authorize_revoke(caller),
        Some(Body::Acquire(v1::AcquireLock { name, election, .. })) => lock(caller, name, *election),
        Some(Body::Release(v1::ReleaseLock { name, election, .. })) => authorize_release(caller, name, *election),
        Some(Body::Proclaim(v1::Proclaim { name, election, .. })) => lock(caller, name, *election),
    }
}

/// Leases have no names: whoever may use them for a lock, an election or a key may grant and end them.
pub(crate) const LEASES: &[(Verb, Kind)] =
    &[(Verb::Lock, Kind::LockName), (Verb::Lock, Kind::Election), (Verb::Put, Kind::Key)];

pub(super) fn lock_resource(name: &[u8], election: bool) -> Resource<'_> {
    if election { Resource::Election(name) } else { Resource::Lock(name) }
}

/// Authorises to acquire and to wait for a lock.
pub(crate) fn lock(caller: &Caller, name: &[u8], election: bool) -> Result<(), Error> {
    caller.check(Verb::Lock, lock_resource(name, election))
}

/// Whose lock it is is decided by its owner (AU16).
pub(crate) fn authorize_release(caller: &Caller, name: &[u8], election: bool) -> Result<(), Error> {
    let others = caller.may(Verb::Release, lock_resource(name, election));
    if others { Ok(()) } else { lock(caller, name, election) }
}

/// Whose lease it is is decided by its owner (AU16).
pub(crate) fn authorize_revoke(caller: &Caller) -> Result<(), Error> {
    if caller.may(Verb::Resolve, Resource::Log) { Ok(()) } else { caller.check_any(LEASES) }
}

/// A guarded write shows whether the fence holds the lock. Its holder may compare its own fence.
pub(crate) fn authorize_guard(caller: &Caller, name: &[u8], election: bool) -> Result<(), Error> {
    let named = lock_resource(name, election);
    if caller.may(Verb::Lock, named) { Ok(()) } else { caller.check(Verb::Read, named) }
}

/// Every compare needs read, because its outcome shows the value. Both branches are authorised, whichever is executed.
pub(crate) fn authorize_txn(caller: &Caller, txn: &v1::Txn) -> Result<(), Error> {
    for compared in &txn.compares {
        match &compared.subject {
            None => {}
            Some(compare::Subject::Key(name)) => key(caller, &[Verb::Read], name)?,
            Some(compare::Subject::Range(wanted)) => range(caller, &[Verb::Read], wanted)?,
            Some(compare::Subject::Lock(lock)) => authorize_guard(caller, &lock.name, lock.election)?,
        }
    }
    txn.then.iter().chain(&txn.otherwise).try_for_each(|operation| match &operation.operation {
        None => Ok(()),
        Some(txn_operation::Operation::Put(put)) => key(caller, writing(Verb::Put, put.previous), &put.key),
        Some(txn_operation::Operation::Delete(delete)) => {
            let verbs = writing(Verb::Delete, delete.previous);
            match &delete.which {
                None => Ok(()),
                Some(txn_delete::Which::Key(name)) => key(caller, verbs, name),
                Some(txn_delete::Which::Range(wanted)) => range(caller, verbs, wanted),
            }
        }
        Some(txn_operation::Operation::Read(query)) => authorize_query(caller, query),
    })
}

pub(crate) fn authorize_query(caller: &Caller, query: &v1::KeyQuery) -> Result<(), Error> {
    match &query.which {
        None => Ok(()),
        Some(key_query::Which::Key(name)) => key(caller, &[Verb::Read], name),
        Some(key_query::Which::Range(wanted)) => range(caller, &[Verb::Read], wanted),
    }
}

/// A peek is decided by its handler: it belongs to the owner of the session.
pub(crate) fn authorize_read(caller: &Caller, what: &What) -> Result<(), Error> {
    match what {
        What::Key(name) => key(caller, &[Verb::Read], name),
        What::Range(wanted) => wanted.range.as_ref().map_or(Ok(()), |wanted| range(caller, &[Verb::Read], wanted)),
        What::Query(query) => authorize_query(caller, query),
        What::Txn(txn) => authorize_txn(caller, txn),
        What::Peek(_) => Ok(()),
        // Lists show all names, so they are for operators.
        What::Leases(query) if query.lease == 0 => caller.check(Verb::Observe, Resource::Log),
        What::Leases(_) => authorize_lease(caller),
        What::Locks(v1::LockQuery { name: None, .. }) => caller.check(Verb::Observe, Resource::Log),
        What::Locks(v1::LockQuery { name: Some(name), election, .. }) => {
            caller.check(Verb::Read, lock_resource(name, *election))
        }
    }
}

/// Whoever may use leases may read its own, and whoever may observe the log may read all (AU16).
pub(crate) fn authorize_lease(caller: &Caller) -> Result<(), Error> {
    if caller.may(Verb::Observe, Resource::Log) { Ok(()) } else { caller.check_any(LEASES) }
}

pub(crate) fn authorize_watch(caller: &Caller, watches: &[v1::KeyWatch]) -> Result<(), Error> {
    watches.iter().try_for_each(|watch| match &watch.which {
        None => Ok(()),
        Some(key_watch::Which::Key(name)) => key(caller, &[Verb::Read], name),
        Some(key_watch::Which::Range(wanted)) => range(caller, &[Verb::Read], wanted),
        Some(key_watch::Which::Lock(lock)) => caller.check(Verb::Read, lock_resource(&lock.name, lock.election)),
        Some(key_watch::Which::Union(union)) => {
            union.ranges.iter().try_for_each(|wanted| range(caller, &[Verb::Read], wanted))?;
            let mut locks = union.locks.iter();
            locks.try_for_each(|lock| caller.check(Verb::Read, lock_resource(&lock.name, lock.election)))
        }
    })
}
