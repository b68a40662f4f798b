//! Collecting tombstones (D8): unregistered members stay absent, and nothing else is dropped.

use super::map_copy::{Key, MapCopy, member};
use crate::map::Delta;
use crate::time::{Duration, Time};

/// Registered at `a`, known everywhere, then unregistered and collected by `a` and `b` while `c` was away.
fn collected_while_c_was_away() -> (Key, MapCopy, MapCopy, MapCopy) {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    a.register(&member("kept"), 1, "client");
    b.pull(&a);
    c.pull(&a);
    a.unregister(&x);
    b.pull(&a);
    assert_eq!((a.collect_all(), b.collect_all()), (1, 1));
    (x, a, b, c)
}

#[test]
fn a_copy_below_the_floor_gets_everything() {
    let (_, a, b, c) = collected_while_c_was_away();
    assert_eq!(b.map.delta(&c.context()), Delta::Full);
    assert_eq!(a.map.delta(&c.context()), Delta::Full);
    assert_eq!(b.map.delta(&a.context()), Delta::Items(Vec::new()), "a copy that received the tombstone gets a delta");
    assert_eq!(c.map.delta(&b.context()), Delta::Items(Vec::new()), "a lagging copy has nothing to send");
    assert_eq!(a.map.delta(&MapCopy::new("fresh").context()), Delta::Full);
}

#[test]
fn a_full_merge_does_not_restore_collected_records() {
    let (x, _, b, mut c) = collected_while_c_was_away();
    assert!(c.is_live(&x));
    c.admit_only_self();
    assert_eq!(c.pull_full(&b), [x]);
    assert_eq!(c.slots(), b.slots());
    assert_eq!(c.context(), b.context());
    assert_eq!(c.map.origins.floor(), b.map.origins.floor(), "the floor is adopted");
    c.check_indexes();
}

#[test]
fn a_lagging_copy_does_not_restore_collected_records() {
    let (x, mut a, mut b, c) = collected_while_c_was_away();
    b.pull(&c);
    a.apply(&c.encode(&c.everything()));
    assert!(b.rank(&x).is_none() && a.rank(&x).is_none());
    // Nor through a copy that was reset by a full merge and receives from the lagging one afterwards.
    let mut fresh = MapCopy::new("fresh");
    fresh.pull_full(&b);
    fresh.apply(&c.encode(&c.everything()));
    fresh.pull(&c);
    assert_eq!(fresh.slots(), b.slots());
}

/// A new copy is in the middle of a full merge when a lagging third one sends it an unregistered member.
#[test]
fn a_lagging_third_copy_cannot_restore_a_record_during_a_full_merge() {
    let (x, _, b, c) = collected_while_c_was_away();
    let mut fresh = MapCopy::new("fresh");
    let (items, context) = (b.everything(), b.context());
    fresh.map.begin_full_merge();
    fresh.apply(&c.encode(&c.everything()));
    fresh.admit_only_self();
    fresh.apply_merging(&b.encode(&items));
    fresh.finish_full(&context, &b);
    assert!(!fresh.is_live(&x), "{:?} is back, and stays because all contexts agree", fresh.record(&x));
    assert_eq!(fresh.slots(), b.slots());
}

/// The same where the receiver had the record already and receives it again during the full merge.
#[test]
fn receiving_a_collected_record_again_does_not_keep_it_through_a_full_merge() {
    let (x, _, b, mut c) = collected_while_c_was_away();
    let stale = c.encode_key(&x);
    c.admit_only_self();
    c.map.begin_full_merge();
    c.apply(&stale);
    c.apply_merging(&b.encode(&b.everything()));
    c.finish_full(&b.context(), &b);
    assert!(!c.is_live(&x), "{:?} is back", c.record(&x));
}

#[test]
fn a_full_merge_that_was_cut_short_removes_nothing() {
    let (x, _, b, mut c) = collected_while_c_was_away();
    c.admit_only_self();
    let before = (c.slots(), c.context());
    c.map.begin_full_merge();
    c.map.abort_full_merge();
    assert_eq!((c.slots(), c.context()), before);
    assert_eq!(c.finish_full(&b.context(), &b), Vec::<Key>::new(), "there is no full merge to finish");
    assert!(c.is_live(&x));
    // The next full merge does.
    assert_eq!(c.pull_full(&b), [x]);
}

