//! Resume tokens of one copy, evaluated by another (W3).

use super::map_copy::{MapCopy, member};
use crate::map::Delta;
use crate::mutant::Mutation;
use crate::watch::Token;

fn token(of: &MapCopy) -> Token {
    Token::of(&of.map)
}

fn changed(from: &MapCopy, at: &MapCopy) -> Option<Vec<u32>> {
    token(from).changed(&at.map, Mutation::none())
}

/// Ids that a watcher from one copy gets from another.
fn sent_ids(from: &MapCopy, at: &MapCopy) -> Vec<String> {
    let slots = changed(from, at).expect("the token is not too old");
    slots.into_iter().map(|slot| at.map.at(slot).id.to_string()).collect()
}

/// Both have written off as much, but one of them had evidence and kept the records.
#[test]
fn a_record_written_off_at_the_tokens_node_is_sent_where_it_is_held() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    c.pull(&a);
    c.set_admitted(&a.origin(), true);
    b.infer_left("m");
    assert_eq!(b.collect_all(), 1);
    b.set_admitted(&a.origin(), true);
    assert_eq!(c.pull_full(&b), [], "the owner is admitted, so the record is kept");
    assert_eq!(sent_ids(&b, &c), ["m"]);
}

/// One copy had evidence, kept the record and shows it; another has dropped it, without a write that shows it. Both
/// may lack the same writes.
#[test]
fn a_record_kept_at_the_tokens_node_may_be_dropped_elsewhere() {
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(MapCopy::new);
    a.register(&member("m"), 1, "client");
    for copy in [&mut b, &mut c, &mut d] {
        copy.pull(&a);
    }
    c.set_admitted(&a.origin(), true);
    d.set_admitted(&a.origin(), false);
    b.infer_left("m");
    assert_eq!(b.collect_all(), 1);
    assert_eq!(c.pull_full(&b), [], "the owner is admitted, so the record is kept");
    assert_eq!(d.pull_full(&b), [member("m")]);
    assert_eq!(changed(&c, &d), None, "only a reset is correct");
    assert_eq!(changed(&b, &d), Some(vec![]));
}

/// A returning owner: its new writes show what it stated, its earlier ones do not yet (L3). No other node shows the
/// same.
#[test]
fn a_returning_owner_is_compared_again() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("old"), 1, "client");
    a.register(&member("new"), 1, "client");
    for copy in [&mut b, &mut c] {
        copy.pull(&a);
        copy.set_admitted(&a.origin(), false);
    }
    assert!(sent_ids(&b, &c).is_empty(), "silent at both for the same time");
    b.set_returning(&a.origin(), 1);
    for (from, at) in [(&b, &c), (&c, &b)] {
        assert_eq!(sent_ids(from, at), ["old", "new"]);
    }
}

/// Part of a delta was shown before it was interrupted: a node that lacks that part is behind the watcher, though not
/// behind the context in the token.
#[test]
fn records_shown_beyond_the_context_have_to_be_reached() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    c.pull(&a);
    assert!(token(&b).reached(&c.map));
    a.unregister(&member("m"));
    let Delta::Items(items) = a.map.delta(&b.context()) else { panic!("a full merge is needed") };
    b.apply(&a.encode(&items));
    let brought = token(&b);
    assert!(!brought.reached(&c.map), "the registration is still shown there");
    c.pull(&a);
    assert!(brought.reached(&c.map));
}

/// The rest of a delta whose sender died never arrives. A node that has received everything available does not wait
/// for it.
#[test]
fn the_received_writes_of_a_silent_owner_are_enough() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    for copy in [&mut b, &mut c] {
        let Delta::Items(items) = a.map.delta(&copy.context()) else { panic!("a full merge is needed") };
        copy.apply(&a.encode(&items));
    }
    let brought = token(&b);
    assert!(!brought.reached(&c.map), "more may be in flight");
    c.set_admitted(&a.origin(), false);
    assert!(brought.reached(&c.map));
}

/// A mark does not examine all records of an origin: past a number of records, it assumes that one of them was kept.
#[test]
fn a_bounded_number_of_records_is_examined_for_kept_ones() {
    for (gone, sent_ids) in [(10, Some(vec![])), (100, None)] {
        let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
        for i in 0..gone {
            a.register(&member(&format!("m{i}")), 1, "client");
            a.unregister(&member(&format!("m{i}")));
        }
        b.pull(&a);
        let index = b.map.origins.index_of(&a.origin()).unwrap();
        b.map.origins.write_off(index, b.map.origins.entry(index).seen);
        let slots = changed(&b, &b).map(|slots| slots.into_iter().filter(|slot| b.map.at(*slot).is_live()).collect());
        assert_eq!(slots, sent_ids, "{gone} tombstones");
    }
}
