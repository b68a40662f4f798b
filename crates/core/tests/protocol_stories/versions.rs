//! The version of a member (R-01, W6).

use crate::cluster::{Cluster, attach};
use convoke_core::member::{MetadataUpdate, Status};
use convoke_core::node::{Attach, AttachMember, SessionId};
use convoke_core::version::Version;
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Checks after every step that both nodes show the same version, and that no earlier step had it.
struct Versions {
    cluster: Cluster,
    seen: Vec<Version>,
}

impl Versions {
    #[track_caller]
    fn shown(&mut self, step: &str) -> Version {
        self.cluster.run(secs(1));
        let version = self.cluster.member(A, "orders-1").version();
        assert_eq!(self.cluster.member(B, "orders-1").version(), version, "{step}: the nodes differ");
        assert!(!self.seen.contains(&version), "{step}: the version was {version} before");
        self.seen.push(version);
        version
    }

    /// A step that writes a record.
    #[track_caller]
    fn raised(&mut self, step: &str) {
        let before = *self.seen.last().expect("there is a step before");
        let version = self.shown(step);
        assert!(version > before, "{step}: {version} is not above {before}");
    }

    #[track_caller]
    fn update(&mut self, session: SessionId, seq: u64, value: &str) {
        let update = MetadataUpdate::set("k", value);
        let updated =
            self.cluster.call(A, |node, now, out| node.update(now, session, seq, "orders-1", &update, None, out));
        updated.unwrap();
    }

    fn drain(&mut self, at: usize, drained: bool) {
        self.cluster.call(at, |node, now, out| node.drain(now, "orders-1", drained, out)).unwrap();
    }
}

#[test]
fn every_change_of_a_member_changes_its_version_and_every_write_raises_it() {
    let mut versions = Versions { cluster: Cluster::settled(&["a", "b"]), seen: Vec::new() };
    let session = versions.cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
    versions.shown("registered");
    versions.update(session, 1, "one");
    versions.raised("metadata");
    versions.update(session, 2, "two");
    versions.raised("metadata again");
    versions.drain(B, true);
    versions.raised("drained at the other node");
    versions.drain(A, false);
    versions.raised("no longer drained");

    versions.cluster.run(secs(21));
    assert_eq!(versions.cluster.member(B, "orders-1").status(), Status::Down);
    versions.raised("down");
    versions.cluster.call(A, |node, now, out| node.heartbeat(now, session, out)).unwrap();
    versions.raised("up again");
    versions.cluster.attach(B, 2, &attach("client", 2, &["orders-1"])).unwrap();
    versions.raised("attached at the other node");

    let mut rival = attach("rival", 3, &["orders-1"]);
    rival.members = rival.members.into_iter().map(|member| AttachMember { takeover: true, ..member }).collect();
    versions.cluster.attach(A, 3, &rival).unwrap();
    versions.raised("taken over");
    let unregister = Attach { unregistered: vec!["orders-1".to_owned()], ..attach("rival", 4, &[]) };
    versions.cluster.attach(A, 4, &unregister).unwrap();
    versions.cluster.run(secs(1));
    assert!(versions.cluster.node(B).member("orders-1").is_none());
    versions.cluster.attach(A, 5, &attach("rival", 5, &["orders-1"])).unwrap();
    versions.raised("registered anew");
}

/// A status that nobody wrote: the owner is silent. The version differs, and is the old one again when the owner is.
#[test]
fn an_inferred_status_has_a_version_of_its_own() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let session = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
    cluster.run(secs(1));
    let stated = cluster.member(B, "orders-1").version();
    cluster.cut(A, B);
    heartbeats(&mut cluster, session, 6);
    let inferred = cluster.member(B, "orders-1");
    assert_eq!(inferred.status(), Status::Down);
    assert_ne!(inferred.version(), stated);
    assert_eq!(cluster.member(A, "orders-1").version(), stated, "its owner shows it up");
    cluster.heal();
    heartbeats(&mut cluster, session, 3);
    let healed = cluster.member(B, "orders-1");
    assert_eq!((healed.status(), healed.version()), (Status::Up, stated));
}

/// The client sends a heartbeat every 5 s.
fn heartbeats(cluster: &mut Cluster, session: SessionId, count: u64) {
    for _ in 0..count {
        cluster.run(secs(5));
        cluster.call(A, |node, now, out| node.heartbeat(now, session, out)).unwrap();
    }
}
