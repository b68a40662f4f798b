//! Leases, locks and elections: conversions between the wire types and the log's types, and reads of a state.

use super::txn::check_level;
use crate::error::invalid;
use convoke_log::command::{
    Acquire, Body, EndBehavior, GrantLease, LeaseId, LeaseTerm, LockName, LockSpace, MemberBinding, Place, Proclaim,
    Release,
};
use convoke_log::history::{LockChange, LockEvent};
use convoke_log::{Lease, Level, Lock, LockPlace, LogTime, Machine};
use convoke_proto::v1::grant_lease;
use convoke_proto::{Error, PART_BYTES, v1};
use std::time::Duration;

/// Leases, locks or waiters in one page.
const PAGE: u64 = 1_000;
/// Ten years.
const DURATION_MS_MAX: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;
/// Bytes counted for each lease, lock or place in addition to its texts.
const ENTRY_BYTES: usize = 64;

pub(crate) fn lock_name(name: bytes::Bytes, election: bool) -> LockName {
    if election { LockName::election(name) } else { LockName::lock(name) }
}

pub(super) fn grant(grant: v1::GrantLease) -> Result<Body, Error> {
    let end = match grant_lease::EndBehavior::try_from(grant.end) {
        Ok(grant_lease::EndBehavior::Unspecified | grant_lease::EndBehavior::Delete) => EndBehavior::Delete,
        Ok(grant_lease::EndBehavior::Release) => EndBehavior::Release,
        // A newer client. To delete its keys instead would be wrong.
        Err(_) => return Err(invalid("end", "this version does not support the end behavior")),
    };
    let term = match grant.term {
        Some(grant_lease::Term::TtlMs(ttl)) => LeaseTerm::Ttl(duration(ttl)),
        Some(grant_lease::Term::Member(bound)) => {
            let v1::MemberBinding { member, client, registration } = &bound;
            for (field, text) in [("member", member), ("client", client), ("registration", registration)] {
                if text.is_empty() {
                    return Err(invalid(&format!("member.{field}"), format!("the {field} of the lease is required")));
                }
            }
            LeaseTerm::Member(member_binding(&bound))
        }
        None => return Err(invalid("term", "one of ttl_ms and member is required")),
    };
    Ok(Body::Grant(GrantLease { term, end }))
}

fn member_binding(bound: &v1::MemberBinding) -> MemberBinding {
    MemberBinding {
        member: (&bound.member).into(),
        client: (&bound.client).into(),
        registration: (&bound.registration).into(),
    }
}

/// Returns the registration that a grant binds its lease to, if it is complete.
pub(super) fn bound_member(grant: &v1::GrantLease) -> Option<MemberBinding> {
    match &grant.term {
        Some(grant_lease::Term::Member(bound)) => {
            let complete = [&bound.member, &bound.client, &bound.registration].iter().all(|text| !text.is_empty());
            complete.then(|| member_binding(bound))
        }
        _ => None,
    }
}

/// Converts an acquire. No permits means one.
pub(super) fn acquire(acquire: v1::AcquireLock) -> Body {
    let v1::AcquireLock { name, election, lease, permits, value, wait, delay_ms, waits_with } = acquire;
    Body::Acquire(Acquire {
        name: lock_name(name, election),
        lease: LeaseId(lease),
        permits: permits.max(1),
        value,
        wait,
        delay: duration(delay_ms),
        waits_with: Some(LeaseId(waits_with)).filter(|lease| wait && lease.0 > 0),
    })
}

pub(super) fn release(release: v1::ReleaseLock) -> Result<Body, Error> {
    use v1::release_lock::Place as Wanted;
    let place = match release.place {
        Some(Wanted::Lease(lease)) => Place::Lease(LeaseId(lease)),
        Some(Wanted::Fence(fence)) => Place::Fence(fence),
        None => return Err(invalid("place", "one of lease and fence is required")),
    };
    Ok(Body::Release(Release { name: lock_name(release.name, release.election), place }))
}

pub(super) fn proclaim(proclaim: v1::Proclaim) -> Body {
    let v1::Proclaim { name, election, fence, value } = proclaim;
    Body::Proclaim(Proclaim { name: lock_name(name, election), fence, value })
}

/// A change of a lock. The watch that selected it knows the name.
pub(crate) fn lock_event(event: &LockEvent) -> v1::LockEvent {
    use v1::lock_event::Kind;
    let fence = event.fence;
    let wire = |kind: Kind| v1::LockEvent { kind: kind.into(), fence, ..v1::LockEvent::default() };
    match &event.change {
        LockChange::Granted { lease, value } => {
            v1::LockEvent { lease: lease.0, value: value.clone(), ..wire(Kind::Granted) }
        }
        LockChange::Proclaimed { value } => v1::LockEvent { value: value.clone(), ..wire(Kind::Proclaimed) },
        LockChange::Released => wire(Kind::Released),
    }
}

/// A page of leases or locks.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) found: Vec<T>,
    pub(crate) more: bool,
}

