//! Resume tokens of one replica, looked at by another (W3).

use super::replica::{Replica, member};
use crate::map::Delta;
use crate::mutant::Mutation;
use crate::watch::Token;

fn token(of: &Replica) -> Token {
    Token::of(&of.map)
}

fn changed(from: &Replica, at: &Replica) -> Option<Vec<u32>> {
    token(from).changed(&at.map, Mutation::none())
}

/// Ids that a watcher who comes from one replica is told of by another.
fn told(from: &Replica, at: &Replica) -> Vec<String> {
    let slots = changed(from, at).expect("nothing is too old");
    slots.into_iter().map(|slot| at.map.at(slot).id.to_string()).collect()
}

/// Both have written off as much, but one of them knew better and kept it.
#[test]
fn what_was_given_up_where_the_token_was_made_is_told_where_it_is_held() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    c.pull(&a);
    c.set_admitted(&a.origin(), true);
    b.infer_left("m");
    assert_eq!(b.collect_all(), 1);
    b.set_admitted(&a.origin(), true);
    assert_eq!(c.pull_full(&b), [], "the owner lives, it is kept");
    assert_eq!(told(&b, &c), ["m"]);
}

/// One that knew better kept it and shows it; another has dropped it, without a write that could tell of it. What both may
/// lack is the same.
#[test]
fn what_was_kept_where_the_token_was_made_may_be_gone_elsewhere() {
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(Replica::new);
    a.register(&member("m"), 1, "client");
    for replica in [&mut b, &mut c, &mut d] {
        replica.pull(&a);
    }
    c.set_admitted(&a.origin(), true);
    d.set_admitted(&a.origin(), false);
    b.infer_left("m");
    assert_eq!(b.collect_all(), 1);
    assert_eq!(c.pull_full(&b), [], "the owner lives, it is kept");
    assert_eq!(d.pull_full(&b), [member("m")]);
    assert_eq!(changed(&c, &d), None, "only a reset can tell");
    assert_eq!(changed(&b, &d), Some(vec![]));
}

/// An owner returns: what it writes is believed, what it had written before not yet (L3). It looks like that nowhere else.
#[test]
fn an_owner_that_returns_is_compared_anew() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&member("old"), 1, "client");
    a.register(&member("new"), 1, "client");
    for replica in [&mut b, &mut c] {
        replica.pull(&a);
        replica.set_admitted(&a.origin(), false);
    }
    assert!(told(&b, &c).is_empty(), "silent at both, for as long");
    b.set_returning(&a.origin(), 1);
    for (from, at) in [(&b, &c), (&c, &b)] {
        assert_eq!(told(from, at), ["old", "new"]);
    }
}

/// Part of a delta was shown before it was cut: a node that lacks that is behind what the watcher has seen, though not
/// behind the context that the token tells of.
#[test]
fn what_was_shown_beyond_the_context_has_to_be_reached() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
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

/// The rest of a delta whose sender died never comes. Nobody waits for it where all has been taken in that there is.
#[test]
fn what_a_silent_owner_left_behind_is_enough() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&member("m"), 1, "client");
    for replica in [&mut b, &mut c] {
        let Delta::Items(items) = a.map.delta(&replica.context()) else { panic!("a full merge is needed") };
        replica.apply(&a.encode(&items));
    }
    let brought = token(&b);
    assert!(!brought.reached(&c.map), "more may be under way");
    c.set_admitted(&a.origin(), false);
    assert!(brought.reached(&c.map));
}

/// Not all that an origin wrote is looked at for every mark: past a number of records, one of them may have been kept.
#[test]
fn whether_something_was_kept_is_looked_for_among_a_few_only() {
    for (gone, told) in [(10, Some(vec![])), (100, None)] {
        let (mut a, mut b) = (Replica::new("a"), Replica::new("b"));
        for i in 0..gone {
            a.register(&member(&format!("m{i}")), 1, "client");
            a.unregister(&member(&format!("m{i}")));
        }
        b.pull(&a);
        let index = b.map.origins.index_of(&a.origin()).unwrap();
        b.map.origins.write_off(index, b.map.origins.entry(index).seen);
        let slots = changed(&b, &b).map(|slots| slots.into_iter().filter(|slot| b.map.at(*slot).is_live()).collect());
        assert_eq!(slots, told, "{gone} tombstones");
    }
}
