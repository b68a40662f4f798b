//! Counters of the checker.

pub(crate) use convoke_counters::add;

convoke_counters::atomic_counters! {
    /// Monotonic counters of the checker.
    pub struct CheckCounters read from Counting {
        /// Runs of checks that passed or ended with a warning.
        runs_good,
        /// Runs of checks that failed.
        runs_failed,
        /// Runs of checks that were not made because their address is denied.
        runs_denied,
        /// Reports of applications about checks.
        reports,
        /// Reports of applications about checks that this node does not know.
        reports_unknown,
        /// Changes of health written to the registry.
        published,
    }
}
