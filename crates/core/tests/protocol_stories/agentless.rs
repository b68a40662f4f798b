//! Members without a client.

use crate::cluster::Cluster;
use convoke_core::member::{Check, MemberSpec, Probe};
use std::time::Duration;

#[test]
fn a_member_without_a_client_is_dated_when_it_is_registered() {
    let mut cluster = Cluster::settled(&["a"]);
    cluster.run(Duration::from_secs(3600));
    let check = Check::new("port", Probe::Tcp { address: "127.0.0.1:1".to_owned() });
    let spec = MemberSpec { checks: vec![check], ..MemberSpec::new("web-1", "web") };
    let registered = cluster.now.as_micros() / 1000;
    cluster.call(0, |node, now, out| node.register_agentless(now, &spec, "", out)).unwrap();
    let member = cluster.member(0, "web-1");
    let checked: Vec<u64> = member.checks().unwrap().results().iter().map(|result| result.since).collect();
    assert_eq!((member.created(), member.owner().since, checked), (registered, registered, vec![registered]));
}
