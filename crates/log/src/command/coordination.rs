//! Commands and bodies for the feature level, leases, locks and elections.

use crate::id::Epoch;
use crate::level::Level;
use crate::limits::CoordinationLimits;
use bytes::Bytes;
use smol_str::SmolStr;
use std::fmt;
use std::time::Duration;

/// Raises the feature level; proposed by the leader (V2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    pub epoch: Epoch,
    pub level: Level,
    /// Number of the configuration whose replicas support the level.
    pub configuration: u64,
    /// Limits that become part of the state with the level.
    pub limits: CoordinationLimits,
}

/// A lease, identified by the index of the entry that granted it. Never reused (LE1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Grants a lease (LE1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantLease {
    pub term: LeaseTerm,
    pub end: EndBehavior,
}

/// How long a lease lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTerm {
    /// Until its client has not kept it alive for this time (LE2).
    Ttl(Duration),
    /// As long as a registration of a member of the registry (LE6).
    Member(MemberBinding),
}

/// A registration of a member of the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberBinding {
    pub member: SmolStr,
    pub client: SmolStr,
    /// Identity of the process that registered the member. Another process of the same client has another one.
    pub registration: SmolStr,
}

/// What happens to the keys of a lease when it ends (LE4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndBehavior {
    /// The keys are deleted.
    #[default]
    Delete,
    /// The keys stay and are no longer attached.
    Release,
}

/// Ends a lease; proposed by the leader (LE3, LE6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndLease {
    pub epoch: Epoch,
    pub lease: LeaseId,
    pub cause: LeaseCause,
}

/// Why a leader ends a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseCause {
    /// Its client did not keep it alive.
    Expired,
    /// This registration of its member is down, has left or was replaced.
    MemberGone { registration: SmolStr },
}

/// Ends the delay of a lock after the death of a holder; proposed by the leader (LO7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndDelay {
    pub epoch: Epoch,
    pub name: LockName,
}

/// Locks and elections have separate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockSpace {
    Lock,
    Election,
}

/// The name of a lock, semaphore or election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    pub space: LockSpace,
    pub name: Bytes,
}

impl LockName {
    pub fn lock(name: impl Into<Bytes>) -> Self {
        LockName { space: LockSpace::Lock, name: name.into() }
    }

    pub fn election(name: impl Into<Bytes>) -> Self {
        LockName { space: LockSpace::Election, name: name.into() }
    }
}

/// Asks for a permit of a lock (LO1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub name: LockName,
    pub lease: LeaseId,
    /// Permits of the lock, 1 for a mutual exclusion lock. All acquires of a lock in use name the same number.
    pub permits: u64,
    /// Shown to others; the value of an election.
    pub value: Bytes,
    /// Whether to queue if no permit is free.
    pub wait: bool,
    /// How long the lock stays free after the lease of this holder has ended (LO7).
    pub delay: Duration,
    /// With `wait`: the end of this lease removes the place from the queue (LO10).
    pub waits_with: Option<LeaseId>,
}

impl Acquire {
    /// Creates an acquire of a mutual exclusion lock that waits.
    pub fn new(name: LockName, lease: LeaseId) -> Self {
        Acquire { name, lease, permits: 1, value: Bytes::new(), wait: true, delay: Duration::ZERO, waits_with: None }
    }
}

/// Releases a permit, or gives up a place in the queue (LO5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub name: LockName,
    pub place: Place,
}

/// A holder or waiter of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The holder or waiter with this lease.
    Lease(LeaseId),
    /// The holder with this fence.
    Fence(u64),
}

/// Replaces the value of a holder (EL2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proclaim {
    pub name: LockName,
    pub fence: u64,
    pub value: Bytes,
}
