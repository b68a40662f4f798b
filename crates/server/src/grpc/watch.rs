//! A watch: batches of the node's subscription, event by event, snapshots in parts.

use crate::convert::wire_member;
use crate::watchers::Watching;
use convoke_node::Subscription;
use convoke_node::core::node::{ResetReason, StreamEvent};
use convoke_proto::v1::watch_event::{self, Event, reset};
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use futures_core::Stream;
use prost::Message;
use std::iter::Peekable;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::vec;
use tonic::Status;

pub(crate) struct WatchStream {
    subscription: Subscription,
    batch: Peekable<vec::IntoIter<StreamEvent>>,
    ended: bool,
    _watching: Watching,
}

impl WatchStream {
    pub(crate) fn new(subscription: Subscription, watching: Watching) -> Self {
        WatchStream { subscription, batch: Vec::new().into_iter().peekable(), ended: false, _watching: watching }
    }

    /// The next message of the present batch.
    fn take(&mut self) -> Option<v1::WatchEvent> {
        let event = match self.batch.next()? {
            StreamEvent::Snapshot(member) => {
                let mut members = vec![wire_member(&member)];
                let mut bytes = members[0].encoded_len();
                while bytes < PART_BYTES
                    && let Some(StreamEvent::Snapshot(member)) =
                        self.batch.next_if(|event| matches!(event, StreamEvent::Snapshot(_)))
                {
                    let member = wire_member(&member);
                    bytes += member.encoded_len();
                    members.push(member);
                }
                Event::Snapshot(watch_event::Snapshot { members })
            }
            StreamEvent::CaughtUp => Event::CaughtUp(watch_event::CaughtUp {}),
            StreamEvent::Registered(member) => Event::Registered(wire_member(&member)),
            StreamEvent::Updated(member) => Event::Updated(wire_member(&member)),
            StreamEvent::StatusChanged(member) => Event::StatusChanged(wire_member(&member)),
            StreamEvent::OwnerChanged(member) => Event::OwnerChanged(wire_member(&member)),
            StreamEvent::Unregistered { id, version } => {
                Event::Unregistered(v1::Versioned { id, version: version.to_string() })
            }
            StreamEvent::Reset(reason) => Event::Reset(watch_event::Reset { reason: reset_reason(reason).into() }),
            StreamEvent::Mark(token) => Event::Mark(watch_event::Mark { token }),
        };
        Some(v1::WatchEvent { event: Some(event) })
    }
}

fn reset_reason(reason: ResetReason) -> reset::Reason {
    match reason {
        ResetReason::Overflow => reset::Reason::Overflow,
        ResetReason::TooOld => reset::Reason::TooOld,
        ResetReason::Ahead => reset::Reason::Ahead,
        ResetReason::Unreadable => reset::Reason::Unreadable,
    }
}

impl Stream for WatchStream {
    type Item = Result<v1::WatchEvent, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(event) = this.take() {
                return Poll::Ready(Some(Ok(event)));
            }
            match ready!(Pin::new(&mut this.subscription).poll_next(context)) {
                Some(batch) => this.batch = batch.into_iter().peekable(),
                None => {
                    this.ended = true;
                    let message = "the node has dropped this watch; watch again, here or elsewhere, with the last mark";
                    return Poll::Ready(Some(Err(Error::new(ErrorCode::NotReady, message).into())));
                }
            }
        }
    }
}
