//! Log sessions, leases and their places in locks belong to principals (AU15, AU16).
//!
//! The owner of a lease never changes, and its id is never used again. A state that contains the lease therefore decides,
//! however old it is. A lease that is not found must be looked up in the state of the leader before it counts as missing.

use super::caller::Caller;
use super::requests::lock_resource;
use crate::log::lock_name;
use convoke_access::{ANONYMOUS, Resource, Verb};
use convoke_log::Machine;
use convoke_log::command::{LeaseId, LockName, LockSpace, Place};
use convoke_log::machine::Reason;
use convoke_proto::v1::log_request::Body;
use convoke_proto::v1::txn_operation::Operation;
use convoke_proto::{Error, v1};

impl Caller {
    /// Whether objects of other principals are closed to the caller. Nodes decide about the principals for whom they act
    /// before they send a request (AU12).
    pub(crate) fn is_bound(&self) -> bool {
        self.is_restricted() && !self.may(Verb::Forward, Resource::Cluster)
    }

    /// Returns the principal to which the client ids that the caller attaches belong (AU17). Empty without access control.
    pub(crate) fn registrant(&self) -> String {
        match self.name() {
            Some(_) => self.opener().unwrap_or_default(),
            None if self.is_restricted() => self.principal().name().to_owned(),
            None => String::new(),
        }
    }

    /// Whether the caller may use an object of this owner. An object without an owner was created without access control and
    /// belongs to nobody.
    pub(crate) fn owns(&self, owner: &str) -> bool {
        if !self.is_bound() {
            return true;
        }
        match self.name() {
            Some(name) => name == owner || self.opener().as_deref() == Some(owner),
            // Callers without credentials are one principal.
            None => owner.split_once('/').is_some_and(|(kind, _)| kind == ANONYMOUS),
        }
    }
}

/// What a request does with an object that may belong to another principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Keeps a lease alive, or waits for its place in a lock.
    Keep(LeaseId),
    /// Attaches a key to a lease, or takes a place in a lock for it.
    Lease(LeaseId),
    EndLease(LeaseId),
    /// Gives up a place in a lock or election.
    Release(LockName, Place),
    /// Changes the value of the leader of an election.
    Proclaim(LockName, u64),
}

impl Use {
    /// Returns what a request to the log uses.
    pub(crate) fn of_request(request: &v1::LogRequest) -> Vec<Use> {
        let name = |name: &bytes::Bytes, election: bool| lock_name(name.clone(), election);
        match &request.body {
            Some(Body::Txn(txn)) => Use::of_txn(txn),
            Some(Body::Revoke(revoke)) => vec![Use::EndLease(LeaseId(revoke.lease))],
            Some(Body::Acquire(acquire)) => {
                let second = Some(acquire.waits_with).filter(|lease| acquire.wait && *lease > 0);
                [Some(acquire.lease), second].into_iter().flatten().map(|lease| Use::Lease(LeaseId(lease))).collect()
            }
            Some(Body::Release(release)) => {
                let place = release.place.as_ref().map(|place| match place {
                    v1::release_lock::Place::Lease(lease) => Place::Lease(LeaseId(*lease)),
                    v1::release_lock::Place::Fence(fence) => Place::Fence(*fence),
                });
                place.map(|place| Use::Release(name(&release.name, release.election), place)).into_iter().collect()
            }
            Some(Body::Proclaim(proclaim)) => {
                vec![Use::Proclaim(name(&proclaim.name, proclaim.election), proclaim.fence)]
            }
            None | Some(Body::Put(_) | Body::Delete(_) | Body::End(_) | Body::Grant(_)) => Vec::new(),
        }
    }

    /// Returns the leases that a transaction attaches keys to, in both branches.
    pub(crate) fn of_txn(txn: &v1::Txn) -> Vec<Use> {
        let operations = txn.then.iter().chain(&txn.otherwise).filter_map(|operation| operation.operation.as_ref());
        let leases = operations.filter_map(|operation| match operation {
            Operation::Put(put) if put.lease > 0 => Some(Use::Lease(LeaseId(put.lease))),
            _ => None,
        });
        leases.collect()
    }

    /// Returns the owner of the object in a state, or `None` if the state does not contain the object.
    pub(crate) fn owner<'a>(&self, machine: &'a Machine) -> Option<&'a str> {
        let lease = match self {
            Use::Keep(lease) | Use::Lease(lease) | Use::EndLease(lease) | Use::Release(_, Place::Lease(lease)) => {
                *lease
            }
            Use::Release(name, Place::Fence(fence)) | Use::Proclaim(name, fence) => machine.holder(name, *fence)?.lease,
        };
        machine.lease(lease).map(|lease| lease.owner.as_str())
    }

    /// Whether the caller may do this with the objects of everybody.
    pub(crate) fn is_open_to(&self, caller: &Caller) -> bool {
        !caller.is_bound()
            || match self {
                Use::EndLease(_) => caller.may(Verb::Resolve, Resource::Log),
                Use::Release(name, _) => caller.may(Verb::Release, resource(name)),
                Use::Keep(_) | Use::Lease(_) | Use::Proclaim(..) => false,
            }
    }

    /// Decides about an object of this owner. A lease of another principal does not exist for the caller.
    pub(crate) fn check(&self, caller: &Caller, owner: &str) -> Result<(), Error> {
        // A lease from before access control stays as long as its client keeps it alive.
        let kept = owner.is_empty() && matches!(self, Use::Keep(_));
        if kept || caller.owns(owner) || self.is_open_to(caller) {
            return Ok(());
        }
        match self {
            // The caller named the lock and may see its holder.
            Use::Release(name, Place::Fence(_)) => caller.check(Verb::Release, resource(name)),
            _ => Err(self.missing()),
        }
    }

    /// The error about an object that does not exist, as the log would report it.
    pub(crate) fn missing(&self) -> Error {
        match self {
            Use::Keep(lease) | Use::Lease(lease) | Use::EndLease(lease) => {
                let reason = Reason::NoLease(*lease);
                Error::new(reason.code(), reason.to_string()).field("lease")
            }
            Use::Release(..) | Use::Proclaim(..) => {
                Error::new(Reason::NotHeld.code(), Reason::NotHeld.to_string()).field("lock")
            }
        }
    }
}

fn resource(name: &LockName) -> Resource<'_> {
    lock_resource(&name.name, name.space == LockSpace::Election)
}
