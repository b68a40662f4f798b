//! Events of a watch.

use crate::{member, versioned};
use convoke_core::member::{ChangeKind, Member};
use convoke_core::node::{ResetReason, StreamEvent};
use convoke_proto::v1;
use v1::watch_event::reset::Reason;
use v1::watch_event::{CaughtUp, Event, Mark, Reset, Snapshot};

/// Converts an event. A snapshot becomes a message with one member.
pub fn event(event: StreamEvent) -> v1::WatchEvent {
    let event = match event {
        StreamEvent::Snapshot(shown) => Event::Snapshot(Snapshot { members: vec![member(&shown)] }),
        StreamEvent::CaughtUp => Event::CaughtUp(CaughtUp {}),
        StreamEvent::Registered(member) => return change(ChangeKind::Registered, &member),
        StreamEvent::Updated(member) => return change(ChangeKind::Updated, &member),
        StreamEvent::StatusChanged(member) => return change(ChangeKind::StatusChanged, &member),
        StreamEvent::OwnerChanged(member) => return change(ChangeKind::OwnerChanged, &member),
        StreamEvent::Unregistered { id, version } => Event::Unregistered(versioned(id, version)),
        StreamEvent::Reset(reason) => Event::Reset(Reset { reason: reset_reason(reason).into() }),
        StreamEvent::Mark(token) => Event::Mark(Mark { token: token.into() }),
    };
    v1::WatchEvent { event: Some(event) }
}

/// Converts a change of a member. It depends on nothing else, so that a server encodes it once for all watchers.
pub fn change(kind: ChangeKind, shown: &Member) -> v1::WatchEvent {
    let event = match kind {
        ChangeKind::Registered => Event::Registered(member(shown)),
        ChangeKind::Updated => Event::Updated(member(shown)),
        ChangeKind::StatusChanged => Event::StatusChanged(member(shown)),
        ChangeKind::OwnerChanged => Event::OwnerChanged(member(shown)),
        ChangeKind::Unregistered => Event::Unregistered(versioned(shown.id().to_owned(), shown.version())),
    };
    v1::WatchEvent { event: Some(event) }
}

pub fn reset_reason(reason: ResetReason) -> Reason {
    match reason {
        ResetReason::Overflow => Reason::Overflow,
        ResetReason::TooOld => Reason::TooOld,
        ResetReason::Ahead => Reason::Ahead,
        ResetReason::Unreadable => Reason::Unreadable,
    }
}
