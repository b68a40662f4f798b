//! Leases, locks and elections. Lease ids are text, as in all JSON of this interface.

use super::base64_option;
use crate::v1;
use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Text, or bytes that are not valid UTF-8.
fn text(bytes: &Bytes) -> (String, Option<Vec<u8>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(bytes.to_vec())),
    }
}

/// Times of the log in UNIX milliseconds, as far as this machine's clock shows.
#[derive(Clone, Copy, Debug)]
pub struct LogClock {
    /// Log time of the answer, microseconds.
    pub log_time_us: u64,
    /// UNIX milliseconds when the answer arrived.
    pub unix_ms: u64,
}

impl LogClock {
    /// Converts a log time.
    pub fn unix_ms(self, log_time_us: u64) -> u64 {
        let ago = self.log_time_us.abs_diff(log_time_us) / 1_000;
        if log_time_us > self.log_time_us { self.unix_ms.saturating_add(ago) } else { self.unix_ms.saturating_sub(ago) }
    }
}

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub lease: String,
    /// Absent for a lease of a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Member that the lease is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Client of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Principal that the lease belongs to, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What happens to its keys at its end: `delete` or `release`.
    pub end: String,
    /// Time of the grant, UNIX milliseconds.
    pub since: u64,
    /// Time until the leader ends the lease without a further keep-alive, if the leader answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Number of attached keys.
    pub keys: u64,
    /// Attached keys, if one lease was requested; as many as fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<String>,
    /// Locks that the lease holds or waits for, if one lease was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockPlace>,
    /// Elections that the lease leads or is a candidate of, if one lease was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elections: Vec<LockPlace>,
}

/// The place of a lease in a lock or election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockPlace {
    pub name: String,
    /// Absent if the lease waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

impl Lease {
    pub fn new(lease: v1::Lease, clock: LogClock) -> Lease {
        let place = |place: &v1::LockGuard| LockPlace {
            name: text(&place.name).0,
            fence: (place.fence > 0).then_some(place.fence),
        };
        let end = match lease.end() {
            v1::grant_lease::EndBehavior::Release => "release",
            _ => "delete",
        };
        let (elections, locks): (Vec<_>, Vec<_>) = lease.places.iter().partition(|place| place.election);
        Lease {
            lease: lease.lease.to_string(),
            ttl_ms: (lease.ttl_ms > 0).then_some(lease.ttl_ms),
            end: end.to_owned(),
            since: clock.unix_ms(lease.granted_us),
            left_ms: lease.left_ms,
            keys: lease.keys,
            attached: lease.attached.iter().map(|key| text(key).0).collect(),
            locks: locks.into_iter().map(place).collect(),
            elections: elections.into_iter().map(place).collect(),
            owner: Some(lease.owner).filter(|owner| !owner.is_empty()),
            member: lease.member.as_ref().map(|bound| bound.member.clone()),
            client: lease.member.map(|bound| bound.client),
        }
    }
}

/// A page of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseList {
    pub leases: Vec<Lease>,
    /// Continues the list after its last lease; `null` at the end.
    pub next_cursor: Option<String>,
}

/// A holder or a waiter of a lock, a leader or a candidate of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Absent for a waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    pub lease: String,
    /// Member that the lease is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Principal that the lease belongs to, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The value as text. Invalid UTF-8 is replaced.
    pub value: String,
    /// The bytes of the value, if it is not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub value_base64: Option<Vec<u8>>,
    /// Time of the grant, or at which the waiter queued, UNIX milliseconds.
    pub since: u64,
}

impl LockHolder {
    fn new(holder: v1::LockHolder, clock: LogClock) -> LockHolder {
        let (value, value_base64) = text(&holder.value);
        LockHolder {
            fence: (holder.fence > 0).then_some(holder.fence),
            lease: holder.lease.to_string(),
            member: Some(holder.member).filter(|member| !member.is_empty()),
            owner: Some(holder.owner).filter(|owner| !owner.is_empty()),
            value,
            value_base64,
            since: clock.unix_ms(holder.since_us),
        }
    }
}

/// A lock with its holders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The name as text. Invalid UTF-8 is replaced.
    pub lock: String,
    pub permits: u64,
    pub holders: Vec<LockHolder>,
    /// Number of waiters.
    pub waiting: u64,
    /// The queue in order, if one lock was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<LockHolder>,
    /// Time until which the lock is granted to nobody, UNIX milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<u64>,
}

impl Lock {
    pub fn new(lock: v1::Lock, clock: LogClock) -> Lock {
        let holders = |holders: Vec<v1::LockHolder>| -> Vec<LockHolder> {
            holders.into_iter().map(|holder| LockHolder::new(holder, clock)).collect()
        };
        Lock {
            lock: text(&lock.name).0,
            permits: lock.permits.max(1),
            holders: holders(lock.holders),
            waiting: lock.waiting,
            queue: holders(lock.queue),
            delayed_until: (lock.delayed_until_us > 0).then(|| clock.unix_ms(lock.delayed_until_us)),
        }
    }

