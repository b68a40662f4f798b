//! Spans of requests in the log (docs/monitoring.md): propose, commit, apply. They cost almost nothing without a
//! watcher.

use convoke_trace::TARGET;
use tracing::field::Empty;
use tracing::{Span, info_span};

/// Span from the proposal to its answer.
pub(crate) fn propose(bytes: usize) -> Span {
    info_span!(target: TARGET, "log.propose", convoke.bytes = bytes, convoke.index = Empty, "error.type" = Empty)
}

/// Span until the entry is committed.
pub(crate) fn commit(proposal: &Span) -> Span {
    info_span!(target: TARGET, parent: proposal, "log.commit")
}

/// Span from the commit until the entry is applied.
pub(crate) fn apply(proposal: &Span, index: u64) -> Span {
    proposal.record("convoke.index", index);
    info_span!(target: TARGET, parent: proposal, "log.apply")
}

pub(crate) fn failed(proposal: &Span, why: &str) {
    proposal.record("error.type", why);
}
