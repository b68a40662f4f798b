//! Nodes that changed their address (M5).

use crate::cluster::{Client, Disks, Host, agree, get, leader, together_by};
use convoke_replica::{Dial, DialWithLookup};
use convoke_testkit::{eventually, free_address};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Stands for the registry: the announced addresses of nodes.
#[derive(Clone, Debug, Default)]
struct Known(Arc<Mutex<BTreeMap<String, String>>>);

impl Known {
    fn note(&self, node: &str, address: &str) {
        self.0.lock().unwrap().insert(node.to_owned(), address.to_owned());
    }

    fn dialer(&self) -> Arc<dyn Dial> {
        let known = self.0.clone();
        Arc::new(DialWithLookup(move |node: &str| known.lock().unwrap().get(node).cloned()))
    }
}

/// Three hosts and their announced addresses.
async fn three(disks: &Disks) -> (Known, Arc<dyn Dial>, Vec<Host>) {
    let known = Known::default();
    let dialer = known.dialer();
    let hosts = together_by(disks, &["a", "b", "c"], &dialer, |_| {}).await;
    (known, dialer, hosts)
}

fn recorded(host: &Host, node: &str) -> String {
    host.handle().group().on(node).unwrap().address.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_moved_is_found_and_recorded() {
    let disks = Disks::new();
    let (known, dialer, mut hosts) = three(&disks).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let mut moved = hosts.pop().unwrap().stop().await;
    moved.address = free_address();
    known.note("c", &moved.address);
    let address = moved.address.clone();
    hosts.push(Host::start_with(moved, dialer.clone()).await);
    // Without the second host, everything depends on the one that moved.
    let away = hosts.remove(1).stop().await;
    client.put(&hosts, "k", "2").await;
    eventually("its new address is recorded", async || hosts.iter().all(|host| recorded(host, "c") == address)).await;
    hosts.push(Host::start_with(away, dialer).await);
    agree(&hosts).await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_move_at_once() {
    let disks = Disks::new();
    let (known, dialer, mut hosts) = three(&disks).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let mut configs = Vec::new();
    for host in hosts.drain(..) {
        configs.push(host.stop().await);
    }
    for config in &mut configs {
        config.address = free_address();
        known.note(&config.node, &config.address);
        hosts.push(Host::start_with(config.clone(), dialer.clone()).await);
    }
    client.put(&hosts, "k", "2").await;
    let all = || configs.iter().all(|config| hosts.iter().all(|host| recorded(host, &config.node) == config.address));
    eventually("their new addresses are recorded", async || all()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_announced_address_is_harmless() {
    let disks = Disks::new();
    let (known, dialer, mut hosts) = three(&disks).await;
    let address = hosts[2].config.address.clone();
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    // Announced at the address of another node, then at an unused address.
    for wrong in [hosts[0].config.address.clone(), free_address()] {
        known.note("c", &wrong);
        let back = hosts.remove(2).stop().await;
        hosts.push(Host::start_with(back, dialer.clone()).await);
        let away = hosts.remove(1).stop().await;
        client.put(&hosts, "k", &wrong).await;
        hosts.insert(1, Host::start_with(away, dialer.clone()).await);
        agree(&hosts).await;
        assert_eq!(recorded(&hosts[leader(&hosts).await], "c"), address);
    }
}
