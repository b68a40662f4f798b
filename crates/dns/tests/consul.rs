//! Names in Consul's form, against the zone of a real node (Q12). `crates/server/tests/consul_dns.rs` compares the answers
//! with those of Consul.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_consul::{Instance, NodeRecord};
use convoke_core::member::{Check, Health, MemberSpec, Probe};
use convoke_core::node::AttachMember;
use convoke_dns::{Shown, Transport, Zone};
use convoke_node::{Config, Node};
use convoke_testkit::{TestClient, eventually, patient_timers, start_alone};
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::collections::BTreeSet;
use std::time::Duration;

struct Fixture {
    node: Node,
    zone: Zone,
}

async fn fixture() -> Fixture {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    config.cluster = "DC1".to_owned();
    config.client_address = "127.0.0.1:7700".to_owned();
    let node = Node::start(config).await.unwrap();
    node.ready().await.unwrap();
    Fixture { zone: zone(&node), node }
}

fn zone(node: &Node) -> Zone {
    Zone::new(node.handle(), Duration::from_secs(3)).with_consul(true)
}

fn instance(id: &str, service: &str, address: &str, tags: &[&str]) -> Instance {
    Instance {
        node: "n0".into(),
        id: id.into(),
        service: service.into(),
        address: address.into(),
        port: 80,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..Instance::default()
    }
}

fn query(name: &str, wanted: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), wanted));
    message
}

impl Fixture {
    async fn register(&self, instance: &Instance) {
        self.checked(instance, None).await;
    }

    async fn checked(&self, instance: &Instance, initial: Option<Health>) {
        let mut spec = instance.to_member("127.0.0.1").unwrap();
        let check = |initial| Check { initial, ..Check::new("ttl", Probe::Ttl { ttl_ms: 600_000 }) };
        spec.checks.extend(initial.map(check));
        self.node.register_agentless(spec, "").await.unwrap();
    }

    fn ask(&self, name: &str, wanted: RecordType) -> Message {
        let packet = query(name, wanted).to_vec().unwrap();
        Message::from_vec(&self.zone.answer(&packet, Transport::Udp).unwrap()).unwrap()
    }

    fn code(&self, name: &str) -> ResponseCode {
        self.ask(name, RecordType::A).metadata.response_code
    }

    fn records(&self, name: &str, wanted: RecordType) -> BTreeSet<String> {
        self.ask(name, wanted).answers.iter().map(|record| record.data.to_string()).collect()
    }

    fn addresses(&self, name: &str) -> BTreeSet<String> {
        self.records(name, RecordType::A)
    }
}

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}

#[tokio::test]
async fn only_usable_instances_are_answered() {
    let fixture = fixture().await;
    fixture.checked(&instance("a", "web", "10.0.0.1", &[]), Some(Health::Warning)).await;
    for id in ["b", "c", "d"] {
        fixture.checked(&instance(id, "web", "10.0.0.2", &[]), Some(Health::Critical)).await;
        fixture.checked(&instance(&format!("{id}2"), "sick", "10.0.0.2", &[]), Some(Health::Critical)).await;
    }
    assert_eq!(fixture.addresses("web.service.consul."), set(["10.0.0.1"]), "critical ones never");
    assert!(fixture.addresses("web.service.convoke.").len() == 2, "the zone convoke has a guard against mass failures");
    assert_eq!(fixture.code("sick.service.consul."), ResponseCode::NXDomain);
    fixture.node.drain("n0:a", true).await.unwrap();
    eventually("it is drained", async || fixture.node.member("n0:a").unwrap().drained()).await;
    assert_eq!(fixture.code("web.service.consul."), ResponseCode::NXDomain);
    assert_eq!(fixture.code("web.service.convoke."), ResponseCode::NoError);
}

#[tokio::test]
async fn instances_at_a_drained_node_are_not_answered() {
    let fixture = fixture().await;
    fixture.register(&instance("a", "web", "10.0.0.1", &[])).await;
    fixture.register(&Instance { node: "ext".into(), ..instance("b", "web", "10.0.0.2", &[]) }).await;
    assert_eq!(fixture.addresses("web.service.consul.").len(), 2);
    fixture.node.drain("convoke.n0", true).await.unwrap();
    eventually("it is drained", async || fixture.node.member("convoke.n0").unwrap().drained()).await;
    assert_eq!(fixture.addresses("web.service.consul."), set(["10.0.0.2"]));
    assert_eq!(fixture.addresses("n0.node.consul.").len(), 1, "the name of the node remains");
}

