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
        /// Runs of scripts that ended with the exit status 0 or 1.
        scripts_good,
        /// Runs of scripts that failed or took too long.
        scripts_failed,
        /// Results of scripts that were not taken: their member or check does not exist, or its node cannot be reached.
        scripts_unreported,
        /// Reports of applications about checks.
        reports,
        /// Reports of applications about checks that this node does not know.
        reports_unknown,
        /// Changes of health written to the registry.
        published,
    }
}
