//! Tests of keys, rule by rule.

use super::*;
use crate::command::{Body, Delete, DeleteRange, Put};
use crate::limits::LogLimits;
use crate::machine::{Field, Reason};
use proptest::prelude::*;

fn limits() -> LogLimits {
    LogLimits { key_bytes: 8, value_bytes: 16, range_keys: 3, response_bytes: 300, ..LogLimits::default() }
}

fn put(key: &str, value: &str) -> Put {
    let Body::Put(put) = Body::put(key.to_owned(), value.to_owned()) else { unreachable!() };
    Put { previous: true, ..put }
}

fn delete(key: &str) -> Delete {
    Delete { key: key.to_owned().into(), if_revision: None, previous: true }
}

fn parts(record: &KeyRecord) -> (&[u8], &[u8], u64, u64, u64) {
    (record.key(), record.value(), record.create_revision, record.modify_revision, record.version)
}

#[test]
fn k1_k2_records_count_their_changes_and_a_deleted_key_is_dropped() {
    let (mut keys, limits) = (Keys::default(), limits());
    assert_eq!(keys.revision(), 0);
    assert_eq!(keys.put(&limits, &put("a", "1"), &mut Vec::new()), Ok(Changed { keys: 1, ..Changed::default() }));
    keys.put(&limits, &put("b", "1"), &mut Vec::new()).unwrap();
    let changed = keys.put(&limits, &put("a", "2"), &mut Vec::new()).unwrap();
    assert_eq!(
        changed.previous.iter().map(|record| parts(record)).collect::<Vec<_>>(),
        [(&b"a"[..], &b"1"[..], 1, 1, 1)]
    );
    assert_eq!(parts(keys.get(b"a").unwrap()), (&b"a"[..], &b"2"[..], 1, 3, 2));
    assert_eq!(keys.delete(&limits, &delete("a"), &mut Vec::new()).unwrap().keys, 1);
    assert_eq!((keys.get(b"a"), keys.revision()), (None, 4));
    keys.put(&limits, &put("a", "3"), &mut Vec::new()).unwrap();
    assert_eq!(parts(keys.get(b"a").unwrap()), (&b"a"[..], &b"3"[..], 5, 5, 1));
}

#[test]
fn k2_a_request_that_changes_nothing_keeps_the_revision() {
    let (mut keys, limits) = (Keys::default(), limits());
    keys.put(&limits, &put("a", "1"), &mut Vec::new()).unwrap();
    assert_eq!(keys.delete(&limits, &delete("b"), &mut Vec::new()), Ok(Changed::default()));
    let range = DeleteRange { range: KeyRange::prefix("x"), previous: false };
    assert_eq!(keys.delete_range(&limits, &range, &mut Vec::new()), Ok(Changed::default()));
    let rejected = keys.put(&limits, &Put { if_revision: Some(0), ..put("a", "2") }, &mut Vec::new());
    assert_eq!(rejected, Err(Reason::Precondition { revision: 1 }));
    assert_eq!(keys.revision(), 1);
}

#[test]
fn k3_compare_and_set() {
    let (mut keys, limits) = (Keys::default(), limits());
    let set = |keys: &mut Keys, revision| {
        keys.put(&limits, &Put { if_revision: Some(revision), ..put("a", "x") }, &mut Vec::new())
    };
    let absent = set(&mut keys, 1).unwrap_err();
    assert_eq!(absent, Reason::Precondition { revision: 0 });
    assert_eq!(absent.to_string(), "the key does not exist; read it and try again");
    assert!(set(&mut keys, 0).is_ok());
    assert_eq!(set(&mut keys, 0), Err(Reason::Precondition { revision: 1 }), "it exists");
    assert!(set(&mut keys, 1).is_ok());
    let stale = Delete { if_revision: Some(1), ..delete("a") };
    assert_eq!(keys.delete(&limits, &stale, &mut Vec::new()), Err(Reason::Precondition { revision: 2 }));
    assert!(keys.delete(&limits, &Delete { if_revision: Some(2), ..stale }, &mut Vec::new()).is_ok());
}

#[test]
fn k4_previous_records_are_returned_as_far_as_they_fit() {
    let (mut keys, limits) = (Keys::default(), limits());
    for key in ["a", "b", "c"] {
        keys.put(&limits, &put(key, "1"), &mut Vec::new()).unwrap();
    }
    let changed =
        keys.delete_range(&limits, &DeleteRange { range: KeyRange::all(), previous: true }, &mut Vec::new()).unwrap();
    assert_eq!((changed.keys, changed.previous.len(), changed.omitted), (3, 2, 1));
    assert_eq!(keys.revision(), 4, "one request, one revision");
    let changed =
        keys.delete_range(&limits, &DeleteRange { range: KeyRange::all(), previous: true }, &mut Vec::new()).unwrap();
    assert_eq!(changed, Changed::default());
}

