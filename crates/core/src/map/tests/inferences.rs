//! Inferred `left` records (L3, L4) in the map.

use super::map_copy::{Key, MapCopy, member};
use crate::map::{Delta, Outcome};
use crate::member::Status;
use crate::time::Duration;

fn shown(copy: &MapCopy, key: &Key) -> Option<Status> {
    copy.record(key).map(|record| copy.map.shown(&record))
}

/// `x` of the silent node `a`, and two nodes that receive nothing from it.
fn silent_owner() -> (Key, MapCopy, MapCopy, MapCopy) {
    let x = member("x");
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&x, 1, "client");
    b.pull(&a);
    c.pull(&a);
    for copy in [&mut b, &mut c] {
        copy.set_liveness_counter(&a.origin(), 5);
        copy.set_admitted(&a.origin(), false);
    }
    (x, a, b, c)
}

#[test]
fn members_of_a_silent_owner_are_down_then_left_and_up_with_new_evidence() {
    let (x, a, mut b, mut c) = silent_owner();
    assert_eq!(shown(&b, &x), Some(Status::Down));
    b.infer_left("x");
    assert_eq!(shown(&b, &x), Some(Status::Left));
    c.pull(&b);
    assert_eq!(shown(&c, &x), Some(Status::Left));
    // The owner's return needs no write.
    b.set_liveness_counter(&a.origin(), 6);
    b.set_admitted(&a.origin(), true);
    assert_eq!(shown(&b, &x), Some(Status::Up));
    // Silent again: the old inference stays void.
    b.set_admitted(&a.origin(), false);
    assert_eq!(shown(&b, &x), Some(Status::Down));
}

#[test]
fn an_inference_does_not_apply_to_the_next_claim() {
    let (x, _, mut b, mut c) = silent_owner();
    b.infer_left("x");
    c.register(&x, 2, "client");
    b.pull(&c);
    assert_eq!(shown(&b, &x), Some(Status::Up));
    c.pull(&b);
    assert_eq!(shown(&c, &x), Some(Status::Up));
}

