//! Names and old incarnations of nodes that are long gone (D10).

use super::map_copy::{MapCopy, member, name};
use crate::config::Limits;
use crate::map::{CausalMap, Delta, Outcome};
use crate::member::{AGENTLESS_CLIENT, Status};
use crate::mutant::Mutation;
use crate::time::{Clock, Duration};
use crate::version::{Incarnation, NodeId, OriginId};

#[test]
fn names_expire_and_are_collected_as_members_are() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&name("n"), 1, "a");
    a.register(&member("n"), 1, "client");
    b.pull(&a);
    c.pull(&a);
    b.infer_key_left(&name("n"));
    c.set_admitted(&a.origin(), false);
    c.pull(&b);
    for copy in [&b, &c] {
        let shown = |key| copy.map.shown(&copy.record(&key).unwrap());
        assert_eq!((shown(name("n")), shown(member("n"))), (Status::Left, Status::Down));
    }
    assert_eq!(b.collect_all(), 1);
    assert!(b.is_live(&member("n")) && b.rank(&name("n")).is_none());
    assert_eq!(b.map.live_names(), 0);
    b.check_indexes();
    // A copy that still has it does not bring it back.
    b.pull(&c);
    assert!(matches!(b.apply(&c.encode_key(&name("n")))[..], [Outcome::Known]));
    assert!(b.rank(&name("n")).is_none());
}

/// A written-off origin receives that in the context of the node that wrote it off, also through a third node.
#[test]
fn an_origin_receives_its_written_off_numbers() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&name("n"), 1, "a");
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    assert_eq!(b.context().written_off.get(&a.origin()), 0);
    b.infer_key_left(&name("n"));
    b.collect_all();
    assert_eq!(b.context().written_off.get(&a.origin()), 2);
    c.exchange_from(&b);
    assert_eq!(c.context().written_off.get(&a.origin()), 2);
    // Once restated, the records are new to all copies.
    a.update(&name("n"), |_| ());
    b.pull(&a);
    c.pull(&b);
    assert!(b.is_live(&name("n")) && c.is_live(&name("n")));
}

/// An agentless member shows what it states although its owner is silent, and nobody writes it off (AG1).
#[test]
fn agentless_members_do_not_depend_on_their_owner() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&member("agentless"), 1, AGENTLESS_CLIENT);
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    b.set_admitted(&a.origin(), false);
    let shown = |id: &str| b.map.shown(&b.record(&member(id)).unwrap());
    assert_eq!((shown("agentless"), shown("m")), (Status::Up, Status::Down));
    b.infer_left("m");
    b.collect_all();
    let index = b.map.origins.index_of(&a.origin()).unwrap();
    assert!(b.map.drop_written_off(index).is_empty(), "its write number is below the written-off one");
    assert!(b.is_live(&member("agentless")) && b.rank(&member("m")).is_none());
}

#[test]
fn writing_off_an_inferred_member_is_sent_too() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&member("m"), 1, "client");
    b.pull(&a);
    b.infer_left("m");
    assert_eq!(b.collect_all(), 1);
    assert_eq!(b.context().written_off.get(&a.origin()), 1);
    // A stated tombstone is the owner's own write: there is nothing to restate.
    let (mut c, mut d) = (MapCopy::new("c"), MapCopy::new("d"));
    c.register(&member("m"), 1, "client");
    c.unregister(&member("m"));
    d.pull(&c);
    d.collect_all();
    assert_eq!(d.context().written_off.get(&c.origin()), 0);
}

#[test]
fn only_outlived_incarnations_without_records_are_retired_oldest_first() {
    let mut b = MapCopy::new("b");
    let mut incarnations = [1, 2, 3].map(|number| MapCopy::incarnation("a", number));
    for (claim, incarnation) in incarnations.iter_mut().enumerate() {
        // Each incarnation takes the name over from the one before; the second has a member of its own as well.
        incarnation.register(&name("n"), claim as u64 + 1, "a");
    }
    incarnations[1].register(&member("m"), 1, "client");
    for incarnation in &incarnations {
        b.pull(incarnation);
    }
    let [first, second, third] = incarnations.map(|incarnation| incarnation.origin());
    let retired = b.retire(&first.node);
    assert_eq!(retired, std::slice::from_ref(&first), "the second still has a member, the third is the newest");
    assert!(b.map.origins.is_retired(&first));
    assert!(!b.map.origins.is_retired(&second) && !b.map.origins.is_retired(&third));
    assert_eq!(b.context().clock.get(&first), 0);
    b.check_indexes();
}

#[test]
fn records_of_a_retired_incarnation_are_rejected() {
    let (mut b, mut c) = (MapCopy::new("b"), MapCopy::new("c"));
    let mut incarnations = [1, 2].map(|number| MapCopy::incarnation("a", number));
    incarnations[0].register(&member("m"), 1, "client");
    let stale = incarnations[0].encode_key(&member("m"));
    c.pull(&incarnations[0]);
    incarnations[1].unregister_with(&member("m"), 2, "client");
    b.pull(&incarnations[0]);
    b.pull(&incarnations[1]);
    b.collect_all();
    let [old, new] = incarnations.map(|incarnation| incarnation.origin());
    assert_eq!(b.retire(&old.node), std::slice::from_ref(&old));
    assert!(matches!(b.apply(&stale)[..], [Outcome::Rejected | Outcome::Known]));
    b.pull(&c);
    assert!(b.rank(&member("m")).is_none());
    assert_eq!(b.context().clock.get(&old), 0, "the context does not cover it either");
    // A lagging copy gets a full merge because of the new incarnation, and drops the records of the old one.
    assert_eq!(b.map.delta(&c.context()), Delta::Full);
    c.set_admitted(&old, false);
    c.set_admitted(&new, false);
    assert_eq!(c.pull_full(&b), [member("m")]);
}

