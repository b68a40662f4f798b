//! How much of the limits of the state is in use (Q1).

use super::Machine;
use super::outcome::Field;

/// From this part of a limit on, in percent, operators are warned.
const WARN_PERCENT: u128 = 80;

/// The use of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub field: Field,
    pub used: u64,
    pub limit: u64,
}

impl Quota {
    /// Returns whether at least 80 percent are in use. At the limit, growing requests are rejected.
    pub fn is_nearly_reached(&self) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.limit) * WARN_PERCENT
    }
}

impl Machine {
    /// Returns the use of the limits that requests of clients can reach. Below level 2 only the size of the store is
    /// limited.
    pub fn quotas(&self) -> Vec<Quota> {
        let (limits, coordination) = (&self.limits, &self.limits.coordination);
        let all = [
            (Field::Store, self.keys.bytes(), limits.store_bytes),
            (Field::Keys, self.keys.len() as u64, coordination.keys),
            (Field::Leases, self.leases.len() as u64, coordination.leases),
            (Field::Places, self.locks.place_count() as u64, coordination.places),
        ];
        let limited = all.into_iter().filter(|(_, _, limit)| *limit > 0 && *limit < u64::MAX);
        limited.map(|(field, used, limit)| Quota { field, used, limit }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, LogLimits};

    #[test]
    fn q1_a_quota_warns_from_eighty_percent_on() {
        let quota = |used| Quota { field: Field::Keys, used, limit: 10 };
        assert!(!quota(7).is_nearly_reached() && quota(8).is_nearly_reached() && quota(10).is_nearly_reached());
        assert!(Quota { field: Field::Store, used: u64::MAX, limit: u64::MAX }.is_nearly_reached());
        let fields = |level| {
            let machine = Machine::created(LogLimits::default(), level).unwrap();
            machine.quotas().iter().map(|quota| quota.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(Level::FIRST), [Field::Store]);
        assert_eq!(fields(Level::COORDINATION), [Field::Store, Field::Keys, Field::Leases, Field::Places]);
    }
}
