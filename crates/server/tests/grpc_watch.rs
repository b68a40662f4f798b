//! gRPC watches: filters, resuming by token and by known versions, resets, ends of streams.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::request::Operation;
use convoke_proto::v1::watch_event::Event;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_testkit::eventually;
use std::collections::BTreeMap;
use std::time::Duration;
use support::Served;
use support::grpc::{Attachment, attach, next, register, registry};
use tonic::Streaming;

const ORDERS: &str = "service == \"orders\"";

async fn watch(served: &Served, filter: &str, resume: Option<v1::Resume>) -> Streaming<v1::WatchEvent> {
    let request = v1::WatchRequest { filter: filter.into(), resume };
    registry(served).await.watch(request).await.unwrap().into_inner()
}

/// Returns the members of the snapshot or resumption, up to caught-up.
async fn caught_up(watch: &mut Streaming<v1::WatchEvent>) -> Vec<String> {
    let mut reported = Vec::new();
    loop {
        match next(watch).await {
            Event::Snapshot(snapshot) => reported.extend(snapshot.members.into_iter().map(|member| member.id)),
            Event::Unregistered(gone) => reported.push(format!("-{}", gone.id)),
            Event::Reset(reset) => reported.push(format!("{:?}", reset.reason())),
            Event::CaughtUp(_) => break,
            other => panic!("{other:?}"),
        }
    }
    reported.sort();
    reported
}

async fn mark(watch: &mut Streaming<v1::WatchEvent>) -> Vec<u8> {
    loop {
        if let Event::Mark(mark) = watch.message().await.unwrap().unwrap().event.unwrap() {
            return mark.token;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_elsewhere_by_token_and_by_versions() {
    // A node that started alone reports no absence for a heartbeat timeout (N3), so the timeout is short here.
    let brief = |config: &mut convoke_node::Config| {
        config.timers.heartbeat_interval = Duration::from_millis(500);
        config.timers.heartbeat_timeout = Duration::from_secs(3);
    };
    let cluster = Served::cluster_with(2, brief).await;
    let (mut session, attached) = Attachment::attached(&cluster[0], attach("c", 1, &["a", "b", "c"])).await;
    let mut first = watch(&cluster[0], ORDERS, None).await;
    assert_eq!(caught_up(&mut first).await, ["a", "b", "c"]);
    let token = mark(&mut first).await;
    drop(first);
    session.call(Operation::Unregister(v1::Unregister { id: "a".into() })).await.unwrap();
    session.call(Operation::Register(register("d"))).await.unwrap();
    eventually("the other node has the members", async || cluster[1].node.member("d").is_some()).await;

    let resume = v1::Resume { token: token.clone(), ..v1::Resume::default() };
    assert_eq!(caught_up(&mut watch(&cluster[1], ORDERS, Some(resume)).await).await, ["-a", "d"]);
    let versions: BTreeMap<String, String> =
        attached.versions.into_iter().map(|versioned| (versioned.id, versioned.version)).collect();
    let known = Some(v1::resume::Known { versions: versions.clone() });
    let resume = v1::Resume { known, ..v1::Resume::default() };
    assert_eq!(caught_up(&mut watch(&cluster[1], ORDERS, Some(resume)).await).await, ["-a", "d"]);
    let resume = v1::Resume { token: b"nonsense".to_vec(), ..v1::Resume::default() };
    let reported = caught_up(&mut watch(&cluster[1], ORDERS, Some(resume)).await).await;
    assert_eq!(reported, ["Unreadable", "b", "c", "d"]);
    // An empty resume counts as none.
    let reported = caught_up(&mut watch(&cluster[1], ORDERS, Some(v1::Resume::default())).await).await;
    assert_eq!(reported, ["b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_rejected_with_the_field() {
    let served = Served::alone().await;
    let mut client = registry(&served).await;
    let bad: BTreeMap<String, String> = [("a".to_owned(), "x".to_owned())].into();
    let known = Some(v1::resume::Known { versions: bad.clone() });
    for (filter, resume, code, field) in [
        ("service", None, ErrorCode::InvalidFilter, "filter"),
        ("", Some(v1::Resume { known, ..v1::Resume::default() }), ErrorCode::InvalidArgument, "known"),
        (
            "",
            Some(v1::Resume { token: vec![1], recent: bad, ..v1::Resume::default() }),
            ErrorCode::InvalidArgument,
            "recent",
        ),
    ] {
        let request = v1::WatchRequest { filter: filter.into(), resume };
        let error = Error::from(client.watch(request).await.unwrap_err());
        assert_eq!((error.code, error.field.as_deref()), (code, Some(field)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_snapshot_is_sent_in_parts() {
    let served = Served::alone().await;
    let ids: Vec<String> = (0..300).map(|i| format!("m{i}")).collect();
    let mut request = attach("c", 1, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    for register in &mut request.members {
        let metadata = &mut register.member.as_mut().unwrap().metadata;
        metadata.extend((0..4).map(|key| (key.to_string(), "x".repeat(3_000))));
    }
    let (_session, _) = Attachment::attached(&served, request).await;
    let mut stream = watch(&served, ORDERS, None).await;
    let mut members = 0;
    loop {
        match next(&mut stream).await {
            Event::Snapshot(snapshot) => members += snapshot.members.len(),
            Event::CaughtUp(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(members, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_an_error_when_its_node_stops() {
    let served = Served::alone().await;
    let mut stream = watch(&served, "", None).await;
    caught_up(&mut stream).await;
    served.node.abort();
    let status = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without an error"),
            Err(status) => break status,
        }
    };
    assert_eq!(Error::from(status).code, ErrorCode::NotReady);
}
