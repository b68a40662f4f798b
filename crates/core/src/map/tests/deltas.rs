//! Pushes and deltas (D4–D6), step by step.

use super::map_copy::{MapCopy, member};
use crate::map::{Delta, Outcome};

fn keys(count: usize) -> Vec<super::map_copy::Key> {
    (0..count).map(|i| member(&format!("m{i}"))).collect()
}

/// Delivers a push of everything `from` wrote after `sent`; returns whether the context was raised.
fn push(from: &MapCopy, sent: u64, to: &mut MapCopy) -> bool {
    let frame = from.push(sent).expect("still available");
    to.apply(&frame);
    let index = to.map.admit_origin(&from.origin(), to.clock()).unwrap();
    to.map.join_push(index, sent, from.written())
}

#[test]
fn a_push_raises_the_context_and_brings_current_records() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    let [x, y] = [member("x"), member("y")];
    a.register(&x, 1, "client");
    a.register(&y, 1, "client");
    a.update(&x, |record| record.drain += 1);
    assert!(push(&a, 0, &mut b));
    assert_eq!(b.slots(), a.slots());
    assert_eq!(b.context(), a.context());
    // Coalesced: two records represent three writes.
    assert_eq!(b.apply(&a.push(0).unwrap()).len(), 2);
}

#[test]
fn a_push_with_a_gap_does_not_raise_the_context() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    let [x, y, z] = [member("x"), member("y"), member("z")];
    a.register(&x, 1, "client");
    assert!(push(&a, 0, &mut b));
    a.register(&y, 1, "client");
    a.register(&z, 1, "client");
    // The push of y was lost: the one of z starts above b's context.
    assert!(!push(&a, 2, &mut b));
    assert!(b.is_live(&z) && !b.is_live(&y));
    assert_eq!(b.context().clock.get(&a.origin()), 1, "the context covers only complete writes");
    // So the exchange brings it.
    b.pull(&a);
    assert!(b.is_live(&y));
    assert_eq!(b.context(), a.context());
}

#[test]
fn a_push_of_a_superseded_write_brings_the_record_that_superseded_it() {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    b.register(&x, 2, "client");
    a.pull(&b);
    // A pushes only its own write, which is no longer current: C's context must not cover it while C holds nothing.
    assert!(push(&a, 0, &mut c));
    assert_eq!(c.rank(&x), b.rank(&x));
    assert_eq!(c.context().clock.get(&a.origin()), 1);
    assert_eq!(c.context().clock.get(&b.origin()), 0, "the context does not cover the superseding origin");
    c.pull(&b);
    assert_eq!(c.slots(), b.slots());
}

/// As in `a_push_of_a_superseded_write_…`, but the superseding record has been collected at the pusher meanwhile:
/// there is nothing to send along, so the context must not cover the write either (D4).
#[test]
fn a_push_of_a_collected_write_does_not_raise_the_context() {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    let mut older = MapCopy::new("older");
    older.register(&x, 1, "client");
    c.pull(&older);
    a.pull(&older);
    a.register(&x, 2, "client");
    b.pull(&a);
    b.register(&x, 3, "client");
    b.unregister(&x);
    a.pull(&b);
    assert_eq!(a.collect_all(), 1);
    let claimed = a.push(0).is_some_and(|frame| {
        c.apply(&frame);
        let index = c.map.admit_origin(&a.origin(), c.clock()).unwrap();
        c.map.join_push(index, 0, a.written())
    });
    let held = c.rank(&x).unwrap();
    assert!(
        !claimed || held.0 >= 2,
        "C's context covers the write with claim 2, but it holds the one with claim {}",
        held.0
    );
}

#[test]
fn pushes_are_forgotten_past_the_bound_and_the_delta_takes_over() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    for key in keys(12) {
        a.register(&key, 1, "client");
    }
    assert_eq!(a.push(3), None, "four of twelve are no longer available");
    assert!(a.push(4).is_some());
    b.pull(&a);
    assert_eq!(b.slots(), a.slots());
}

#[test]
fn a_partial_delta_does_not_raise_the_context() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    for key in keys(4) {
        a.register(&key, 1, "client");
    }
    b.pull(&a);
    b.register(&member("m0"), 2, "client");
    let Delta::Items(items) = b.map.delta(&c.context()) else { panic!("nothing was collected") };
    assert_eq!(items.len(), 4);
    for cut in 1..4 {
        c.apply(&b.encode(&items[..cut]));
        assert!(c.context().clock.is_empty(), "{cut} of 4 records");
        let Delta::Items(missing) = b.map.delta(&c.context()) else { panic!("nothing was collected") };
        assert_eq!(missing, items, "all of it is sent again");
    }
    c.pull(&b);
    assert_eq!(c.slots(), b.slots());
}

#[test]
fn a_delta_relays_records_of_all_origins_and_only_what_is_missing() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    let all = keys(6);
    for key in &all[..3] {
        a.register(key, 1, "client-a");
    }
    b.pull(&a);
    for key in &all[3..] {
        b.register(key, 1, "client-b");
    }
    c.pull(&a);
    let Delta::Items(items) = b.map.delta(&c.context()) else { panic!("nothing was collected") };
    assert_eq!(items.len(), 3, "records that C has from A are not sent again");
    c.pull(&b);
    assert_eq!(c.slots(), b.slots());
    assert_eq!(b.map.delta(&c.context()), Delta::Items(Vec::new()));
}

#[test]
fn covered_records_are_ignored() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    let old = a.encode_key(&x);
    a.unregister(&x);
    b.pull(&a);
    assert!(matches!(b.apply(&old)[..], [Outcome::Known]));
    assert!(!b.is_live(&x));
}

/// A record may be replaced between the start of a delta and its own turn: the newer one is sent, and the replaced one
/// counts as delivered.
#[test]
fn a_record_replaced_while_a_delta_is_under_way_travels_in_its_newer_form() {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    let Delta::Items(items) = a.map.delta(&c.context()) else { panic!("nothing was collected") };
    let context = a.context();
    b.pull(&a);
    b.register(&x, 2, "client");
    a.pull(&b);
    c.apply(&a.encode(&items));
    let clock = c.clock();
    c.map.join(&context, clock);
    assert_eq!(c.rank(&x), b.rank(&x));
    assert!(c.context().clock.get(&b.origin()) == 0 && c.context().clock.get(&a.origin()) == 1);
}