/// Reads leases. `left` returns the time that the leader still waits for a keep-alive; other replicas do not know it.
pub(crate) fn read_leases(
    machine: &Machine,
    wanted: &v1::LeaseQuery,
    left: impl Fn(LeaseId) -> Option<Duration>,
) -> Result<Page<v1::Lease>, Error> {
    check_level(machine, Level::COORDINATION)?;
    let shown = |lease: &Lease| {
        let left_ms = left(lease.id).map(millis);
        v1::Lease { left_ms, ..shown_lease(lease) }
    };
    if wanted.lease > 0 {
        let id = LeaseId(wanted.lease);
        let Some(lease) = machine.lease(id) else { return Ok(Page { found: Vec::new(), more: false }) };
        let mut room = Room::new();
        let keys = machine.keys_of_lease(id);
        let attached = keys.iter().map(|record| record.key()).take_while(|key| room.take(key.len()));
        let attached = attached.map(|key| key.to_vec().into()).collect();
        let places = machine.places_of_lease(id);
        let places = places.iter().take_while(|place| room.take(place.name().name.len())).map(|place| {
            let election = place.name().space == LockSpace::Election;
            v1::LockGuard { name: place.name().name.clone(), fence: place.fence().unwrap_or(0), election }
        });
        let found = vec![v1::Lease { places: places.collect(), attached, ..shown(lease) }];
        return Ok(Page { found, more: false });
    }
    let mut following = machine.leases_after(LeaseId(wanted.after)).peekable();
    let (mut found, mut room, limit) = (Vec::new(), Room::new(), limit(wanted.limit));
    while found.len() < limit
        && let Some(lease) = following.next_if(|lease| room.take(text_bytes(lease)))
    {
        found.push(shown(lease));
    }
    Ok(Page { found, more: following.peek().is_some() })
}

fn shown_lease(lease: &Lease) -> v1::Lease {
    let (ttl_ms, member) = match &lease.term {
        LeaseTerm::Ttl(ttl) => (millis(*ttl), None),
        LeaseTerm::Member(MemberBinding { member, client, registration }) => {
            let [member, client, registration] = [member, client, registration].map(ToString::to_string);
            (0, Some(v1::MemberBinding { member, client, registration }))
        }
    };
    let end = match lease.end {
        EndBehavior::Delete => grant_lease::EndBehavior::Delete,
        EndBehavior::Release => grant_lease::EndBehavior::Release,
    };
    v1::Lease {
        lease: lease.id.0,
        ttl_ms,
        member,
        end: end.into(),
        granted_us: lease.granted_at.as_micros(),
        keys: lease.keys,
        owner: lease.owner.to_string(),
        ..v1::Lease::default()
    }
}

fn text_bytes(lease: &Lease) -> usize {
    let bound = match &lease.term {
        LeaseTerm::Ttl(_) => 0,
        LeaseTerm::Member(bound) => bound.member.len() + bound.client.len() + bound.registration.len(),
    };
    bound + lease.owner.len()
}

/// Reads locks or elections that are in use.
pub(crate) fn read_locks(machine: &Machine, wanted: v1::LockQuery) -> Result<Page<v1::Lock>, Error> {
    check_level(machine, Level::COORDINATION)?;
    let (mut room, limit) = (Room::new(), limit(wanted.limit));
    if let Some(name) = wanted.name {
        let name = lock_name(name, wanted.election);
        let Some(lock) = machine.lock(&name) else { return Ok(Page { found: Vec::new(), more: false }) };
        let mut shown = shown_lock(machine, lock, &mut room);
        let waiting = machine.places(&name).filter(|place| place.fence().is_none()).take(limit);
        let waiting = waiting.take_while(|place| room.take(place.value.len()));
        shown.queue = waiting.map(|place| holder(machine, place)).collect();
        let more = shown.waiting > shown.queue.len() as u64;
        return Ok(Page { found: vec![shown], more });
    }
    let from = lock_name(wanted.after.clone(), wanted.election);
    let following = machine.locks_from(&from).take_while(|lock| lock.name.space == from.space);
    let mut following =
        following.skip_while(|lock| lock.name.name == wanted.after && !wanted.after.is_empty()).peekable();
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(lock) = following.next_if(|lock| room.take(lock.name.name.len()))
    {
        found.push(shown_lock(machine, lock, &mut room));
    }
    Ok(Page { found, more: following.peek().is_some() })
}

/// Shows a lock with as many of its holders as fit.
fn shown_lock(machine: &Machine, lock: &Lock, room: &mut Room) -> v1::Lock {
    let holders = machine.places(&lock.name).take_while(|place| place.fence().is_some());
    let holders = holders.take_while(|place| room.take(place.value.len()));
    v1::Lock {
        name: lock.name.name.clone(),
        election: lock.name.space == LockSpace::Election,
        permits: lock.permits,
        holders: holders.map(|place| holder(machine, place)).collect(),
        waiting: lock.waiters,
        delayed_until_us: lock.delayed_until.map_or(0, LogTime::as_micros),
        queue: Vec::new(),
    }
}

fn holder(machine: &Machine, place: &LockPlace) -> v1::LockHolder {
    let lease = machine.lease(place.lease);
    let member = match lease.map(|lease| &lease.term) {
        Some(LeaseTerm::Member(bound)) => bound.member.to_string(),
        _ => String::new(),
    };
    v1::LockHolder {
        fence: place.fence().unwrap_or(0),
        lease: place.lease.0,
        value: place.value.clone(),
        since_us: place.since.as_micros(),
        member,
        owner: lease.map(|lease| lease.owner.to_string()).unwrap_or_default(),
    }
}

/// Times beyond every limit of the log become one that is still encoded, so that the log itself rejects them.
fn duration(millis: u64) -> Duration {
    Duration::from_millis(millis.min(DURATION_MS_MAX))
}

/// The bytes that an answer may still use. Its first entry always fits.
struct Room {
    left: usize,
    used: bool,
}

impl Room {
    fn new() -> Room {
        Room { left: PART_BYTES, used: false }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes + ENTRY_BYTES;
        let fits = bytes <= self.left || !self.used;
        (self.left, self.used) = (self.left.saturating_sub(bytes), true);
        fits
    }
}

fn limit(wanted: u64) -> usize {
    let wanted = if wanted == 0 { PAGE } else { wanted.min(PAGE) };
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
