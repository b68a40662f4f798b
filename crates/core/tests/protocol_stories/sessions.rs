//! The lifecycle of one client's session (C5, C6, R-05, R-12, R-13).

use crate::cluster::{Cluster, attach};
use convoke_core::error::{ErrorCode, Rejection};
use convoke_core::member::{Liveness, MemberSpec, MetadataUpdate, Status, UpdateMode};
use convoke_core::node::{Attach, AttachMember, Attached, ConnId, RegistryEvent, SessionId};
use convoke_core::version::Version;
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Two nodes and a client with `orders-1` at the first, on connection 1.
fn attached() -> (Cluster, SessionId) {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let session = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
    cluster.run(Duration::from_millis(10));
    (cluster, session)
}

fn heartbeat(cluster: &mut Cluster, session: SessionId) -> Result<(), ErrorCode> {
    cluster.call(A, |node, now, out| node.heartbeat(now, session, out)).map_err(|rejection| rejection.code)
}

fn update(
    cluster: &mut Cluster,
    session: SessionId,
    seq: u64,
    value: &str,
    expected: Option<Version>,
) -> Result<Version, ErrorCode> {
    let update = MetadataUpdate::set("k", value);
    let result = cluster.call(A, |node, now, out| node.update(now, session, seq, "orders-1", &update, expected, out));
    result.map_err(|rejection| rejection.code)
}

#[test]
fn a_silent_client_is_down_then_left_and_its_session_is_gone() {
    let (mut cluster, session) = attached();
    cluster.run(Duration::from_millis(20_480));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down);
    cluster.run(secs(299));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down, "still listed");
    cluster.run(secs(2));
    assert!(cluster.node(A).member("orders-1").is_none() && cluster.node(B).member("orders-1").is_none());
    assert_eq!(cluster.node(B).slot("orders-1").unwrap().stated, Status::Left);

    assert_eq!(heartbeat(&mut cluster, session), Err(ErrorCode::SessionGone));
    assert_eq!(update(&mut cluster, session, 1, "v", None), Err(ErrorCode::SessionGone));
    // It attaches again, with a higher claim than its tombstone.
    let rejection = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap_err();
    assert_eq!((rejection.code, rejection.known), (ErrorCode::StaleClaim, Some(1)));
    cluster.attach(A, 1, &attach("client", 2, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
}

#[test]
fn a_heartbeat_brings_a_client_that_is_down_up_again() {
    let (mut cluster, session) = attached();
    cluster.run(secs(100));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down);
    heartbeat(&mut cluster, session).unwrap();
    cluster.run(Duration::from_millis(10));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
    // Its timeout starts again.
    cluster.run(secs(19));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
    cluster.run(secs(2));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down);
}

/// a dropped connection alone changes nothing, and a client that moves is never down anywhere.
#[test]
fn a_client_that_moves_within_the_timeout_is_never_down() {
    let (mut cluster, _) = attached();
    cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
    for _ in 0..19 {
        cluster.run(secs(1));
        assert!([A, B].iter().all(|at| cluster.member(*at, "orders-1").status() == Status::Up));
    }
    cluster.attach(B, 2, &attach("client", 2, &["orders-1"])).unwrap();
    let mut owners = Vec::new();
    for _ in 0..40 {
        cluster.run(Duration::from_millis(500));
        let member = cluster.member(A, "orders-1");
        assert_eq!(member.status(), Status::Up);
        owners.push(member.owner().node.to_owned());
    }
    assert!(owners.iter().all(|owner| owner == "b"), "A stops its timers and writes nothing more");
}

#[test]
fn a_client_with_fast_liveness_is_down_750_ms_after_its_connection_is_lost() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let request = Attach { liveness: Liveness::Fast, ..attach("client", 1, &["orders-1"]) };
    let session = cluster.attach(A, 1, &request).unwrap().session;
    cluster.run(secs(3));
    cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
    cluster.run(Duration::from_millis(740));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up, "it may attach again at any moment");
    cluster.run(Duration::from_millis(20));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down);
    heartbeat(&mut cluster, session).unwrap();
    assert_eq!(cluster.member(A, "orders-1").status(), Status::Up);
}

#[test]
fn a_client_with_fast_liveness_that_attaches_again_at_once_is_never_down() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let request = |claim| Attach { liveness: Liveness::Fast, ..attach("client", claim, &["orders-1"]) };
    for (at, claim) in [(A, 1), (B, 2), (A, 3), (A, 4)] {
        cluster.attach(at, claim, &request(claim)).unwrap();
        cluster.run(secs(1));
        cluster.call(at, |node, now, out| node.disconnected(now, ConnId(claim), out));
        cluster.run(Duration::from_millis(400));
        assert!([A, B].iter().all(|at| cluster.member(*at, "orders-1").status() == Status::Up), "claim {claim}");
    }
    cluster.attach(B, 5, &request(5)).unwrap();
    cluster.run(secs(5));
    assert!([A, B].iter().all(|at| cluster.member(*at, "orders-1").status() == Status::Up));
}

