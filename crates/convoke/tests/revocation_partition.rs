//! Revocation during a partition, with real nodes on separate hosts (AU13): it takes effect at once on the side of the operator,
//! and on the other side when the partition heals.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ProcessCluster, until};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{convoke, network, plan};

struct Secured {
    cluster: ProcessCluster,
    security: PathBuf,
    _dir: tempfile::TempDir,
}

fn succeeds(command: &mut Command) -> bool {
    command.output().unwrap().status.success()
}

impl Secured {
    fn start(test: &str) -> Option<Secured> {
        let network = network(test, 3)?;
        let dir = tempfile::tempdir().unwrap();
        let security = dir.path().join("security");
        let hosts: Vec<String> = (0..3).map(|index| format!("n{}={}", index + 1, network.address(index))).collect();
        let mut init = convoke(&["init", security.to_str().unwrap(), "--nodes", "n1,n2,n3"]);
        for host in &hosts {
            init.args(["--host", host]);
        }
        assert!(succeeds(&mut init));
        // The testkit asks for the state of nodes without TLS and without a token.
        let plan = plan(dir.path())
            .on(network)
            .environment("CONVOKE_TLS_CLIENT", "optional")
            .environment("CONVOKE_TLS_PEER", "required")
            .environment("CONVOKE_AUTH_ENABLED", "true")
            .environment("CONVOKE_AUTH_ANONYMOUS", "observe cluster");
        let mut cluster = plan.start(0).unwrap();
        for id in ["n1", "n2", "n3"] {
            let index = cluster.reserve();
            let files = security.join("nodes").join(id);
            for (name, file) in [("CA", "ca.pem"), ("CERT", "cert.pem"), ("KEY", "key.pem")] {
                cluster.set_environment(index, format!("CONVOKE_TLS_{name}"), files.join(file));
            }
            cluster.set_environment(index, "CONVOKE_AUTH_KEYS", files.join("keys"));
            cluster.restart(index).unwrap();
        }
        cluster.wait_meshed();
        Some(Secured { cluster, security, _dir: dir })
    }

    fn token(&self, file: &str) -> PathBuf {
        let (key, out) = (self.security.join("signing.key"), self.security.join(file));
        let _ = std::fs::remove_file(&out);
        let issue = ["token", "issue", "--subject", "alice", "--grant", "read service:*", "--ttl", "1h"];
        assert!(succeeds(convoke(&issue).arg("--key").arg(key).arg("--out").arg(&out)));
        out
    }

    /// Runs a command at a node over TLS, with a token.
    fn run(&self, index: usize, token: &Path, arguments: &[&str]) -> bool {
        let address = format!("https://{}", self.cluster.clients(index));
        let mut command = self.cluster.command(index, arguments);
        command.args(["--timeout", "30s", "--addr", &address]).arg("--ca").arg(self.security.join("ca.pem"));
        succeeds(command.arg("--token-file").arg(token))
    }

    fn accepts(&self, index: usize, token: &Path) -> bool {
        self.run(index, token, &["members"])
    }
}

#[test]
fn a_revocation_crosses_a_partition_when_it_heals() {
    let Some(secured) = Secured::start("a_revocation_crosses_a_partition_when_it_heals") else { return };
    let (token, operator) = (secured.token("alice.token"), secured.security.join("operator.token"));
    until("all nodes accept the token", || (0..3).all(|index| secured.accepts(index, &token)));
    let network = secured.cluster.network();
    network.cut(0, 2);
    network.cut(1, 2);
    let apart = |at, of| secured.cluster.state(at, of).unwrap() != "up";
    until("both sides notice the partition", || apart(0, 2) && apart(1, 2) && apart(2, 0) && apart(2, 1));
    assert!(secured.run(0, &operator, &["token", "revoke", "--principal", "alice"]));
    until("the side of the operator rejects the token", || (0..2).all(|index| !secured.accepts(index, &token)));
    assert!(secured.accepts(2, &token), "a node behind the partition still verifies tokens by itself");
    assert!(secured.run(0, &operator, &["members"]), "the token of the operator is not concerned");
    network.heal();
    until("the other side rejects the token after the partition", || !secured.accepts(2, &token));
    until("a token that is issued later is accepted everywhere", || {
        let later = secured.token("later.token");
        (0..3).all(|index| secured.accepts(index, &later))
    });
}