/// Two nodes register `x` with the same claim, one after the other, and die. The inference about the first one names the
/// higher node id, and must not keep out the one about the second.
#[test]
fn an_inference_about_an_earlier_registration_gives_way() {
    let x = member("x");
    let (mut z, mut a, mut b, mut c) = (MapCopy::new("z"), MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    z.register(&x, 1, "client");
    b.pull(&z);
    c.pull(&z);
    for copy in [&mut b, &mut c] {
        copy.set_liveness_counter(&z.origin(), 9);
        copy.set_admitted(&z.origin(), false);
    }
    b.infer_left("x");
    c.pull(&b);
    a.pull(&z);
    a.register(&x, 1, "client");
    b.pull(&a);
    b.set_liveness_counter(&a.origin(), 5);
    b.set_admitted(&a.origin(), false);
    assert_eq!(shown(&b, &x), Some(Status::Down), "the inference is about the first registration");
    b.infer_left("x");
    assert_eq!(shown(&b, &x), Some(Status::Left));
    c.pull(&b);
    c.set_liveness_counter(&a.origin(), 5);
    c.set_admitted(&a.origin(), false);
    assert_eq!(shown(&c, &x), Some(Status::Left));
    b.check_indexes();
    c.check_indexes();
}

#[test]
fn an_inference_may_arrive_before_its_record() {
    let (x, a, mut b, _) = silent_owner();
    b.infer_left("x");
    let mut d = MapCopy::new("d");
    assert!(matches!(d.apply(&b.encode_inferred("x"))[..], [Outcome::Inferred]));
    assert_eq!(shown(&d, &x), None);
    d.set_liveness_counter(&a.origin(), 5);
    d.set_admitted(&a.origin(), false);
    d.apply(&a.encode_key(&x));
    assert_eq!(shown(&d, &x), Some(Status::Left));
    d.check_indexes();
}

#[test]
fn of_two_inferences_the_higher_liveness_counter_wins_in_any_order() {
    let (_, a, mut b, mut c) = silent_owner();
    b.infer_left("x");
    c.set_liveness_counter(&a.origin(), 6);
    c.infer_left("x");
    let [by_b, by_c] = [b.encode_inferred("x"), c.encode_inferred("x")];
    for frames in [[&by_b, &by_c], [&by_c, &by_b]] {
        let mut d = MapCopy::new("d");
        for frame in frames {
            d.apply(frame);
            d.check_indexes();
        }
        assert_eq!(d.inferred(), c.inferred());
    }
}

#[test]
fn collecting_an_inference_that_applies_collects_the_slot() {
    let (x, _, mut b, _) = silent_owner();
    b.infer_left("x");
    assert_eq!(b.collect_all(), 1);
    assert!(b.rank(&x).is_none());
    assert!(b.inferred().is_empty());
    b.check_indexes();
}

#[test]
fn collecting_an_inference_that_is_void_collects_nothing_else() {
    let (x, a, mut b, mut c) = silent_owner();
    b.infer_left("x");
    b.set_liveness_counter(&a.origin(), 6);
    b.set_admitted(&a.origin(), true);
    assert_eq!(b.collect_all(), 0);
    assert_eq!(shown(&b, &x), Some(Status::Up));
    // It forces no peer into a full merge.
    assert!(matches!(b.map.delta(&c.context()), Delta::Items(_)));
    c.pull(&b);
    assert_eq!(shown(&c, &x), Some(Status::Down));
}

/// Expiry from a lagging copy after the owner's tombstone was collected.
#[test]
fn an_inference_about_something_collected_is_dropped_on_receipt() {
    let (x, mut a, mut b, mut c) = silent_owner();
    a.unregister(&x);
    b.pull(&a);
    assert_eq!(b.collect_all(), 1);
    c.infer_left("x");
    assert!(matches!(b.apply(&c.encode_inferred("x"))[..], [Outcome::Known]));
    assert!(b.inferred().is_empty() && b.rank(&x).is_none());
}

/// Records that the sender of a full merge covers and does not have were collected there; so were a new copy's
/// inferences.
#[test]
fn a_full_merge_takes_inferences_along_and_removes_those_collected_at_the_sender() {
    let (x, _, mut b, mut c) = silent_owner();
    b.infer_left("x");
    let mut fresh = MapCopy::new("fresh");
    fresh.pull_full(&b);
    assert_eq!(fresh.inferred(), b.inferred());
    c.pull(&b);
    b.collect_all();
    c.admit_only_self();
    assert_eq!(c.pull_full(&b), [x]);
    assert!(c.inferred().is_empty(), "{:?}", c.inferred());
    c.check_indexes();
}

#[test]
fn an_inference_is_collected_with_its_slot() {
    let (x, mut a, mut b, mut c) = silent_owner();
    let timeout = Duration::from_secs(60);
    a.unregister(&x);
    c.pull(&a);
    c.now = c.now + Duration::from_secs(50);
    b.infer_left("x");
    c.pull(&b);
    assert_eq!(c.inferred(), b.inferred(), "it is newer than the tombstone");
    c.now = c.now + Duration::from_secs(10);
    assert_eq!(c.map.collect(c.clock(), timeout).len(), 1);
    assert!(c.inferred().is_empty() && c.rank(&x).is_none());
    c.check_indexes();
}

#[test]
fn an_inference_about_another_claim_survives_the_collection_of_the_slot() {
    let (x, mut a, mut b, mut c) = silent_owner();
    a.unregister(&x);
    c.pull(&a);
    // The next claim and an inference about it; only the inference has arrived.
    let mut d = MapCopy::new("d");
    d.register(&x, 2, "client");
    b.pull(&d);
    b.infer_left("x");
    c.now = c.now + Duration::from_secs(60);
    c.apply(&b.encode_inferred("x"));
    c.set_admitted(&d.origin(), false);
    assert_eq!(c.map.collect(c.clock(), Duration::from_secs(60)).len(), 1);
    assert_eq!(c.inferred(), b.inferred());
    c.apply(&d.encode_key(&x));
    assert_eq!(shown(&c, &x), Some(Status::Left));
    c.check_indexes();
}

/// A node that collected a record which this node still shows as left would accept a lower claim, and this node would
/// not.
#[test]
fn an_inference_is_repeated_as_a_tombstone_to_a_lower_claim() {
    let x = member("x");
    for admitted in [true, false] {
        let (mut a, mut b, mut d) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("d"));
        a.register(&x, 9, "client");
        d.register(&x, 1, "newcomer");
        b.map.may_write = true;
        b.pull(&a);
        b.infer_left("x");
        b.set_admitted(&a.origin(), admitted);
        let outcomes = b.apply(&d.encode_key(&x));
        if admitted {
            assert!(matches!(outcomes[..], [Outcome::Outranked(_)]), "the owner is alive: {outcomes:?}");
            continue;
        }
        let [Outcome::Stored(stored)] = &outcomes[..] else { panic!("no tombstone was written: {outcomes:?}") };
        assert_eq!((stored.new.claim, stored.new.stated()), (9, Status::Left));
        assert_eq!(stored.new.origin.id, b.origin());
        d.apply(&b.encode_key(&x));
        assert_eq!(shown(&d, &x), Some(Status::Left));
    }
}

/// A returned owner has restated a member, which is shown; the earlier inference about it is collected just then.
#[test]
fn collecting_an_inference_keeps_new_writes_of_a_returned_owner() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    b.infer_left("m");
    b.set_returning(&a.origin(), 1);
    a.update(&member("m"), |_| ());
    b.pull(&a);
    assert_eq!(shown(&b, &member("m")), Some(Status::Up));
    assert_eq!(b.collect_all(), 0);
    assert_eq!(shown(&b, &member("m")), Some(Status::Up));
}