/// Also shortly before the session would have been checked anyway.
#[test]
fn fast_liveness_is_fast_at_any_moment_of_a_session() {
    for lost_at in (19_000..=20_600).step_by(100) {
        let mut cluster = Cluster::settled(&["a"]);
        let request = Attach { liveness: Liveness::Fast, ..attach("client", 1, &["orders-1"]) };
        let session = cluster.attach(A, 1, &request).unwrap().session;
        cluster.run(secs(18));
        heartbeat(&mut cluster, session).unwrap();
        cluster.run(Duration::from_millis(lost_at - 18_000));
        cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
        cluster.run(secs(1));
        assert_eq!(cluster.member(A, "orders-1").status(), Status::Down, "lost {lost_at} ms after the attach");
    }
}

#[test]
fn without_fast_liveness_a_lost_connection_changes_nothing() {
    let (mut cluster, session) = attached();
    cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
    cluster.run(secs(5));
    assert_eq!(cluster.member(A, "orders-1").status(), Status::Up);
    heartbeat(&mut cluster, session).unwrap();
}

#[test]
fn an_update_may_be_bound_to_the_version_it_was_made_for() {
    let (mut cluster, session) = attached();
    let first = cluster.member(B, "orders-1").version();
    let second = update(&mut cluster, session, 1, "v1", Some(first)).unwrap();
    assert_ne!(first, second);
    assert_eq!(update(&mut cluster, session, 2, "v2", Some(first)), Err(ErrorCode::StaleVersion));
    assert_eq!(cluster.member(A, "orders-1").metadata().get("k"), Some("v1"));
    cluster.run(Duration::from_millis(10));
    assert_eq!(cluster.member(B, "orders-1").version(), second, "a version is the same at every node");
    update(&mut cluster, session, 3, "v3", Some(second)).unwrap();
    update(&mut cluster, session, 4, "v4", None).unwrap();
}

#[test]
fn metadata_is_merged_deleted_and_replaced_and_attributes_stay() {
    let (mut cluster, session) = attached();
    let mut seq = 0;
    let mut change = |cluster: &mut Cluster, update: MetadataUpdate| {
        seq += 1;
        cluster.call(A, |node, now, out| node.update(now, session, seq, "orders-1", &update, None, out)).unwrap();
        cluster.run(Duration::from_millis(10));
        let member = cluster.member(B, "orders-1");
        member.metadata().iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(change(&mut cluster, MetadataUpdate::set("a", "1")), ["a=1"]);
    assert_eq!(change(&mut cluster, MetadataUpdate::set("b", "2")), ["a=1", "b=2"]);
    let delete = MetadataUpdate { changes: [("a".to_owned(), None)].into(), ..MetadataUpdate::default() };
    assert_eq!(change(&mut cluster, delete), ["b=2"]);
    let replace = MetadataUpdate { mode: UpdateMode::Replace, ..MetadataUpdate::set("c", "3") };
    assert_eq!(change(&mut cluster, replace), ["c=3"]);

    let mut other = AttachMember { spec: MemberSpec::new("orders-1", "orders"), takeover: false };
    other.spec.locality = "elsewhere".to_owned();
    let rejection = cluster.call(A, |node, now, out| node.register(now, session, 100, &other, out)).unwrap_err();
    assert_eq!(rejection.code, ErrorCode::AlreadyRegistered, "attributes are fixed within a session");
}

#[test]
fn a_clean_close_unregisters_everything_at_once() {
    let (mut cluster, session) = attached();
    cluster.call(A, |node, now, out| node.close_session(now, session, out)).unwrap();
    cluster.run(Duration::from_millis(10));
    assert!(cluster.node(B).member("orders-1").is_none());
    assert_eq!(heartbeat(&mut cluster, session), Err(ErrorCode::SessionGone));
}

/// C3: the answer to an unregistration was lost with the connection; the next attach, elsewhere, repeats it.
#[test]
fn an_unregistration_that_was_not_answered_is_repeated_wherever_the_client_attaches() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["kept", "dropped"])).unwrap();
    let request =
        Attach { unregistered: vec!["dropped".to_owned(), "unknown".to_owned()], ..attach("client", 2, &["kept"]) };
    cluster.attach(B, 2, &request).unwrap();
    cluster.run(secs(1));
    for at in [A, B] {
        assert_eq!(cluster.member(at, "kept").owner().node, "b");
        assert!(cluster.node(at).member("dropped").is_none());
        assert_eq!(cluster.node(at).slot("unknown").unwrap().stated, Status::Left);
    }
    // But not if another client has registered the member.
    cluster.attach(A, 3, &attach("other", 5, &["dropped"])).unwrap();
    cluster.run(secs(1));
    let request = Attach { unregistered: vec!["dropped".to_owned()], ..attach("client", 9, &["kept"]) };
    cluster.attach(B, 2, &request).unwrap();
    cluster.run(secs(1));
    assert_eq!(cluster.member(B, "dropped").client(), "other");
}

