//! The watches that a stream asks for.

use crate::error::invalid;
use crate::log::convert::key_range;
use crate::log::coordination::lock_name;
use convoke_log::history::{EventPosition, WatchFilter, WatchScope};
use convoke_log::keys::Selection;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::{Error, KEY_WATCHES_MAX, v1};

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
    /// Whether a node without a replica can serve the watch: its feed has events of keys only.
    pub(super) fn is_of_keys(&self) -> bool {
        matches!(self.filter.scope, WatchScope::Keys(_))
    }

    /// Returns the watch as a request to a replica, at a position.
    pub(super) fn request(&self, from: EventPosition) -> v1::KeyWatch {
        let which = match &self.filter.scope {
            WatchScope::Keys(Selection::Key(key)) => Which::Key(key.clone()),
            WatchScope::Keys(Selection::Range(range)) => {
                Which::Range(v1::KeyRange { from: range.from.clone(), until: range.until.clone() })
            }
            WatchScope::Lock(lock) => Which::Lock(v1::LockGuard {
                name: lock.name.clone(),
                fence: 0,
                election: lock.space == convoke_log::command::LockSpace::Election,
            }),
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
