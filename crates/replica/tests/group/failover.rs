//! Leader changes.

use crate::cluster::{Client, Disks, Host, agree, config, get, leader, together, together_with};
use convoke_log::command::{Body, LeaseId, LockName, Open, Request};
use convoke_log::leader::PlaceState;
use convoke_log::machine::Outcome;
use convoke_replica::{Dial, Duplex, LogRejection, Mutation, SubmitError, TcpDial};
use convoke_testkit::eventually;
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::test(flavor = "multi_thread")]
async fn others_reject_with_the_leader_first() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = leader(&hosts).await;
    let node = hosts[leads].node().to_owned();
    let epoch = hosts[leads].handle().epoch().unwrap();
    let client = Client::open(&hosts).await;
    for (place, host) in hosts.iter().enumerate().filter(|(place, _)| *place != leads) {
        eventually("a follower knows its leader", async || host.handle().group().leader().is_some()).await;
        let request = Request::new(client.session(), 1, epoch, Body::put("a", "1"));
        let rejected = host.handle().submit(request).await.unwrap_err();
        let SubmitError::Rejected(LogRejection::NotLeader(group)) = rejected else { panic!("{place}: {rejected}") };
        assert_eq!((group.replicas.len(), group.replicas[0].node.as_str()), (3, node.as_str()));
        assert_eq!(group.epoch, Some(epoch));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_leader_changes_and_a_full_restart() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    let mut written = 0;
    for round in 0..3 {
        for _ in 0..10 {
            written += 1;
            assert_eq!(client.put(&hosts, &format!("k{written}"), "v").await, written);
        }
        let leads = leader(&hosts).await;
        let before = hosts[leads].handle().epoch().unwrap();
        let gone = hosts.remove(leads).stop().await;
        written += 1;
        assert_eq!(client.put(&hosts, &format!("k{written}"), "v").await, written, "round {round}");
        let after = hosts[leader(&hosts).await].handle().epoch().unwrap();
        assert!(after.term > before.term);
        hosts.push(Host::start(gone).await);
    }
    agree(&hosts).await;
    let mut configs = Vec::new();
    for host in hosts {
        configs.push(host.stop().await);
    }
    let mut hosts = Vec::new();
    for config in configs {
        hosts.push(Host::start(config).await);
    }
    for number in 1..=written {
        assert_eq!(get(&hosts, &format!("k{number}")).await.as_deref(), Some("v"));
    }
    agree(&hosts).await;
}

/// A replica that would lose an election does not start one, so an isolated follower keeps its last leader.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_follower_reports_the_log_as_unavailable() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let follower = (leader(&hosts).await + 1) % 3;
    let survivor = hosts.swap_remove(follower);
    eventually("it has contact to the leader", async || survivor.handle().is_available()).await;
    for host in hosts {
        host.stop().await;
    }
    eventually("it has no quorum", async || !survivor.handle().is_available()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_requests_are_rejected() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let survivor = hosts.swap_remove(leads);
    let mut gone = Vec::new();
    for host in hosts {
        gone.push(host.stop().await);
    }
    eventually("the survivor has no quorum", async || !survivor.handle().is_available()).await;
    let read = survivor.handle().read(convoke_replica::Consistency::Linearizable).await;
    assert!(matches!(read, Err(LogRejection::NoQuorum(_) | LogRejection::NotLeader(_))), "{read:?}");
    if let Ok(epoch) = survivor.handle().epoch() {
        let request = client.next(epoch, Body::put("k", "never"));
        let rejected = survivor.handle().submit(request).await;
        assert!(matches!(rejected, Err(SubmitError::Rejected(LogRejection::NoQuorum(_)))), "{rejected:?}");
    }
    assert!(survivor.handle().local().unwrap().keys().get(b"k").is_some(), "local reads still work");
    let mut hosts = vec![survivor];
    for config in gone {
        hosts.push(Host::start(config).await);
    }
    client.put(&hosts, "k", "2").await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("2"));
}

/// A leader that cannot confirm its leadership may know an earlier place, and does not report it (LO9).
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_not_reported_without_a_quorum() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = leader(&hosts).await;
    let survivor = hosts.swap_remove(leads);
    let epoch = survivor.handle().epoch().unwrap();
    let place = (LockName::lock("jobs"), LeaseId(1));
    let found = survivor.handle().await_place(epoch, place.clone(), PlaceState::Waiting).await;
    assert_eq!(found.unwrap(), PlaceState::None, "the lease is not in the queue of the lock");
    for host in hosts {
        host.stop().await;
    }
    let found = survivor.handle().await_place(epoch, place, PlaceState::Waiting).await;
    assert!(matches!(found, Err(LogRejection::NoQuorum(_) | LogRejection::NotLeader(_))), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_crosses_a_leader_change_is_executed_once() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    let answer = client.submit(&hosts, Body::compare_and_set("a", "1", 0)).await;
    let id = answer.id;
    let leads = leader(&hosts).await;
    let gone = hosts.remove(leads).stop().await;
    let handle = hosts[leader(&hosts).await].handle();
    let epoch = handle.epoch().unwrap();
    let copy = Request::new(id.session, id.number, epoch, Body::compare_and_set("a", "1", 0));
    let again = handle.submit(copy).await.unwrap().answer;
    assert_eq!(again.verdict, answer.verdict, "the stored outcome, not a second execution");
    assert!(matches!(again.verdict.as_deref(), Ok(Outcome::Applied { revision: 1, .. })));
    hosts.push(Host::start(gone).await);
    agree(&hosts).await;
}

