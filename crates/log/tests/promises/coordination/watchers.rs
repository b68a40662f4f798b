//! Watchers that read history in small pages. Each must see every event of its filter once and in order.

use super::reference::{Model, ModelChange};
use super::{Difference, same, steps};
use convoke_log::history::{EventPosition, WatchFilter, WatchScope, WatchUnion};
use convoke_log::keys::{KeyRange, Selection};
use convoke_log::{Level, Machine};
use fastrand::Rng;

pub(super) struct Watchers {
    all: Vec<(WatchFilter, Option<EventPosition>)>,
    /// Events seen.
    pub(super) count: u64,
    pub(super) compacted: u64,
}

impl Watchers {
    pub(super) fn new() -> Self {
        let prefix = WatchFilter::keys(Selection::Range(KeyRange::prefix("a")));
        let puts = WatchFilter { deletes: false, ..WatchFilter::keys(Selection::Key("b".into())) };
        let deletes = WatchFilter { puts: false, ..WatchFilter::keys(Selection::Range(KeyRange::all())) };
        let [_, semaphore, election] = steps::names();
        let ranges = [KeyRange::prefix("b"), KeyRange::new("a", "ab")];
        let union = WatchFilter::union(WatchUnion::new(ranges, [semaphore, election], 2));
        let [lock, semaphore, election] = steps::names().map(WatchFilter::lock);
        let all = [prefix, puts, deletes, lock, semaphore, election, union].map(|filter| (filter, None));
        Watchers { all: all.into(), count: 0, compacted: 0 }
    }

    /// One watcher reads one page.
    pub(super) fn poll(&mut self, rng: &mut Rng, machine: &Machine, model: &Model) -> Result<(), Difference> {
        if model.level < Level::COORDINATION {
            return Ok(());
        }
        let now = EventPosition::start_of(model.revision + 1);
        let at = rng.usize(..self.all.len());
        let (filter, position) = &mut self.all[at];
        let from = *position.get_or_insert(now);
        let (limit, bytes) = (1 + rng.usize(..3), [300, 1_000_000][rng.usize(..2)]);
        let page = match machine.watch(filter, from, limit, bytes) {
            Ok(page) => page,
            Err(compacted) => {
                same("compacted", &(compacted.oldest, from.revision < compacted.oldest), &(model.compacted + 1, true))?;
                self.compacted += 1;
                *position = Some(now);
                return Ok(());
            }
        };
        if from.revision <= model.compacted {
            return Err(format!("watch: {from:?} is below history, which starts above {}", model.compacted));
        }
        // The model has the events for ever, so a gap is noticed.
        let wanted: Vec<_> =
            model.events.iter().filter(|(position, _, change)| *position >= from && matches(filter, change)).collect();
        let found: Vec<_> = page.events.iter().map(|event| (event.event.position, event.last)).collect();
        let last = |at: usize| wanted.get(at + 1).is_none_or(|next| next.0.revision != wanted[at].0.revision);
        let expected: Vec<_> =
            wanted.iter().enumerate().take(found.len()).map(|(at, event)| (event.0, last(at))).collect();
        same("watched events", &found, &expected)?;
        if found.is_empty() && !wanted.is_empty() {
            return Err("watch: no progress".to_owned());
        }
        let is_complete = found.len() == wanted.len();
        if page.more == is_complete && is_complete {
            return Err("watch: claims more events".to_owned());
        }
        if let Some((next, ..)) = wanted.get(found.len()) {
            if page.next > *next {
                return Err(format!("watch: would continue at {:?} and miss {next:?}", page.next));
            }
        } else {
            same("progress", &page.next, &now.max(from))?;
        }
        self.count += found.len() as u64;
        *position = Some(page.next);
        Ok(())
    }
}

fn matches(filter: &WatchFilter, change: &ModelChange) -> bool {
    match (&filter.scope, change) {
        (WatchScope::Keys(selection), ModelChange::Key { after, before }) => {
            let key = &after.as_ref().or(before.as_ref()).unwrap().0;
            let wanted = if after.is_some() { filter.puts } else { filter.deletes };
            wanted && selection.contains(key)
        }
        (WatchScope::Lock(name), ModelChange::Lock(event)) => event.name == *name,
        (WatchScope::Union(union), ModelChange::Key { after, before }) => {
            let key = &after.as_ref().or(before.as_ref()).unwrap().0;
            union.contains_key(key)
        }
        (WatchScope::Union(union), ModelChange::Lock(event)) => union.contains_lock(&event.name),
        _ => false,
    }
}
