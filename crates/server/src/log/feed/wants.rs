//! What the watchers of a node without a replica want together, and what its stream carries (H10). No I/O.

use bytes::Bytes;
use convoke_log::command::LockName;
use convoke_log::history::{EventPosition, WatchUnion};
use convoke_log::keys::KeyRange;
use convoke_proto::{Error, ErrorCode, UNION_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ranges of a stream. If the watchers have more, it carries all keys between the first and the last one.
const RANGES_MAX: usize = UNION_MAX / 2;
/// Locks and elections of a stream.
pub(super) const LOCKS_MAX: usize = UNION_MAX - RANGES_MAX;

/// A part of what a watch selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    Keys {
        from: Bytes,
        until: Option<Bytes>,
        /// With the previous records.
        previous: bool,
    },
    Lock(LockName),
}

impl Want {
    pub(super) fn keys(KeyRange { from, until }: KeyRange, previous: bool) -> Want {
        Want::Keys { from, until, previous }
    }
}

/// What a stream carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Carried {
    pub(super) union: Arc<WatchUnion>,
    pub(super) previous: bool,
}

impl Carried {
    fn contains(&self, want: &Want) -> bool {
        match want {
            Want::Keys { from, until, previous } => {
                let range = KeyRange { from: from.clone(), until: until.clone() };
                (self.previous || !previous) && self.union.contains_range(&range)
            }
            Want::Lock(name) => self.union.contains_lock(name),
        }
    }
}

/// The wants of all watchers of a feed.
#[derive(Debug, Default)]
pub(super) struct Wants {
    all: BTreeMap<Want, Wanted>,
    locks: usize,
    carried: Carried,
    /// Number of wants that the stream does not carry.
    missing: usize,
    /// A want has left since `carried` was compared with the others.
    left: bool,
}

#[derive(Debug)]
struct Wanted {
    watchers: usize,
    /// The stream carries all its events from here on; `None` if it does not carry them yet.
    since: Option<EventPosition>,
}