/// The expiry was due while nothing could be proposed. The same leader proposes it again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_silent_during_quorum_loss_expires_afterwards() {
    const TTL: Duration = Duration::from_secs(2);
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = hosts.remove(leader(&hosts).await);
    let handle = leads.handle();
    let epoch = handle.epoch().unwrap();
    let open = Open::new(epoch, TTL, 1);
    handle.open(open).await.unwrap().opened.unwrap();
    let mut away = Vec::new();
    for host in hosts {
        away.push(host.stop().await);
    }
    eventually("it has no quorum", async || !handle.status().available).await;
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    let mut back = Vec::new();
    for config in away {
        back.push(Host::start(config).await);
    }
    eventually("the session has expired", async || handle.status().sessions == 0).await;
}

/// Long enough that a timeout cannot be what elects the next leader.
fn patient(config: &mut convoke_replica::Config) {
    config.timers.election_timeout_min = Duration::from_secs(2);
    config.timers.election_timeout_max = Duration::from_secs(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_a_leader_whose_process_ended_is_replaced_without_waiting() {
    let disks = Disks::new();
    let mut hosts = together_with(&disks, &["a", "b", "c"], patient).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "before").await;
    agree(&hosts).await;
    let leads = leader(&hosts).await;
    let before = hosts[leads].handle().epoch().unwrap();
    hosts.remove(leads).stop().await;
    let next = leader(&hosts).await;
    let early: u64 = hosts.iter().map(|host| host.handle().counters().elections_early).sum();
    assert!(early > 0, "the next leader did not wait for a timeout");
    let epoch = hosts[next].handle().epoch().unwrap();
    assert!(epoch.term <= before.term + 2, "few elections: {before} and {epoch}");
    client.put(&hosts, "k", "after").await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("after"));
}

/// With these timers, silence counts after three minutes. The address of a process that has ended refuses connections, so
/// nobody shows it as an ordinary voter, or as the leader, for so long.
#[tokio::test(flavor = "multi_thread")]
async fn an_ended_process_is_shown_as_unreachable_without_waiting() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "v").await;
    let leads = leader(&hosts).await;
    hosts.swap(0, leads);
    for place in 1..3 {
        let mut config = hosts.remove(place).stop().await;
        config.timers.election_timeout_min = Duration::from_secs(60);
        config.timers.election_timeout_max = Duration::from_secs(90);
        hosts.insert(place, Host::start(config).await);
        agree(&hosts).await;
    }
    let shows = |host: &Host, node: &str| {
        let status = host.handle().status();
        status.group.replicas.iter().any(|member| member.node == node && member.unreachable)
    };
    let ended = hosts.remove(0).stop().await.node;
    let leads = leader(&hosts).await;
    hosts.swap(0, leads);
    eventually("both replicas show it as unreachable", async || hosts.iter().all(|host| shows(host, &ended))).await;
    let ended = hosts.remove(0).stop().await.node;
    eventually("the last replica shows no leader", async || {
        let status = hosts[0].handle().status();
        status.group.leader.is_none() && !status.available && shows(&hosts[0], &ended)
    })
    .await;
}

/// Dials like TCP, until it is cut from some addresses: their connections end, and new ones are refused.
#[derive(Debug, Default)]
struct Scissors {
    cut: watch::Sender<BTreeSet<String>>,
}

impl Dial for Scissors {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move {
            if self.cut.borrow().contains(address) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let mut far = TcpDial.dial(address).await?;
            let (near, mut inner) = tokio::io::duplex(1 << 20);
            let (mut cut, address) = (self.cut.subscribe(), address.to_owned());
            tokio::spawn(async move {
                tokio::select! {
                    _ = cut.wait_for(|cut| cut.contains(&address)) => {}
                    _ = tokio::io::copy_bidirectional(&mut inner, &mut far) => {}
                }
            });
            Ok(Box::new(near) as Box<dyn Duplex>)
        })
    }
}

/// Three hosts of which a follower and the leader lose each other, as if by a firewall that resets connections. Returns
/// the hosts, the follower, the leader, its epoch and a client.
pub(crate) async fn cut_from_leader(
    disks: &Disks,
    mutation: Mutation,
) -> (Vec<Host>, usize, usize, convoke_log::Epoch, Client) {
    let nodes = ["a", "b", "c"];
    let mut configs: Vec<_> = nodes.iter().map(|node| config(disks, node)).collect();
    let join: Vec<String> = configs.iter().map(|config| config.address.clone()).collect();
    let dialers: Vec<Arc<Scissors>> = nodes.iter().map(|_| Arc::default()).collect();
    let mut hosts = Vec::new();
    for (config, dialer) in configs.iter_mut().zip(&dialers) {
        config.join = join.clone();
        config.mutation = mutation;
        patient(config);
        hosts.push(Host::start_with(config.clone(), dialer.clone() as Arc<dyn Dial>).await);
    }
    let leads = leader(&hosts).await;
    let epoch = hosts[leads].handle().epoch().unwrap();
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "before").await;
    agree(&hosts).await;
    let follower = (leads + 1) % 3;
    dialers[follower].cut.send_modify(|cut| cut.extend([join[leads].clone()]));
    dialers[leads].cut.send_modify(|cut| cut.extend([join[follower].clone()]));
    (hosts, follower, leads, epoch, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_a_cut_link_to_the_leader_causes_no_election() {
    let disks = Disks::new();
    let (hosts, follower, leads, epoch, mut client) = cut_from_leader(&disks, Mutation::none()).await;
    let counters = || hosts[follower].handle().counters();
    eventually("the follower finds no confirmation", async || counters().elections_early_declined > 0).await;
    assert_eq!((counters().leaders_lost, counters().elections_early), (1, 0));
    client.put(&hosts, "k", "after").await;
    assert_eq!(hosts[leads].handle().epoch().unwrap(), epoch, "the same leader goes on");
    let others: u64 = hosts.iter().map(|host| host.handle().counters().elections_early).sum();
    assert_eq!(others, 0);
}
