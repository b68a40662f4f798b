//! Counters of the shell, in addition to those of the core.

pub(crate) use convoke_counters::add;

convoke_counters::atomic_counters! {
    /// Monotonic counters of connections, queues and the event loop.
    pub struct NetworkCounters read from Counting {
        /// Inbound peer connections accepted.
        links_accepted,
        /// Inbound peer connections closed because too many were unidentified.
        links_unidentified_rejected,
        /// Inbound peer connections closed because the handshake took too long.
        handshakes_timed_out,
        /// Inbound peer connections closed because of an invalid preamble or an oversized frame.
        connections_malformed,
        /// Links closed because the peer read too slowly.
        links_overflowed,
        /// Inbound connections passed to another plane of the peer port.
        connections_dispatched,
        /// Inbound connections closed because their plane is off or busy.
        connections_undispatched,
        /// Outbound peer connection attempts.
        dials,
        /// Outbound peer connection attempts that failed.
        dials_failed,
        /// Bytes sent to peers.
        sent_bytes,
        /// Bytes received from peers.
        received_bytes,
        /// Requests rejected because a queue of the event loop was full.
        inbox_full,
        /// Heartbeats rejected because the connection had too many that waited.
        heartbeats_rejected,
        /// Client connections closed because the client did not read its notices.
        clients_overflowed,
        /// Turns of the event loop.
        turns,
        /// Inputs processed by the event loop.
        inputs,
        /// Reports about checks dropped because too many waited.
        check_reports_dropped,
        /// Restarts of the node within this process, each with a new incarnation.
        restarts,
    }
}