#[tokio::test]
async fn case_does_not_matter_in_services_tags_and_nodes() {
    let fixture = fixture().await;
    fixture.register(&instance("a", "Web", "10.0.0.1", &["Blue", "x.Y"])).await;
    fixture.register(&instance("b", "web", "10.0.0.2", &["green"])).await;
    fixture.register(&Instance { node: "Ext.One".into(), ..instance("c", "other", "10.0.0.3", &[]) }).await;
    let both = set(["10.0.0.1", "10.0.0.2"]);
    for name in ["web.service.consul.", "WEB.Service.dC1.CONSUL.", "_weB._TCP.service.consul."] {
        eventually(name, async || fixture.addresses(name) == both).await;
    }
    for name in ["BLUE.web.service.consul.", "X.y.WEB.service.dc1.consul.", "_web._blue.service.consul."] {
        assert_eq!(fixture.addresses(name), set(["10.0.0.1"]), "{name}");
    }
    assert_eq!(fixture.code("none.web.service.consul."), ResponseCode::NXDomain);
    eventually("a node that only an instance names", async || {
        fixture.addresses("ext.oNe.node.consul.") == set(["10.0.0.3"])
    })
    .await;
}

#[tokio::test]
async fn members_of_sessions_and_nodes_are_instances() {
    let fixture = fixture().await;
    let mut client = TestClient::attach(&fixture.node, "client", Vec::new()).await;
    let spec = MemberSpec { address: "10.0.0.7:81".into(), weight: 9, ..MemberSpec::new("m1", "orders") };
    client.register(AttachMember { spec, takeover: false }).await.unwrap();
    let without_address = AttachMember { spec: MemberSpec::new("m2", "orders"), takeover: false };
    client.register(without_address).await.unwrap();
    let srv = fixture.ask("_orders._tcp.service.consul.", RecordType::SRV);
    assert_eq!(srv.answers.len(), 1, "a member without an address is not at its node");
    assert_eq!(srv.answers[0].data.to_string(), "1 9 81 0a000007.addr.dc1.consul.");
    assert_eq!(srv.answers[0].ttl, 3);
    let additionals: BTreeSet<String> = srv.additionals.iter().map(ToString::to_string).collect();
    assert!(
        additionals.iter().any(|text| text.starts_with("0a000007.addr.dc1.consul. 3 IN A 10.0.0.7")),
        "{additionals:?}"
    );
    eventually("the node has a name", async || fixture.addresses("N0.node.DC1.consul.") == set(["127.0.0.1"])).await;
    assert_eq!(fixture.records("7.0.0.10.in-addr.arpa.", RecordType::PTR), set(["orders.service.dc1.consul."]));
    assert_eq!(fixture.records("1.0.0.127.in-addr.arpa.", RecordType::PTR), set(["n0.node.dc1.consul."]));
    assert_eq!(fixture.code("9.9.9.9.in-addr.arpa."), ResponseCode::Refused);
    assert_eq!(fixture.records("consul.service.consul.", RecordType::SRV), set(["1 1 7700 n0.node.dc1.consul."]));
    let nowhere = Instance { node: "nowhere".into(), port: 0, ..instance("x", "lost", "", &[]) };
    fixture.node.register_agentless(nowhere.to_member("").unwrap(), "").await.unwrap();
    for wanted in [RecordType::A, RecordType::SRV, RecordType::ANY] {
        assert!(fixture.records("lost.service.consul.", wanted).is_empty(), "it has no address at all");
    }
    for own in ["convoke.service.consul.", "consul.node.service.consul."] {
        assert_eq!(fixture.code(own), ResponseCode::NXDomain, "{own}");
    }
    assert_eq!(fixture.records("consul.", RecordType::NS), set(["n0.node.dc1.consul."]));
}

#[tokio::test]
async fn a_warning_has_a_weight_of_its_own_and_metadata_is_text() {
    let fixture = fixture().await;
    let weights = convoke_consul::Weights { passing: 7, warning: 3 };
    let mut weighted = Instance { node: "ext".into(), ..instance("a", "web", "", &[]) };
    weighted.more.weights = Some(weights);
    let long = "x".repeat(300);
    let meta = [("k", "v"), ("rfc1035-plain", "text"), ("long", long.as_str()), ("none", "")];
    let record = NodeRecord {
        name: "ext".into(),
        address: "10.0.0.9".into(),
        meta: meta.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..NodeRecord::default()
    };
    fixture.node.register_agentless(record.to_member().unwrap(), "").await.unwrap();
    fixture.checked(&weighted, Some(Health::Warning)).await;
    assert_eq!(fixture.records("web.service.consul.", RecordType::SRV), set(["1 3 80 ext.node.dc1.consul."]));
    let texts = async || fixture.records("ext.node.consul.", RecordType::TXT);
    eventually("the metadata is shown", async || texts().await.len() == 4).await;
    let texts = texts().await;
    assert!(texts.contains("k=v") && texts.contains("text") && texts.contains("none="), "{texts:?}");
}

