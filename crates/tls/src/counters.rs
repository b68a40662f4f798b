//! Counters of TLS.

convoke_counters::atomic_counters! {
    /// Counters of TLS on both ports of a node.
    pub struct TlsCounters read from Counting {
        /// TLS connections accepted on the client port.
        client_accepted,
        /// TLS handshakes of the client port that failed.
        client_handshakes_failed,
        /// TLS handshakes of the client port that took too long.
        client_handshakes_timed_out,
        /// TLS handshakes of the client port that were cut off because too many were in progress.
        client_handshakes_displaced,
        /// Connections to the client port without TLS that were refused.
        client_plain_rejected,
        /// Connections to the client port without TLS that were accepted because TLS is optional.
        client_plain_accepted,
        /// TLS connections accepted on the peer port.
        peer_accepted,
        /// TLS handshakes of the peer port that failed.
        peer_handshakes_failed,
        /// Connections to the peer port without TLS that were refused.
        peer_plain_rejected,
        /// Connections to the peer port without TLS that were accepted because TLS is optional.
        peer_plain_accepted,
        /// TLS connections opened to other nodes.
        dials,
        /// TLS handshakes with other nodes that failed.
        dials_failed,
        /// Connections to other nodes that fell back to no TLS, because TLS is optional.
        dials_plain,
        /// Connections to other nodes that failed instead of falling back, because the node is known to use TLS.
        dials_plain_rejected,
        /// Certificates and keys that were read again after a change.
        reloads,
        /// Changed certificates and keys that are not valid. The node goes on with the earlier ones.
        reloads_failed,
    }
}
