//! Counters of a replica.

pub(crate) use convoke_counters::add;
use prometheus_client::metrics::histogram::Histogram;
use std::ops::Deref;

/// Upper bounds of the sync time in seconds: from a disk that confirms at once to one that hangs.
const SYNC_BOUNDS: [f64; 12] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

convoke_counters::atomic_counters! {
    /// Monotonic counters since the start of the replica.
    pub struct Counters read from Counts {
        /// Commands queued for the log.
        proposals,
        /// Commands rejected for any reason other than load.
        commands_rejected,
        /// Commands and reads rejected because too many were in progress.
        requests_rejected_busy,
        /// Messages of a leader or candidate refused because the certificate of the connection names another node.
        senders_rejected,
        /// Commands with an unknown outcome.
        outcomes_unknown,
        /// Reads answered after leadership was confirmed.
        reads_confirmed,
        /// Reads answered from local state.
        reads_local,
        /// Keep-alives of log sessions confirmed.
        keep_alives,
        /// Keep-alives of leases confirmed.
        lease_keep_alives,
        /// Leadership rounds for keep-alives of leases.
        leadership_rounds,
        /// Leases that this replica proposed to end because they were not kept alive.
        lease_expiries,
        /// Leases that this replica proposed to end because their member was gone.
        member_leases_ended,
        /// Leases granted, in the entries that this replica applied.
        leases_granted,
        /// Permits of locks and elections granted, in the entries that this replica applied.
        lock_grants,
        /// Clients that this replica told about a change of their place in a lock.
        places_reported,
        /// Terms led by this replica.
        terms_led,
        /// Log session expiries proposed by this replica.
        session_expiries,
        /// Snapshots written by this replica, installed ones included.
        snapshots,
        /// Snapshots installed from a leader.
        snapshots_installed,
        /// Snapshots sent to other replicas.
        snapshots_sent,
        /// Batches written to the log, each with one fsync.
        batches,
        /// Entries written to the log.
        entries,
        /// Bytes written to the log.
        written_bytes,
        /// Inbound replica connections accepted.
        connections,
        /// Inbound replica connections rejected: too many, or not a replica of this log.
        connections_rejected,
        /// Replica connections closed because of a malformed message.
        messages_malformed,
        /// Leaders whose process ended, as seen by this replica.
        leaders_lost,
        /// Elections that this replica started because the process of the leader had ended.
        elections_early,
        /// Early elections that this replica did not start because too few voters confirmed the end of the leader.
        elections_early_declined,
        /// Differences between the state of this replica and the state of its leader at the same entry.
        divergences,
        /// RPCs to other replicas that were not sent or not answered in time.
        rpc_errors,
    }
}

/// All that a replica counts and times.
#[derive(Debug)]
pub(crate) struct Counting {
    counts: Counts,
    /// Time to write a batch and sync it.
    pub(crate) syncs: Histogram,
}

impl Default for Counting {
    fn default() -> Self {
        Counting { counts: Counts::default(), syncs: Histogram::new(SYNC_BOUNDS) }
    }
}

impl Deref for Counting {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}