#[tokio::test]
async fn services_that_callers_may_not_read_do_not_exist() {
    let mut fixture = fixture().await;
    fixture.register(&instance("a", "web", "10.0.0.1", &[])).await;
    fixture.register(&Instance { node: "ext".into(), ..instance("b", "secret", "10.0.0.2", &[]) }).await;
    fixture.zone = zone(&fixture.node).limited(Shown::only(|service| service == "web"));
    assert_eq!(fixture.addresses("web.service.consul."), set(["10.0.0.1"]));
    for name in ["secret.service.consul.", "n0.node.consul.", "ext.node.consul.", "consul.service.consul."] {
        assert_eq!(fixture.code(name), ResponseCode::NXDomain, "{name}");
    }
    assert_eq!(fixture.code("2.0.0.10.in-addr.arpa."), ResponseCode::Refused);
    assert_eq!(fixture.records("1.0.0.10.in-addr.arpa.", RecordType::PTR), set(["web.service.dc1.consul."]));
    assert!(fixture.records("consul.", RecordType::NS).is_empty());
    assert!(
        fixture
            .ask("web.service.consul.", RecordType::SRV)
            .additionals
            .iter()
            .all(|record| { record.record_type() == RecordType::A })
    );
}

#[tokio::test]
async fn answers_are_truncated_as_in_the_other_zone() {
    let fixture = fixture().await;
    for n in 0..100 {
        fixture.register(&instance(&format!("w{n}"), "web", &format!("10.0.1.{n}"), &[])).await;
    }
    let plain = query("web.service.consul.", RecordType::A);
    let bytes = fixture.zone.answer(&plain.to_vec().unwrap(), Transport::Udp).unwrap();
    let few = Message::from_vec(&bytes).unwrap();
    assert!(bytes.len() <= 512 && few.metadata.truncation, "{few}");
    let mut roomy = plain.clone();
    let mut edns = Edns::new();
    edns.set_max_payload(4_096).set_version(0);
    roomy.set_edns(edns);
    let bytes = fixture.zone.answer(&roomy.to_vec().unwrap(), Transport::Udp).unwrap();
    let more = Message::from_vec(&bytes).unwrap();
    assert!(bytes.len() <= 1_232 && more.metadata.truncation && more.answers.len() > few.answers.len());
    let all = Message::from_vec(&fixture.zone.answer(&plain.to_vec().unwrap(), Transport::Tcp).unwrap()).unwrap();
    assert_eq!((all.metadata.truncation, all.answers.len()), (false, 100));
    let firsts: BTreeSet<String> =
        (0..100).map(|_| fixture.ask("web.service.consul.", RecordType::A).answers[0].data.to_string()).collect();
    assert_eq!(firsts.len(), 100, "every instance is first once");
}

/// A resolver would remember that a name does not exist, although some instance may be usable.
#[tokio::test]
async fn a_name_is_not_denied_before_all_instances_were_considered() {
    let fixture = fixture().await;
    for n in 0..4_200_u16 {
        fixture.checked(&instance(&format!("w{n}"), "web", "10.0.0.1", &[]), Some(Health::Critical)).await;
    }
    let answer = fixture.ask("web.service.consul.", RecordType::A);
    assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
    assert_eq!(answer.authorities[0].record_type(), RecordType::SOA);
    assert_eq!(fixture.code("none.service.consul."), ResponseCode::NXDomain);
}

#[tokio::test]
async fn the_zone_is_off_by_default() {
    let mut fixture = fixture().await;
    fixture.register(&instance("a", "web", "10.0.0.1", &[])).await;
    fixture.zone = Zone::new(fixture.node.handle(), Duration::from_secs(1));
    for name in ["web.service.consul.", "consul.", "1.0.0.10.in-addr.arpa."] {
        assert_eq!(fixture.code(name), ResponseCode::Refused, "{name}");
    }
}

#[tokio::test]
async fn a_node_that_is_alone_does_not_deny_names() {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    let node = start_alone(config).await;
    let fixture = Fixture { zone: zone(&node), node };
    for name in ["web.service.consul.", "other.node.consul.", "9.9.9.9.in-addr.arpa."] {
        assert_eq!(fixture.code(name), ResponseCode::ServFail, "{name}");
    }
}
