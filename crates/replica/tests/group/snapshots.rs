//! Snapshots: taken by size, sent to lagging replicas, kept across restarts.

use crate::cluster::{Client, Disks, Host, agree, get, leader, together_with};
use convoke_replica::Config;
use convoke_testkit::eventually;

fn small(config: &mut Config) {
    config.limits.snapshot_log_bytes = 64 * 1024;
    config.limits.catch_up_bytes = 16 * 1024;
    config.limits.segment_bytes = 32 * 1024;
}

async fn fill(client: &mut Client, hosts: &[Host], from: usize, until: usize) {
    let value = "x".repeat(1_000);
    for number in from..until {
        client.put(hosts, &format!("k{}", number % 100), &value).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lags_too_far_gets_a_snapshot_and_the_log_stays_small() {
    let disks = Disks::new();
    let mut hosts = together_with(&disks, &["a", "b", "c"], small).await;
    let mut client = Client::open(&hosts).await;
    let lagging = (leader(&hosts).await + 1) % 3;
    let lagging = hosts.remove(lagging).stop().await;
    fill(&mut client, &hosts, 0, 400).await;
    for host in &hosts {
        eventually("the log was purged", async || host.handle().status().purged > 200).await;
        assert!(host.handle().counters().snapshots > 0);
    }
    let back = Host::start(lagging).await;
    hosts.push(back);
    agree(&hosts).await;
    assert_eq!(hosts[2].handle().counters().snapshots_installed, 1);
    // The log continues from there, also after a restart.
    fill(&mut client, &hosts, 400, 450).await;
    let config = hosts.pop().unwrap().stop().await;
    hosts.push(Host::start(config).await);
    fill(&mut client, &hosts, 450, 460).await;
    agree(&hosts).await;
    let segments = std::fs::read_dir(disks.of("a")).unwrap().count();
    assert!(segments < 12, "{segments} files");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_group_restarts_from_snapshots() {
    let disks = Disks::new();
    let hosts = together_with(&disks, &["a", "b", "c"], small).await;
    let mut client = Client::open(&hosts).await;
    fill(&mut client, &hosts, 0, 300).await;
    client.put(&hosts, "last", "one").await;
    let mut configs = Vec::new();
    for host in hosts {
        configs.push(host.stop().await);
    }
    let mut hosts = Vec::new();
    for config in configs {
        hosts.push(Host::start(config).await);
    }
    assert_eq!(get(&hosts, "last").await.as_deref(), Some("one"));
    client.put(&hosts, "last", "two").await;
    agree(&hosts).await;
}
