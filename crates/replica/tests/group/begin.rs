//! Creating a log together.

use crate::cluster::{Client, Disks, Host, agree, config, leader, together};
use convoke_replica::{LogRejection, Role};
use convoke_testkit::{eventually, free_address};

#[tokio::test(flavor = "multi_thread")]
async fn three_with_the_same_list_form_one_log() {
    let disks = Disks::new();
    let hosts = together(&disks, &["b", "c", "a"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "v").await;
    agree(&hosts).await;
    let logs: Vec<_> = hosts.iter().map(|host| host.handle().status().log).collect();
    assert!(logs.iter().all(|log| *log == logs[0] && log.is_some()));
    for host in &hosts {
        let status = host.handle().status();
        assert_eq!(status.group.replicas.iter().filter(|member| member.voter).count(), 3);
        let replica = 1 + ["a", "b", "c"].iter().position(|node| *node == host.node()).unwrap() as u64;
        assert_eq!(status.replica.map(|id| id.0), Some(replica), "ids follow the order of the nodes' ids");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joining_node_never_creates_a_log_alone() {
    let disks = Disks::new();
    let (mut a, missing) = (config(&disks, "a"), free_address());
    a.join = vec![a.address.clone(), missing];
    let host = Host::start(a).await;
    // It keeps asking the missing node.
    eventually("it has dialled a few times", async || host.handle().counters().rpc_errors >= 3).await;
    assert_eq!(host.handle().status().role, Role::Outside);
    assert!(matches!(host.handle().epoch(), Err(LogRejection::NotLeader(group)) if group.replicas.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_an_existing_log_waits_to_be_added() {
    let disks = Disks::new();
    let hosts = [Host::start(config(&disks, "a")).await];
    leader(&hosts).await;
    let mut b = config(&disks, "b");
    b.join = vec![hosts[0].config.address.clone()];
    let b = Host::start(b).await;
    eventually("b knows the leader", async || {
        let rejected = b.handle().epoch().unwrap_err();
        rejected.group().and_then(|group| group.leader()).is_some_and(|leader| leader.node == "a")
    })
    .await;
    assert_eq!(b.handle().status().role, Role::Outside);
    assert_eq!(hosts[0].handle().status().group.replicas.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_created_log_is_completed_after_a_restart() {
    let disks = Disks::new();
    let names = ["a", "b", "c"];
    let mut configs: Vec<_> = names.iter().map(|node| config(&disks, node)).collect();
    let join: Vec<String> = configs.iter().map(|config| config.address.clone()).collect();
    for config in &mut configs {
        config.join = join.clone();
    }
    let mut hosts = Vec::new();
    for config in &configs {
        hosts.push(Host::start(config.clone()).await);
    }
    // All nodes stop as soon as the founder has written its identity.
    eventually("a is a replica", async || hosts[0].handle().status().replica.is_some()).await;
    for host in hosts {
        host.stop().await;
    }
    let mut hosts = Vec::new();
    for config in configs {
        hosts.push(Host::start(config).await);
    }
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "v").await;
    agree(&hosts).await;
}
