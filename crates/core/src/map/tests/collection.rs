//! Forgetting tombstones (D8): what is gone stays gone, and nothing else goes.

use super::replica::{Key, Replica, member};
use crate::map::Delta;
use crate::time::{Duration, Time};

/// Registered at `a`, known everywhere, then unregistered and collected by `a` and `b` while `c` was away.
fn collected_behind_the_back_of_c() -> (Key, Replica, Replica, Replica) {
    let x = member("x");
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
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
fn a_replica_below_the_floor_gets_everything() {
    let (_, a, b, c) = collected_behind_the_back_of_c();
    assert_eq!(b.map.delta(&c.context()), Delta::Full);
    assert_eq!(a.map.delta(&c.context()), Delta::Full);
    assert_eq!(b.map.delta(&a.context()), Delta::Items(Vec::new()), "who has seen the tombstone gets a delta");
    assert_eq!(c.map.delta(&b.context()), Delta::Items(Vec::new()), "and what lags behind has nothing to tell");
    assert_eq!(a.map.delta(&Replica::new("fresh").context()), Delta::Full);
}

#[test]
fn what_was_collected_does_not_come_back_by_a_full_merge() {
    let (x, _, b, mut c) = collected_behind_the_back_of_c();
    assert!(c.is_live(&x));
    c.admit_nobody_else();
    assert_eq!(c.pull_full(&b), [x]);
    assert_eq!(c.slots(), b.slots());
    assert_eq!(c.context(), b.context());
    assert_eq!(c.map.origins.floor(), b.map.origins.floor(), "the floor is taken over");
    c.check_indexes();
}

#[test]
fn what_was_collected_does_not_come_back_from_a_lagging_replica() {
    let (x, mut a, mut b, c) = collected_behind_the_back_of_c();
    b.pull(&c);
    a.apply(&c.encode(&c.everything()));
    assert!(b.rank(&x).is_none() && a.rank(&x).is_none());
    // Nor through a replica that was reset by a full merge and hears the lagging one afterwards.
    let mut fresh = Replica::new("fresh");
    fresh.pull_full(&b);
    fresh.apply(&c.encode(&c.everything()));
    fresh.pull(&c);
    assert_eq!(fresh.slots(), b.slots());
}

/// A fresh replica is in the middle of a full merge when a lagging third one tells it of what was unregistered. (One of
/// the failures that the design set out from: "a replica half-way through a reset accepts data from a lagging third".)
#[test]
fn a_lagging_third_replica_cannot_talk_something_back_into_a_full_merge() {
    let (x, _, b, c) = collected_behind_the_back_of_c();
    let mut fresh = Replica::new("fresh");
    let (items, context) = (b.everything(), b.context());
    fresh.map.begin_full_merge();
    fresh.apply(&c.encode(&c.everything()));
    fresh.admit_nobody_else();
    fresh.apply_merging(&b.encode(&items));
    fresh.finish_full(&context, &b);
    assert!(!fresh.is_live(&x), "{:?} is back, and as all contexts agree it will stay", fresh.record(&x));
    assert_eq!(fresh.slots(), b.slots());
}

/// The same where the receiver had the record already, and hears it again while the full merge is under way.
#[test]
fn hearing_again_of_what_was_collected_does_not_keep_it_through_a_full_merge() {
    let (x, _, b, mut c) = collected_behind_the_back_of_c();
    let stale = c.encode_key(&x);
    c.admit_nobody_else();
    c.map.begin_full_merge();
    c.apply(&stale);
    c.apply_merging(&b.encode(&b.everything()));
    c.finish_full(&b.context(), &b);
    assert!(!c.is_live(&x), "{:?} is back", c.record(&x));
}

#[test]
fn a_full_merge_that_was_cut_short_removes_nothing() {
    let (x, _, b, mut c) = collected_behind_the_back_of_c();
    c.admit_nobody_else();
    let before = (c.slots(), c.context());
    c.map.begin_full_merge();
    c.map.abort_full_merge();
    assert_eq!((c.slots(), c.context()), before);
    assert_eq!(c.finish_full(&b.context(), &b), Vec::<Key>::new(), "there is none to finish");
    assert!(c.is_live(&x));
    // The next one does.
    assert_eq!(c.pull_full(&b), [x]);
}

#[test]
fn nothing_vanishes_while_a_full_merge_is_under_way() {
    let (x, _, mut b, mut c) = collected_behind_the_back_of_c();
    for i in 0..5 {
        b.register(&member(&format!("more-{i}")), 1, "client");
    }
    c.admit_nobody_else();
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

/// What the receiver wrote or heard that the sender does not cover is news to the sender, not something it collected.
#[test]
fn a_full_merge_keeps_what_the_sender_has_not_seen() {
    let (x, _, b, mut c) = collected_behind_the_back_of_c();
    let mut d = Replica::new("d");
    d.register(&member("from-d"), 1, "client");
    c.pull(&d);
    c.register(&member("from-c"), 1, "client");
    c.admit_nobody_else();
    assert_eq!(c.pull_full(&b), [x]);
    assert!(c.is_live(&member("from-d")) && c.is_live(&member("from-c")) && c.is_live(&member("kept")));
}

/// A node that hears the owner knows better than one that collected an inference (D12).
#[test]
fn a_full_merge_keeps_records_of_origins_that_are_known_to_live() {
    let x = member("x");
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    c.pull(&a);
    b.infer_left("x");
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.delta(&c.context()), Delta::Full);
    assert_eq!(c.pull_full(&b), Vec::<Key>::new());
    assert!(c.is_live(&x));
    // Where the owner does not count as alive, the inference stands.
    let mut d = Replica::new("d");
    d.pull(&a);
    d.admit_nobody_else();
    assert_eq!(d.pull_full(&b), [x]);
}

#[test]
fn a_tombstone_whose_write_is_not_yet_covered_is_kept() {
    let x = member("x");
    let (mut a, mut b) = (Replica::new("a"), Replica::new("b"));
    a.register(&x, 1, "client");
    a.unregister(&x);
    // Part of a delta: applied, not claimed.
    b.apply(&a.encode_key(&x));
    assert_eq!(b.collect_all(), 0);
    assert!(b.rank(&x).is_some());
    assert!(b.map.origins.floor().is_empty());
    b.pull(&a);
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.origins.floor(), b.context().clock);
}

