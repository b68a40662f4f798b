#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use super::*;
use std::collections::BTreeMap;

const SESSION: &str = "s1";
const OTHER: &str = "s2";

fn pair(key: &str, value: &str, lease: u64, index: u64) -> Pair {
    let (key, value) = (key.to_owned(), value.to_owned().into());
    Pair { key, value, lease, create_index: index, modify_index: index, ..Pair::default() }
}

fn op(verb: Verb, key: &str) -> KvOp {
    KvOp { value: "v".into(), ..KvOp::new(verb, key) }
}

fn with_session(verb: Verb, key: &str, session: &str) -> KvOp {
    KvOp { session: session.to_owned(), ..op(verb, key) }
}

/// Evaluates against the keys `a` (held by the first session), `b` and `t/1`, `t/2`.
fn run(operations: &[KvOp], blocked: &[(&str, Blocked)]) -> Result<Plan, Vec<String>> {
    let pairs = [pair("a", "1", 7, 10), pair("b", "2", 0, 20), pair("t/1", "3", 8, 30), pair("t/2", "4", 0, 40)];
    let pairs: BTreeMap<String, Pair> = pairs.into_iter().map(|pair| (pair.key.clone(), pair)).collect();
    let sessions = BTreeMap::from([(SESSION.to_owned(), Ok(7)), (OTHER.to_owned(), Ok(8))]);
    let holders = BTreeMap::from([(7, SESSION.to_owned()), (8, OTHER.to_owned())]);
    let blocked = blocked.iter().map(|(key, why)| ((*key).to_owned(), *why)).collect();
    let operations: Vec<TxnEntry> = operations.iter().cloned().map(TxnEntry::Kv).collect();
    let world = TxnInput { pairs: &pairs, sessions: &sessions, holders: &holders, blocked: &blocked };
    let plan = evaluate(&operations, world);
    plan.map_err(|errors| errors.into_iter().map(|error| format!("{}: {}", error.operation, error.what)).collect())
}

fn expected(plan: &Plan) -> Vec<(&str, u64)> {
    plan.expected.iter().map(|(key, index)| (key.as_str(), *index)).collect()
}

#[test]
fn a_plain_write_keeps_the_holder_and_resets_the_lock_index() {
    let plan = run(&[op(Verb::Set, "a"), op(Verb::Set, "new")], &[]).unwrap();
    let written = plan.changes["a"].clone().unwrap();
    assert_eq!((written.lease, written.lock_index, written.create_index, written.modify_index), (7, 0, 10, 0));
    assert_eq!(expected(&plan), [("a", 10), ("new", 0)]);
    assert!(plan.acquired.is_empty() && plan.freed.is_empty());
}

#[test]
fn a_write_of_the_same_content_changes_nothing() {
    let same = KvOp { value: "2".into(), ..KvOp::new(Verb::Set, "b") };
    let plan = run(&[same], &[]).unwrap();
    assert!(plan.is_read_only());
    let OpOutcome::Pair { pair, with_value: false } = &plan.outcomes[0] else { panic!("{plan:?}") };
    assert_eq!(pair.modify_index, 20);
}

#[test]
fn a_key_is_acquired_released_and_acquired_by_another_session() {
    let plan = run(&[with_session(Verb::Lock, "b", SESSION)], &[]).unwrap();
    let written = plan.changes["b"].clone().unwrap();
    assert_eq!((written.lease, written.lock_index), (7, 1));
    assert_eq!(plan.acquired, [("b".to_owned(), 7)]);
    let swapped = [with_session(Verb::Unlock, "a", SESSION), with_session(Verb::Lock, "a", OTHER)];
    let plan = run(&swapped, &[]).unwrap();
    assert_eq!(plan.changes["a"].clone().unwrap().lease, 8);
    assert_eq!((plan.acquired.len(), plan.freed.get("a")), (1, Some(&7)));
    // The holder does not acquire it again.
    assert!(run(&[with_session(Verb::Lock, "a", SESSION)], &[]).unwrap().acquired.is_empty());
    for (blocked, why) in [(Blocked::Delay, "due to lock delay"), (Blocked::Taken, "lock is already held")] {
        let errors = run(&[with_session(Verb::Lock, "b", SESSION)], &[("b", blocked)]).unwrap_err();
        assert!(errors[0].ends_with(why), "{errors:?}");
    }
}

#[test]
fn all_errors_are_returned() {
    let errors = run(
        &[
            with_session(Verb::Lock, "a", OTHER),
            with_session(Verb::Unlock, "b", OTHER),
            KvOp { index: 19, ..op(Verb::Cas, "b") },
            op(Verb::Get, "b"),
            KvOp { index: 21, ..op(Verb::DeleteCas, "b") },
            op(Verb::CheckNotExists, "b"),
            with_session(Verb::CheckSession, "a", OTHER),
        ],
        &[],
    );
    let places: Vec<String> = errors.unwrap_err().iter().map(|text| text[..1].to_owned()).collect();
    assert_eq!(places, ["0", "1", "2", "4", "5", "6"]);
}

#[test]
fn a_deleted_prefix_that_is_written_into_is_deleted_key_by_key() {
    let plan = run(&[op(Verb::DeleteTree, "t/")], &[]).unwrap();
    assert!(plan.changes.is_empty() && plan.unwritten.is_empty(), "{plan:?}");
    assert_eq!(plan.deleted.iter().collect::<Vec<_>>(), ["t/"]);
    assert_eq!(plan.freed.get("t/1"), Some(&8));
    let plan = run(&[op(Verb::Set, "t/0"), op(Verb::DeleteTree, "t/"), op(Verb::Set, "t/2")], &[]).unwrap();
    assert_eq!(plan.unwritten.iter().collect::<Vec<_>>(), ["t/"]);
    assert!(plan.deleted.is_empty());
    let changed: Vec<(&str, bool)> = plan.changes.iter().map(|(key, pair)| (key.as_str(), pair.is_some())).collect();
    assert_eq!(changed, [("t/1", false), ("t/2", true)]);
}

#[test]
fn keys_are_cut_at_the_separator() {
    let keys = ["a/b/c", "a/b/d", "a/e", "a/\u{fc}/x"];
    assert_eq!(keys_up_to(keys, "a/", "/"), ["a/b/", "a/e", "a/\u{fc}/"]);
    assert_eq!(keys_up_to(keys, "a", "/"), ["a/"]);
    assert_eq!(keys_up_to(keys, "a/", ""), keys);
}

#[test]
fn fuzz_transactions() {
    let seeds = [
        r#"[{"KV":{"Verb":"set","Key":"a","Value":"MQ==","Flags":1,"Index":2,"Session":"s"}}]"#,
        r#"[{"node":{}},{"kv":null}]"#,
        "{}",
    ];
    convoke_fuzz::texts(&seeds, |text| {
        if let Ok(operations) = parse_txn(text.as_bytes()) {
            assert!(operations.len() <= TXN_OPERATIONS_MAX);
        }
    });
    let many = format!("[{}]", vec!["{}"; TXN_OPERATIONS_MAX + 1].join(","));
    assert_eq!(parse_txn(many.as_bytes()), Err(TxnError::TooMany(TXN_OPERATIONS_MAX + 1)));
}
