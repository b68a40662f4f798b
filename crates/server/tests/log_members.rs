//! Leases that are bound to registrations of members, over gRPC.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::log_request::Body;
use convoke_proto::v1::submit_request::Message as Sent;
use convoke_proto::v1::submit_response::Message;
use support::grpc::{Attachment, attach};
use support::log::LogCluster;
use support::log_link::Link;

const NONCE: u64 = 0xab;

fn grant(nonce: u64) -> Body {
    let bound = v1::MemberBinding { member: "m".into(), client: "c".into(), registration: format!("{nonce:016x}") };
    Body::Grant(v1::GrantLease { term: Some(v1::grant_lease::Term::Member(bound)), ..Default::default() })
}

fn put(key: &'static str) -> Body {
    Body::Put(v1::PutKey { key: key.into(), value: "1".into(), ..Default::default() })
}

/// Sends a request whose client still waits for the ones before it.
fn pipelined(link: &Link, tag: u64, session: u64, number: u64, body: Body) {
    let request = v1::LogRequest {
        session,
        number,
        abandon_below: 1,
        previous: number - 1,
        epoch: link.epoch,
        log: link.log,
        secret: link.secret.clone(),
        body: Some(body),
        ..Default::default()
    };
    link.send_tagged(tag, Sent::Request(request));
}

async fn fate(link: &mut Link) -> (u64, v1::Fate) {
    match link.receive_tagged().await {
        (tag, Message::Answer(answer)) => (tag, answer.fate.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn le6_a_grant_waits_for_a_registration_and_keeps_the_order_of_its_session() {
    let cluster = LogCluster::start(1).await;
    let mut link = Link::to(&cluster.served(0).address().to_string()).await;
    let (session, other) = (link.open().await, {
        link.secret = vec![8; 16];
        let other = link.open().await;
        link.secret = vec![7; 16];
        other
    });
    pipelined(&link, 10, session, 1, grant(NONCE));
    pipelined(&link, 11, session, 2, put("after"));
    // Another session of the same link does not wait.
    link.secret = vec![8; 16];
    pipelined(&link, 12, other, 1, put("other"));
    link.secret = vec![7; 16];
    let (tag, first) = fate(&mut link).await;
    assert_eq!((tag, first.kind()), (12, Kind::Applied));
    let registering = v1::Attach { nonce: NONCE, ..attach("c", 1, &["m"]) };
    let (_attachment, _) = Attachment::attached(cluster.served(0), registering).await;
    let mut answers = [fate(&mut link).await, fate(&mut link).await];
    answers.sort_by_key(|(tag, _)| *tag);
    let [(10, granted), (11, after)] = answers else { panic!("{answers:?}") };
    assert_eq!((granted.kind(), after.kind()), (Kind::Applied, Kind::Applied));
    assert!(granted.lease > first.index && after.index > granted.lease, "{granted:?} {after:?}");
    // Another process of the same client has not registered the member.
    pipelined(&link, 13, session, 3, grant(NONCE + 1));
    let (tag, Message::Rejected(error)) = link.receive_tagged().await else { panic!("it is rejected") };
    let error = Error::from(error);
    assert_eq!((tag, error.code, error.field.as_deref()), (13, ErrorCode::NotRegistered, Some("member")));
}