#[test]
fn nothing_vanishes_while_a_full_merge_is_under_way() {
    let (x, _, mut b, mut c) = collected_while_c_was_away();
    for i in 0..5 {
        b.register(&member(&format!("more-{i}")), 1, "client");
    }
    c.admit_only_self();
    c.map.begin_full_merge();
    let mut count = c.live_slots().len();
    for item in b.everything() {
        c.apply_merging(&b.encode(&[item]));
        assert!(c.live_slots().len() >= count, "a record vanished");
        count = c.live_slots().len();
        assert!(c.is_live(&x));
    }
    c.finish_full(&b.context(), &b);
    assert_eq!(c.slots(), b.slots());
}

/// Records that the sender does not cover are new to the sender; it did not collect them.
#[test]
fn a_full_merge_keeps_what_the_sender_has_not_seen() {
    let (x, _, b, mut c) = collected_while_c_was_away();
    let mut d = MapCopy::new("d");
    d.register(&member("from-d"), 1, "client");
    c.pull(&d);
    c.register(&member("from-c"), 1, "client");
    c.admit_only_self();
    assert_eq!(c.pull_full(&b), [x]);
    assert!(c.is_live(&member("from-d")) && c.is_live(&member("from-c")) && c.is_live(&member("kept")));
}

/// A node with evidence of the owner overrides one that collected an inference (D12).
#[test]
fn a_full_merge_keeps_records_of_admitted_origins() {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    c.pull(&a);
    b.infer_left("x");
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.delta(&c.context()), Delta::Full);
    assert_eq!(c.pull_full(&b), Vec::<Key>::new());
    assert!(c.is_live(&x));
    // Where the owner is not admitted, the inference applies.
    let mut d = MapCopy::new("d");
    d.pull(&a);
    d.admit_only_self();
    assert_eq!(d.pull_full(&b), [x]);
}

#[test]
fn a_tombstone_whose_write_is_not_yet_covered_is_kept() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    a.unregister(&x);
    // Part of a delta: applied, not covered by the context.
    b.apply(&a.encode_key(&x));
    assert_eq!(b.collect_all(), 0);
    assert!(b.rank(&x).is_some());
    assert!(b.map.origins.floor().is_empty());
    b.pull(&a);
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.origins.floor(), b.context().clock);
}

#[test]
fn tombstones_are_collected_when_due_if_still_held() {
    let [x, y] = [member("x"), member("y")];
    let mut a = MapCopy::new("a");
    let timeout = Duration::from_secs(60);
    for key in [&x, &y] {
        a.register(key, 1, "client");
        a.unregister(key);
        a.now = a.now + Duration::from_secs(10);
    }
    a.register(&y, 2, "client");
    let due = a.map.next_collection(a.clock(), timeout).unwrap();
    a.now = Time::from_micros(due.as_micros() - 1);
    assert_eq!(a.map.collect(a.clock(), timeout).len(), 0);
    a.now = due;
    assert_eq!(a.map.collect(a.clock(), timeout).len(), 1);
    assert!(a.rank(&x).is_none());
    a.now = due + Duration::from_secs(100);
    assert_eq!(a.map.collect(a.clock(), timeout).len(), 0, "y was registered again");
    assert!(a.is_live(&y));
    assert_eq!(a.map.tombstones(), 0);
    a.check_indexes();
}

/// A copy that receives a tombstone late does not keep it for longer than the others.
#[test]
fn the_age_of_a_tombstone_is_sent_with_it() {
    let x = member("x");
    let timeout = Duration::from_secs(60);
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    a.unregister(&x);
    b.infer_left("x");
    a.now = a.now + Duration::from_secs(40);
    b.now = b.now + Duration::from_secs(50);
    // C's own clock is independent of theirs.
    c.now = Time::from_secs(100_000);
    c.pull(&b);
    assert_eq!(c.map.next_collection(c.clock(), timeout), Some(c.now + Duration::from_secs(10)));
    c.pull(&a);
    c.now = c.now + Duration::from_secs(19);
    assert_eq!(c.map.collect(c.clock(), timeout).len(), 0);
    assert!(
        c.inferred().is_empty() && c.rank(&x).is_some(),
        "the inference was collected, the tombstone is due in a second"
    );
    c.now = c.now + Duration::from_secs(1);
    assert_eq!(c.map.collect(c.clock(), timeout).len(), 1);
}