impl Wants {
    /// Adds the wants of a watcher. `next` is the position that the stream has reached.
    pub(super) fn enter(&mut self, wants: &[Want], next: Option<EventPosition>) -> Result<(), Error> {
        let is_new = |want: &&Want| matches!(want, Want::Lock(_)) && !self.all.contains_key(want);
        let locks = self.locks + wants.iter().filter(is_new).count();
        if locks > LOCKS_MAX {
            let message = format!(
                "this node has no replica and watches at most {LOCKS_MAX} locks and elections; watch at another node"
            );
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(LOCKS_MAX as u64));
        }
        self.locks = locks;
        for want in wants {
            if let Some(wanted) = self.all.get_mut(want) {
                wanted.watchers += 1;
                continue;
            }
            let since = next.filter(|_| self.carried.contains(want));
            self.missing += usize::from(since.is_none());
            self.all.insert(want.clone(), Wanted { watchers: 1, since });
        }
        Ok(())
    }

    /// Removes the wants of a watcher.
    pub(super) fn leave(&mut self, wants: &[Want]) {
        for want in wants {
            let Some(wanted) = self.all.get_mut(want) else { continue };
            wanted.watchers -= 1;
            if wanted.watchers == 0 {
                self.missing -= usize::from(wanted.since.is_none());
                self.locks -= usize::from(matches!(want, Want::Lock(_)));
                self.all.remove(want);
                self.left = true;
            }
        }
    }

    /// Returns the position from which on the stream carries all events of a watcher, if it carries them.
    pub(super) fn since(&self, wants: &[Want]) -> Option<EventPosition> {
        let mut since = wants.iter().map(|want| self.all.get(want).and_then(|wanted| wanted.since));
        since.try_fold(EventPosition::default(), |latest, since| Some(latest.max(since?)))
    }

    /// Whether the stream lacks something that a watcher wants.
    pub(super) fn is_missing(&self) -> bool {
        self.missing > 0
    }

    /// Whether the stream carries something that no watcher wants.
    pub(super) fn is_wide(&mut self) -> bool {
        self.left = self.left && !self.all.is_empty() && self.needed() != self.carried;
        self.left
    }

    /// Returns what a stream must carry.
    pub(super) fn needed(&self) -> Carried {
        let ranges = self.all.keys().filter_map(|want| match want {
            Want::Keys { from, until, .. } => Some(KeyRange { from: from.clone(), until: until.clone() }),
            Want::Lock(_) => None,
        });
        let locks = self.all.keys().filter_map(|want| match want {
            Want::Lock(name) => Some(name.clone()),
            Want::Keys { .. } => None,
        });
        let previous = self.all.keys().any(|want| matches!(want, Want::Keys { previous: true, .. }));
        Carried { union: Arc::new(WatchUnion::new(ranges, locks, RANGES_MAX)), previous }
    }

    /// Records that a stream carries this from a position on.
    pub(super) fn carries(&mut self, carried: Carried, from: EventPosition) {
        for (want, wanted) in &mut self.all {
            if wanted.since.is_none() && carried.contains(want) {
                wanted.since = Some(from);
                self.missing -= 1;
            }
        }
        (self.carried, self.left) = (carried, true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn prefix(prefix: &'static str, previous: bool) -> Vec<Want> {
        vec![Want::keys(KeyRange::prefix(prefix), previous)]
    }

    fn lock(name: String) -> Vec<Want> {
        vec![Want::Lock(LockName::lock(name))]
    }

    fn at(revision: u64) -> Option<EventPosition> {
        Some(EventPosition::start_of(revision))
    }

    /// Opens a stream at a position.
    fn open(wants: &mut Wants, revision: u64) {
        let needed = wants.needed();
        wants.carries(needed, EventPosition::start_of(revision));
    }

    #[test]
    fn h10_a_stream_carries_what_its_watchers_want_and_nothing_else() {
        let mut wants = Wants::default();
        wants.enter(&prefix("a/", false), None).unwrap();
        assert!(wants.is_missing() && wants.since(&prefix("a/", false)).is_none());
        open(&mut wants, 5);
        assert_eq!((wants.is_missing(), wants.since(&prefix("a/", false))), (false, at(5)));
        let carried = wants.needed();
        assert!(carried.union.contains_key(b"a/1") && !carried.union.contains_key(b"b/1") && !carried.previous);
        // A part of what the stream carries needs no other stream.
        wants.enter(&prefix("a/b/", false), at(9)).unwrap();
        assert_eq!((wants.is_missing(), wants.since(&prefix("a/b/", false))), (false, at(9)));
        // Previous records, other keys and locks need one. The other watchers keep their positions.
        for (number, more) in [prefix("a/", true), prefix("b/", false), lock("l".to_owned())].into_iter().enumerate() {
            let revision = 10 + number as u64;
            wants.enter(&more, at(revision)).unwrap();
            assert!(wants.is_missing() && wants.since(&more).is_none(), "{more:?}");
            open(&mut wants, revision);
            assert_eq!((wants.is_missing(), wants.since(&more)), (false, at(revision)));
        }
        assert_eq!(wants.since(&prefix("a/", false)), at(5));
        let both = [prefix("a/", false), lock("l".to_owned())].concat();
        assert_eq!(wants.since(&both), at(12), "a watcher of both has all events from the later position on");
    }

    #[test]
    fn h10_a_stream_becomes_narrow_again_when_watchers_have_left() {
        let mut wants = Wants::default();
        wants.enter(&prefix("a/", false), None).unwrap();
        wants.enter(&prefix("b/", true), None).unwrap();
        wants.enter(&prefix("b/", true), None).unwrap();
        open(&mut wants, 5);
        assert!(!wants.is_wide());
        wants.leave(&prefix("b/", true));
        assert!(!wants.is_wide(), "another watcher wants it");
        wants.leave(&prefix("b/", true));
        assert!(wants.is_wide());
        // Until the stream is opened again, it carries the events.
        wants.enter(&prefix("b/", true), at(8)).unwrap();
        assert_eq!((wants.is_missing(), wants.since(&prefix("b/", true))), (false, at(8)));
        wants.leave(&prefix("b/", true));
        assert!(wants.is_wide());
        open(&mut wants, 9);
        assert!(!wants.is_wide() && !wants.needed().previous);
        wants.enter(&prefix("b/", true), at(12)).unwrap();
        assert!(wants.is_missing(), "the stream no longer carries it");
    }

    #[test]
    fn h10_many_ranges_become_one_and_locks_are_limited() {
        let mut wants = Wants::default();
        for number in 0..=RANGES_MAX {
            let range = KeyRange::prefix(format!("k/{number:04}/"));
            wants.enter(&[Want::keys(range, false)], None).unwrap();
        }
        let union = wants.needed().union;
        assert_eq!(union.ranges().len(), 1);
        assert!(union.contains_key(b"k/0007/x") && !union.contains_key(b"l"));
        for number in 0..LOCKS_MAX {
            wants.enter(&lock(number.to_string()), None).unwrap();
        }
        wants.enter(&lock("0".to_owned()), None).unwrap();
        let refused = wants.enter(&lock("more".to_owned()), None).unwrap_err();
        assert_eq!((refused.code, refused.limit), (ErrorCode::ResourceExhausted, Some(LOCKS_MAX as u64)));
        wants.leave(&lock("1".to_owned()));
        wants.enter(&lock("more".to_owned()), None).unwrap();
    }
}
