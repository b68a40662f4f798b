#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
use super::*;
use convoke_log::command::LockName;
use convoke_log::keys::{KeyRange, Selection};

fn put(revision: u64, index: u64, key: &str, last: bool) -> v1::KeyEvent {
    let record = v1::KeyValue { key: key.to_owned().into(), value: "v".into(), ..v1::KeyValue::default() };
    let position = Some(v1::EventPosition { revision, index });
    v1::KeyEvent { position, last, change: Some(Change::Put(record.clone())), previous: Some(record) }
}

fn watch(prefix: &str) -> WantedWatch {
    let filter = WatchFilter::keys(Selection::Range(KeyRange::prefix(prefix.to_owned())));
    WantedWatch { id: 1, filter, from: None, previous: false }
}

fn at(revision: u64, index: u64) -> EventPosition {
    EventPosition { revision, index }
}

const ROOM: (usize, usize) = (1_000, 1 << 20);

/// Positions and whether each event is the last one of its revision.
fn shown(page: &Page) -> Vec<(u64, u64, bool)> {
    let shown = |event: &v1::KeyEvent| {
        let position = event_position(event.position);
        (position.revision, position.index, event.last)
    };
    page.events.iter().map(shown).collect()
}

#[test]
fn h8_an_event_waits_until_it_is_known_whether_it_is_the_last_of_its_revision() {
    let mut window = Window::new(at(5, 0), 1 << 20);
    window.extend(vec![put(5, 0, "a/1", false), put(5, 1, "b", false)], at(5, 2));
    let page = window.page(&watch("a/"), at(5, 0), ROOM).unwrap();
    assert_eq!((shown(&page), page.next), (vec![], at(5, 0)), "revision 5 may have another a/");
    window.extend(vec![put(5, 2, "a/2", false)], at(5, 3));
    let page = window.page(&watch("a/"), at(5, 0), ROOM).unwrap();
    assert_eq!((shown(&page), page.next), (vec![(5, 0, false)], at(5, 2)));
    window.extend(vec![put(5, 3, "b", true)], at(5, 4));
    let page = window.page(&watch("a/"), page.next, ROOM).unwrap();
    assert_eq!((shown(&page), page.next), (vec![(5, 2, true)], at(5, 4)));
    assert!(page.events[0].previous.is_none(), "the watch did not ask for it");
    let page = window.page(&WantedWatch { previous: true, ..watch("b") }, at(5, 0), ROOM).unwrap();
    assert_eq!(shown(&page), [(5, 1, false), (5, 3, true)]);
    assert!(page.events[0].previous.is_some());
}

/// The first stream selects `a/`, the second one also `b/`. It continues inside of revision 5.
#[test]
fn h8_a_revision_is_not_complete_for_a_stream_that_selects_more() {
    let mut window = Window::new(at(5, 0), 1 << 20);
    window.extend(vec![put(5, 0, "a/1", true)], at(5, 1));
    window.continued(at(5, 1));
    window.extend(vec![put(5, 2, "b/1", false)], at(5, 3));
    let page = window.page(&watch("b/"), at(5, 1), ROOM).unwrap();
    assert_eq!((shown(&page), page.next), (vec![], at(5, 2)), "another b/ may follow");
    window.extend(vec![put(5, 3, "b/2", true)], at(6, 0));
    let page = window.page(&watch("b/"), at(5, 1), ROOM).unwrap();
    assert_eq!((shown(&page), page.next), (vec![(5, 2, false), (5, 3, true)], at(6, 0)));
}

#[test]
fn h8_locks_are_served_by_name() {
    let event = |name: &'static str, election| {
        let lock = v1::LockEvent { name: name.into(), election, fence: 5, ..v1::LockEvent::default() };
        v1::KeyEvent { position: None, last: true, change: Some(Change::Lock(lock)), previous: None }
    };
    let lock = |name: LockName| WantedWatch { id: 1, filter: WatchFilter::lock(name), from: None, previous: false };
    let watches = [lock(LockName::lock("a")), lock(LockName::election("a")), lock(LockName::lock("b")), watch("")];
    let found = |event: &v1::KeyEvent| watches.each_ref().map(|watch| matches(&watch.filter, event));
    assert_eq!(found(&event("a", false)), [true, false, false, false]);
    assert_eq!(found(&event("a", true)), [false, true, false, false]);
    let mut window = Window::new(at(5, 0), 1 << 20);
    let position = Some(v1::EventPosition { revision: 5, index: 0 });
    window.extend(vec![v1::KeyEvent { position, ..event("a", true) }], at(6, 0));
    let page = window.page(&watches[1], at(5, 0), ROOM).unwrap();
    let Some(Change::Lock(shown)) = &page.events[0].change else { panic!("{page:?}") };
    assert_eq!((shown.name.is_empty(), shown.election, shown.fence), (true, false, 5), "as a replica sends it");
}

