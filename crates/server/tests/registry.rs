//! `convoke.v1.Registry` over real connections with the generated client.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::client_message::Message as ClientMessage;
use convoke_proto::v1::request::Operation;
use convoke_proto::v1::server_message::Message as ServerMessage;
use convoke_proto::v1::watch_event::Event;
use convoke_proto::{ErrorCode, v1};
use support::Served;
use support::grpc::{Attachment, attach, next, register, registry};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_attaches_registers_and_is_watched() {
    let served = Served::alone().await;
    let mut client = registry(&served).await;
    let request = v1::WatchRequest { filter: "service == \"orders\"".into(), resume: None };
    let mut watch = client.watch(request).await.unwrap().into_inner();
    assert!(matches!(next(&mut watch).await, Event::CaughtUp(_)));

    let (mut session, attached) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    assert_eq!((attached.claim, attached.node.as_str(), attached.more), (1, "n0", false));
    assert_eq!(attached.versions.len(), 1);
    let Event::Registered(member) = next(&mut watch).await else { panic!() };
    assert_eq!((member.id.as_str(), &member.version), ("a", &attached.versions[0].version));

    let version = session.call(Operation::Register(register("b"))).await.unwrap();
    let Event::Registered(member) = next(&mut watch).await else { panic!() };
    assert_eq!((member.id.as_str(), &member.version), ("b", &version));

    session.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 77 })).await;
    let ServerMessage::HeartbeatAck(ack) = session.receive().await else { panic!() };
    assert_eq!((ack.sent, ack.error), (77, None));

    let listed = client.list(v1::ListRequest::default()).await.unwrap().into_inner();
    let ids: Vec<&str> = listed.members.iter().map(|member| member.id.as_str()).collect();
    assert_eq!(ids, ["convoke.n0", "a", "b"]);
    let got = client.get(v1::GetRequest { id: "b".into() }).await.unwrap().into_inner();
    assert_eq!(got.member.unwrap().version, version);

    session.send(ClientMessage::Close(v1::Close {})).await;
    let ServerMessage::Closed(closed) = session.receive().await else { panic!() };
    assert_eq!(closed.error, None);
    for _ in 0..2 {
        assert!(matches!(next(&mut watch).await, Event::Unregistered(_)));
    }
    let status = client.get(v1::GetRequest { id: "b".into() }).await.unwrap_err();
    assert_eq!(convoke_proto::Error::from(status).code, ErrorCode::NotFound);
}
