//! Counters of the limits of this process.

convoke_counters::counters! {
    /// How often a limit of the SDK was reached, since the start of the ambassador.
    pub struct LimitCounters {
        /// Requests refused because too many of them, or too many bytes, waited for an answer.
        requests_refused,
        /// Leases refused because too many were kept alive.
        leases_refused,
        /// Questions about leases and places in locks refused because too many waited for the leader.
        questions_refused,
        /// Events of watches and observers that waited because the application had not read earlier ones.
        events_delayed,
    }
}
