#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
use super::*;
use proptest::prelude::*;

fn grants(texts: &[&str]) -> GrantList {
    GrantList::parse(texts).unwrap()
}

#[test]
fn a_grant_covers_its_names_and_no_others() {
    let held =
        grants(&["read service:orders*", "read service:web", "put key:config/", "read key:a", "observe cluster"]);
    for (verb, resource, allowed) in [
        (Verb::Read, Resource::Service("orders"), true),
        (Verb::Read, Resource::Service("orders-eu"), true),
        (Verb::Read, Resource::Service("order"), false),
        (Verb::Read, Resource::Service("web"), true),
        (Verb::Read, Resource::Service("web2"), false),
        (Verb::Register, Resource::Service("web"), false),
        (Verb::Put, Resource::Key(b"config/x"), true),
        (Verb::Put, Resource::Key(b"config"), false),
        (Verb::Delete, Resource::Key(b"config/x"), false),
        (Verb::Read, Resource::Key(b"a"), true),
        (Verb::Read, Resource::Key(b"ab"), false),
        (Verb::Read, Resource::KeyPrefix(b"a"), false),
        (Verb::Observe, Resource::Cluster, true),
        (Verb::Observe, Resource::Log, false),
    ] {
        assert_eq!(held.allows(verb, resource), allowed, "{verb} {resource}");
    }
}

#[test]
fn a_range_needs_one_grant_that_covers_all_of_it() {
    let held = grants(&["read key:b/", "read key:c"]);
    let range = |from: &'static [u8], until: Option<&'static [u8]>| Resource::KeyRange { from, until };
    for (resource, allowed) in [
        (range(b"b/", Some(b"b0")), true),
        (range(b"b/1", Some(b"b/2")), true),
        (range(b"b/", Some(b"b1")), false),
        (range(b"b", Some(b"b0")), false),
        (range(b"b/", None), false),
        (range(b"c", Some(b"c\0")), true),
        (range(b"c", Some(b"d")), false),
        (Resource::KeyPrefix(b"b/x"), true),
        (Resource::KeyPrefix(b"b"), false),
    ] {
        assert_eq!(held.allows(Verb::Read, resource), allowed, "{resource:?}");
    }
    assert!(grants(&["read key:*"]).allows(Verb::Read, range(b"", None)));
    assert!(grants(&["* *"]).allows(Verb::Read, range(b"", None)));
}

#[test]
fn a_denied_range_names_the_narrowest_grant() {
    let range = |from: &'static [u8], until: Option<&'static [u8]>| Resource::KeyRange { from, until };
    for (resource, name) in [
        // The range of a prefix.
        (range(b"other", Some(b"othes")), "key:other*"),
        (range(b"b/", Some(b"b0")), "key:b/*"),
        (range(b"a\xff", Some(b"b")), "key:a\\xff*"),
        // The range of one key.
        (range(b"c", Some(b"c\0")), "key:c"),
        (range(b"b/1", Some(b"b/2")), "key:b/1*"),
        (range(b"b/1", Some(b"b/3")), "key:b/*"),
        (range(b"a", Some(b"c")), "key:*"),
        (range(b"a", None), "key:*"),
        (range(b"", None), "key:*"),
    ] {
        assert_eq!(resource.to_string(), name, "{resource:?}");
    }
}

#[test]
fn wrong_grants_are_refused_with_what_is_wrong() {
    for (text, words) in [
        ("read", "not `VERB RESOURCE`"),
        ("read  service:a", "not `VERB RESOURCE`"),
        ("write key:a", "unknown verb \"write\""),
        ("read keys:a", "unknown resource \"keys\""),
        ("put service:a", "`put` does not apply to `service`"),
        ("observe cluster:a", "`cluster` has no names"),
        ("read service", "`service` needs a name"),
        ("read service:", "`service` needs a name"),
        ("read service:a*b", "`*` is allowed only at the end"),
        ("read service:**", "`*` is allowed only at the end"),
    ] {
        let error = text.parse::<Grant>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    assert!(GrantList::parse(&vec!["* *"; GRANTS_MAX + 1]).is_err());
    // A newer version may have issued a token with more verbs.
    let known = GrantList::parse_known(&["teleport node:a", "read service:a"]);
    assert_eq!(known, grants(&["read service:a"]));
}

#[test]
fn a_grant_of_all_verbs_does_not_reach_pairs_that_do_not_exist() {
    let held = grants(&["* service:a"]);
    assert!(held.allows(Verb::Drain, Resource::Service("a")));
    assert!(!held.allows(Verb::Put, Resource::Service("a")));
    assert!(!held.concerns(Verb::Read, Kind::Key));
}

proptest! {
    /// Coverage of a range means that every key in it is covered.
    #[test]
    fn a_covered_range_contains_no_uncovered_key(
        pattern in "[ab/]{1,3}\\*?",
        from in prop::collection::vec(prop::sample::select(vec![0, b'/', b'a', b'b', 255]), 0..4),
        until in prop::option::of(prop::collection::vec(prop::sample::select(vec![0, b'/', b'a', b'b', 255]), 0..4)),
        key in prop::collection::vec(prop::sample::select(vec![0, b'/', b'a', b'b', 255]), 0..4),
    ) {
        let held = grants(&[&format!("read key:{pattern}")]);
        let range = Resource::KeyRange { from: &from, until: until.as_deref() };
        let inside = key >= from && until.as_ref().is_none_or(|until| key < *until);
        if held.allows(Verb::Read, range) && inside {
            prop_assert!(held.allows(Verb::Read, Resource::Key(&key)));
        }
        if held.allows(Verb::Read, Resource::KeyPrefix(&from)) && key.starts_with(&from) {
            prop_assert!(held.allows(Verb::Read, Resource::Key(&key)));
        }
    }

    #[test]
    fn the_grant_that_a_denied_range_names_allows_it_and_a_longer_one_does_not(
        from in "[ab/]{0,3}",
        until in prop::option::of("[a-c/0]{1,3}"),
    ) {
        prop_assume!(until.as_ref().is_none_or(|until| from < *until));
        let range = Resource::KeyRange { from: from.as_bytes(), until: until.as_ref().map(String::as_bytes) };
        let named = range.to_string();
        prop_assert!(grants(&[&format!("read {named}")]).allows(Verb::Read, range), "{named}");
        let prefix = named.strip_prefix("key:").and_then(|name| name.strip_suffix('*')).unwrap();
        for longer in prefix.len() + 1..=from.len() {
            let longer = format!("read key:{}*", &from[..longer]);
            prop_assert!(!grants(&[&longer]).allows(Verb::Read, range), "{longer}");
        }
    }

    #[test]
    fn a_grant_reads_back_as_it_is_shown(verb in 0..Verb::ALL.len(), name in "[a-z/]{1,8}\\*?") {
        let verb = Verb::ALL[verb];
        for kind in verb.kinds() {
            let text = if kind.is_named() { format!("{verb} {kind}:{name}") } else { format!("{verb} {kind}") };
            let grant: Grant = text.parse().unwrap();
            prop_assert_eq!(grant.to_string().parse::<Grant>().unwrap(), grant);
        }
    }
}
