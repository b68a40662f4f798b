//! Invalid requests of clients and of the application.

use super::{Lone, assert_rejection, attach, member, spec};
use convoke_core::ErrorCode;
use convoke_core::filter::Filter;
use convoke_core::member::{MemberSpec, MetadataUpdate, Space};
use convoke_core::node::{Attach, AttachMember, ConnId, Resume, Start, StreamEvent, WatchSelection};
use convoke_core::version::{NodeId, Version};
use convoke_core::{Config, Limits, Node, Output, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Claims above this are not reachable by counting.
const CLAIM_MAX: u64 = 1 << 48;

/// Every kind of invalid member, with the expected rejection.
fn bad_specs() -> Vec<(MemberSpec, ErrorCode, &'static str, Option<u64>)> {
    let long = |len: usize| "x".repeat(len);
    let pairs = |count: usize| (0..count).map(|i| (i.to_string(), String::new())).collect::<BTreeMap<_, _>>();
    let address = "host:1".to_owned();
    let invalid = ErrorCode::InvalidMember;
    let mut cases = vec![
        (spec(|s| s.id.clear()), invalid, "id", None),
        (spec(|s| s.id = long(257)), invalid, "id", Some(256)),
        (spec(|s| s.id = "a\0b".to_owned()), invalid, "id", None),
        (spec(|s| s.id = "convoke.other".to_owned()), ErrorCode::PermissionDenied, "id", None),
        (spec(|s| s.service.clear()), invalid, "service", None),
        (spec(|s| s.service = long(257)), invalid, "service", Some(256)),
        (spec(|s| s.service = "a\u{85}".to_owned()), invalid, "service", None),
        (spec(|s| s.service = "convoke".to_owned()), ErrorCode::PermissionDenied, "service", None),
        (spec(|s| s.locality = long(257)), invalid, "locality", Some(256)),
        (spec(|s| s.locality = "\n".to_owned()), invalid, "locality", None),
        (spec(|s| s.revision = long(257)), invalid, "revision", Some(256)),
        (spec(|s| s.revision = "\u{7f}".to_owned()), invalid, "revision", None),
        (spec(|s| s.address = format!("{}:1", long(255))), invalid, "address", Some(256)),
        (spec(|s| s.endpoints = pairs(17)), invalid, "endpoints", Some(16)),
        (spec(|s| drop(s.endpoints.insert(String::new(), address.clone()))), invalid, "endpoints", None),
        (spec(|s| drop(s.endpoints.insert(long(129), address.clone()))), invalid, "endpoints", Some(128)),
        (spec(|s| drop(s.endpoints.insert("g".to_owned(), "nowhere".to_owned()))), invalid, "endpoints", None),
        (spec(|s| s.metadata = pairs(65)), invalid, "metadata", Some(64)),
        (spec(|s| drop(s.metadata.insert(String::new(), String::new()))), invalid, "metadata", None),
        (spec(|s| drop(s.metadata.insert(long(129), String::new()))), invalid, "metadata", Some(128)),
        (spec(|s| drop(s.metadata.insert("k".to_owned(), long(4097)))), invalid, "metadata", Some(4096)),
        (spec(|s| drop(s.metadata.insert("k\t".to_owned(), String::new()))), invalid, "metadata", None),
        (spec(|s| drop(s.metadata.insert("k".to_owned(), "\u{1b}".to_owned()))), invalid, "metadata", None),
        (
            spec(|s| s.metadata = (0..5).map(|i| (i.to_string(), long(4096))).collect()),
            ErrorCode::TooLarge,
            "metadata",
            Some(16 * 1024),
        ),
    ];
    for bad in ["host", ":1", "host:", "host:65536", "::1:1", "[::1]", "a b:1"] {
        cases.push((spec(|s| s.address = bad.to_owned()), invalid, "address", None));
    }
    cases
}

#[test]
fn bad_members_are_rejected_in_attach_and_in_register() {
    let mut lone = Lone::new();
    for (seq, (spec, code, field, limit)) in (1..).zip(bad_specs()) {
        // In any position: the valid members around it are not registered either.
        let mut request = attach("other", 9, &["good-1", "good-2"]);
        request.members.insert(1, member(spec.clone()));
        assert_rejection(&lone.attach_rejected(&request), code, field, limit);
        let rejection =
            lone.rejected(|node, now, session, out| node.register(now, session, seq, &member(spec.clone()), out));
        assert_rejection(&rejection, code, field, limit);
    }
    lone.serves();
}

#[test]
fn bad_attaches_are_rejected() {
    let mut lone = Lone::new();
    let base = attach("other", 9, &["x"]);
    let check = |lone: &mut Lone, request: Attach, code, field, limit| {
        assert_rejection(&lone.attach_rejected(&request), code, field, limit);
    };
    let invalid = ErrorCode::InvalidArgument;
    for client in [String::new(), "a\nb".to_owned()] {
        check(&mut lone, Attach { client, ..base.clone() }, invalid, "client", None);
    }
    check(&mut lone, Attach { client: "c".repeat(257), ..base.clone() }, invalid, "client", Some(256));
    for claim in [0, CLAIM_MAX + 1, u64::MAX] {
        check(&mut lone, Attach { claim, ..base.clone() }, invalid, "claim", Some(CLAIM_MAX));
    }
    for timeout in [Duration::ZERO, Duration::from_secs(4), Duration::from_secs(301), Duration::MAX] {
        check(&mut lone, Attach { timeout: Some(timeout), ..base.clone() }, invalid, "timeout_ms", None);
    }
    check(&mut lone, attach("other", 9, &["x", "y", "x"]), ErrorCode::InvalidMember, "id", None);
    let unregistered = |id: &str| Attach { unregistered: vec!["fine".to_owned(), id.to_owned()], ..base.clone() };
    check(&mut lone, unregistered(""), ErrorCode::InvalidMember, "id", None);
    check(&mut lone, unregistered(&"x".repeat(257)), ErrorCode::InvalidMember, "id", Some(256));
    lone.serves();
}

/// An id that cannot be registered need not be unregistered either: otherwise any text becomes a replicated tombstone.
#[test]
fn control_characters_in_unregistered_ids_are_rejected() {
    let mut lone = Lone::new();
    let request = Attach { unregistered: vec!["a\0b".to_owned()], ..attach("other", 9, &["x"]) };
    let rejection = lone.attach_rejected(&request);
    assert_eq!((rejection.code, rejection.field), (ErrorCode::InvalidMember, Some("id")));
}

#[test]
fn bounds_on_what_a_node_holds_are_rejected() {
    let mut lone = Lone::with(|config| {
        config.limits = Limits { members_per_session: 3, sessions: 2, names: 1, members: 4, ..Limits::default() };
    });
    let exhausted = ErrorCode::ResourceExhausted;
    // Unregistrations count: each is a write.
    let mut request = attach("other", 9, &["x", "y"]);
    request.unregistered = vec!["p".to_owned(), "q".to_owned()];
    assert_rejection(&lone.attach_rejected(&request), exhausted, "members", Some(3));
    let rejection = lone.rejected(|node, now, _, out| node.register_name(now, "another", "", out));
    assert_rejection(&rejection, exhausted, "name", Some(1));

    let session = lone.session;
    for (seq, id) in ["m2", "m3"].into_iter().enumerate() {
        let member = member(MemberSpec::new(id, "s"));
        lone.node.register(lone.now, session, seq as u64 + 1, &member, &mut lone.out).unwrap();
    }
    let fourth = member(MemberSpec::new("m4", "s"));
    let rejection = lone.rejected(|node, now, session, out| node.register(now, session, 3, &fourth, out));
    assert_rejection(&rejection, exhausted, "id", Some(3));

    // The registry is full (three members and the node itself): the session is accepted, its member is not.
    let request = attach("other", 9, &["x"]);
    let attached = lone.node.attach(lone.now, ConnId(2), &request, &mut lone.out).unwrap();
    assert!(attached.versions.is_empty());
    let [(id, rejection)] = &attached.rejected[..] else { panic!("{attached:?}") };
    assert_eq!(id, "x");
    assert_rejection(rejection, exhausted, "id", Some(4));
    assert_rejection(&lone.attach_rejected(&attach("third", 9, &[])), exhausted, "client", Some(2));
    lone.serves();
}

#[test]
fn bad_updates_are_rejected() {
    let mut lone = Lone::new();
    let mut seq = 0;
    let mut check = |id: &str, update: MetadataUpdate, expected: Option<Version>, code, field, limit| {
        seq += 1;
        let rejection =
            lone.rejected(|node, now, session, out| node.update(now, session, seq, id, &update, expected, out));
        assert_rejection(&rejection, code, field, limit);
    };
    let set = |key: &str, value: String| MetadataUpdate::set(key, value);
    let invalid = ErrorCode::InvalidMember;
    check("m", set("", String::new()), None, invalid, "metadata", None);
    check("m", set(&"k".repeat(129), String::new()), None, invalid, "metadata", Some(128));
    check("m", set("k", "v".repeat(4097)), None, invalid, "metadata", Some(4096));
    check("m", set("k", "\r".to_owned()), None, invalid, "metadata", None);
    let many = (0..65).map(|i| (i.to_string(), Some(String::new()))).collect();
    check("m", MetadataUpdate { changes: many, ..MetadataUpdate::default() }, None, invalid, "metadata", Some(64));
    let large = (0..5).map(|i| (i.to_string(), Some("v".repeat(4096)))).collect();
    let large = MetadataUpdate { changes: large, ..MetadataUpdate::default() };
    check("m", large, None, ErrorCode::TooLarge, "metadata", Some(16 * 1024));
    check("absent", set("k", String::new()), None, ErrorCode::NotRegistered, "id", None);
    check("", set("k", String::new()), None, ErrorCode::NotRegistered, "id", None);
    check("convoke.a", set("k", String::new()), None, ErrorCode::PermissionDenied, "id", None);
    let stale: Version = "1.7.00000000".parse().unwrap();
    check("m", set("k", String::new()), Some(stale), ErrorCode::StaleVersion, "version", None);
    lone.serves();
}

#[test]
fn members_of_other_sessions_cannot_be_changed() {
    let mut lone = Lone::new();
    let other = lone.node.attach(lone.now, ConnId(2), &attach("other", 1, &["x"]), &mut lone.out).unwrap().session;
    let update = MetadataUpdate::set("k", "v");
    let rejection = lone.rejected(|node, now, _, out| node.update(now, other, 1, "m", &update, None, out));
    assert_rejection(&rejection, ErrorCode::PermissionDenied, "id", None);
    let rejection = lone.rejected(|node, now, _, out| node.unregister(now, other, 2, "m", out));
    assert_rejection(&rejection, ErrorCode::PermissionDenied, "id", None);
    let rejection = lone.rejected(|node, now, session, out| node.unregister(now, session, 1, "absent", out));
    assert_rejection(&rejection, ErrorCode::NotRegistered, "id", None);
    let taken = member(MemberSpec::new("m", "s"));
    let rejection = lone.rejected(|node, now, _, out| node.register(now, other, 3, &taken, out));
    assert_rejection(&rejection, ErrorCode::AlreadyRegistered, "id", None);
    // Only a takeover is a reason to attach again with a higher claim.
    let taken = AttachMember { takeover: true, ..taken };
    let rejection = lone.rejected(|node, now, _, out| node.register(now, other, 4, &taken, out));
    assert_eq!((rejection.code, rejection.known), (ErrorCode::StaleClaim, Some(1)));
}

#[test]
fn overtaken_requests_are_rejected() {
    let mut lone = Lone::new();
    let session = lone.session;
    let update = MetadataUpdate::set("k", "v");
    lone.node.update(lone.now, session, 5, "m", &update, None, &mut lone.out).unwrap();
    for seq in [0, 4, 5] {
        let again = MetadataUpdate::set("k", "older");
        let rejection = lone.rejected(|node, now, session, out| node.update(now, session, seq, "m", &again, None, out));
        assert_rejection(&rejection, ErrorCode::InvalidArgument, "seq", None);
        let rejection = lone.rejected(|node, now, session, out| node.unregister(now, session, seq, "m", out));
        assert_rejection(&rejection, ErrorCode::InvalidArgument, "seq", None);
        let one_more = member(MemberSpec::new("x", "s"));
        let rejection = lone.rejected(|node, now, session, out| node.register(now, session, seq, &one_more, out));
        assert_rejection(&rejection, ErrorCode::InvalidArgument, "seq", None);
    }
    // A rejected request uses up its number: a copy of it must not succeed later.
    lone.rejected(|node, now, session, out| node.update(now, session, 6, "absent", &update, None, out));
    let rejection = lone.rejected(|node, now, session, out| node.unregister(now, session, 6, "m", out));
    assert_rejection(&rejection, ErrorCode::InvalidArgument, "seq", None);
    lone.node.unregister(lone.now, session, 7, "m", &mut lone.out).unwrap();
}

#[test]
fn bad_watches_are_rejected() {
    let mut lone = Lone::with(|config| {
        config.limits = Limits { watchers: 1, resume_known: 2, ..Limits::default() };
    });
    let error = Filter::parse("service = \"s\"").unwrap_err();
    assert!(!error.to_string().is_empty(), "an invalid filter is rejected before it reaches the node");
    let selection = || WatchSelection::new(Space::Member, Filter::all());
    let version: Version = "1.1.00000000".parse().unwrap();
    let known: BTreeMap<String, Version> = ["a", "b", "c"].map(|id| (id.to_owned(), version)).into();
    for resume in [
        Resume::Known(known.clone()),
        Resume::Token { token: Vec::new(), recent: BTreeMap::new(), known: Some(known.clone()) },
    ] {
        let rejection = lone.rejected(|node, now, _, out| node.watch(now, selection(), resume, out));
        assert_rejection(&rejection, ErrorCode::TooLarge, "known", Some(2));
    }
    // An invalid token is no error: the stream starts over with a reset.
    let garbage = Resume::Token { token: vec![0xff; 100], recent: BTreeMap::new(), known: None };
    let watcher = lone.node.watch(lone.now, selection(), garbage, &mut lone.out).unwrap();
    let mut events = Vec::new();
    lone.node.take(lone.now, watcher, 100, &mut events);
    assert!(matches!(events[0], StreamEvent::Reset(_)), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, StreamEvent::Snapshot(member) if member.id() == "m")));
    let rejection = lone.rejected(|node, now, _, out| node.watch(now, selection(), Resume::Fresh, out));
    assert_eq!((rejection.code, rejection.limit), (ErrorCode::ResourceExhausted, Some(1)));
    lone.serves();
}

