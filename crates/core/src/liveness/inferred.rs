//! Inferred `left` records: what the responsible node says about members of a silent owner (L4).

use crate::member::{Origin, Record};
use crate::version::{NodeId, OriginId};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Inferred {
    /// Who says so, in which write.
    pub(crate) origin: Arc<Origin>,
    pub(crate) n: u64,
    /// The claim it speaks of: number and owner.
    pub(crate) claim: u64,
    pub(crate) about: Arc<Origin>,
    /// The write that was current when it was made.
    pub(crate) about_n: u64,
    /// The owner had shown no life after this number.
    pub(crate) liveness_counter: u64,
    /// Met by the full merge under way.
    pub(crate) marked: bool,
}

impl Inferred {
    /// Whether it still speaks of this record, given the highest liveness counter known of the owner.
    pub(crate) fn applies(&self, record: &Record, liveness_counter: u64) -> bool {
        self.claim == record.claim && liveness_counter <= self.liveness_counter && self.about.id == record.origin.id
    }

    /// Between two inferred records of one id the higher stays.
    pub(crate) fn precedence(&self) -> (u64, &OriginId, u64, &NodeId, &OriginId, u64) {
        (self.claim, &self.about.id, self.liveness_counter, &self.origin.id.node, &self.origin.id, self.n)
    }
}