#[test]
fn h8_a_window_is_bounded_and_a_watch_below_it_is_behind() {
    let mut window = Window::new(at(1, 0), 10 * (EVENT_BYTES + 4));
    for revision in 1..=100 {
        window.extend(vec![put(revision, 0, "k", true)], at(revision + 1, 0));
    }
    assert!(window.bytes <= window.bytes_max, "{}", window.bytes);
    assert_eq!((window.events.len(), window.start), (10, at(90, 1)));
    assert_eq!(window.page(&watch("k"), at(90, 0), ROOM), Err(Behind));
    let page = window.page(&watch("k"), at(90, 1), ROOM).unwrap();
    assert_eq!((page.events.len(), page.next), (10, at(101, 0)));
    let ahead = window.page(&watch("k"), at(105, 0), ROOM).unwrap();
    assert_eq!((ahead.events.len(), ahead.next), (0, at(105, 0)), "another replica was further");
    window.extend(vec![put(100, 0, "k", true), put(101, 0, "k", true)], at(102, 0));
    let page = window.page(&watch("k"), at(101, 0), ROOM).unwrap();
    assert_eq!(shown(&page), [(101, 0, true)], "an event that the window has is ignored");
}

/// Random revisions arrive in random pages, and watches read them in random pages. A watch that falls behind reads from
/// the list of all events, as from a replica. Every watch gets its events exactly once, in order.
#[test]
fn h8_every_watch_gets_its_events_once_whatever_the_pages_are() {
    let mut behind = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        for revision in 1..=rng.u64(1..30) {
            let count = if rng.u8(..4) == 0 { 0 } else { rng.u64(1..12) };
            all.extend((0..count).map(|index| {
                let key = format!("{}/{index}", ["a", "b", "c"][rng.usize(..3)]);
                put(revision, index, &key, index + 1 == count)
            }));
        }
        let end = at(31, 0);
        let mut window = Window::new(at(1, 0), rng.usize(1..40) * (EVENT_BYTES + 10));
        let mut watches: Vec<(WantedWatch, EventPosition, Vec<_>)> =
            ["a", "b", "", "nothing"].map(|prefix| (watch(prefix), at(1, 0), Vec::new())).into();
        let mut arrived = 0;
        while arrived < all.len() || watches.iter().any(|(_, next, _)| *next < end) {
            if rng.bool() {
                let upto = (arrived + rng.usize(1..9)).min(all.len());
                let events = all[arrived..upto].to_vec();
                let next = match events.last() {
                    _ if upto == all.len() => end,
                    Some(last) => event_position(last.position).next(),
                    None => at(1, 0),
                };
                window.extend(events, next);
                arrived = upto;
            }
            let watched = rng.usize(..watches.len());
            let (wanted, next, seen) = &mut watches[watched];
            let limits = (rng.usize(1..5), rng.usize(1..3_000));
            let page = window.page(wanted, *next, limits).unwrap_or_else(|Behind| {
                behind += 1;
                let mut replica = Window::new(at(1, 0), usize::MAX);
                replica.extend(all.clone(), end);
                replica.page(wanted, *next, limits).unwrap()
            });
            assert!(page.next >= *next && page.events.len() <= limits.0);
            seen.extend(shown(&page));
            *next = page.next;
        }
        for (wanted, _, seen) in watches {
            let matching: Vec<&v1::KeyEvent> = all.iter().filter(|event| matches(&wanted.filter, event)).collect();
            let revision = |event: &v1::KeyEvent| event_position(event.position).revision;
            let expected: Vec<(u64, u64, bool)> = matching
                .iter()
                .enumerate()
                .map(|(index, event)| {
                    let last = matching.get(index + 1).is_none_or(|later| revision(later) != revision(event));
                    (revision(event), event_position(event.position).index, last)
                })
                .collect();
            assert_eq!(seen, expected, "seed {seed}");
        }
    }
    assert!(behind > 100, "watches fall behind the window: {behind}");
}