#[test]
fn bad_names_and_drains_are_rejected() {
    let mut lone = Lone::new();
    let mut check = |name: &str, location: &str, field, limit| {
        let rejection = lone.rejected(|node, now, _, out| node.register_name(now, name, location, out));
        assert_rejection(&rejection, ErrorCode::InvalidArgument, field, limit);
    };
    check("", "here", "name", None);
    check(&"n".repeat(257), "here", "name", Some(256));
    check("a\u{0}", "here", "name", None);
    check("new", &"l".repeat(4097), "location", Some(4096));
    check("new", "a\nb", "location", None);
    let rejection = lone.rejected(|node, now, _, out| node.unregister_name(now, "absent", out));
    assert_rejection(&rejection, ErrorCode::NotRegistered, "name", None);
    for id in ["absent", "", "n"] {
        let rejection = lone.rejected(|node, now, _, out| node.drain(now, id, true, out));
        assert_rejection(&rejection, ErrorCode::NotFound, "id", None);
    }
    let rejection = lone.rejected(|node, now, _, out| node.forget(now, &NodeId::new("b").unwrap(), out));
    assert_rejection(&rejection, ErrorCode::NotFound, "node", None);
    lone.serves();
}

#[test]
fn a_starting_node_and_an_ended_session_reject_everything() {
    let mut config = Config::new(NodeId::new("b").unwrap());
    config.seeds = vec!["a:1".to_owned()];
    let mut node = Node::new(config, Start::default(), Time::ZERO).unwrap();
    let mut out = Output::default();
    node.begin(Time::ZERO, &mut out);
    let request = attach("client", 1, &["m"]);
    assert_eq!(node.attach(Time::ZERO, ConnId(1), &request, &mut out).unwrap_err().code, ErrorCode::NotReady);
    assert_eq!(node.register_name(Time::ZERO, "n", "", &mut out).unwrap_err().code, ErrorCode::NotReady);
    let selection = WatchSelection::new(Space::Member, Filter::all());
    assert_eq!(node.watch(Time::ZERO, selection, Resume::Fresh, &mut out).unwrap_err().code, ErrorCode::NotReady);
    assert!(node.slots().is_empty() && node.context().is_empty());

    let mut lone = Lone::new();
    lone.node.close_session(lone.now, lone.session, &mut lone.out).unwrap();
    let update = MetadataUpdate::set("k", "v");
    let one = member(MemberSpec::new("x", "s"));
    let rejections = [
        lone.rejected(|node, now, session, out| node.register(now, session, 9, &one, out)),
        lone.rejected(|node, now, session, out| node.update(now, session, 9, "m", &update, None, out)),
        lone.rejected(|node, now, session, out| node.unregister(now, session, 9, "m", out)),
        lone.rejected(Node::heartbeat),
        lone.rejected(Node::close_session),
    ];
    assert!(rejections.iter().all(|rejection| rejection.code == ErrorCode::SessionGone), "{rejections:?}");
}