#[test]
fn tombstones_go_in_their_time_and_only_if_still_held() {
    let [x, y] = [member("x"), member("y")];
    let mut a = Replica::new("a");
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

/// A replica that learns of a tombstone late does not keep it for longer than the others.
#[test]
fn the_age_of_a_tombstone_travels_with_it() {
    let x = member("x");
    let timeout = Duration::from_secs(60);
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    a.unregister(&x);
    b.infer_left("x");
    a.now = a.now + Duration::from_secs(40);
    b.now = b.now + Duration::from_secs(50);
    // C's own clock has nothing to do with theirs.
    c.now = Time::from_secs(100_000);
    c.pull(&b);
    assert_eq!(c.map.next_collection(c.clock(), timeout), Some(c.now + Duration::from_secs(10)));
    c.pull(&a);
    c.now = c.now + Duration::from_secs(19);
    assert_eq!(c.map.collect(c.clock(), timeout).len(), 0);
    assert!(c.inferred().is_empty() && c.rank(&x).is_some(), "the inference went, the tombstone has a second to go");
    c.now = c.now + Duration::from_secs(1);
    assert_eq!(c.map.collect(c.clock(), timeout).len(), 1);
}

/// A delta that was begun before a collection must not end as if nothing had been collected.
#[test]
fn a_delta_overtaken_by_a_collection_is_noticed() {
    let x = member("x");
    let (mut a, c) = (Replica::new("a"), Replica::new("c"));
    a.register(&x, 1, "client");
    a.unregister(&x);
    let asked = c.context();
    assert!(matches!(a.map.delta(&asked), Delta::Items(items) if items.len() == 1));
    a.collect_all();
    assert!(a.map.below_floor(&asked), "so the sender breaks it off and is asked for a full merge");
}

/// Claims of a key do not start over after its tombstone was collected (D8): another node may still hold it.
#[test]
fn a_key_that_was_collected_takes_only_higher_claims() {
    let (x, a, b, mut c) = {
        let x = member("x");
        let (mut a, mut b, c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
        a.register(&x, 7, "client");
        a.unregister(&x);
        b.pull(&a);
        b.collect_all();
        (x, a, b, c)
    };
    assert_eq!(b.map.known_claim(x.0, &x.1), 7);
    assert_eq!(b.map.known_claim(x.0, "never heard of"), 7);
    assert_eq!(a.map.known_claim(x.0, &x.1), 7);
    assert_eq!(a.map.known_claim(x.0, "never heard of"), 0);
    // It travels with the context.
    c.exchange_from(&b);
    assert_eq!(c.map.known_claim(x.0, &x.1), 7);
}

/// Two clients use one id on two sides of a split that lasts longer than tombstones do; after it, one replica has collected
/// the tombstone of the higher claim and another has not yet. Whichever way it goes, it must go the same way everywhere.
#[test]
fn replicas_that_collected_at_different_times_agree_about_an_older_claim() {
    let x = member("x");
    let (mut early, mut late, mut lagging) = (Replica::new("early"), Replica::new("late"), Replica::new("lagging"));
    for replica in [&mut early, &mut late, &mut lagging] {
        replica.map.may_write = true;
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
    assert_eq!(early.map.origins.context_hash(), late.map.origins.context_hash(), "nobody sees anything to exchange");
    assert_eq!(
        [&early, &late, &lagging].map(|replica| replica.is_live(&x)),
        [early.is_live(&x); 3],
        "early, late and lagging do not show the same"
    );
}

/// A cut delta brought a record that no context tells of, and its owner died. Once what was inferred of it is collected, nobody is
/// below the floor for it.
#[test]
fn the_floor_does_not_rise_above_what_was_taken_in() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&member("m"), 1, "client");
    b.apply(&a.encode_key(&member("m")));
    b.infer_left("m");
    c.exchange_from(&b);
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.map.delta(&c.context()), Delta::Items(Vec::new()));
}

/// Nor where an earlier release says so, which let it rise.
#[test]
fn nor_does_the_floor_that_others_tell_of() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&member("m"), 1, "client");
    b.apply(&a.encode_key(&member("m")));
    for replica in [&mut b, &mut c] {
        replica.pull(&a);
    }
    let index = b.map.origins.index_of(&a.origin()).unwrap();
    b.map.origins.entry_mut(index).floor = 2;
    c.exchange_from(&b);
    assert_eq!(c.map.origins.floor().get(&a.origin()), 1);
}

/// However many are due, nobody waits for long (a node that is busy looks dead): the rest is collected the next time.
#[test]
fn so_many_are_collected_at_once_and_the_rest_after_that() {
    let mut a = Replica::new("a");
    for i in 0..20_001 {
        a.register(&member(&format!("m{i}")), 1, "client");
        a.unregister(&member(&format!("m{i}")));
    }
    assert_eq!((a.collect_all(), a.collect_all(), a.collect_all()), (20_000, 1, 0));
}