    /// A lock that nobody holds or waits for.
    pub fn free(name: &str) -> Lock {
        Lock { lock: name.to_owned(), permits: 1, ..Lock::default() }
    }
}

/// A page of locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockList {
    pub locks: Vec<Lock>,
    /// Continues the list after its last lock; `null` at the end.
    pub next_cursor: Option<String>,
}

/// An election with its leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Election {
    pub election: String,
    pub leader: Option<LockHolder>,
    /// Number of candidates that wait.
    pub candidates: u64,
    /// The candidates in order, if one election was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<LockHolder>,
}

impl Election {
    pub fn new(election: v1::Lock, clock: LogClock) -> Election {
        let Lock { lock, holders, waiting, queue, .. } = Lock::new(election, clock);
        Election { election: lock, leader: holders.into_iter().next(), candidates: waiting, queue }
    }

    /// An election without candidates.
    pub fn empty(name: &str) -> Election {
        Election { election: name.to_owned(), ..Election::default() }
    }
}

/// A page of elections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionList {
    pub elections: Vec<Election>,
    /// Continues the list after its last election; `null` at the end.
    pub next_cursor: Option<String>,
}

/// A change of the leader of an election, or of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderChange {
    pub revision: u64,
    /// `null` if the election has no leader now.
    pub leader: Option<ElectedLeader>,
    /// The first state of a watch, or a state after changes that may be missing.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub reset: bool,
}

/// The leader of an election as observers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectedLeader {
    pub fence: u64,
    pub lease: String,
    /// The value as text. Invalid UTF-8 is replaced.
    pub value: String,
    /// The bytes of the value, if it is not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub value_base64: Option<Vec<u8>>,
}

impl ElectedLeader {
    pub fn new(fence: u64, lease: u64, value: &Bytes) -> ElectedLeader {
        let (value, value_base64) = text(value);
        ElectedLeader { fence, lease: lease.to_string(), value, value_base64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn times_of_the_log_are_shown_in_unix_milliseconds() {
        let clock = LogClock { log_time_us: 10_000_000, unix_ms: 1_000_000 };
        assert_eq!(clock.unix_ms(9_000_000), 999_000);
        assert_eq!(clock.unix_ms(12_500_000), 1_002_500);
    }

    #[test]
    fn a_lock_is_shown_with_text_and_optional_fields() {
        let holder =
            v1::LockHolder { fence: 7, lease: 3, value: "me".into(), since_us: 9_000_000, ..Default::default() };
        let (member, owner) = ("m".to_owned(), "token/a".to_owned());
        let waiter = v1::LockHolder { fence: 0, lease: 4, value: vec![0xff].into(), member, since_us: 0, owner };
        let lock = v1::Lock {
            name: "jobs".into(),
            holders: vec![holder],
            waiting: 1,
            queue: vec![waiter],
            ..v1::Lock::default()
        };
        let shown =
            serde_json::to_value(Lock::new(lock, LogClock { log_time_us: 10_000_000, unix_ms: 20_000 })).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({
                "lock": "jobs", "permits": 1, "waiting": 1,
                "holders": [{ "fence": 7, "lease": "3", "value": "me", "since": 19_000 }],
                "queue": [{ "lease": "4", "member": "m", "owner": "token/a", "value": "\u{fffd}", "value_base64": "/w==", "since": 10_000 }],
            })
        );
    }
    /// Shows what a node sent, and reads it again as a program would.
    fn check<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(shown: &T) {
        let json = serde_json::to_string(shown).unwrap();
        assert_eq!(serde_json::from_str::<T>(&json).as_ref().ok(), Some(shown), "{json}");
    }

    #[test]
    fn fuzz_answers() {
        let guard = |election| v1::LockGuard { name: "l".into(), fence: 3, election };
        let holder = v1::LockHolder { fence: 3, lease: 4, value: Bytes::from_static(b"\xff"), ..Default::default() };
        let lease = v1::Lease {
            lease: 4,
            ttl_ms: 10_000,
            member: Some(v1::MemberBinding { member: "m".into(), client: "c".into(), registration: "r".into() }),
            granted_us: 7,
            attached: vec!["k".into()],
            places: vec![guard(false), guard(true)],
            left_ms: Some(3),
            ..v1::Lease::default()
        };
        let (holders, queue) = (vec![holder.clone()], vec![holder]);
        let lock = v1::Lock { name: "l".into(), permits: 2, holders, queue, delayed_until_us: 9, ..Default::default() };
        // Times of a log that is far ahead must not overflow.
        let clock = LogClock { log_time_us: 5, unix_ms: u64::MAX - 3 };
        convoke_fuzz::bytes(&[lease.encode_to_vec(), lock.encode_to_vec()], |bytes| {
            if let Ok(lease) = v1::Lease::decode(bytes) {
                check(&Lease::new(lease, clock));
            }
            if let Ok(lock) = v1::Lock::decode(bytes) {
                check(&Lock::new(lock.clone(), clock));
                check(&Election::new(lock, clock));
            }
        });
    }
}
