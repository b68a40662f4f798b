//! Counters of queries and responses.

use convoke_counters::add;
use hickory_proto::op::ResponseCode;

convoke_counters::atomic_counters! {
    /// Monotonic counters of queries and responses.
    pub struct Counters read from Counting {
        /// DNS queries received over UDP.
        queries_udp,
        /// DNS queries received over TCP.
        queries_tcp,
        /// DNS queries answered with records or an empty answer.
        answered,
        /// DNS queries for names that do not exist.
        unknown_names,
        /// DNS queries answered with REFUSED: outside the zone, another class, a zone transfer, or a client outside of `dns.networks`.
        rejected,
        /// DNS queries that were not one well-formed question.
        malformed,
        /// DNS queries answered with SERVFAIL because the node was not ready or the response could not be written.
        failed,
        /// DNS responses truncated to fit the transport.
        truncated,
        /// DNS packets ignored: without a header, or responses themselves.
        ignored,
        /// DNS queries over UDP that were dropped, or answered with the TC bit and no records, because their network exceeded its limit.
        rate_limited,
        /// DNS connections closed because too many were open.
        connections_rejected,
    }
}

impl Counting {
    pub(crate) fn query(&self, tcp: bool) {
        add(if tcp { &self.queries_tcp } else { &self.queries_udp }, 1);
    }

    pub(crate) fn answer(&self, code: ResponseCode) {
        let counter = match code {
            ResponseCode::NoError => &self.answered,
            ResponseCode::NXDomain => &self.unknown_names,
            ResponseCode::Refused => &self.rejected,
            ResponseCode::ServFail => &self.failed,
            _ => &self.malformed,
        };
        add(counter, 1);
    }

    pub(crate) fn truncated(&self) {
        add(&self.truncated, 1);
    }

    pub(crate) fn ignored(&self) {
        add(&self.ignored, 1);
    }

    pub(crate) fn rate_limited(&self) {
        add(&self.rate_limited, 1);
    }

    pub(crate) fn connection_rejected(&self) {
        add(&self.connections_rejected, 1);
    }
}
