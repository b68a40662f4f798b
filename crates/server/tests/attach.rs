//! Attach streams: order, parts, rejections in the stream, notices, ends of streams.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::client_message::Message as ClientMessage;
use convoke_proto::v1::notice::Notice;
use convoke_proto::v1::request::Operation;
use convoke_proto::v1::server_message::Message as ServerMessage;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_testkit::eventually;
use support::Served;
use support::grpc::{Attachment, attach, register, spec};

fn requests(requests: Vec<v1::Request>) -> ClientMessage {
    ClientMessage::Requests(v1::Requests { requests })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_must_be_an_attach() {
    let served = Served::alone().await;
    for message in
        [ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 }), requests(vec![]), ClientMessage::Close(v1::Close {})]
    {
        let stream = Attachment::open(&served).await;
        stream.send(message).await;
        let error = stream.ending().await;
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("message")));
    }
    let stream = Attachment::open(&served).await;
    stream.send.send(v1::ClientMessage { message: None }).await.unwrap();
    assert_eq!(stream.ending().await.code, ErrorCode::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_one_by_one_in_order() {
    let served = Served::alone().await;
    let (mut session, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let version = session.call(Operation::Register(register("b"))).await.unwrap();
    let overweight = v1::Register { member: Some(v1::MemberSpec { weight: 70_000, ..spec("h") }), takeover: false };
    let set = |id: &str, if_version: &str| v1::Update {
        id: id.into(),
        set: [("k".to_owned(), "v".to_owned())].into(),
        if_version: if_version.into(),
        ..v1::Update::default()
    };
    let twice = v1::Update { delete: vec!["k".into()], ..set("b", "") };
    let operations = vec![
        Operation::Update(set("b", &version)),
        Operation::Update(set("b", &version)),
        Operation::Register(overweight),
        Operation::Update(twice),
        Operation::Update(set("b", "nonsense")),
        Operation::Register(v1::Register::default()),
        Operation::Unregister(v1::Unregister { id: "a".into() }),
        Operation::Unregister(v1::Unregister { id: "a".into() }),
        Operation::Register(register("convoke.n0")),
        Operation::Register(register("c")),
    ];
    let count = operations.len();
    let mut sent: Vec<v1::Request> = operations.into_iter().map(|operation| session.request(operation)).collect();
    sent.push(v1::Request { seq: 1_000, operation: None });
    // Sequence number 1 is older than the ones before.
    sent.push(v1::Request { seq: 1, operation: Some(Operation::Register(register("d"))) });
    let seqs: Vec<u64> = sent.iter().map(|request| request.seq).collect();
    session.send(requests(sent)).await;
    let ServerMessage::Answers(answers) = session.receive().await else { panic!() };
    let answers = answers.answers;
    assert_eq!(answers.iter().map(|answer| answer.seq).collect::<Vec<_>>(), seqs);
    let codes: Vec<Option<ErrorCode>> =
        answers.iter().map(|answer| answer.error.clone().map(|error| Error::from(error).code)).collect();
    assert_eq!(
        codes,
        [
            None,
            Some(ErrorCode::StaleVersion),
            Some(ErrorCode::InvalidMember),
            Some(ErrorCode::InvalidArgument),
            Some(ErrorCode::InvalidArgument),
            Some(ErrorCode::InvalidArgument),
            None,
            Some(ErrorCode::NotRegistered),
            Some(ErrorCode::PermissionDenied),
            None,
            Some(ErrorCode::InvalidArgument),
            Some(ErrorCode::InvalidArgument),
        ]
    );
    assert_eq!(count, 10);
    assert!(!answers[0].version.is_empty() && answers[6].version.is_empty());
    assert!(served.node.member("c").is_some() && served.node.member("d").is_none());
    // An empty list of requests is answered as well.
    session.send(requests(vec![])).await;
    let ServerMessage::Answers(answers) = session.receive().await else { panic!() };
    assert!(answers.answers.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_attach_keeps_the_stream_and_its_session() {
    let served = Served::alone().await;
    let mut session = Attachment::open(&served).await;
    session.send(ClientMessage::Attach(attach("", 1, &[]))).await;
    let ServerMessage::AttachRejected(rejected) = session.receive().await else { panic!() };
    assert_eq!(Error::from(rejected.error.unwrap()).field.as_deref(), Some("client"));
    // No session is attached yet.
    session.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 5 })).await;
    let ServerMessage::HeartbeatAck(ack) = session.receive().await else { panic!() };
    assert_eq!((ack.sent, Error::from(ack.error.unwrap()).code), (5, ErrorCode::SessionGone));
    assert_eq!(session.call(Operation::Register(register("a"))).await.unwrap_err().code, ErrorCode::SessionGone);
    session.send(ClientMessage::Close(v1::Close {})).await;
    let ServerMessage::Closed(closed) = session.receive().await else { panic!() };
    assert_eq!(Error::from(closed.error.unwrap()).code, ErrorCode::SessionGone);

    session.send(ClientMessage::Attach(attach("c", 3, &["a"]))).await;
    let ServerMessage::Attached(attached) = session.receive().await else { panic!() };
    assert_eq!(attached.claim, 3);
    for (claim, expected) in [(3, ErrorCode::StaleClaim), (2, ErrorCode::StaleClaim), (0, ErrorCode::InvalidArgument)] {
        session.send(ClientMessage::Attach(attach("c", claim, &["a"]))).await;
        let ServerMessage::AttachRejected(rejected) = session.receive().await else { panic!() };
        let error = Error::from(rejected.error.unwrap());
        assert_eq!((rejected.claim, error.code), (claim, expected));
        if expected == ErrorCode::StaleClaim {
            assert_eq!(error.known, Some(3));
        }
    }
    session.call(Operation::Register(register("b"))).await.unwrap();
    session.send(ClientMessage::Attach(attach("c", 4, &["a", "b"]))).await;
    let ServerMessage::Attached(attached) = session.receive().await else { panic!() };
    assert_eq!((attached.claim, attached.versions.len()), (4, 2));
    session.call(Operation::Register(register("d"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_after_an_attach_wait_for_its_outcome() {
    let served = Served::alone().await;
    let mut session = Attachment::open(&served).await;
    session.send(ClientMessage::Attach(attach("c", 1, &[]))).await;
    for id in 0..500 {
        let request = session.request(Operation::Register(register(&format!("m{id}"))));
        session.send(requests(vec![request])).await;
    }
    session.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 9 })).await;
    assert!(matches!(session.receive().await, ServerMessage::Attached(_)));
    let (mut answered, mut acked) = (0, false);
    while answered < 500 || !acked {
        match session.receive().await {
            ServerMessage::Answers(answers) => {
                let [answer] = &answers.answers[..] else { panic!() };
                answered += 1;
                assert_eq!((answer.seq, &answer.error), (answered, &None));
            }
            ServerMessage::HeartbeatAck(ack) => {
                assert_eq!((ack.sent, ack.error), (9, None));
                acked = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_attach_and_its_answer_are_sent_in_parts() {
    let served = Served::alone().await;
    let mut session = Attachment::open(&served).await;
    let id = |part: usize, index: usize| format!("{part}-{index}-{}", "x".repeat(200));
    for part in 0..4 {
        let ids: Vec<String> = (0..1_500).map(|index| id(part, index)).collect();
        let mut attach = attach("c", 1, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        attach.more = part < 3;
        session.send(ClientMessage::Attach(attach)).await;
    }
    let (mut versions, mut parts) = (0, 0);
    loop {
        let ServerMessage::Attached(attached) = session.receive().await else { panic!() };
        assert_eq!((attached.claim, attached.node.as_str()), (1, "n0"));
        versions += attached.versions.len();
        parts += 1;
        if !attached.more {
            break;
        }
    }
    assert_eq!((versions, parts > 1), (6_000, true));
    assert!(served.node.member(&id(3, 1_499)).is_some());
    // No other message is allowed between the parts of an attach.
    session.send(ClientMessage::Attach(v1::Attach { more: true, ..attach("c", 2, &["a"]) })).await;
    session.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 })).await;
    assert_eq!(session.ending().await.code, ErrorCode::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_members_are_named() {
    let served = Served::alone().await;
    let (mut one, _) = Attachment::attached(&served, attach("one", 1, &["a", "b"])).await;
    let (_two, attached) = Attachment::attached(&served, attach("two", 9, &["a", "c"])).await;
    assert_eq!((attached.versions.len(), attached.rejected.len()), (1, 1));
    let rejected = &attached.rejected[0];
    assert_eq!(rejected.id, "a");
    assert_eq!(Error::from(rejected.error.clone().unwrap()).code, ErrorCode::AlreadyRegistered);
    let taking =
        v1::Attach { members: vec![v1::Register { takeover: true, ..register("a") }], ..attach("three", 9, &[]) };
    Attachment::attached(&served, taking).await;
    let ServerMessage::Notice(notice) = one.receive().await else { panic!() };
    assert!(matches!(notice.notice, Some(Notice::TakenOver(taken)) if taken.id == "a"));
}

/// the more clients a node has, the longer they spread their reconnects when they lose it.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_answer_carries_the_reconnect_spread() {
    let served = Served::alone().await;
    let mut clients = Vec::new();
    for (count, spread_ms) in [(1, 0), (4, 3), (10, 8)] {
        while clients.len() < count {
            let client = format!("c{}", clients.len());
            clients.push(Attachment::attached(&served, attach(&client, 1, &[])).await.0);
        }
        clients[0].send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 })).await;
        let ServerMessage::HeartbeatAck(ack) = clients[0].receive().await else { panic!() };
        assert_eq!((ack.error, ack.spread_ms), (None, spread_ms), "{count} clients");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_stream_of_a_client_is_notified() {
    let served = Served::alone().await;
    let (mut one, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let (_two, _) = Attachment::attached(&served, attach("c", 2, &["a"])).await;
    let ServerMessage::Notice(notice) = one.receive().await else { panic!() };
    assert!(matches!(notice.notice, Some(Notice::Lost(lost)) if lost.known == 2));
    one.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 1 })).await;
    let ServerMessage::HeartbeatAck(ack) = one.receive().await else { panic!() };
    assert_eq!(Error::from(ack.error.unwrap()).code, ErrorCode::SessionGone);
    let (_three, _) = Attachment::attached(&served, v1::Attach { nonce: 8, ..attach("c", 3, &["a"]) }).await;
    let (mut four, _) = Attachment::attached(&served, attach("d", 1, &["d"])).await;
    let (_five, _) = Attachment::attached(&served, v1::Attach { nonce: 8, ..attach("d", 2, &["d"]) }).await;
    let ServerMessage::Notice(notice) = four.receive().await else { panic!() };
    assert!(matches!(notice.notice, Some(Notice::Superseded(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_ends_the_stream_with_an_error() {
    let served = Served::alone().await;
    let stream = Attachment::open(&served).await;
    let long = v1::MemberSpec { locality: "x".repeat(5 * 1024 * 1024), ..spec("a") };
    let register = v1::Register { member: Some(long), takeover: false };
    stream.send(ClientMessage::Attach(v1::Attach { members: vec![register], ..attach("c", 1, &[]) })).await;
    let error = stream.ending().await;
    assert_eq!((error.code, error.limit), (ErrorCode::TooLarge, Some(4 * 1024 * 1024)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_stream_affects_only_sessions_with_fast_liveness() {
    let served = Served::alone().await;
    let (normal, _) = Attachment::attached(&served, attach("normal", 1, &["a"])).await;
    let fast = v1::Attach { liveness: v1::Liveness::Fast.into(), ..attach("fast", 1, &["b"]) };
    let (fast, _) = Attachment::attached(&served, fast).await;
    drop((normal, fast));
    let status = |id: &str| served.node.member(id).map(|member| member.status().as_str());
    eventually("the member with fast liveness is down", async || status("b") == Some("down")).await;
    assert_eq!(status("a"), Some("up"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_names_other_nodes_and_ends_the_stream() {
    let mut cluster = Served::cluster(2).await;
    let (mut session, _) = Attachment::attached(&cluster[0], attach("c", 1, &["a"])).await;
    eventually("both nodes have the member", async || cluster[1].node.member("a").is_some()).await;
    let Served { node, server } = cluster.remove(0);
    let stopping = tokio::spawn(server.stop());
    let ServerMessage::Notice(notice) = session.receive().await else { panic!() };
    let Some(Notice::Handover(handover)) = notice.notice else { panic!("{notice:?}") };
    assert_eq!((handover.node.as_str(), handover.address), ("n1", cluster[0].address().to_string()));
    let (_moved, attached) = Attachment::attached(&cluster[0], attach("c", 2, &["a"])).await;
    assert_eq!(attached.node, "n1");
    assert_eq!(session.ending().await.code, ErrorCode::NotReady);
    assert_eq!(stopping.await.unwrap(), convoke_node::Ending::Graceful);
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_node_ends_its_streams() {
    let served = Served::alone().await;
    let (session, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    served.node.abort();
    assert_eq!(session.ending().await.code, ErrorCode::NotReady);
    served.get("/healthz").await.rejected(503, "NOT_READY");
    served.get("/readyz").await.rejected(503, "NOT_READY");
    served.get("/api/v1/status").await.rejected(503, "NOT_READY");
    served.get("/metrics").await.rejected(503, "NOT_READY");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_server_keeps_the_node_and_disconnects_its_clients() {
    let served = Served::alone().await;
    let fast = v1::Attach { liveness: v1::Liveness::Fast.into(), ..attach("fast", 1, &["a"]) };
    let (session, _) = Attachment::attached(&served, fast).await;
    let Served { node, server } = served;
    drop(server);
    session.ending().await;
    eventually("its member is down", async || node.member("a").is_some_and(|a| a.status().as_str() == "down")).await;
    assert!(node.is_ready());
}
