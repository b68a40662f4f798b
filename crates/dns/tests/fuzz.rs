//! Mutated DNS packets: every one is answered with a packet within the size limit, or ignored.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_dns::{Transport, Zone};
use convoke_node::{Config, Node};
use convoke_testkit::{TestClient, member, patient_timers};
use hickory_proto::op::{Edns, Message, Query};
use hickory_proto::rr::{Name, RecordType};
use std::time::Duration;

#[tokio::test]
async fn fuzz_packets() {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    let node = Node::start(config).await.unwrap();
    node.ready().await.unwrap();
    let members = (0..40).map(|index| member(&format!("web-{index}"), "web")).collect();
    let _client = TestClient::attach(&node, "client", members).await;
    let zone = Zone::new(node.handle(), Duration::from_secs(3)).with_consul(true);
    let names = [
        "web.service.convoke.",
        "_http._tcp.web.service.convoke.",
        "web-1.member.convoke.",
        "n0.node.convoke.",
        "a.web.service.convoke.consul.",
        "n0.node.consul.",
        "7f000001.addr.consul.",
        "1.0.0.127.in-addr.arpa.",
    ];
    let mut corpus = Vec::new();
    for name in names {
        for wanted in [RecordType::A, RecordType::SRV, RecordType::PTR, RecordType::ANY] {
            let mut message = Message::query();
            message.add_query(Query::query(Name::from_ascii(name).unwrap(), wanted));
            corpus.push(message.to_vec().unwrap());
            let mut edns = Edns::new();
            edns.set_max_payload(1_232);
            message.set_edns(edns);
            corpus.push(message.to_vec().unwrap());
        }
    }
    convoke_fuzz::bytes(&corpus, |packet| {
        for (transport, limit) in [(Transport::Udp, 1_232), (Transport::Tcp, usize::from(u16::MAX))] {
            let answer = zone.answer(packet, transport).unwrap_or_default();
            assert!(answer.len() <= limit, "{} bytes", answer.len());
        }
    });
}