#[test]
fn entries_of_retired_incarnations_are_reused() {
    let mut b = MapCopy::new("b");
    for number in 1..=200 {
        let mut incarnation = MapCopy::incarnation("a", number);
        incarnation.register(&name("n"), number, "a");
        b.pull(&incarnation);
        b.retire(&incarnation.origin().node);
        b.check_indexes();
    }
    assert_eq!(b.map.origins.iter().count(), 2, "this node and the last incarnation");
    assert_eq!(b.map.origins.retired().len(), 1);
}

/// An owner died before it restated records that others wrote off. A node that kept them drops these, and no more.
#[test]
fn written_off_records_are_dropped_when_their_origin_falls_silent() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&member("m"), 1, "client");
    a.register(&member("gone"), 1, "client");
    a.unregister(&member("gone"));
    b.pull(&a);
    b.infer_left("m");
    b.collect_all();
    a.register(&member("later"), 2, "client");
    c.pull(&a);
    c.pull_full(&b);
    assert!(c.is_live(&member("m")), "its owner is admitted there");
    let index = c.map.origins.index_of(&a.origin()).unwrap();
    let dropped = c.map.drop_written_off(index);
    assert_eq!(dropped.iter().map(|(_, member)| member.id()).collect::<Vec<_>>(), ["m"]);
    assert!(c.is_live(&member("later")) && c.rank(&member("m")).is_none());
    assert_eq!(c.map.drop_written_off(index).len(), 0);
    c.check_indexes();
}

/// An origin that restated everything and died long after: none of its records is dropped.
#[test]
fn no_record_is_dropped_of_an_origin_that_restated_everything() {
    let (mut a, mut b, mut c) = (MapCopy::new("a"), MapCopy::new("b"), MapCopy::new("c"));
    a.register(&name("n"), 1, "a");
    b.pull(&a);
    c.pull(&a);
    b.infer_key_left(&name("n"));
    b.collect_all();
    assert_ne!(b.map.origins.context_hash(), c.map.origins.context_hash(), "the contexts differ");
    c.exchange_from(&b);
    a.update(&name("n"), |_| ());
    c.pull(&a);
    let index = c.map.origins.index_of(&a.origin()).unwrap();
    assert_eq!(c.map.drop_written_off(index).len(), 0);
}

/// A peer that invents origins cannot fill the memory with them.
#[test]
fn origins_are_bounded_for_each_node_and_in_all() {
    let origin = |node: String, number| OriginId {
        node: NodeId::new(&node).unwrap(),
        incarnation: Incarnation { number, nonce: 0 },
    };
    let limits = Limits { peers: 3, incarnations_per_node: 2, ..Limits::default() };
    let mut map = CausalMap::new(origin("me".to_owned(), 1), &limits, 0, Clock::default(), Mutation::none());
    let mut admit = |node: String, number| map.admit_origin(&origin(node, number), Clock::default()).is_some();
    assert_eq!([2, 3, 1].map(|number| admit("a".to_owned(), number)), [true; 3], "the first one wrote nothing");
    let admitted = (0..20).filter(|i| admit(format!("n{i}"), 1)).count();
    assert_eq!(admitted, 2 * (3 + 1) - 3, "this node and two incarnations exist already");
    assert!(admit("a".to_owned(), 3), "a known origin stays admitted");
}

/// A node that crashes before it writes anything does not use up its incarnations (P2).
#[test]
fn outlived_incarnations_that_wrote_nothing_make_room() {
    let mut b = MapCopy::new("b");
    let clock = b.clock();
    let newest = |number| MapCopy::incarnation("a", number).origin();
    for number in 1..=200 {
        assert!(b.map.has_room_for_incarnation(&newest(number)), "incarnation {number}");
        assert!(b.map.admit_origin(&newest(number), clock).is_some());
    }
    for number in 201..=264 {
        let mut incarnation = MapCopy::incarnation("a", number);
        incarnation.register(&name("n"), number, "a");
        b.pull(&incarnation);
    }
    assert!(b.map.has_room_for_incarnation(&newest(264)), "it is known");
    assert!(!b.map.has_room_for_incarnation(&newest(265)), "64 incarnations have written");
    b.retire(&newest(1).node);
    assert!(b.map.has_room_for_incarnation(&newest(265)), "older ones were retired");
}

/// The name of a node that is gone leaves the context; its marker goes later, or with a sign of life (D15).
#[test]
fn the_name_of_a_node_that_is_gone_is_removed() {
    let (mut a, mut b) = (MapCopy::new("a"), MapCopy::new("b"));
    a.register(&member("m"), 1, "client");
    a.unregister(&member("m"));
    b.pull(&a);
    b.collect_all();
    let (origin, clock) = (a.origin(), b.clock());
    assert_eq!(b.map.origins.retire(&origin.node, clock, |_, _| true), std::slice::from_ref(&origin));
    assert!(b.map.origins.is_gone(&origin.node) && b.context().clock.is_empty());
    assert!(b.map.admit_origin(&origin, clock).is_none());
    let mut revived = MapCopy::new("c");
    revived.pull(&a);
    revived.collect_all();
    revived.map.origins.retire(&origin.node, clock, |_, _| true);
    revived.map.origins.revive(&origin);
    assert!(revived.map.admit_origin(&origin, clock).is_some(), "it is alive");
    b.map.origins.drop_markers(clock, Duration::from_secs(1));
    assert!(b.map.origins.is_gone(&origin.node), "too early");
    b.map.origins.drop_markers(clock, Duration::ZERO);
    assert_eq!(b.map.origins.retired().len(), 0);
}
