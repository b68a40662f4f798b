//! What is counted.

use hickory_proto::op::ResponseCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Queries and what became of them, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub queries_udp: u64,
    pub queries_tcp: u64,
    /// Answered with records, or that there are none.
    pub answered: u64,
    pub unknown_names: u64,
    /// Outside the zone, another class, a zone transfer.
    pub refused: u64,
    /// Not one well-formed question, or another operation.
    pub malformed: u64,
    /// The node was not ready, or the answer could not be written.
    pub failed: u64,
    /// Answers over UDP that did not fit.
    pub truncated: u64,
    /// Packets without an answer: no header, or answers themselves.
    pub ignored: u64,
    /// TCP connections closed because there were too many.
    pub connections_refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counting {
    queries: [AtomicU64; 2],
    answered: AtomicU64,
    unknown_names: AtomicU64,
    refused: AtomicU64,
    malformed: AtomicU64,
    failed: AtomicU64,
    truncated: AtomicU64,
    ignored: AtomicU64,
    connections_refused: AtomicU64,
}

impl Counting {
    pub(crate) fn query(&self, tcp: bool) {
        one_more(&self.queries[usize::from(tcp)]);
    }

    pub(crate) fn answer(&self, code: ResponseCode) {
        one_more(match code {
            ResponseCode::NoError => &self.answered,
            ResponseCode::NXDomain => &self.unknown_names,
            ResponseCode::Refused => &self.refused,
            ResponseCode::ServFail => &self.failed,
            _ => &self.malformed,
        });
    }

    pub(crate) fn truncated(&self) {
        one_more(&self.truncated);
    }

    pub(crate) fn ignored(&self) {
        one_more(&self.ignored);
    }

    pub(crate) fn connection_refused(&self) {
        one_more(&self.connections_refused);
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            queries_udp: read(&self.queries[0]),
            queries_tcp: read(&self.queries[1]),
            answered: read(&self.answered),
            unknown_names: read(&self.unknown_names),
            refused: read(&self.refused),
            malformed: read(&self.malformed),
            failed: read(&self.failed),
            truncated: read(&self.truncated),
            ignored: read(&self.ignored),
            connections_refused: read(&self.connections_refused),
        }
    }
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
