//! The whole SDK over real sockets with a real node, through a proxy that fails on demand.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{
    Client, ConnectionState, ErrorCode, Event, Filter, LocalityPreferring, Member, MemberSpec, RoundRobin, Update,
};
use convoke_testkit::eventually;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use support::{Proxy, Served, client, is_connected, next, orders};

#[tokio::test]
async fn register_update_unregister() {
    let server = Served::alone().await;
    let client = client(server.address()).await;
    assert!(matches!(client.state(), ConnectionState::Connected { node, .. } if node == "n0"));

    let registration = client.register(orders("orders-1")).await.unwrap();
    assert_eq!(server.status("orders-1"), Some("up"));
    let before = registration.version();
    let after = registration.update(Update::merge().set("v", "2").set("w", "3")).await.unwrap();
    assert_ne!(before, after);
    assert_eq!(registration.version(), after);
    let stale = registration.update(Update::merge().set("v", "9").if_version(before)).await.unwrap_err();
    assert_eq!(stale.code, ErrorCode::StaleVersion);
    registration.update(Update::replace().set("x", "1").if_version(after)).await.unwrap();
    assert_eq!(server.member("orders-1").unwrap().metadata().to_map(), [("x".to_owned(), "1".to_owned())].into());

    let again = client.register(orders("orders-1")).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::AlreadyRegistered);
    let bad = client.register(MemberSpec::new("orders-2", "")).await.unwrap_err();
    assert_eq!((bad.code, bad.field.as_deref()), (ErrorCode::InvalidMember, Some("service")));

    assert_eq!(client.get("orders-1").await.unwrap().metadata["x"], "1");
    assert_eq!(client.get("nobody").await.unwrap_err().code, ErrorCode::NotFound);
    for id in ["orders-3", "orders-4", "orders-5"] {
        client.register(orders(id)).await.unwrap();
    }
    assert_eq!(client.list("service == \"orders\"").await.unwrap().len(), 4);

    registration.unregister().await.unwrap();
    assert_eq!(server.status("orders-1"), None);
    client.close().await.unwrap();
    assert_eq!(server.status("orders-3"), None, "closing unregisters");
    assert_eq!(client.register(orders("orders-6")).await.unwrap_err().code, ErrorCode::FailedPrecondition);
}

#[tokio::test]
async fn a_lost_connection_is_invisible_to_other_clients() {
    let (server, proxy) = Served::behind_proxy().await;
    let observer = client(server.address()).await;
    let statuses: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = statuses.clone();
    let _calls = observer.on_change("service == \"orders\"", move |event| {
        if let Event::StatusChanged(member) = event {
            seen.lock().unwrap().push(member.status.to_string());
        }
    });

    let client = client(proxy.address()).await;
    let registration = client.register(orders("orders-1")).await.unwrap();
    let version = registration.version();
    proxy.close();
    eventually("the loss is detected", async || !is_connected(&client)).await;
    // An operation that starts while the client is disconnected waits.
    let mut update = pin!(registration.update(Update::merge().set("v", "2")));
    let begun = poll_fn(|context| Poll::Ready(update.as_mut().poll(context))).await;
    assert!(begun.is_pending(), "{begun:?}");
    proxy.open();
    update.await.unwrap();
    assert_ne!(registration.version(), version);
    assert_eq!(server.member("orders-1").unwrap().metadata().to_map()["v"], "2");
    assert!(statuses.lock().unwrap().is_empty(), "no down, no up");
}

