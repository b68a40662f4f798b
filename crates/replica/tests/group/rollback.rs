//! M6: a disk that went back in time.

use crate::cluster::{Client, Disks, Host, agree, get, leader, together, together_with};
use convoke_replica::{Edit, LogRejection, Mutation};
use convoke_testkit::eventually;
use std::path::Path;
use std::time::Duration;

/// Copies the files of a directory in place of those of another one.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

async fn write(hosts: &[Host], client: &mut Client, from: usize, until: usize) {
    for number in from..until {
        client.put(hosts, &format!("k{number}"), "x").await;
    }
}

/// Stops a follower, replaces its data by an older image, and starts it again. Returns the hosts: the leader, the other
/// follower, and the one that was rolled back.
pub(crate) async fn rolled_back(disks: &Disks, mutation: Mutation) -> Vec<Host> {
    let mut hosts = together_with(disks, &["a", "b", "c"], |config| config.mutation = mutation).await;
    let mut client = Client::open(&hosts).await;
    write(&hosts, &mut client, 0, 10).await;
    agree(&hosts).await;
    let at = leader(&hosts).await;
    hosts.swap(0, at);
    let config = hosts.pop().unwrap().stop().await;
    let (data, image) = (disks.of(&config.node), disks.of("image"));
    copy(&data, &image);
    hosts.push(Host::start(config).await);
    write(&hosts, &mut client, 10, 20).await;
    agree(&hosts).await;
    // The other follower learns with the next messages what this one has acknowledged.
    write(&hosts, &mut client, 20, 25).await;
    agree(&hosts).await;
    let applied = hosts[2].handle().status().applied;
    eventually("the evidence has spread", async || {
        let heard = hosts[1].handle().evidence_of(hosts[2].handle().status().replica.unwrap());
        heard.is_some_and(|index| index >= applied)
    })
    .await;
    let config = hosts.pop().unwrap().stop().await;
    copy(&image, &data);
    hosts.push(Host::start(config).await);
    hosts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_disk_went_back_is_excluded_and_can_be_replaced() {
    let disks = Disks::new();
    let mut hosts = rolled_back(&disks, Mutation::none()).await;
    let back = hosts[2].handle();
    eventually("it is excluded", async || back.status().excluded).await;
    let status = back.status();
    assert!(!status.available, "{status:?}");
    let obstacle = status.obstacle.unwrap();
    let node = hosts[2].node().to_owned();
    assert!(obstacle.contains("went back in time"), "{obstacle}");
    assert!(obstacle.contains(&format!("`convoke log replace {node} {node}`")), "{obstacle}");
    // The others go on. Without one of them nothing can be committed, and nobody claims that it can.
    let mut client = Client::open(&hosts[..2]).await;
    client.put(&hosts[..2], "more", "x").await;
    let other = hosts.remove(1).stop().await;
    eventually("the leader reports that it has no majority", async || !hosts[0].handle().is_available()).await;
    eventually("a request is rejected", async || {
        let epoch = hosts[0].handle().epoch();
        match epoch {
            Err(LogRejection::NoQuorum(_) | LogRejection::NotLeader(_)) => true,
            Err(_) => false,
            Ok(epoch) => {
                let request = client.next(epoch, convoke_log::command::Body::put("none", "x"));
                let asked = tokio::time::timeout(Duration::from_secs(1), hosts[0].handle().submit(request)).await;
                matches!(asked, Ok(Err(_)))
            }
        }
    })
    .await;
    hosts.insert(1, Host::start(other).await);

    // The way out: without its data, the node becomes a new replica.
    let config = hosts.pop().unwrap().stop().await;
    std::fs::remove_dir_all(disks.of(&node)).unwrap();
    let address = config.address.clone();
    hosts.push(Host::start(config).await);
    let edit = Edit::Replace { old: node.as_str().into(), node: node.as_str().into(), address: address.into() };
    eventually("it is replaced", async || {
        let handle = hosts[leader(&hosts[..2]).await].handle();
        match handle.change(&edit).await {
            Ok(number) => handle.settled(number, Duration::from_secs(20)).await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    agree(&hosts).await;
    assert!(hosts.iter().all(|host| !host.handle().status().excluded));
    assert_eq!(get(&hosts, "k24").await.as_deref(), Some("x"));
}

/// The evidence is not with the leader only: a voter that lags could otherwise elect the one that lost its data.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_leader_another_voter_excludes_a_disk_that_went_back() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    write(&hosts, &mut client, 0, 10).await;
    agree(&hosts).await;
    let at = leader(&hosts).await;
    hosts.swap(0, at);
    let config = hosts.pop().unwrap().stop().await;
    let (data, image) = (disks.of(&config.node), disks.of("image"));
    copy(&data, &image);
    hosts.push(Host::start(config).await);
    write(&hosts, &mut client, 10, 30).await;
    agree(&hosts).await;
    let (replica, applied) = (hosts[2].handle().status().replica.unwrap(), hosts[2].handle().status().applied);
    eventually("the evidence has spread", async || {
        hosts[1].handle().evidence_of(replica).is_some_and(|index| index >= applied)
    })
    .await;
    let config = hosts.pop().unwrap().stop().await;
    hosts.remove(0).stop().await;
    copy(&image, &data);
    hosts.push(Host::start(config).await);
    let back = hosts[1].handle();
    eventually("it is excluded", async || back.status().excluded).await;
    eventually("nobody claims that the log is available", async || {
        !back.is_available() && !hosts[0].handle().is_available()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_lost_nothing_are_not_excluded() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    for round in 0..6 {
        write(&hosts, &mut client, 10 * round, 10 * round + 10).await;
        // The leader every second time.
        let at = if round % 2 == 0 { leader(&hosts).await } else { round % 3 };
        let config = hosts.remove(at).stop().await;
        hosts.push(Host::start(config).await);
        agree(&hosts).await;
        assert!(hosts.iter().all(|host| !host.handle().status().excluded), "round {round}");
    }
}