/// Many clients with a timeout shorter than the default: each gets a heartbeat interval that fits, no live client is
/// considered silent, and one that dies is down after its own timeout (C6, L6).
#[test]
fn clients_with_a_short_timeout_send_more_heartbeats_and_do_not_hide_a_crash() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let timeout = secs(5);
    let attached: Vec<Attached> = (0..20)
        .map(|i| {
            cluster.run(Duration::from_millis(97));
            let request = Attach { timeout: Some(timeout), ..attach(&format!("client-{i}"), 1, &[&format!("m{i}")]) };
            cluster.attach(A, i, &request).unwrap()
        })
        .collect();
    let interval = attached[0].heartbeat_interval;
    assert_eq!(interval, timeout / 3);
    // One after the other, all within an interval; the first of them dies after a while.
    let (mut beats, mut last) = (0, cluster.now);
    while cluster.member(B, "m0").status() == Status::Up {
        for (i, attached) in attached.iter().enumerate().skip(usize::from(beats > 5)) {
            last = if i == 0 { cluster.now } else { last };
            heartbeat(&mut cluster, attached.session).unwrap();
            cluster.run(interval / 20);
        }
        beats += 1;
        assert!(beats < 20, "it is never down");
    }
    assert!(cluster.now - last <= timeout + interval + secs(1), "{:?}", cluster.now - last);
    assert!(!cluster.events(A).any(|event| matches!(event, RegistryEvent::Degraded { .. })));
    assert!((1..20).all(|i| cluster.member(B, &format!("m{i}")).status() == Status::Up));
}

/// Tombstones are kept, with a bound as well: beyond it new members are rejected, unregistrations never, until a
/// tombstone was collected (D8).
#[test]
fn tombstones_do_not_fill_the_registry_without_bound() {
    let mut cluster = Cluster::new(&["a"]);
    cluster.config(A).limits.members = 10;
    cluster.start(A);
    cluster.run(secs(1));
    let session = cluster.attach(A, 1, &attach("client", 1, &[])).unwrap().session;
    let mut seq = 0;
    let mut come_and_go = |cluster: &mut Cluster| {
        heartbeat(cluster, session).unwrap();
        seq += 2;
        let id = format!("job-{seq}");
        let member = AttachMember { spec: MemberSpec::new(&id, "jobs"), takeover: false };
        cluster.call(A, |node, now, out| node.register(now, session, seq - 1, &member, out))?;
        cluster.call(A, |node, now, out| node.unregister(now, session, seq, &id, out)).unwrap();
        Ok::<(), Rejection>(())
    };
    let mut remembered = 0;
    let rejection = loop {
        match come_and_go(&mut cluster) {
            Ok(()) => remembered += 1,
            Err(rejection) => break rejection,
        }
        assert!(remembered < 100);
    };
    assert_eq!(
        (rejection.code, remembered),
        (ErrorCode::ResourceExhausted, 19),
        "twice ten, including the node's own member"
    );
    for _ in 0..200 {
        cluster.run(secs(10));
        heartbeat(&mut cluster, session).unwrap();
    }
    let attached = cluster.attach(A, 2, &attach("client", 2, &["again"])).unwrap();
    assert_eq!((attached.versions.len(), attached.rejected.len()), (1, 0));
}

/// C14: at the same node and at another one, with the same nonce or another.
#[test]
fn a_client_id_belongs_to_the_principal_that_attached_it() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let by = |principal: &str, claim, ids: &[&str]| Attach {
        principal: principal.to_owned(),
        ..attach("client", claim, ids)
    };
    cluster.attach(A, 1, &by("token/alice", 1, &["orders-1"])).unwrap();
    cluster.run(Duration::from_millis(10));
    for (at, nonce) in [(A, 1), (A, 9), (B, 1), (B, 9)] {
        for ids in [&["orders-1"][..], &["other"], &[]] {
            let foreign = Attach { nonce, ..by("token/bob", 5, ids) };
            let rejection = cluster.attach(at, 2, &foreign).unwrap_err();
            assert_eq!(
                (rejection.code, rejection.field),
                (ErrorCode::PermissionDenied, Some("client")),
                "{at} {ids:?}"
            );
        }
    }
    assert!(cluster.notices(A, ConnId(1)).is_empty(), "the client does not notice");
    // Its own principal moves it, and a node that knows no principals checks none.
    cluster.attach(B, 3, &by("token/alice", 2, &["orders-1"])).unwrap();
    cluster.run(Duration::from_millis(10));
    cluster.attach(A, 4, &by("", 3, &["orders-1"])).unwrap();
    cluster.run(Duration::from_millis(10));
    // A client id that was attached without a principal becomes one of the first principal that attaches it.
    cluster.attach(B, 5, &by("token/bob", 4, &["orders-1"])).unwrap();
    cluster.run(Duration::from_millis(10));
    let rejection = cluster.attach(A, 6, &by("token/alice", 5, &["orders-1"])).unwrap_err();
    assert_eq!(rejection.code, ErrorCode::PermissionDenied);
    // It is free again when its members are down.
    cluster.run(secs(30));
    assert_eq!(cluster.member(A, "orders-1").status(), Status::Down);
    cluster.attach(A, 7, &by("token/alice", 6, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    cluster.assert_agreed();
}
