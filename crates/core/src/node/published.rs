//! Changes for readers outside the core: every change of a shown member or name, in order.
//!
//! A shell that serves reads from its own view requests them with [`super::Start::publish`] and applies
//! [`Output::changes`] after every call. Replayed from the start they give exactly the result of [`Node::members`].

use super::{Node, Output};
use crate::member::{Member, Space, Status};
use crate::mutant::seam;
use std::sync::Arc;

impl Node {
    /// Whether anything needs to know how members were shown before and after a change.
    pub(super) fn is_watched(&self) -> bool {
        self.publish || !self.watchers.is_empty()
    }

    /// Publishes how a slot is shown from now on; `left` means no longer.
    pub(super) fn publish(&self, before: Option<&Member>, after: Option<&Member>, out: &mut Output) {
        if !self.publish {
            return;
        }
        seam!(self, StatusNotPublished => if before.zip(after).is_some_and(|(b, a)| Arc::ptr_eq(&b.record, &a.record)) { return });
        let gone = |member: &Member| Member { record: member.record.clone(), status: Status::Left };
        out.changes.extend(after.cloned().or_else(|| before.map(gone)));
    }

    /// Publishes the removal of everything held, which is about to be dropped.
    pub(super) fn publish_all_removed(&self, out: &mut Output) {
        if self.publish {
            let shown = self.map.iter().filter(|record| record.is_live());
            out.changes.extend(shown.map(|record| Member { record: record.clone(), status: Status::Left }));
        }
    }

    /// Every registered name, in a stable order.
    pub fn names(&self) -> impl Iterator<Item = Member> {
        let names = self.map.iter().filter(|record| record.space == Space::Name).map(|record| self.map.member(record));
        names.filter(|name| name.status() != Status::Left)
    }
}
