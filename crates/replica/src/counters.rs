//! Monotonic counts of what a replica did and refused.

use crate::sync_times::SyncTiming;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the replica was started.
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
    /// Commands put in line for the log.
    proposals,
    /// Commands refused for any reason but load.
    refused,
    /// Commands and reads refused because too much was under way.
    refused_busy,
    /// Commands whose fate the leader lost sight of.
    unknown,
    /// Reads that had leadership confirmed.
    reads_confirmed,
    /// Reads from local state.
    reads_local,
    /// Keep-alives confirmed.
    keep_alives,
    /// Terms this replica led.
    terms,
    /// Sessions this replica proposed to expire.
    expiries,
    /// Snapshots written here, those taken over from a leader among them.
    snapshots,
    /// Snapshots taken over from a leader.
    snapshots_installed,
    /// Snapshots sent to others.
    snapshots_sent,
    /// Batches written to the log, each with one fsync.
    batches,
    /// Entries in them.
    entries,
    /// Bytes in them.
    bytes_written,
    /// Connections of other replicas accepted.
    connections,
    /// Connections refused: too many, or not a replica of this log.
    connections_refused,
    /// Messages of other replicas that could not be read.
    garbage,
    /// Messages to other replicas that were not answered in time, or could not be sent.
    rpc_failures,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
