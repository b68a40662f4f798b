//! The log plane through the SDK, against real nodes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, Consistency, FateKind, Options, ReplicaChange, Write};
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_request;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_testkit::{Proxy, eventually};
use std::time::Duration;
use support::Served;
use support::log::LogCluster;
use support::log_link::Link;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_put_compared_listed_and_deleted() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    assert_eq!(kv.get("a").await.unwrap(), None);
    let first = kv.put("a", "1").await.unwrap();
    let record = kv.get("a").await.unwrap().unwrap();
    assert_eq!((&record.value[..], record.create_revision, record.version), (&b"1"[..], first.revision, 1));

    let error = kv.compare_and_set("a", "2", 0).await.unwrap_err();
    assert_eq!((error.code, error.known), (ErrorCode::FailedPrecondition, Some(first.revision)));
    let second = kv.write(Write::put("a", "2").if_revision(first.revision).previous()).await.unwrap();
    assert_eq!(&second.previous[0].value[..], b"1");
    assert_eq!((second.request.session, second.request.number), (first.request.session, first.request.number + 2));

    for number in 0..25 {
        kv.put(format!("list/{number:02}"), "x").await.unwrap();
    }
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = kv.list_after("list/", after, 10, Consistency::Linearizable).await.unwrap();
        keys.extend(page.records.iter().map(|record| record.key.clone()));
        after = page.records.last().map(|record| record.key.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(keys.len(), 25);
    assert!(keys.is_sorted());

    assert_eq!(kv.delete_prefix("list/").await.unwrap().keys, 25);
    assert_eq!(kv.list("list/", 0).await.unwrap().records, []);
    assert_eq!(kv.delete("a").await.unwrap().keys, 1);
    assert_eq!(kv.delete("a").await.unwrap().keys, 0);
    assert_eq!(kv.get_with("a", Consistency::Local).await.unwrap(), None);

    let error = kv.put("", "x").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument, "{error}");
    let error = kv.put("k", vec![0; 2 * 1024 * 1024]).await.unwrap_err();
    assert_eq!((error.code, error.limit), (ErrorCode::TooLarge, Some(1024 * 1024)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_rejects_and_names_the_leader_first() {
    let cluster = LogCluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let address = format!("http://{}", cluster.served(follower).address());
    let channel = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let request = v1::ReadRequest { what: Some(v1::read_request::What::Key("a".into())), ..v1::ReadRequest::default() };
    let mut client = LogClient::new(channel);
    let error = Error::from(client.read(request.clone()).await.unwrap_err());
    assert_eq!(error.code, ErrorCode::NotLeader, "{error}");
    let members = error.log.unwrap().replicas;
    assert_eq!(members.len(), 3);
    assert_eq!((members[0].node.as_str(), members[0].leader), (format!("n{leader}").as_str(), true));
    assert_eq!(members[0].address, cluster.served(leader).address().to_string());
    let streamed = client.submit(tokio_stream::pending::<v1::SubmitRequest>()).await.unwrap_err();
    assert_eq!(Error::from(streamed).code, ErrorCode::NotLeader);
    let local = v1::ReadRequest { consistency: v1::Consistency::Local.into(), ..request };
    client.read(local).await.unwrap();

    // An ambassador with only the follower's address finds the leader.
    let ambassador = Ambassador::start([cluster.served(follower).address().to_string()]).unwrap();
    ambassador.kv().put("a", "1").await.unwrap();
    let status = ambassador.status(None).await.unwrap();
    assert_eq!((status.role.as_str(), status.leader), ("leader", format!("n{leader}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_log_plane_reports_it() {
    let served = Served::alone().await;
    let channel = support::grpc::channel(&served).await;
    let error = Error::from(LogClient::new(channel).status(v1::LogStatusRequest {}).await.unwrap_err());
    assert_eq!(error.code, ErrorCode::NotReady);
    assert!(error.message.contains("no log plane"), "{error}");
    let kv = Ambassador::start([served.address().to_string()])
        .unwrap()
        .kv_with(Options::default().timeout(Duration::from_millis(300)));
    let error = kv.put("a", "1").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout, "not sent, so certainly not applied: {error}");
    assert_eq!(kv.get("a").await.unwrap_err().code, ErrorCode::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_request_becomes_final_by_the_next_one_and_by_resolve_at_any_node() {
    let cluster = LogCluster::start(3).await;
    let ambassador = cluster.ambassador();
    let kv = ambassador.kv();
    kv.put("warm", "up").await.unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let (mut applied, mut never) = (0, 0);
    for round in 0..60 {
        let key = format!("dropped-{round}");
        let timeout = Duration::from_micros(random.u64(..2_000));
        let _ = tokio::time::timeout(timeout, kv.put(key.clone(), "x")).await;
        let Some((request, fate)) = kv.put("next", "y").await.unwrap().abandoned else { continue };
        let there = kv.get(key).await.unwrap().is_some();
        assert_eq!(fate.kind() == FateKind::Applied, there, "round {round}");
        if there {
            applied += 1;
        } else {
            never += 1;
        }
        if round % 20 == 0 {
            for index in 0..3 {
                let path = format!("/api/v1/log/requests/{}/{}/resolve", request.session, request.number);
                let reported = cluster.http(index, "POST", &path, "").await.ok();
                assert_eq!(reported["fate"], if there { "applied" } else { "never" }, "{reported}");
                assert_eq!(reported["final"], true);
            }
        }
        assert_eq!(ambassador.resolve(request, None).await.unwrap().kind(), fate.kind());
    }
    assert!(applied + never > 0, "something was dropped on its way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_read_is_not_overtaken_by_abandoned_requests() {
    let cluster = LogCluster::start(3).await;
    let kv = cluster.ambassador().kv();
    kv.put("k", "before").await.unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..100 {
        let timeout = Duration::from_micros(random.u64(..1_500));
        let _ = tokio::time::timeout(timeout, kv.put("k", format!("{round}"))).await;
        let first = kv.get("k").await.unwrap();
        let second = kv.get_with("k", Consistency::Linearizable).await.unwrap();
        assert_eq!(first, second, "round {round}");
    }
}

/// The copy that was sent first arrives last, on a connection that its sender has abandoned.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_in_an_old_socket_have_no_effect_after_a_reconnect() {
    let cluster = LogCluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let proxy = Proxy::start(&cluster.served(leader).address().to_string()).await;
    let ambassador = Ambassador::start([proxy.address().to_owned()]).unwrap();
    let kv = ambassador.kv();
    kv.put("a", "first").await.unwrap();
    proxy.block(true);
    let given_up = kv.put("a", "given up").abandon();
    let request = given_up.expect("it was sent at once: the session is open and the link is up");
    let log = cluster.node(leader).replica.handle();
    let arrived = || log.counters().proposals + log.counters().commands_rejected;
    let before = arrived();
    // Meanwhile another client makes the fate final.
    let elsewhere = cluster.served(follower).address().to_string();
    let fate = Ambassador::start([elsewhere]).unwrap().resolve(request, None).await.unwrap();
    assert_eq!(fate.kind(), FateKind::Never);
    let resolved = arrived();
    assert!(resolved > before);
    proxy.block(false);
    eventually("the first copy arrives", async || arrived() > resolved).await;
    let value = async || kv.get("a").await.unwrap().unwrap().value;
    assert_eq!(value().await, "first");
    kv.put("a", "last").await.unwrap();
    assert_eq!(value().await, "last");
    assert_eq!(ambassador.resolve(request, None).await.unwrap().kind(), FateKind::Never, "it stays so");
}

/// The log and its clients use different units.
#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_out_of_range_is_rejected_in_the_units_of_the_request() {
    let cluster = LogCluster::start(1).await;
    let mut link = Link::to(&cluster.served(0).address().to_string()).await;
    let open = v1::OpenSession { ttl_ms: 10, ..link.opening() };
    link.send(submit_request::Message::Open(open));
    let Message::Rejected(error) = link.receive().await else { panic!("it is rejected") };
    let error = Error::from(error);
    assert_eq!(error.message, "ttl_ms is 10; it must be between 1000 and 600000");
    assert_eq!((error.field.as_deref(), error.limit), (Some("ttl_ms"), Some(600_000)));
}

/// A client resends over a new connection the requests without an answer. The copies on the old connection arrive last,
/// followed by requests that the client abandoned. They return their fates and have no effect.
#[tokio::test(flavor = "multi_thread")]
async fn copies_on_an_old_connection_are_answered_without_effect() {
    let cluster = LogCluster::start(1).await;
    let address = cluster.served(0).address().to_string();
    let proxy = Proxy::start(&address).await;
    let mut old = Link::to(proxy.address()).await;
    let session = old.open().await;
    proxy.block(true);
    old.put(session, 1, "sent again");
    old.put(session, 2, "given up");
    let mut new = Link::to(&address).await;
    new.put(session, 1, "sent again");
    let first = new.fate().await;
    new.put(session, 3, "last");
    let last = new.fate().await;
    assert_eq!((first.kind(), last.kind()), (FateKind::Applied, FateKind::Applied));
    proxy.block(false);
    let (again, given_up) = (old.fate().await, old.fate().await);
    assert_eq!((again.kind(), again.index), (FateKind::Applied, first.index), "the same answer, not another effect");
    assert_eq!(given_up.kind(), FateKind::Never);
    let record = cluster.ambassador().kv().get("a").await.unwrap().unwrap();
    assert_eq!((&record.value[..], record.version), (&b"last"[..], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_client_fences_its_predecessor() {
    let cluster = LogCluster::start(1).await;
    let old = cluster.ambassador().kv_with(Options::default().client_name("shop"));
    old.put("a", "1").await.unwrap();
    let new = cluster.ambassador().kv_with(Options::default().client_name("shop"));
    new.put("a", "2").await.unwrap();
    let error = old.put("a", "3").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::SessionGone, "{error}");
    assert_eq!(old.put("a", "4").await.unwrap_err().code, ErrorCode::Superseded);
    assert_eq!(&new.get("a").await.unwrap().unwrap().value[..], b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_ends_its_session() {
    let cluster = LogCluster::start(1).await;
    let ambassador = cluster.ambassador();
    let kv = ambassador.kv();
    kv.put("a", "1").await.unwrap();
    assert_eq!(ambassador.status(None).await.unwrap().sessions, 1);
    drop(kv);
    eventually("the session has ended", async || ambassador.status(None).await.unwrap().sessions == 0).await;

    // `close` waits for the end of the session; remaining clones keep it open.
    let kv = ambassador.kv();
    kv.put("a", "2").await.unwrap();
    kv.clone().close(Duration::from_secs(30)).await.unwrap();
    assert_eq!(ambassador.status(None).await.unwrap().sessions, 1);
    kv.close(Duration::from_secs(30)).await.unwrap();
    assert_eq!(ambassador.status(None).await.unwrap().sessions, 0);
    ambassador.kv().close(Duration::from_secs(30)).await.unwrap();

    // The same together with its ambassador.
    let last = cluster.ambassador().kv_with(Options::default().ttl(Duration::from_secs(600)));
    last.put("a", "3").await.unwrap();
    assert_eq!(ambassador.status(None).await.unwrap().sessions, 1);
    drop(last);
    eventually("the session has ended", async || ambassador.status(None).await.unwrap().sessions == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_after_its_deadline_is_rejected() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    kv.put("a", "1").await.unwrap();
    let error = kv.write(Write::put("a", "2").deadline(Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout, "{error}");
    assert!(error.about().is_some());
    assert_eq!(&kv.get("a").await.unwrap().unwrap().value[..], b"1");
    kv.write(Write::put("a", "3").deadline(Duration::from_secs(60))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_is_changed_and_leadership_handed_over() {
    let mut cluster = LogCluster::start(3).await;
    let leader = cluster.leader().await;
    let other = cluster.follower().await;
    let outsider = cluster.outsider().await;
    let ambassador = cluster.ambassador();
    let timeout = Some(Duration::from_secs(30));
    let wait = Duration::from_secs(20);
    let node = |index: usize| format!("n{index}");
    let address = Some(cluster.addresses[outsider].clone());
    let stale = ambassador.status(timeout).await.unwrap().configuration;
    let add = ReplicaChange::Add { node: node(outsider), address };
    let added = ambassador.change(&add, wait, timeout).await.unwrap();
    assert!(added.settled && added.configuration > stale);
    assert_eq!(ambassador.change(&add, wait, timeout).await.unwrap_err().code, ErrorCode::FailedPrecondition);
    ambassador.change(&ReplicaChange::Promote(node(outsider)), wait, timeout).await.unwrap();
    let status = ambassador.status(timeout).await.unwrap();
    assert_eq!(status.voters.len(), 4);
    // A change that was decided for an older configuration has no effect (M1).
    let late = ambassador.change_from(&ReplicaChange::Remove(node(other)), Some(stale), wait, timeout).await;
    assert_eq!(late.unwrap_err().code, ErrorCode::FailedPrecondition);
    let late = ambassador.change_from(&ReplicaChange::Transfer(node(other)), Some(stale), wait, timeout).await;
    assert_eq!(late.unwrap_err().code, ErrorCode::FailedPrecondition, "the group has changed since");
    ambassador.change(&ReplicaChange::Remove(node(outsider)), wait, timeout).await.unwrap();
    assert_eq!(
        ambassador.change(&ReplicaChange::Promote(node(9)), wait, timeout).await.unwrap_err().code,
        ErrorCode::NotFound
    );
    assert_eq!(ambassador.status(timeout).await.unwrap().leader, node(leader));
    ambassador.change(&ReplicaChange::Transfer(node(other)), wait, timeout).await.unwrap();
    eventually("the other replica leads", async || {
        ambassador.status(timeout).await.is_ok_and(|status| status.leader == node(other))
    })
    .await;
    ambassador.kv().put("a", "1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_contains_all_acknowledged_writes() {
    let cluster = LogCluster::start(1).await;
    let ambassador = cluster.ambassador();
    let kv = ambassador.kv();
    for number in 0..100 {
        kv.put(format!("k{number}"), vec![7; 10_000]).await.unwrap();
    }
    let mut parts = ambassador.backup(None).await.unwrap();
    let (mut bytes, mut hash) = (Vec::new(), String::new());
    while let Some(part) = parts.message().await.unwrap() {
        if !part.state_hash.is_empty() {
            hash = part.state_hash;
        }
        bytes.extend_from_slice(&part.data);
    }
    let restored = convoke_log::Machine::from_snapshot(&bytes).unwrap();
    assert_eq!(format!("{:032x}", restored.snapshot().state_hash()), hash);
    assert_eq!(restored.keys().len(), 100);
}

/// Backups can take long. One too many is rejected with that reason, and not because there is no leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_backup_is_rejected_immediately() {
    let cluster = LogCluster::start(1).await;
    let ambassador = cluster.ambassador();
    let kv = ambassador.kv();
    // More data than the buffers between the two ends can hold.
    for number in 0..16 {
        kv.put(format!("k{number}"), vec![7; 1_000_000]).await.unwrap();
    }
    let mut under_way = Vec::new();
    for _ in 0..4 {
        under_way.push(ambassador.backup(None).await.unwrap());
    }
    let error = ambassador.backup(Some(Duration::from_secs(10))).await.unwrap_err();
    assert_eq!((error.code, error.limit), (ErrorCode::ResourceExhausted, Some(4)), "{error}");
    assert!(error.message.contains("try again when one of them is done"), "{error}");
    drop(under_way);
    eventually("there is room again", async || ambassador.backup(None).await.is_ok()).await;
}

/// An idle link to a node. The node's welcome has been read.
async fn idle_link(
    served: &Served,
) -> (mpsc::UnboundedSender<v1::SubmitRequest>, tonic::Streaming<v1::SubmitResponse>) {
    #[allow(clippy::disallowed_methods, reason = "the test sends few messages")]
    let (outgoing, messages) = mpsc::unbounded_channel();
    let mut client = LogClient::new(support::grpc::channel(served).await);
    let mut incoming = client.submit(UnboundedReceiverStream::new(messages)).await.unwrap().into_inner();
    let welcome = incoming.message().await.unwrap().unwrap().message;
    assert!(matches!(welcome, Some(Message::Welcome(_))), "{welcome:?}");
    (outgoing, incoming)
}

/// Much longer than any test: a test that waits for it fails by its timeout.
fn long_shutdown() -> convoke_server::Config {
    let mut config = convoke_server::Config::default();
    config.timeouts.shutdown = Duration::from_secs(3_600);
    config
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_leader_does_not_wait_for_idle_links() {
    let mut cluster = LogCluster::start_with(3, long_shutdown()).await;
    let leader = cluster.leader().await;
    let kv = cluster.ambassador().kv();
    kv.put("a", "1").await.unwrap();
    let (_outgoing, mut incoming) = idle_link(cluster.served(leader)).await;
    tokio::time::timeout(TIMEOUT, cluster.stop(leader)).await.expect("an idle link does not hold it up");
    let error = Error::from(incoming.message().await.unwrap_err());
    assert!(matches!(error.code, ErrorCode::NotLeader | ErrorCode::NotReady), "{error}");
    kv.put("a", "2").await.unwrap();
    assert_eq!(&kv.get("a").await.unwrap().unwrap().value[..], b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closing_port_ends_idle_links_although_its_replica_keeps_running() {
    let mut cluster = LogCluster::start_with(1, long_shutdown()).await;
    let (_outgoing, mut incoming) = idle_link(cluster.served(0)).await;
    let node = cluster.nodes[0].take().unwrap();
    tokio::time::timeout(TIMEOUT, node.served.server.stop()).await.expect("an idle link does not hold it up");
    let error = Error::from(incoming.message().await.unwrap_err());
    assert_eq!((error.code, error.log.unwrap().replicas.len()), (ErrorCode::NotReady, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_transfer_ends_idle_links() {
    let cluster = LogCluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let (_outgoing, mut incoming) = idle_link(cluster.served(leader)).await;
    let transfer = ReplicaChange::Transfer(format!("n{follower}"));
    cluster.ambassador().change(&transfer, TIMEOUT, Some(TIMEOUT)).await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, incoming.message()).await.expect("the link ends");
    let error = Error::from(ended.unwrap_err());
    assert_eq!((error.code, error.log.unwrap().replicas.len()), (ErrorCode::NotLeader, 3));
}

/// A frozen leader keeps its connections open. The replica of a node learns of the next leader early, and the node does not
/// wait for the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_a_silent_leader_when_its_replica_knows_the_next_one() {
    let mut config = convoke_server::Config::default();
    // Shorter than the silence after which a client suspects a leader by itself.
    config.timeouts.request = Duration::from_millis(1_500);
    let cluster = LogCluster::start_behind_proxies(3, config).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let next = 3 - leader - follower;
    eventually("the follower reaches the leader", async || {
        cluster.http(follower, "PUT", "/api/v1/kv/a", "1").await.status == 200
    })
    .await;
    cluster.proxies.as_ref().unwrap()[leader].block(true);
    let handle = |index: usize| cluster.node(index).replica.handle();
    eventually("leadership is transferred", async || {
        let _ = handle(leader).transfer(&format!("n{next}")).await;
        let known = handle(follower).status();
        handle(next).epoch().is_ok() && known.group.leader().is_some_and(|known| known.node == format!("n{next}"))
    })
    .await;
    cluster.http(follower, "PUT", "/api/v1/kv/a", "2").await.ok();
}
