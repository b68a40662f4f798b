//! The group changes.

use crate::cluster::{Client, Disks, Host, agree, config, get, leader, together};
use convoke_replica::{ChangeError, Edit, Role};
use convoke_testkit::{PATIENCE, eventually};

async fn change(hosts: &[Host], edit: Edit) {
    let handle = hosts[leader(hosts).await].handle();
    let number = handle.change(&edit).await.unwrap();
    handle.settled(number, PATIENCE).await.unwrap();
}

fn voters(host: &Host) -> Vec<String> {
    let group = host.handle().group();
    let mut voters: Vec<String> =
        group.members.iter().filter(|member| member.voter).map(|member| member.node.to_string()).collect();
    voters.sort();
    voters
}

async fn joining(disks: &Disks, node: &str, hosts: &[Host]) -> Host {
    let mut joining = config(disks, node);
    joining.join = vec![hosts[0].config.address.clone()];
    Host::start(joining).await
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_to_three_and_back() {
    let disks = Disks::new();
    let mut hosts = vec![Host::start(config(&disks, "a")).await];
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    for node in ["b", "c"] {
        let host = joining(&disks, node, &hosts).await;
        let address = host.config.address.as_str().into();
        change(&hosts, Edit::Add { node: node.into(), address }).await;
        assert_eq!(host.handle().status().replica.map(|id| id.0), Some(if node == "b" { 2 } else { 3 }));
        hosts.push(host);
        agree(&hosts).await;
        change(&hosts, Edit::Promote { node: node.into() }).await;
        client.put(&hosts, "k", node).await;
    }
    assert_eq!(voters(&hosts[0]), ["a", "b", "c"]);
    let handle = hosts[leader(&hosts).await].handle();
    let again = handle.change(&Edit::Add { node: "b".into(), address: "x:1".into() }).await;
    assert_eq!(again, Err(ChangeError::IsReplica("b".into())));
    let unknown = handle.change(&Edit::Remove { node: "z".into() }).await;
    assert_eq!(unknown, Err(ChangeError::NoReplica("z".into())));
    for node in ["c", "b"] {
        change(&hosts, Edit::Remove { node: node.into() }).await;
        client.put(&hosts, "k", "less").await;
        let place = hosts.iter().position(|host| host.node() == node).unwrap();
        hosts.remove(place).stop().await;
    }
    assert_eq!(voters(&hosts[0]), ["a"]);
    let last = hosts[0].handle().change(&Edit::Remove { node: "a".into() }).await;
    assert_eq!(last, Err(ChangeError::LastVoter("a".into())));
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("less"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_and_never_comes_back_under_its_id() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let dead = (leader(&hosts).await + 1) % 3;
    let dead = hosts.remove(dead);
    let (node, highest) = (dead.node().to_owned(), 3);
    dead.stop().await;
    let new = joining(&disks, "d", &hosts).await;
    let address = new.config.address.as_str().into();
    change(&hosts, Edit::Replace { old: node.as_str().into(), node: "d".into(), address }).await;
    assert_eq!(new.handle().status().replica.map(|id| id.0), Some(highest + 1));
    hosts.push(new);
    client.put(&hosts, "k", "2").await;
    agree(&hosts).await;
    assert!(!voters(&hosts[0]).contains(&node) && voters(&hosts[0]).contains(&"d".to_owned()));
    // With the new one a majority survives the loss of another.
    let leads = leader(&hosts).await;
    hosts.remove(leads).stop().await;
    client.put(&hosts, "k", "3").await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let next = (leads + 1) % 3;
    let node = hosts[next].node().to_owned();
    agree(&hosts).await;
    hosts[leads].handle().transfer(&node).await.unwrap();
    eventually("the other one leads", async || hosts[next].handle().status().role == Role::Leader).await;
    client.put(&hosts, "k", "2").await;
    let handle = hosts[leader(&hosts).await].handle();
    assert_eq!(handle.transfer("z").await, Err(ChangeError::NoReplica("z".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_removed_steps_down() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let removed = hosts.remove(leads);
    let number = removed.handle().change(&Edit::Remove { node: removed.node().into() }).await.unwrap();
    eventually("the others have arrived there", async || {
        hosts.iter().any(|host| host.handle().status().configuration >= number && voters(host).len() == 2)
    })
    .await;
    client.put(&hosts, "k", "2").await;
    assert!(!voters(&hosts[0]).contains(&removed.node().to_owned()));
    eventually("the removed one leads no more", async || removed.handle().status().role != Role::Leader).await;
}
