//! Monotonic counters of a replica.

use crate::sync_times::SyncTiming;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the start of the replica.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) syncs: SyncTiming,
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Commands queued for the log.
    proposals,
    /// Commands rejected for any reason except load.
    refused,
    /// Commands and reads rejected because of load.
    refused_busy,
    /// Commands with an unknown outcome.
    unknown,
    /// Reads with confirmed leadership.
    reads_confirmed,
    /// Reads from local state.
    reads_local,
    /// Keep-alives confirmed.
    keep_alives,
    /// Terms led by this replica.
    terms,
    /// Session expiries proposed by this replica.
    expiries,
    /// Snapshots written, including those received from a leader.
    snapshots,
    /// Snapshots received from a leader.
    snapshots_installed,
    /// Snapshots sent to other replicas.
    snapshots_sent,
    /// Batches written to the log, each with one fsync.
    batches,
    /// Entries written to the log.
    entries,
    /// Bytes written to the log.
    bytes_written,
    /// Connections accepted from other replicas.
    connections,
    /// Connections rejected: too many, or meant for another replica.
    connections_refused,
    /// Malformed messages from other replicas.
    garbage,
    /// Messages to other replicas that failed or were not answered in time.
    rpc_failures,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
