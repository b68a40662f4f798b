//! Limits of the state. They are part of the state, so all replicas have the same limits (LH4).

use convoke_base::codec::COUNTER_MAX;
use std::time::Duration;

/// Limits on what the machine accepts or holds. A request beyond a limit gets a typed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Open sessions (LS7).
    pub sessions: u64,
    /// Open sessions of these that only nodes and operators may use, at most half of them (LS7).
    pub reserved_sessions: u64,
    /// Open sessions of one client address (LS7).
    pub sessions_per_client: u64,
    /// Ended sessions whose outcomes are kept (LS8).
    pub ended_sessions: u64,
    /// Outcomes that a session keeps although the client no longer wants them (F3).
    pub outcomes: u64,
    /// Outcomes that a session keeps because the client wants them (F5).
    pub window: u64,
    /// Bytes of outcomes that a session keeps, for each of the two kinds (F3, F5).
    pub outcome_bytes: u64,
    /// Bytes of previous records in one response (K4).
    pub response_bytes: u64,
    pub ttl_min: Duration,
    pub ttl_max: Duration,
    pub client_name_bytes: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// Keys that one request may delete (K5).
    pub range_keys: u64,
    /// Bytes of all keys and values, with [`RECORD_BYTES`](crate::keys::RECORD_BYTES) for each (K5).
    pub store_bytes: u64,
    /// Voters and learners together (M3).
    pub replicas: u64,
    pub address_bytes: u64,
    /// Limits of level 2. They become part of the state when the log reaches the level (V2).
    pub coordination: CoordinationLimits,
}

/// Limits of transactions, history, leases and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinationLimits {
    /// Keys of the store (Q1).
    pub keys: u64,
    /// Bytes of the results of one transaction (T5).
    pub answer_bytes: u64,
    /// Bytes of history (H2).
    pub history_bytes: u64,
    /// Age of history in log time (H2).
    pub history_age: Duration,
    /// Leases (Q1).
    pub leases: u64,
    pub lease_ttl_min: Duration,
    pub lease_ttl_max: Duration,
    /// Keys, and places in locks, of one lease (Q1).
    pub keys_per_lease: u64,
    pub places_per_lease: u64,
    /// Waiters of one lock (Q1).
    pub waiters: u64,
    /// Holders and waiters of all locks (Q1).
    pub places: u64,
    pub lock_value_bytes: u64,
    /// The longest delay of a lock (LO7).
    pub lock_delay_max: Duration,
}

impl CoordinationLimits {
    /// The limits of a log below level 2: nothing of level 2 exists, and nothing is limited.
    pub(crate) const INACTIVE: CoordinationLimits = CoordinationLimits {
        keys: u64::MAX,
        answer_bytes: 0,
        history_bytes: 0,
        history_age: Duration::ZERO,
        leases: 0,
        lease_ttl_min: Duration::ZERO,
        lease_ttl_max: Duration::ZERO,
        keys_per_lease: 0,
        places_per_lease: 0,
        waiters: 0,
        places: 0,
        lock_value_bytes: 0,
        lock_delay_max: Duration::ZERO,
    };

    /// The values in the order of their encoding.
    pub(crate) fn values(&self) -> [u64; 13] {
        [
            self.keys,
            self.answer_bytes,
            self.history_bytes,
            micros(self.history_age),
            self.leases,
            micros(self.lease_ttl_min),
            micros(self.lease_ttl_max),
            self.keys_per_lease,
            self.places_per_lease,
            self.waiters,
            self.places,
            self.lock_value_bytes,
            micros(self.lock_delay_max),
        ]
    }

    pub(crate) fn from_values(values: [u64; 13]) -> Self {
        let [
            keys,
            answer_bytes,
            history_bytes,
            age,
            leases,
            min,
            max,
            attached,
            places_per_lease,
            waiters,
            places,
            value,
            delay,
        ] = values;
        CoordinationLimits {
            keys,
            answer_bytes,
            history_bytes,
            history_age: Duration::from_micros(age),
            leases,
            lease_ttl_min: Duration::from_micros(min),
            lease_ttl_max: Duration::from_micros(max),
            keys_per_lease: attached,
            places_per_lease,
            waiters,
            places,
            lock_value_bytes: value,
            lock_delay_max: Duration::from_micros(delay),
        }
    }

    /// Rejects limits that would make the log unusable or its formats unbounded.
    pub fn check(&self) -> Result<(), LimitsError> {
        let year = micros(Duration::from_secs(365 * 24 * 60 * 60));
        let ttl_min = micros(self.lease_ttl_min);
        check_all(&[
            ("keys", self.keys, 1, COUNTER_MAX),
            ("answer_bytes", self.answer_bytes, 1, ANSWER_BYTES_MAX),
            ("history_bytes", self.history_bytes, 0, COUNTER_MAX),
            ("history_age", micros(self.history_age), 0, year),
            ("leases", self.leases, 1, COUNT_MAX),
            ("lease_ttl_min", ttl_min, 1, year),
            ("lease_ttl_max", micros(self.lease_ttl_max), ttl_min, year),
            ("keys_per_lease", self.keys_per_lease, 1, COUNT_MAX),
            ("places_per_lease", self.places_per_lease, 1, COUNT_MAX),
            ("waiters", self.waiters, 0, COUNT_MAX),
            ("places", self.places, 1, COUNT_MAX),
            ("lock_value_bytes", self.lock_value_bytes, 0, LOCK_VALUE_BYTES_MAX),
            ("lock_delay_max", micros(self.lock_delay_max), 0, year),
        ])
    }
}

