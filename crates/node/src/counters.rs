//! Counts of what the shell did and refused, beside those of the core.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters once, as atomics for the node and as numbers for whoever asks.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)+
        }

        /// Monotonic counters of connections and queues.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct NetworkCounters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counting {
            pub(crate) fn read(&self) -> NetworkCounters {
                NetworkCounters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    links_accepted,
    /// Inbound peer connections closed because too many had not said who they are.
    links_unidentified_refused,
    /// Inbound peer connections that did not say who they are in time.
    handshakes_timed_out,
    /// Connections closed because of a wrong preamble or a frame beyond the limit.
    garbage_refused,
    /// Links closed because the peer read too slowly.
    links_overflowed,
    /// Connections handed to the log plane.
    log_connections,
    /// Connections for a log plane that this node does not run, or that is busy.
    log_connections_refused,
    dials,
    dials_failed,
    bytes_sent,
    bytes_received,
    /// Requests refused because the owner task was busy.
    inbox_full,
    /// Client connections closed because they did not take their notices.
    clients_overflowed,
    turns,
    inputs,
    restarts,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