#[test]
fn a_port_has_no_sign() {
    let mut lone = Lone::new();
    let mut request = attach("other", 9, &["x"]);
    request.members[0].spec.address = "host:+1".to_owned();
    assert_rejection(&lone.attach_rejected(&request), ErrorCode::InvalidMember, "address", None);
}

/// Accepted means registered: an id that an attach both registers and unregisters must not be acknowledged.
#[test]
fn an_id_both_registered_and_unregistered_is_not_acknowledged() {
    let mut lone = Lone::new();
    let request = Attach { unregistered: vec!["x".to_owned()], ..attach("other", 9, &["x"]) };
    if let Ok(attached) = lone.node.attach(lone.now, ConnId(2), &request, &mut lone.out) {
        for (id, version) in attached.versions {
            assert_eq!(lone.node.member(&id).map(|member| member.version()), Some(version), "{id} was acknowledged");
        }
    }
}

/// R-10: no client can change or remove the member of a node, whatever its client id.
#[test]
fn a_client_with_the_nodes_id_cannot_unregister_it() {
    let mut lone = Lone::new();
    let own = lone.node.slot("convoke.a").unwrap();
    for claim in [2, 9] {
        let request = Attach { unregistered: vec!["convoke.a".to_owned()], ..attach("convoke.a", claim, &[]) };
        let _ = lone.node.attach(lone.now, ConnId(2), &request, &mut lone.out);
        assert_eq!(lone.node.slot("convoke.a"), Some(own.clone()));
        assert!(lone.node.member("convoke.a").is_some());
    }
}