/// A delta that was started before a collection must not end as if nothing had been collected.
#[test]
fn a_delta_overtaken_by_a_collection_is_detected() {
    let x = member("x");
    let (mut a, c) = (MapCopy::new("a"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    a.unregister(&x);
    let asked = c.context();
    assert!(matches!(a.map.delta(&asked), Delta::Items(items) if items.len() == 1));
    a.collect_all();
    assert!(a.map.below_floor(&asked), "so the sender aborts it and gets a request for a full merge");
}

/// Claims of a key do not start over after its tombstone was collected (D8): another node may still hold it.
#[test]
fn a_collected_key_accepts_only_higher_claims() {
    let (x, a, b, mut c) = {
        let x = member("x");
        let (mut a, mut b, c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
        a.register(&x, 7, "client");
        a.unregister(&x);
        b.pull(&a);
        b.collect_all();
        (x, a, b, c)
    };
    assert_eq!(b.map.known_claim(x.0, &x.1), 7);
    assert_eq!(b.map.known_claim(x.0, "unknown"), 7);
    assert_eq!(a.map.known_claim(x.0, &x.1), 7);
    assert_eq!(a.map.known_claim(x.0, "unknown"), 0);
    // It is sent with the context.
    c.exchange_from(&b);
    assert_eq!(c.map.known_claim(x.0, &x.1), 7);
}

/// Two clients use one id on two sides of a partition that lasts longer than tombstones do. After it, one copy has
/// collected the tombstone of the higher claim and another has not. All copies must reach the same result.
#[test]
fn copies_that_collected_at_different_times_agree_about_an_older_claim() {
    let x = member("x");
    let (mut early, mut late, mut lagging) = (MapCopy::new("early"), MapCopy::new("late"), MapCopy::new("lagging"));
    for copy in [&mut early, &mut late, &mut lagging] {
        copy.map.may_write = true;
    }
    late.register(&x, 7, "client-1");
    late.unregister(&x);
    early.pull(&late);
    assert_eq!(early.collect_all(), 1);
    lagging.register(&x, 1, "client-2");

    early.exchange_from(&lagging);
    late.exchange_from(&lagging);
    lagging.exchange_from(&late);
    for _ in 0..3 {
        early.exchange_from(&late);
        late.exchange_from(&early);
        lagging.exchange_from(&early);
        early.exchange_from(&lagging);
    }
    late.collect_all();
    lagging.collect_all();
    assert_eq!(early.map.origins.context_hash(), late.map.origins.context_hash(), "no exchange is due");
    assert_eq!(
        [&early, &late, &lagging].map(|copy| copy.is_live(&x)),
        [early.is_live(&x); 3],
        "early, late and lagging do not show the same"
    );
}

/// An interrupted delta brought a record that no context covers, and its owner died. Once the inference about it is
/// collected, no peer is below the floor for it.
#[test]
fn the_floor_does_not_rise_above_the_context() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    b.apply(&a.encode_key(&member("m")));
    b.infer_left("m");
    c.exchange_from(&b);
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.delta(&c.context()), Delta::Items(Vec::new()));
}

/// Nor when a peer of an earlier release sends such a floor.
#[test]
fn a_received_floor_does_not_rise_above_the_context() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    b.apply(&a.encode_key(&member("m")));
    for copy in [&mut b, &mut c] {
        copy.pull(&a);
    }
    let index = b.map.origins.index_of(&a.origin()).unwrap();
    b.map.origins.entry_mut(index).floor = 2;
    c.exchange_from(&b);
    assert_eq!(c.map.origins.floor().get(&a.origin()), 1);
}

/// However many are due, a collection takes a bounded time (a busy node looks dead): the rest is collected the next
/// time.
#[test]
fn one_collection_is_bounded_and_the_rest_follows() {
    let mut a = MapCopy::new("a");
    for i in 0..20_001 {
        a.register(&member(&format!("m{i}")), 1, "client");
        a.unregister(&member(&format!("m{i}")));
    }
    assert_eq!((a.collect_all(), a.collect_all(), a.collect_all()), (20_000, 1, 0));
}