#[test]
fn k5_rejections_name_field_and_limit_and_change_nothing() {
    let (mut keys, mut limits) = (Keys::default(), limits());
    let too_large = |field, found, limit| Err(Reason::TooLarge { field, found, limit });
    assert_eq!(keys.put(&limits, &put("", "1"), &mut Vec::new()), Err(Reason::Invalid { field: Field::Key }));
    assert_eq!(keys.put(&limits, &put("123456789", "1"), &mut Vec::new()), too_large(Field::Key, 9, 8));
    assert_eq!(keys.put(&limits, &put("a", "12345678901234567"), &mut Vec::new()), too_large(Field::Value, 17, 16));
    assert_eq!(keys.delete(&limits, &delete(""), &mut Vec::new()), Err(Reason::Invalid { field: Field::Key }));

    limits.store_bytes = 2 * RECORD_BYTES + 6;
    keys.put(&limits, &put("a", "12"), &mut Vec::new()).unwrap();
    keys.put(&limits, &put("b", "12"), &mut Vec::new()).unwrap();
    assert_eq!(keys.bytes(), limits.store_bytes);
    assert_eq!(
        keys.put(&limits, &put("a", "123"), &mut Vec::new()),
        too_large(Field::Store, 2 * RECORD_BYTES + 7, limits.store_bytes)
    );
    assert!(keys.put(&limits, &put("a", "34"), &mut Vec::new()).is_ok(), "as large as before");
    limits.store_bytes = 1;
    assert!(
        keys.put(&limits, &put("a", "3"), &mut Vec::new()).is_ok(),
        "smaller than before, although the store is over its limit"
    );
    keys.delete(&limits, &delete("a"), &mut Vec::new()).unwrap();
    keys.delete(&limits, &delete("b"), &mut Vec::new()).unwrap();
    assert_eq!((keys.bytes(), keys.hash()), (0, 0));

    limits.store_bytes = 10_000;
    for key in ["a", "b", "c", "d"] {
        keys.put(&limits, &put(key, "1"), &mut Vec::new()).unwrap();
    }
    let all = DeleteRange { range: KeyRange::all(), previous: false };
    assert_eq!(
        keys.delete_range(&limits, &all, &mut Vec::new()),
        Err(Reason::TooMany { field: Field::Range, limit: 3 })
    );
    assert_eq!(keys.len(), 4);
    let some = DeleteRange { range: KeyRange::new("b", "d"), previous: false };
    assert_eq!(keys.delete_range(&limits, &some, &mut Vec::new()).unwrap().keys, 2);
}

#[test]
fn k6_pages_continue_after_the_last_key_and_a_copy_does_not_change() {
    let (mut keys, limits) = (Keys::default(), limits());
    for n in 0..10 {
        keys.put(&limits, &put(&format!("k{n}"), "1"), &mut Vec::new()).unwrap();
    }
    keys.put(&limits, &put("l", "1"), &mut Vec::new()).unwrap();
    let copy = keys.clone();
    let mut range = KeyRange::prefix("k");
    let mut found = Vec::new();
    loop {
        let page = copy.range(&range, 4, u64::MAX);
        assert_eq!(page.revision, 11);
        assert!(page.records.len() <= 4);
        found.extend(page.records.iter().map(|record| String::from_utf8(record.key().to_vec()).unwrap()));
        keys.delete(&limits, &delete("k9"), &mut Vec::new()).unwrap();
        if !page.more {
            break;
        }
        range = range.after(page.records.last().unwrap().key());
    }
    assert_eq!(found, (0..10).map(|n| format!("k{n}")).collect::<Vec<_>>());
    assert_eq!(keys.range(&KeyRange::all(), 100, 1).records.len(), 1, "at least one, however large");
    assert!(keys.range(&KeyRange::all(), 0, 1).more);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// LH2: the hash depends on the content, not on its history.
    #[test]
    fn lh2_the_hash_of_the_keys_is_kept_up_to_date(
        steps in prop::collection::vec((0..20u8, any::<bool>(), 0..3u8), 1..60),
    ) {
        let (mut keys, limits) = (Keys::default(), limits());
        for (key, put_it, value) in steps {
            let key = format!("k{key}");
            if put_it {
                keys.put(&limits, &put(&key, &"v".repeat(value.into())), &mut Vec::new()).unwrap();
            } else {
                keys.delete(&limits, &delete(&key), &mut Vec::new()).unwrap();
            }
        }
        let mut again = Keys::restored(keys.revision());
        for record in keys.iter() {
            again.restore((**record).clone());
        }
        prop_assert_eq!((again.hash(), again.bytes(), again.len()), (keys.hash(), keys.bytes(), keys.len()));
    }
}