impl Default for CoordinationLimits {
    fn default() -> Self {
        CoordinationLimits {
            keys: 5_000_000,
            answer_bytes: 2 * 1024 * 1024,
            history_bytes: 64 * 1024 * 1024,
            history_age: Duration::from_secs(60 * 60),
            leases: 100_000,
            lease_ttl_min: Duration::from_secs(1),
            lease_ttl_max: Duration::from_secs(24 * 60 * 60),
            keys_per_lease: 10_000,
            places_per_lease: 1_000,
            waiters: 10_000,
            places: 200_000,
            lock_value_bytes: 4 * 1024,
            lock_delay_max: Duration::from_secs(60),
        }
    }
}

fn check_all(bounds: &[(&'static str, u64, u64, u64)]) -> Result<(), LimitsError> {
    match bounds.iter().find(|(_, found, min, max)| found < min || found > max) {
        Some(&(field, found, min, max)) => Err(LimitsError { field, found, min, max }),
        None => Ok(()),
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits {
            sessions: 10_000,
            reserved_sessions: 512,
            sessions_per_client: 1_000,
            ended_sessions: 4_096,
            outcomes: 16,
            window: 1_024,
            outcome_bytes: 64 * 1024,
            response_bytes: 64 * 1024,
            ttl_min: Duration::from_secs(1),
            ttl_max: Duration::from_secs(10 * 60),
            client_name_bytes: 256,
            key_bytes: 1_024,
            value_bytes: 1024 * 1024,
            range_keys: 10_000,
            store_bytes: 2 * 1024 * 1024 * 1024,
            replicas: 64,
            address_bytes: 256,
            coordination: CoordinationLimits::default(),
        }
    }
}

/// A limit outside the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; it must be between {min} and {max}")]
pub struct LimitsError {
    pub field: &'static str,
    pub found: u64,
    pub min: u64,
    pub max: u64,
}

/// Hard limits of the formats; no configuration may exceed them.
pub(crate) const COUNT_MAX: u64 = 1 << 20;
pub(crate) const TEXT_BYTES_MAX: u64 = 4 * 1024;
pub(crate) const KEY_BYTES_MAX: u64 = 64 * 1024;
pub(crate) const VALUE_BYTES_MAX: u64 = 8 * 1024 * 1024;
pub(crate) const RESPONSE_BYTES_MAX: u64 = 4 * 1024 * 1024;
pub(crate) const REPLICAS_MAX: u64 = 256;
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub(crate) const LOCK_VALUE_BYTES_MAX: u64 = 64 * 1024;

impl LogLimits {
    /// Open sessions that clients other than nodes and operators may hold together (LS7): at least half of all.
    pub fn client_sessions(&self) -> u64 {
        self.sessions - self.reserved()
    }

    fn reserved(&self) -> u64 {
        self.reserved_sessions.min(self.sessions / 2)
    }

    /// Open sessions that one opener may hold (LS7). No node takes all reserved places.
    pub fn sessions_of(&self, reserved: bool) -> u64 {
        if reserved { (self.reserved() / 4).max(1) } else { self.sessions_per_client }
    }

    /// Rejects limits that would make the log unusable or its formats unbounded.
    pub fn check(&self) -> Result<(), LimitsError> {
        let year = micros(Duration::from_secs(365 * 24 * 60 * 60));
        let ttl_min = micros(self.ttl_min);
        let bounds = [
            ("sessions", self.sessions, 1, COUNT_MAX),
            ("reserved_sessions", self.reserved_sessions, 0, COUNT_MAX),
            ("sessions_per_client", self.sessions_per_client, 1, COUNT_MAX),
            ("ended_sessions", self.ended_sessions, 0, COUNT_MAX),
            ("outcomes", self.outcomes, 1, COUNT_MAX),
            ("window", self.window, 1, COUNT_MAX),
            ("outcome_bytes", self.outcome_bytes, 1, RESPONSE_BYTES_MAX),
            ("response_bytes", self.response_bytes, 0, RESPONSE_BYTES_MAX),
            ("ttl_min", ttl_min, 1, year),
            ("ttl_max", micros(self.ttl_max), ttl_min, year),
            ("client_name_bytes", self.client_name_bytes, 1, TEXT_BYTES_MAX),
            ("key_bytes", self.key_bytes, 1, KEY_BYTES_MAX),
            ("value_bytes", self.value_bytes, 0, VALUE_BYTES_MAX),
            ("range_keys", self.range_keys, 1, COUNTER_MAX),
            ("store_bytes", self.store_bytes, 0, COUNTER_MAX),
            ("replicas", self.replicas, 1, REPLICAS_MAX),
            ("address_bytes", self.address_bytes, 1, TEXT_BYTES_MAX),
        ];
        check_all(&bounds)?;
        if self.coordination == CoordinationLimits::INACTIVE { Ok(()) } else { self.coordination.check() }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed() {
        assert_eq!(LogLimits::default().check(), Ok(()));
    }

    #[test]
    fn a_bound_out_of_range_is_named() {
        let limits = LogLimits { ttl_max: Duration::from_millis(10), ..LogLimits::default() };
        let error = limits.check().unwrap_err();
        assert_eq!((error.field, error.found, error.min), ("ttl_max", 10_000, 1_000_000));
        assert_eq!(LogLimits { sessions: 0, ..LogLimits::default() }.check().unwrap_err().field, "sessions");
        assert_eq!(LogLimits { key_bytes: u64::MAX, ..LogLimits::default() }.check().unwrap_err().field, "key_bytes");
    }
}