/// A client that takes the highest possible claim, and leaves, must not block the others once its tombstone has been
/// collected: a client that follows C1 (try again with known + 1) succeeds.
#[test]
fn the_highest_claim_of_one_client_does_not_block_others() {
    let mut lone = Lone::new();
    let hostile = attach("hostile", CLAIM_MAX, &["h"]);
    if let Ok(attached) = lone.node.attach(lone.now, ConnId(2), &hostile, &mut lone.out) {
        lone.node.close_session(lone.now, attached.session, &mut lone.out).unwrap();
    }
    lone.advance(Duration::from_secs(40 * 60));
    assert_eq!(lone.node.slot("h"), None, "the tombstone has been collected");
    let mut claim = 1;
    for _ in 0..3 {
        let request = attach("honest", claim, &["fresh"]);
        match lone.node.attach(lone.now, ConnId(3), &request, &mut lone.out) {
            Ok(_) => return,
            Err(rejection) => claim = rejection.known.unwrap_or_else(|| panic!("{rejection}")) + 1,
        }
    }
    panic!("a client that follows C1 was rejected with claim {claim}");
}

/// A client that attaches again and again, with the longest timeout, must not fill the heap of timers.
#[test]
fn a_loop_of_attaches_adds_no_timers() {
    let mut lone = Lone::new();
    for claim in 2..60_000 {
        let request = Attach { timeout: Some(Duration::from_secs(300)), ..attach("client", claim, &["m"]) };
        lone.node.attach(lone.now, ConnId(claim), &request, &mut lone.out).unwrap();
        lone.out = Output::default();
    }
    let sizes = lone.node.sizes();
    assert_eq!(sizes.sessions, 1);
    assert!(sizes.timers < 20_000, "{sizes:?}");
    // The session is still checked.
    lone.now = lone.now + Duration::from_secs(310);
    lone.node.wake(lone.now, &mut lone.out);
    assert!(lone.node.sizes().timers < 1_000, "{:?}", lone.node.sizes());
}
