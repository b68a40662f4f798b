//! Counters of the registry core.

convoke_counters::counters! {
    /// Monotonic counters; the shell exports them as metrics.
    pub struct Counters {
        /// Frames received from peers.
        frames_received,
        /// Malformed frames received from peers; each one closes its link.
        frames_malformed,
        /// Frames received from peers with numbers that no correct node sends; each one closes its link.
        frames_excessive,
        /// Peer handshakes rejected.
        handshakes_rejected,
        /// Records received from peers that changed the registry.
        records_applied,
        /// Records received from peers that were already known.
        records_known,
        /// Records received from peers that rank below the record held.
        records_outranked,
        /// Records received from peers that were rejected.
        records_rejected,
        /// Concurrent writes detected.
        conflicts,
        /// Pushes sent to peers.
        pushes_sent,
        /// Pushes received from peers with earlier writes missing.
        pushes_gapped,
        /// Pushes deferred to an exchange because of their size.
        pushes_too_large,
        /// Pushes deferred to an exchange because the peer read too slowly.
        pushes_suspended,
        /// Exchanges started with peers.
        exchanges_started,
        /// Chunks of deltas and full merges sent.
        chunks_sent,
        /// Full merges received from peers.
        full_merges,
        /// Comparisons of contents with peers that had the same context.
        contents_compared,
        /// Peers found to hold other contents with the same context.
        divergences,
        /// Writes accepted by this node.
        local_writes,
        /// Client requests rejected.
        requests_rejected,
        /// Heartbeats received from clients.
        heartbeats,
        /// Sessions that timed out.
        sessions_down,
        /// Sessions that expired after they had timed out.
        sessions_left,
        /// Sessions asked to move to a node with fewer.
        sessions_rebalanced,
        /// Sessions that came back from the node they were sent to.
        sessions_returned,
        /// Members of silent origins expired by this node.
        members_expired,
        /// Agentless members adopted by this node.
        agentless_adopted,
        /// Changes of the health of members that this node wrote.
        health_changes,
        /// Agentless members deregistered because their checks were critical for too long.
        critical_deregistered,
        /// Reports about checks that reached this node after the member had moved.
        check_reports_lost,
        /// Agentless members restored from disk by this node.
        agentless_restored,
        /// Drains of members of this node that ended by themselves.
        drains_ended,
        /// Tombstones collected.
        tombstones_collected,
        /// Changes queued for watchers.
        watcher_events,
        /// Watches reset because the watcher fell behind or its resume token was unusable.
        watcher_resets,
    }
}
