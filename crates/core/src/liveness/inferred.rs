//! Inferred `left` records: records of the responsible node about members of a silent owner (L4).

use crate::member::{Origin, Record};
use crate::version::{NodeId, OriginId};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Inferred {
    /// The author of the inference, and its write.
    pub(crate) origin: Arc<Origin>,
    pub(crate) n: u64,
    /// The claim it is about: number and owner.
    pub(crate) claim: u64,
    pub(crate) about: Arc<Origin>,
    /// The write that was current when it was made.
    pub(crate) about_n: u64,
    /// The highest liveness counter of the owner known at that time.
    pub(crate) liveness_counter: u64,
    /// Marked by the full merge in progress.
    pub(crate) marked: bool,
}

impl Inferred {
    /// Whether it still applies to this record, given the highest liveness counter known of the owner.
    pub(crate) fn applies(&self, record: &Record, liveness_counter: u64) -> bool {
        self.is_about(record) && liveness_counter <= self.liveness_counter
    }

    /// Whether it is about the registration of this record.
    pub(crate) fn is_about(&self, record: &Record) -> bool {
        self.claim == record.claim && self.about.id == record.origin.id
    }

    /// Of two inferred records about one registration, the one with the higher precedence is kept.
    pub(crate) fn precedence(&self) -> (u64, &OriginId, u64, &NodeId, &OriginId, u64) {
        (self.claim, &self.about.id, self.liveness_counter, &self.origin.id.node, &self.origin.id, self.n)
    }
}
