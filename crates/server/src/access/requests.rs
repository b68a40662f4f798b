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

fn lock(caller: &Caller, verb: Verb, name: &[u8], election: bool) -> Result<(), Error> {
    caller.check(verb, if election { Resource::Election(name) } else { Resource::Lock(name) })
}

/// A holder or waiter may read the lock that it uses.
pub(crate) fn authorize_lock_read(caller: &Caller, name: &[u8], election: bool) -> Result<(), Error> {
    lock(caller, Verb::Lock, name, election).or_else(|_| lock(caller, Verb::Read, name, election))
}

/// A lease is of use only with keys, locks or elections.
pub(crate) fn authorize_lease(caller: &Caller) -> Result<(), Error> {
    caller.check_any(&[(Verb::Put, Kind::Key), (Verb::Lock, Kind::LockName), (Verb::Lock, Kind::Election)])
}

pub(crate) fn authorize_place(caller: &Caller, place: &v1::AwaitPlace) -> Result<(), Error> {
    lock(caller, Verb::Lock, &place.name, place.election)
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
        Some(Body::Grant(_) | Body::Revoke(_)) => authorize_lease(caller),
        Some(Body::Acquire(acquire)) => lock(caller, Verb::Lock, &acquire.name, acquire.election),
        Some(Body::Release(release)) => lock(caller, Verb::Lock, &release.name, release.election),
        Some(Body::Proclaim(proclaim)) => lock(caller, Verb::Lock, &proclaim.name, proclaim.election),
    }
}

/// Every compare needs read, because its outcome shows the value. Both branches are authorised, whichever is executed.
pub(crate) fn authorize_txn(caller: &Caller, txn: &v1::Txn) -> Result<(), Error> {
    for compared in &txn.compares {
        match &compared.subject {
            None => {}
            Some(compare::Subject::Key(name)) => key(caller, &[Verb::Read], name)?,
            Some(compare::Subject::Range(wanted)) => range(caller, &[Verb::Read], wanted)?,
            Some(compare::Subject::Lock(lock)) => {
                authorize_lock_read(caller, &lock.name, lock.election)?;
            }
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
        What::Leases(query) if query.lease > 0 => {
            authorize_lease(caller).or_else(|_| caller.check(Verb::Observe, Resource::Log))
        }
        What::Leases(_) => caller.check(Verb::Observe, Resource::Log),
        What::Locks(query) => match &query.name {
            Some(name) => authorize_lock_read(caller, name, query.election),
            None => caller.check_all(Verb::Read, if query.election { Kind::Election } else { Kind::LockName }),
        },
    }
}

pub(crate) fn authorize_watch(caller: &Caller, watches: &[v1::KeyWatch]) -> Result<(), Error> {
    watches.iter().try_for_each(|watch| match &watch.which {
        None => Ok(()),
        Some(key_watch::Which::Key(name)) => key(caller, &[Verb::Read], name),
        Some(key_watch::Which::Range(wanted)) => range(caller, &[Verb::Read], wanted),
        Some(key_watch::Which::Lock(guard)) => authorize_lock_read(caller, &guard.name, guard.election),
    })
}
