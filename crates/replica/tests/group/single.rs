//! A single node.

use crate::cluster::{Client, Disks, Host, config, get, leader};
use convoke_log::command::{Body, DurableClient as Name, Open, Put, Request};
use convoke_log::machine::{ApplyRejection, Fate, Outcome};
use convoke_log::{LogSessionId, RequestId};
use convoke_replica::{Config, Consistency, LogRejection, Role, StartError, StoreError, SubmitError};
use convoke_testkit::{eventually, free_address};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn one_node_works_alone_and_restarts_in_a_new_epoch() {
    let disks = Disks::new();
    let hosts = [Host::start(config(&disks, "a")).await];
    leader(&hosts).await;
    let mut client = Client::open(&hosts).await;
    for number in 1..=20 {
        assert_eq!(client.put(&hosts, &format!("k{number}"), "v").await, number);
    }
    let before = hosts[0].handle().epoch().unwrap();
    let [host] = hosts;
    let hosts = [Host::start(host.stop().await).await];
    leader(&hosts).await;
    let after = hosts[0].handle().epoch().unwrap();
    assert!(after.term > before.term, "{before} and then {after} (E1)");
    assert_eq!(get(&hosts, "k20").await.as_deref(), Some("v"));
    assert_eq!(client.put(&hosts, "k21", "v").await, 21, "the session is still there");
    let stale = client.next(before, Body::put("k22", "v"));
    let rejected = hosts[0].handle().submit(stale).await.unwrap_err();
    assert_eq!(rejected, SubmitError::Rejected(LogRejection::StaleEpoch { current: after }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_memory_works_without_a_disk() {
    let hosts = [Host::start(Config::new("a", free_address())).await];
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "a", "1").await;
    let status = hosts[0].handle().status();
    assert_eq!((status.role, status.keys, status.available), (Role::Leader, 1, true));
    assert_eq!(status.group.leader().map(|leader| leader.node.as_str()), Some("a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_get_the_same_answer_and_abandoned_requests_stay_abandoned() {
    let hosts = [Host::start(Config::new("a", free_address())).await];
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    let epoch = handle.epoch().unwrap();
    let first = client.next(epoch, Body::put("a", "1"));
    let second = client.next(epoch, Body::delete("a"));
    handle.submit(second.clone()).await.unwrap();
    let late = handle.submit(first).await.unwrap();
    assert_eq!(late.answer.verdict, Err(ApplyRejection::Superseded));
    let copy = handle.submit(second).await.unwrap();
    assert!(matches!(copy.answer.verdict.as_deref(), Ok(Outcome::Applied { .. })));
    assert_eq!(get(&hosts, "a").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn resolve_makes_a_fate_final() {
    let hosts = [Host::start(Config::new("a", free_address())).await];
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    client.put(&hosts, "a", "1").await;
    let done = RequestId::new(client.session(), client.number());
    assert!(matches!(handle.resolve(done).await, Ok(Fate::Done(_))));
    let lost = RequestId::new(client.session(), client.number() + 1);
    assert_eq!(handle.peek(lost, Consistency::Linearizable).await, Ok(Fate::Open));
    assert_eq!(handle.resolve(lost).await, Ok(Fate::Never));
    let late = client.next(handle.epoch().unwrap(), Body::put("a", "2"));
    assert_eq!(handle.submit(late).await.unwrap().answer.verdict, Err(ApplyRejection::Superseded));
}

/// F8: the session may still be opened, so no final answer is possible, and nothing is appended.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_never_opened_is_not_resolved() {
    let hosts = [Host::start(Config::new("a", free_address())).await];
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    let applied = handle.status().applied;
    for session in [0, applied + 1, applied + 2, applied + 1_000, u64::MAX] {
        let rejected = handle.resolve(RequestId::new(LogSessionId(session), 1)).await.unwrap_err();
        let SubmitError::Rejected(LogRejection::NoSession { .. }) = rejected else { panic!("{session}: {rejected}") };
    }
    assert_eq!(handle.status().applied, applied, "no entry was needed");
    let next = Client::open(&hosts).await;
    assert_eq!(next.session().0, applied + 1, "the session could be opened");
    client.put(&hosts, "a", "1").await;
    let ended = client.next(handle.epoch().unwrap(), Body::End(client.session()));
    handle.submit(ended).await.unwrap();
    // Every index up to the applied one has an answer: engine entries, ended and dropped sessions.
    for session in 1..=handle.status().applied {
        let fate = handle.resolve(RequestId::new(LogSessionId(session), 7)).await.unwrap();
        assert!(fate.is_final(), "{session}: {fate:?}");
    }
}

/// A1: it would stop every replica, again after every restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_command_is_not_appended() {
    let disks = Disks::new();
    let hosts = [Host::start(config(&disks, "a")).await];
    leader(&hosts).await;
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    let epoch = handle.epoch().unwrap();
    let put = |key: &str, if_revision| {
        Body::Put(Put { key: key.to_owned().into(), value: "v".into(), if_revision, previous: false })
    };
    let session = client.session();
    let requests = [
        Request::new(session, 1, epoch, put("a", Some(u64::MAX))),
        Request::new(session, 1, epoch, put(&"k".repeat(100_000), None)),
        Request::new(session, 1, epoch, Body::Fence(RequestId::new(session, u64::MAX))),
        Request { abandon_below: 2, ..Request::new(session, 1, epoch, put("a", None)) },
        Request { previous: 1, ..Request::new(session, 1, epoch, put("a", None)) },
        Request::new(session, 0, epoch, put("a", None)),
        Request::new(session, u64::MAX, epoch, put("a", None)),
    ];
    for request in requests {
        let rejected = handle.submit(request).await.unwrap_err();
        let SubmitError::Rejected(why @ LogRejection::Unreadable(_)) = rejected else { panic!("{rejected}") };
        assert_eq!(why.code(), convoke_base::ErrorCode::InvalidArgument);
    }
    let open = Open::new(epoch, Duration::from_secs(5), 1);
    let name = |name: String, replaces| Some(Name { name: name.into(), replaces });
    for open in [
        Open { ttl: Duration::MAX, ..open.clone() },
        Open { client: name("x".repeat(10_000), None), ..open.clone() },
        Open { client: name("x".into(), Some(LogSessionId(u64::MAX))), ..open },
    ] {
        let rejected = handle.open(open).await.unwrap_err();
        assert!(matches!(rejected, SubmitError::Rejected(LogRejection::Unreadable(_))), "{rejected}");
    }
    assert!(handle.resolve(RequestId::new(session, u64::MAX)).await.is_err());
    assert!(handle.counters().commands_rejected >= 11);
    client.put(&hosts, "a", "1").await;
    let [host] = hosts;
    let hosts = [Host::start(host.stop().await).await];
    assert_eq!(get(&hosts, "a").await.as_deref(), Some("1"), "and it starts again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_read_sees_an_abandoned_request_or_it_never_takes_effect() {
    let hosts = [Host::start(Config::new("a", free_address())).await];
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    let epoch = handle.epoch().unwrap();
    for _ in 0..50 {
        let request = client.next(epoch, Body::put("a", format!("{}", client.number())));
        let (session, number) = (request.session, request.number);
        // Sent and abandoned at once.
        let sending = tokio::spawn({
            let (handle, request) = (handle.clone(), request.clone());
            async move { handle.submit(request).await }
        });
        let below = number + 1;
        let state = handle.read(Consistency::Barrier { session, epoch, below }).await.unwrap();
        let fate = state.peek(request.id());
        let answer = sending.await.unwrap();
        let late = handle.submit(request.clone()).await;
        match fate {
            Fate::Done(_) => assert!(answer.is_ok()),
            _ => {
                let rejected = SubmitError::Rejected(LogRejection::Abandoned { floor: below });
                assert!(answer == Err(rejected.clone()) || late == Err(rejected), "{fate:?}: {answer:?}, {late:?}");
            }
        }
        let after = handle.read(Consistency::Linearizable).await.unwrap();
        assert_eq!(after.keys().get(b"a"), state.keys().get(b"a"), "nothing changed after the read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_sessions_expire_and_active_ones_do_not() {
    let mut config = Config::new("a", free_address());
    config.state.ttl_min = Duration::from_millis(50);
    let hosts = [Host::start(config).await];
    leader(&hosts).await;
    let handle = hosts[0].handle();
    let epoch = handle.epoch().unwrap();
    let open = |nonce| Open::new(epoch, Duration::from_millis(600), nonce);
    let silent = handle.open(open(1)).await.unwrap().opened.unwrap().session;
    let living = handle.open(open(2)).await.unwrap().opened.unwrap().session;
    eventually("the silent session has expired", async || {
        let _ = handle.keep_alive(living, epoch);
        handle.local().unwrap().session(silent).is_none()
    })
    .await;
    assert!(handle.local().unwrap().session(living).is_some());
    let rejected = handle.submit(Request::new(silent, 1, epoch, Body::put("a", "1"))).await;
    assert_eq!(rejected, Err(SubmitError::Rejected(LogRejection::SessionNotOpen)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_rejects_requests_beyond_its_limits() {
    let mut config = Config::new("a", free_address());
    config.state.value_bytes = 1024;
    config.limits.command_bytes = 80 * 1024;
    config.limits.proposals = 2;
    let hosts = [Host::start(config).await];
    let mut client = Client::open(&hosts).await;
    let handle = hosts[0].handle();
    let epoch = handle.epoch().unwrap();
    let large = client.next(epoch, Body::put("a", vec![0; 100_000]));
    assert!(matches!(
        handle.submit(large).await,
        Err(SubmitError::Rejected(LogRejection::TooLarge { limit: 81_920, .. }))
    ));
    let (mut rejected, mut most) = (0, 0);
    for _ in 0..20 {
        let submissions = (0..10).map(|_| client.next(epoch, Body::put("a", "1")));
        let submissions = submissions.map(|request| handle.submit(request)).collect::<Vec<_>>();
        let mut answers = futures_util::future::join_all(submissions);
        let answers = match futures_util::poll!(&mut answers) {
            std::task::Poll::Ready(answers) => answers,
            std::task::Poll::Pending => {
                most = most.max(handle.in_flight().0);
                answers.await
            }
        };
        for answer in answers {
            rejected += usize::from(answer == Err(LogRejection::Busy { what: "requests", limit: 2 }.into()));
        }
    }
    assert!(rejected > 0);
    assert!((1..=2).contains(&most), "{most} requests in flight");
    eventually("none is in flight", async || handle.in_flight() == (0, 0)).await;
    assert_eq!(handle.counters().requests_rejected_busy, rejected as u64);
}

/// Without its identity, a directory with segments would otherwise become another log.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_its_identity_is_reported_and_not_replaced() {
    let disks = Disks::new();
    let host = Host::start(config(&disks, "a")).await;
    let hosts = [host];
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "x").await;
    let [host] = hosts;
    let config = host.stop().await;
    let identity = disks.of("a").join("identity");
    let saved = std::fs::read(&identity).unwrap();
    std::fs::remove_file(&identity).unwrap();
    let mut started = convoke_replica::Replica::start(config.clone()).await;
    eventually("its directory is free", async || {
        if matches!(started, Err(StartError::Store(StoreError::InUse { .. }))) {
            started = convoke_replica::Replica::start(config.clone()).await;
        }
        !matches!(started, Err(StartError::Store(StoreError::InUse { .. })))
    })
    .await;
    let error = started.unwrap_err();
    assert!(matches!(error, StartError::Store(StoreError::NoIdentity { .. })), "{error}");
    std::fs::write(&identity, saved).unwrap();
    let hosts = [Host::start(config).await];
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("x"));
}
