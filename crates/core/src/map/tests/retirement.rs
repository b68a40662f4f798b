//! Origins that are long gone (D10).

use super::replica::{Replica, member, name};
use crate::map::Delta;

#[test]
fn retiring_an_origin_drops_its_names_and_its_place_in_the_context() {
    let (mut a, mut b) = (Replica::new("a"), Replica::new("b"));
    a.register(&name("n"), 1, "a");
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    let a = a.origin();
    let dropped = b.map.retire(&a.node, a.incarnation);
    assert_eq!(dropped.iter().map(|(_, record)| record.id()).collect::<Vec<_>>(), ["n"]);
    assert!(b.is_live(&member("m")) && b.rank(&name("n")).is_none());
    assert_eq!(b.context().clock.get(&a), 0);
    assert!(b.context().covers(&a, 1), "it counts as covered all the same");
    assert!(b.map.origins.floor().is_empty());
    b.check_indexes();
}

#[test]
fn nobody_sends_records_of_an_origin_that_the_other_retired() {
    let (mut a, mut b, mut c) = (Replica::new("a"), Replica::new("b"), Replica::new("c"));
    a.register(&name("n"), 1, "a");
    b.pull(&a);
    c.pull(&a);
    let a = a.origin();
    b.map.retire(&a.node, a.incarnation);
    assert_eq!(c.map.delta(&b.context()), Delta::Items(Vec::new()));
    // Even if it is sent, it is old news.
    b.pull(&c);
    assert!(b.rank(&name("n")).is_none());
    assert_eq!(b.context().clock.get(&a), 0, "nothing is claimed of it either");
}

#[test]
fn an_origin_that_returns_is_sent_everything_again() {
    let (mut a, mut b) = (Replica::new("a"), Replica::new("b"));
    a.register(&name("n"), 1, "a");
    b.pull(&a);
    let origin = a.origin();
    b.map.retire(&origin.node, origin.incarnation);
    b.map.origins.unretire(&origin);
    assert!(!b.context().covers(&origin, 1));
    b.pull(&a);
    assert!(b.is_live(&name("n")));
    assert_eq!(b.context().clock, a.context().clock);
    b.check_indexes();
}

#[test]
fn older_runs_stay_retired_when_a_later_one_returns() {
    let mut b = Replica::new("b");
    let runs = [1, 2, 3].map(|number| Replica::run("a", number));
    for run in &runs {
        b.set_admitted(&run.origin(), true);
    }
    let [first, second, third] = runs.map(|run| run.origin());
    b.map.retire(&third.node, third.incarnation);
    assert!([&first, &second, &third].iter().all(|origin| b.map.origins.is_retired(origin)));
    b.map.origins.unretire(&second);
    assert!(b.map.origins.is_retired(&first));
    assert!(!b.map.origins.is_retired(&second) && !b.map.origins.is_retired(&third));
}

#[test]
fn a_retired_origin_does_not_hold_back_deltas_by_its_floor() {
    let (mut a, mut b) = (Replica::new("a"), Replica::new("b"));
    a.register(&member("m"), 1, "client");
    a.unregister(&member("m"));
    b.pull(&a);
    b.collect_all();
    let fresh = Replica::new("fresh");
    assert_eq!(b.map.delta(&fresh.context()), Delta::Full);
    let a = a.origin();
    b.map.retire(&a.node, a.incarnation);
    assert_eq!(b.map.delta(&fresh.context()), Delta::Items(Vec::new()));
}

#[test]
fn entries_of_retired_origins_are_freed_and_used_again() {
    let mut b = Replica::new("b");
    for number in 1..=200 {
        let mut run = Replica::run("a", number);
        run.register(&name("n"), number, "a");
        b.pull(&run);
        let origin = run.origin();
        b.map.retire(&origin.node, origin.incarnation);
        b.check_indexes();
    }
    assert_eq!(b.map.origins.iter().count(), 1, "only this node's own is left");
    assert_eq!(b.map.origins.retired().len(), 1);
}
