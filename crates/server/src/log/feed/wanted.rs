//! The watches that a stream asks for.

use super::wants::Want;
use crate::error::invalid;
use crate::log::convert::key_range;
use crate::log::coordination::lock_name;
use convoke_log::command::{LockName, LockSpace};
use convoke_log::history::{EventPosition, WatchFilter, WatchScope, WatchUnion};
use convoke_log::keys::{KeyRange, Selection};
use convoke_proto::v1::key_watch::Which;
use convoke_proto::{Error, KEY_WATCHES_MAX, UNION_MAX, v1};

/// What a watch wants.
#[derive(Clone, Debug)]
pub(crate) struct WantedWatch {
    pub(crate) id: u64,
    pub(crate) filter: WatchFilter,
    /// `None`: the first change after the current state.
    pub(crate) from: Option<EventPosition>,
    pub(crate) previous: bool,
}

impl WantedWatch {
    /// Whether another watch has the same events.
    pub(super) fn is_like(&self, other: &WantedWatch) -> bool {
        self.filter == other.filter && self.previous == other.previous
    }

    /// Returns what a node without a replica must follow to serve the watch.
    pub(super) fn wants(&self) -> Vec<Want> {
        let keys = |range: &KeyRange| Want::keys(range.clone(), self.previous);
        match &self.filter.scope {
            WatchScope::Keys(selection) => vec![keys(&selection.range())],
            WatchScope::Lock(lock) => vec![Want::Lock(lock.clone())],
            WatchScope::Union(union) => {
                union.ranges().iter().map(keys).chain(union.locks().cloned().map(Want::Lock)).collect()
            }
        }
    }

    /// Returns the watch as a request to a replica, at a position.
    pub(super) fn request(&self, from: EventPosition) -> v1::KeyWatch {
        let which = match &self.filter.scope {
            WatchScope::Keys(Selection::Key(key)) => Which::Key(key.clone()),
            WatchScope::Keys(Selection::Range(range)) => {
                Which::Range(v1::KeyRange { from: range.from.clone(), until: range.until.clone() })
            }
            WatchScope::Lock(lock) => Which::Lock(wire_lock(lock)),
            WatchScope::Union(union) => Which::Union(wire_union(union)),
        };
        v1::KeyWatch {
            id: self.id,
            which: Some(which),
            from: Some(wire_position(from)),
            previous: self.previous,
            no_puts: !self.filter.puts,
            no_deletes: !self.filter.deletes,
        }
    }
}

fn wire_lock(lock: &LockName) -> v1::LockGuard {
    v1::LockGuard { name: lock.name.clone(), fence: 0, election: lock.space == LockSpace::Election }
}

pub(super) fn wire_union(union: &WatchUnion) -> v1::KeyWatchUnion {
    let range = |range: &KeyRange| v1::KeyRange { from: range.from.clone(), until: range.until.clone() };
    v1::KeyWatchUnion {
        ranges: union.ranges().iter().map(range).collect(),
        locks: union.locks().map(wire_lock).collect(),
    }
}

fn watch_union(union: v1::KeyWatchUnion) -> Result<WatchUnion, Error> {
    let v1::KeyWatchUnion { ranges, locks } = union;
    let count = ranges.len() + locks.len();
    if count == 0 || count > UNION_MAX {
        let message = format!("a union has 1 to {UNION_MAX} ranges and locks, not {count}");
        return Err(invalid("union", message).limit(UNION_MAX as u64));
    }
    let locks = locks.into_iter().map(|lock| lock_name(lock.name, lock.election));
    Ok(WatchUnion::new(ranges.into_iter().map(key_range), locks, UNION_MAX))
}

pub(super) fn wire_position(position: EventPosition) -> v1::EventPosition {
    v1::EventPosition { revision: position.revision, index: position.index }
}

/// A missing position is the first one.
pub(crate) fn event_position(position: Option<v1::EventPosition>) -> EventPosition {
    let v1::EventPosition { revision, index } = position.unwrap_or_default();
    EventPosition { revision, index }
}

/// Converts the watches of a request.
pub(crate) fn wanted(watches: Vec<v1::KeyWatch>) -> Result<Vec<WantedWatch>, Error> {
    if watches.is_empty() || watches.len() > KEY_WATCHES_MAX {
        let message = format!("a stream has 1 to {KEY_WATCHES_MAX} watches, not {}", watches.len());
        return Err(invalid("watches", message).limit(KEY_WATCHES_MAX as u64));
    }
    let mut all: Vec<WantedWatch> = Vec::new();
    for (at, watch) in watches.into_iter().enumerate() {
        let field = |name: &str| format!("watches[{at}].{name}");
        let filter = match watch.which {
            Some(Which::Key(key)) => WatchFilter::keys(Selection::Key(key)),
            Some(Which::Range(range)) => WatchFilter::keys(Selection::Range(key_range(range))),
            Some(Which::Lock(lock)) => WatchFilter::lock(lock_name(lock.name, lock.election)),
            Some(Which::Union(union)) => {
                WatchFilter::union(watch_union(union).map_err(|why| why.field(field("union")))?)
            }
            None => return Err(invalid(&field("which"), "a key, a range or a lock to watch is required")),
        };
        if all.iter().any(|other| other.id == watch.id) {
            return Err(invalid(&field("id"), "another watch of the stream has the same id"));
        }
        if watch.no_puts && watch.no_deletes {
            return Err(invalid(&field("no_deletes"), "a watch without puts and deletes has no events"));
        }
        let from = watch.from.map(|from| event_position(Some(from)));
        let filter = WatchFilter { puts: !watch.no_puts, deletes: !watch.no_deletes, ..filter };
        all.push(WantedWatch { id: watch.id, filter, from, previous: watch.previous });
    }
    Ok(all)
}
