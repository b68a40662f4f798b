//! Counts of what a node did and refused.

/// Monotonic counters; the shell exports them as metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub frames_received: u64,
    pub frames_malformed: u64,
    pub handshakes_refused: u64,
    pub records_applied: u64,
    pub records_known: u64,
    pub records_outranked: u64,
    pub records_refused: u64,
    pub conflicts: u64,
    pub pushes_sent: u64,
    pub pushes_gapped: u64,
    pub pushes_too_large: u64,
    /// A peer read too slowly and was left to the exchange.
    pub pushes_suspended: u64,
    pub exchanges_started: u64,
    pub chunks_sent: u64,
    pub full_merges: u64,
    pub local_writes: u64,
    pub requests_refused: u64,
    pub heartbeats: u64,
    pub sessions_down: u64,
    pub sessions_left: u64,
    pub takeovers: u64,
    pub collected: u64,
    pub subscriber_events: u64,
    pub subscriber_resets: u64,
}
