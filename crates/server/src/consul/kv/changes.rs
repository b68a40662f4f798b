//! Blocking queries of keys: they wait for the first change after the index of the client, which is a revision of the log
//! (CK3).

use super::super::blocking::{Source, Waiter, blocking};
use super::super::params::{Mode, ReadOptions};
use super::{Read, consistency, read};
use crate::access::Caller;
use crate::consul::Failure;
use crate::log::{self, Feed, WantedWatch};
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_client::log::Query;
use convoke_log::history::{EventPosition, WatchFilter};
use convoke_log::keys::Selection;
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, v1};
use std::time::Duration;

/// The only watch of its feed.
const ID: u64 = 1;
/// The index of a log without a revision. It is no revision, and clients do not wait with an index of 0. They treat the index of
/// the first revision, which is lower, as a reset.
const BEFORE_FIRST: u64 = (1 << 53) - 1;
/// Time before a wait is tried again that the log refused.
const PAUSE: Duration = Duration::from_secs(1);

/// A read of keys, and what the client knows of them.
pub(super) struct Keys<'a> {
    pub(super) surface: &'a Surface,
    pub(super) waiter: &'a Waiter,
    pub(super) options: &'a ReadOptions,
    pub(super) query: Query,
    pub(super) selection: Selection,
    /// Whether something has changed since the index of the client.
    pub(super) has_changed: bool,
}

impl Keys<'_> {
    /// Reads, after the next change if the request asks for that. The index of the result is that of the client if nothing
    /// has changed until the wait is over.
    pub(super) async fn read(mut self) -> Result<(u64, Read), Failure> {
        let Keys { surface, waiter, options, .. } = self;
        if options.index > 0
            && let (_, Some(found)) = Box::pin(blocking(surface, waiter, options, &mut self)).await?
        {
            return Ok(found);
        }
        let (index, found) = Box::pin(self.now()).await?;
        Ok((if options.index > 0 { options.index } else { index }, found))
    }

    /// Of a key that exists, the index is that of its last change, as in Consul.
    async fn now(&self) -> Result<(u64, Read), Failure> {
        let found = read(self.surface, self.query.clone(), consistency(self.options.consistency)).await?;
        let of_key = found.pairs.first().filter(|_| matches!(self.selection, Selection::Key(_)));
        let index = of_key.map_or(found.revision, |pair| pair.modify_index);
        Ok((if index == 0 { BEFORE_FIRST } else { index }, found))
    }

    async fn change(&self) -> Result<(), Error> {
        let is_stale = self.options.consistency == Mode::Stale;
        let seen = if self.options.index == BEFORE_FIRST { 0 } else { self.options.index };
        changed_after(self.surface, self.waiter, self.selection.clone(), seen, is_stale).await
    }
}

/// Returns after the first change of the selected keys above a revision, or if the log does not know it: history no longer
/// contains the revision, or the client got it from another log.
pub(in crate::consul) async fn changed_after(
    surface: &Surface,
    waiter: &Waiter,
    selection: Selection,
    revision: u64,
    is_stale: bool,
) -> Result<(), Error> {
    let log = surface.log()?;
    let from = Some(EventPosition::start_of(revision.saturating_add(1)));
    let wanted = vec![WantedWatch { id: ID, filter: WatchFilter::keys(selection), from, previous: false }];
    let source = log::Source::of(&log.service, Some(&log.feeds), is_stale, &wanted).await?;
    let connection = waiter.connection.0.as_ref();
    let mut feed = Feed::open(&log.service, source, wanted, Duration::ZERO, connection).await?;
    let is_shown = |event: &v1::KeyEvent| may_read(&waiter.caller, event);
    loop {
        match feed.next().await? {
            Message::Events(page) if page.events.iter().any(is_shown) => return Ok(()),
            Message::Compacted(_) => return Ok(()),
            Message::Events(_) | Message::Progress(_) | Message::Started(_) => {}
        }
    }
}

/// A change of a key that the caller may not read must not end its query.
fn may_read(caller: &Caller, event: &v1::KeyEvent) -> bool {
    let key: &[u8] = match &event.change {
        Some(Change::Put(record)) => &record.key,
        Some(Change::Delete(key)) => key,
        Some(Change::Lock(_)) | None => return true,
    };
    caller.may(Verb::Read, Resource::Key(key))
}

impl Source for Keys<'_> {
    type Result = Option<(u64, Read)>;

    /// Nothing is read before something has changed.
    async fn read(&mut self) -> Result<(u64, Self::Result), Failure> {
        if !self.has_changed {
            return Ok((self.options.index, None));
        }
        let (index, found) = Box::pin(self.now()).await?;
        Ok((index, Some((index, found))))
    }

    async fn changed(&mut self) {
        if self.has_changed || Box::pin(self.change()).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
        self.has_changed = true;
    }
}
