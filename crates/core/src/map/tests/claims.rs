//! Which record wins (D3), and which conflicts are reported (D9).

use super::map_copy::{MapCopy, member, name};
use crate::map::{Outcome, Stored};

/// All orders of three things.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn stored(outcomes: Vec<Outcome>) -> Stored {
    match outcomes.into_iter().next() {
        Some(Outcome::Stored(stored)) => stored,
        other => panic!("not stored: {other:?}"),
    }
}

/// With ties broken by node id on top of vector clocks, this ended with three different winners: B claims; A takes
/// over after receiving B; C claims without having received either; and the ids are ordered A < C < B.
#[test]
fn three_claims_end_the_same_in_all_orders_of_arrival() {
    let x = member("x");
    for claim_of_c in 1..=3 {
        let (mut a, mut b, mut c) = (MapCopy::new("id-1"), MapCopy::new("id-3"), MapCopy::new("id-2"));
        b.register(&x, 1, "client-b");
        let by_b = b.encode_key(&x);
        a.apply(&by_b);
        a.register(&x, 2, "client-a");
        let by_a = a.encode_key(&x);
        c.register(&x, claim_of_c, "client-c");
        let by_c = c.encode_key(&x);

        let frames = [by_a, by_b, by_c];
        let winner = if claim_of_c == 3 { c.rank(&x) } else { a.rank(&x) };
        for order in ORDERS {
            let mut observer = MapCopy::new("d");
            for at in order {
                observer.apply(&frames[at]);
            }
            assert_eq!(observer.rank(&x), winner, "claim {claim_of_c} of C, arrival {order:?}");
        }
        for copy in [&mut a, &mut b, &mut c] {
            for frame in &frames {
                copy.apply(frame);
            }
            assert_eq!(copy.rank(&x), winner, "claim {claim_of_c} of C, at {:?}", copy.origin());
        }
    }
}

#[test]
fn a_former_owner_cannot_win_a_member_back_by_updating_it() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    b.pull(&a);
    b.register(&x, 2, "client");
    for _ in 0..100 {
        a.update(&x, |record| record.drain += 2);
    }
    b.apply(&a.encode_key(&x));
    assert_eq!(b.rank(&x).unwrap().0, 2);
    a.apply(&b.encode_key(&x));
    assert_eq!(a.rank(&x), b.rank(&x));
}

#[test]
fn of_two_incarnations_of_one_node_the_later_wins_a_tie() {
    let x = name("x");
    let (mut first, mut second) = (MapCopy::incarnation("a", 1), MapCopy::incarnation("a", 2));
    first.register(&x, 1, "a");
    second.register(&x, 1, "a");
    for frames in [[&first, &second], [&second, &first]] {
        let mut observer = MapCopy::new("b");
        for copy in frames {
            observer.apply(&copy.encode_key(&x));
        }
        assert_eq!(observer.rank(&x), second.rank(&x));
    }
}

#[test]
fn a_tombstone_of_a_higher_claim_hides_an_older_registration_in_any_order() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    // The unregistration is repeated at a node that never received the registration (C3).
    b.unregister_with(&x, 2, "client");
    for frames in [[&a, &b], [&b, &a]] {
        let mut observer = MapCopy::new("c");
        for copy in frames {
            observer.apply(&copy.encode_key(&x));
        }
        assert!(!observer.is_live(&x));
    }
}

#[test]
fn a_member_and_a_name_of_one_id_are_two_things() {
    let mut a = MapCopy::new("a");
    a.register(&member("x"), 1, "client");
    a.register(&name("x"), 1, "a");
    a.unregister(&member("x"));
    let mut b = MapCopy::new("b");
    b.pull(&a);
    assert!(!b.is_live(&member("x")) && b.is_live(&name("x")));
    assert_eq!((b.map.live_members(), b.map.live_names()), (0, 1));
}

#[test]
fn concurrent_claims_are_conflicts() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client-a");
    b.register(&x, 1, "client-b");
    let by_a = a.encode_key(&x);
    assert!(stored(a.apply(&b.encode_key(&x))).conflict);
    assert!(matches!(b.apply(&by_a)[..], [Outcome::Outranked(_)]));
}

#[test]
fn a_takeover_of_the_current_record_is_no_conflict() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    b.pull(&a);
    b.register(&x, 2, "client");
    assert!(!stored(a.apply(&b.encode_key(&x))).conflict);
    // The next write of the new owner is no conflict either, whether the write before it has arrived or not.
    let mut c = MapCopy::new("c");
    let mut by_a = MapCopy::new("a");
    by_a.register(&x, 1, "client");
    c.pull(&by_a);
    b.update(&x, |record| record.drain += 1);
    for copy in [&mut a, &mut c] {
        assert!(!stored(copy.apply(&b.encode_key(&x))).conflict);
    }
}

#[test]
fn a_takeover_of_an_outdated_record_is_a_conflict() {
    let x = member("x");
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&x, 1, "client");
    b.pull(&a);
    b.register(&x, 2, "client");
    a.update(&x, |record| record.drain += 1);
    // B's write names A's first write as its predecessor, which A has replaced since. So does B's next write.
    let mut c = MapCopy::new("c");
    c.pull(&a);
    assert!(stored(a.apply(&b.encode_key(&x))).conflict);
    b.update(&x, |record| record.drain += 1);
    assert!(stored(c.apply(&b.encode_key(&x))).conflict);
}

#[test]
fn records_in_this_nodes_name_are_rejected() {
    let x = member("x");
    let mut impostor = MapCopy::new("a");
    impostor.register(&x, 9, "client");
    let mut a = MapCopy::new("a");
    assert!(matches!(a.apply(&impostor.encode_key(&x))[..], [Outcome::Rejected]));
    assert!(a.slots().is_empty());
    assert!(a.context().clock.is_empty());
}

#[test]
fn incarnations_of_one_node_are_bounded() {
    let mut observer = MapCopy::new("observer");
    let x = member("x");
    for number in 1..=64 {
        let mut incarnation = MapCopy::incarnation("a", number);
        incarnation.register(&x, number, "client");
        assert!(
            matches!(observer.apply(&incarnation.encode_key(&x))[..], [Outcome::Stored(_)]),
            "incarnation {number}"
        );
    }
    let mut one_more = MapCopy::incarnation("a", 65);
    one_more.register(&x, 65, "client");
    assert!(matches!(observer.apply(&one_more.encode_key(&x))[..], [Outcome::Rejected]));
    assert_eq!(observer.rank(&x).unwrap().0, 64);
    let mut other = MapCopy::new("b");
    other.register(&x, 66, "client");
    assert!(matches!(observer.apply(&other.encode_key(&x))[..], [Outcome::Stored(_)]), "other nodes are not affected");
}