#[tokio::test]
async fn a_watch_continues_without_gap_or_duplicate() {
    let (server, proxy) = Served::behind_proxy().await;
    let writer = client(server.address()).await;
    let watcher = client(proxy.address()).await;
    let registration = writer.register(orders("orders-0")).await.unwrap();

    let mut watch = watcher.watch("service == \"orders\"").unwrap();
    assert!(matches!(next(&mut watch).await, Event::Snapshot(member) if member.id == "orders-0"));
    assert_eq!(next(&mut watch).await, Event::CaughtUp);

    let mut view: BTreeMap<String, Arc<Member>> = BTreeMap::new();
    for round in 1..=4 {
        registration.update(Update::merge().set("round", round.to_string())).await.unwrap();
        proxy.close();
        registration.update(Update::merge().set("while", round.to_string())).await.unwrap();
        let one = writer.register(orders(&format!("orders-{round}"))).await.unwrap();
        if round % 2 == 0 {
            one.unregister().await.unwrap();
        }
        proxy.open();
        loop {
            let event = next(&mut watch).await;
            match &event {
                Event::Registered(member) => assert!(view.insert(member.id.clone(), member.clone()).is_none()),
                Event::Updated(member) => {
                    let before = view.insert(member.id.clone(), member.clone());
                    assert!(before.is_none_or(|before| before.version != member.version), "{event:?}");
                }
                Event::Unregistered { member, .. } => drop(view.remove(&member.id)),
                other => panic!("{other:?}"),
            }
            let current = view.get("orders-0").is_some_and(|m| m.metadata.get("while") == Some(&round.to_string()));
            let others = (1..=round).filter(|other| other % 2 == 1).all(|o| view.contains_key(&format!("orders-{o}")));
            if current && others {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_view_stays_readable_while_disconnected() {
    let (server, proxy) = Served::behind_proxy().await;
    let writer = client(server.address()).await;
    let reader = client(proxy.address()).await;
    let view = reader.view(Filter::service("orders")).unwrap();
    view.wait_caught_up().await.unwrap();
    assert!(view.is_empty());

    let changes = view.changes();
    let _a = writer.register(orders("orders-a")).await.unwrap();
    let _b = writer.register(orders("orders-b").locality("us.b")).await.unwrap();
    assert!(view.changed_since(changes).await);
    eventually("both are in view", async || view.len() == 2).await;
    assert_eq!(view.get("orders-a").unwrap().address, "10.0.0.1:80");
    assert_eq!(view.list_matching(&Filter::locality("us.*")).len(), 1);

    let near = LocalityPreferring::new(view.clone(), "us.a");
    assert_eq!(near.pick().unwrap().id, "orders-b");
    server.node.drain("orders-b", true).await.unwrap();
    eventually("the drained member is not picked", async || near.pick().unwrap().id == "orders-a").await;
    let robin = RoundRobin::new(view.clone());
    assert!((0..4).all(|_| robin.pick().unwrap().id == "orders-a"));

    proxy.close();
    eventually("the loss is detected", async || !is_connected(&reader)).await;
    assert_eq!(view.len(), 2, "still there");
    writer.close().await.unwrap();
    assert_eq!(view.len(), 2, "stale but readable");
    proxy.open();
    eventually("it is up to date again", async || view.is_empty()).await;
    assert!(robin.pick().is_none());
}

#[tokio::test]
async fn a_hanging_connection_is_closed_within_ten_seconds() {
    let server = Served::start("n0", &[], |config| config.timers = convoke_core::Timers::default()).await;
    let proxy = Proxy::start(&server.address().to_string()).await;
    let client = Client::builder().seeds([proxy.address()]).connect().await.unwrap();
    let _registration = client.register(orders("orders-1")).await.unwrap();
    let start = Instant::now();
    proxy.block(true);
    eventually("the client detects it", async || !is_connected(&client)).await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(server.status("orders-1"), Some("up"));
    // It has learnt other addresses from the registry and does not need its only seed.
    eventually("it is back", async || is_connected(&client)).await;
    let ConnectionState::Connected { address, .. } = client.state() else { panic!("connected") };
    assert_eq!(address, server.address().to_string());
}

#[tokio::test]
async fn operations_not_sent_in_time_are_not_executed() {
    let server = Served::alone().await;
    // An address where nothing listens yet.
    let address = convoke_testkit::free_address();
    let client =
        Client::builder().seeds([address.clone()]).operation_timeout(Duration::from_millis(300)).build().unwrap();
    assert_eq!(client.register(orders("orders-1")).await.unwrap_err().code, ErrorCode::Timeout);
    assert_eq!(client.get("orders-1").await.unwrap_err().code, ErrorCode::Timeout);
    // Cancelled by the application itself.
    let timeout = Duration::from_millis(100);
    assert!(tokio::time::timeout(timeout, client.register(orders("orders-2"))).await.is_err());
    let _proxy = Proxy::start_at(&address, &server.address().to_string()).await;
    eventually("connected", async || is_connected(&client)).await;
    client.register(orders("orders-3")).await.unwrap();
    assert_eq!((server.status("orders-1"), server.status("orders-2")), (None, None));
}

/// Nothing listens at the address, and no timeout is set.
#[tokio::test]
async fn connecting_to_a_wrong_address_fails_and_names_it() {
    tokio::time::pause();
    let address = convoke_testkit::free_address();
    let error = Client::connect([address.clone()]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout);
    assert!(error.message.contains(&address) && error.message.contains("within 10 s"), "{error}");
    assert!(error.message.to_lowercase().contains("connection refused"), "{error}");
}

#[tokio::test]
async fn a_takeover_is_reported_and_the_member_is_not_taken_back() {
    let server = Served::alone().await;
    let (first, second) = (client(server.address()).await, client(server.address()).await);
    let registration = first.register(orders("orders-1")).await.unwrap();
    assert_eq!(second.register(orders("orders-1")).await.unwrap_err().code, ErrorCode::AlreadyRegistered);
    let _taken = second.take_over(orders("orders-1").metadata("by", "second")).await.unwrap();
    assert_eq!(registration.lost().await.code, ErrorCode::TakenOver);
    assert_eq!(registration.update(Update::merge().set("v", "2")).await.unwrap_err().code, ErrorCode::TakenOver);
    assert_eq!(server.member("orders-1").unwrap().metadata().to_map()["by"], "second");
}

#[tokio::test]
async fn invalid_filters_and_seeds_are_rejected_immediately() {
    let client = Client::builder().build().unwrap();
    let error = client.watch("servce == \"orders\"").unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidFilter, Some("filter")));
    assert!(error.message.contains("did you mean `service`"), "{error}");
    for seed in ["nowhere", "host:port", "http://a:1/b", ""] {
        assert_eq!(Client::builder().seeds([seed]).build().unwrap_err().code, ErrorCode::InvalidArgument, "{seed}");
    }
}
