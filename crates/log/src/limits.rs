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

impl LogLimits {
    /// Open sessions that clients other than nodes and operators may hold together (LS7): at least half of all.
    pub fn client_sessions(&self) -> u64 {
        self.sessions - self.reserved()
    }

    fn reserved(&self) -> u64 {
        self.reserved_sessions.min(self.sessions / 2)
    }

    /// Open sessions that one opener may hold (LS7). No node takes all reserved places.
    pub(crate) fn sessions_of(&self, reserved: bool) -> u64 {
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
        for (field, found, min, max) in bounds {
            if found < min || found > max {
                return Err(LimitsError { field, found, min, max });
            }
        }
        Ok(())
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
