//! Encoded queries against the zone of a real node. docs/dns.md states the rules.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::member::MemberSpec;
use convoke_core::node::AttachMember;
use convoke_dns::{Transport, Zone};
use convoke_node::{Config, Node};
use convoke_testkit::{TestClient, eventually, patient_timers, start_alone};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::collections::BTreeSet;
use std::time::Duration;

struct Fixture {
    node: Node,
    client: TestClient,
    zone: Zone,
}

async fn with_region(region: &str) -> Fixture {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    config.region = region.to_owned();
    let node = Node::start(config).await.unwrap();
    node.ready().await.unwrap();
    let client = TestClient::attach(&node, "client", Vec::new()).await;
    let zone = Zone::new(node.handle(), Duration::from_secs(3));
    Fixture { node, client, zone }
}

fn at(id: &str, service: &str, locality: &str, address: &str) -> MemberSpec {
    MemberSpec { locality: locality.to_owned(), address: address.to_owned(), ..MemberSpec::new(id, service) }
}

impl Fixture {
    async fn register(&mut self, member: MemberSpec) {
        self.client.register(AttachMember { spec: member, takeover: false }).await.unwrap();
    }

    fn send(&self, message: &Message, transport: Transport) -> Message {
        Message::from_vec(&self.zone.answer(&message.to_vec().unwrap(), transport).unwrap()).unwrap()
    }

    fn resolve(&self, name: &str, wanted: RecordType) -> Message {
        let answer = self.send(&query(name, wanted), Transport::Udp);
        assert_eq!(
            answer.queries,
            query(name, wanted).queries,
            "the response repeats the question with its letter case"
        );
        answer
    }

    fn addresses(&self, name: &str) -> BTreeSet<String> {
        self.resolve(name, RecordType::A).answers.iter().map(|record| record.data.to_string()).collect()
    }
}

fn query(name: &str, wanted: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), wanted));
    message
}

fn texts(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| format!("{} {} {}", record.name, record.record_type(), record.data)).collect()
}

#[tokio::test]
async fn members_are_found_by_service_locality_and_id() {
    let mut fixture = with_region("").await;
    fixture.register(at("o-1", "orders", "eu.a", "10.0.0.1:80")).await;
    fixture.register(at("o-2", "orders", "eu.b", "10.0.0.2:81")).await;
    fixture.register(at("o-3", "orders", "us", "[fd00::3]:82")).await;
    fixture.register(at("o-4", "orders", "us", "db.example.org:83")).await;
    fixture.register(MemberSpec::new("o-5", "orders")).await;
    fixture.register(at("a-1", "b.orders", "", "10.0.0.9:80")).await;

    let answer = fixture.resolve("OrDers.service.convoke.", RecordType::A);
    assert!(answer.metadata.authoritative && !answer.metadata.recursion_available && !answer.metadata.truncation);
    assert_eq!(answer.answers[0].ttl, 3);
    assert_eq!(fixture.addresses("orders.service.convoke."), ["10.0.0.1", "10.0.0.2"].map(str::to_owned).into());
    assert_eq!(fixture.addresses("eu.orders.service.convoke.").len(), 2);
    assert_eq!(fixture.addresses("EU.a.orders.service.convoke."), ["10.0.0.1".to_owned()].into());
    assert_eq!(fixture.addresses("b.orders.service.convoke."), ["10.0.0.9".to_owned()].into(), "a longer service wins");
    let six = fixture.resolve("orders.service.convoke.", RecordType::AAAA);
    assert_eq!(texts(&six.answers), ["orders.service.convoke. AAAA fd00::3"]);
    assert_eq!(
        texts(&fixture.resolve("o-2.member.convoke.", RecordType::A).answers),
        ["o-2.member.convoke. A 10.0.0.2"]
    );
    let named = fixture.resolve("o-4.member.convoke.", RecordType::A);
    assert_eq!(texts(&named.answers), ["o-4.member.convoke. CNAME db.example.org."]);
    assert_eq!(fixture.addresses("0a000001.addr.convoke."), ["10.0.0.1".to_owned()].into());

    let srv = fixture.resolve("_orders._tcp.service.convoke.", RecordType::SRV);
    let answers: BTreeSet<String> = srv.answers.iter().map(|record| record.data.to_string()).collect();
    let expected = [
        "0 1 80 o-1.member.convoke.",
        "0 1 81 o-2.member.convoke.",
        "0 1 82 o-3.member.convoke.",
        "0 1 83 db.example.org.",
    ];
    assert_eq!(answers, expected.map(str::to_owned).into());
    let additionals: BTreeSet<String> = texts(&srv.additionals).into_iter().collect();
    assert!(additionals.contains("o-3.member.convoke. AAAA fd00::3") && additionals.len() == 3, "{additionals:?}");
}

#[tokio::test]
async fn named_endpoints_and_weights_are_in_srv_records() {
    let mut fixture = with_region("").await;
    let mut member = at("O/1", "orders", "", "10.0.0.1:80");
    member.endpoints.insert("metrics".to_owned(), "10.0.0.1:9100".to_owned());
    member.weight = 7;
    fixture.register(member).await;
    let srv = fixture.resolve("_orders._Metrics.service.convoke.", RecordType::SRV);
    assert_eq!(srv.answers[0].data.to_string(), "0 7 9100 0a000001.addr.convoke.", "the id is not a host name");
    assert_eq!(fixture.resolve("_orders._other.service.convoke.", RecordType::SRV).answers, []);
}

/// A resolver may look up the target of an SRV record separately. It must get the address that belongs to the port.
#[tokio::test]
async fn srv_targets_resolve_to_the_address_of_their_endpoint() {
    let mut fixture = with_region("").await;
    let mut member = at("o-1", "orders", "", "10.0.0.1:80");
    for (name, address) in [("admin", "10.0.0.1:81"), ("metrics", "10.9.0.1:9100"), ("six", "[fd00::9]:9101")] {
        member.endpoints.insert(name.to_owned(), address.to_owned());
    }
    fixture.register(member).await;
    for (endpoint, wanted, srv, address) in [
        ("tcp", RecordType::A, "0 1 80 o-1.member.convoke.", "10.0.0.1"),
        ("admin", RecordType::A, "0 1 81 o-1.member.convoke.", "10.0.0.1"),
        ("metrics", RecordType::A, "0 1 9100 0a090001.addr.convoke.", "10.9.0.1"),
        ("six", RecordType::AAAA, "0 1 9101 fd000000000000000000000000000009.addr.convoke.", "fd00::9"),
    ] {
        let found = fixture.resolve(&format!("_orders._{endpoint}.service.convoke."), RecordType::SRV);
        assert_eq!(found.answers[0].data.to_string(), srv);
        let target = srv.rsplit(' ').next().unwrap();
        let separately = fixture.resolve(target, wanted);
        let expected = [format!("{target} {wanted} {address}")];
        assert_eq!(texts(&separately.answers), expected, "looked up separately");
        assert_eq!(texts(&found.additionals), expected, "in the additional section");
    }
}

#[tokio::test]
async fn answers_contain_only_routable_members() {
    let mut fixture = with_region("").await;
    fixture.register(at("o-1", "orders", "", "10.0.0.1:80")).await;
    fixture.register(at("o-2", "orders", "", "10.0.0.2:80")).await;
    fixture.node.drain("o-1", true).await.unwrap();
    eventually("it is drained", async || fixture.node.member("o-1").unwrap().drained()).await;
    assert_eq!(fixture.addresses("orders.service.convoke."), ["10.0.0.2".to_owned()].into());
    fixture.node.drain("o-2", true).await.unwrap();
    eventually("it is drained", async || fixture.node.member("o-2").unwrap().drained()).await;

    // The names exist, but have no records.
    for name in
        ["orders.service.convoke.", "o-1.member.convoke.", "service.convoke.", "_tcp.service.convoke.", "convoke."]
    {
        let answer = fixture.resolve(name, RecordType::A);
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0), "{name}");
        let RData::SOA(soa) = &answer.authorities[0].data else { panic!("{name}: no SOA") };
        assert_eq!(soa.minimum, 3);
    }
    // The names do not exist.
    for name in
        ["other.service.convoke.", "o-9.member.convoke.", "*.service.convoke.", "x.y.convoke.", "zz.addr.convoke."]
    {
        let answer = fixture.resolve(name, RecordType::A);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
        assert_eq!(answer.authorities[0].record_type(), RecordType::SOA, "{name}");
    }
    assert_eq!(fixture.resolve("convoke.", RecordType::SOA).answers.len(), 1);
}

#[tokio::test]
async fn near_members_are_preferred_while_there_are_any() {
    let mut fixture = with_region("eu").await;
    fixture.register(at("o-1", "orders", "eu.a", "10.0.0.1:80")).await;
    fixture.register(at("o-2", "orders", "us.a", "10.0.0.2:80")).await;
    assert_eq!(fixture.addresses("orders.service.convoke."), ["10.0.0.1".to_owned()].into());
    assert_eq!(
        fixture.addresses("us.orders.service.convoke."),
        ["10.0.0.2".to_owned()].into(),
        "the query names the locality"
    );
    let srv = fixture.resolve("orders.service.convoke.", RecordType::SRV);
    let answers: BTreeSet<String> = srv.answers.iter().map(|record| record.data.to_string()).collect();
    let expected = ["0 1 80 o-1.member.convoke.", "1 1 80 o-2.member.convoke."];
    assert_eq!(answers, expected.map(str::to_owned).into());
    fixture.node.drain("o-1", true).await.unwrap();
    eventually("it is drained", async || fixture.node.member("o-1").unwrap().drained()).await;
    assert_eq!(fixture.addresses("orders.service.convoke."), ["10.0.0.2".to_owned()].into());
}

#[tokio::test]
async fn answers_that_do_not_fit_are_truncated_with_tc_set() {
    let mut fixture = with_region("").await;
    for n in 0..100 {
        fixture.register(at(&format!("o-{n}"), "orders", "", &format!("10.0.1.{n}:80"))).await;
    }
    let plain = query("orders.service.convoke.", RecordType::A);
    let mut roomy = plain.clone();
    let mut edns = Edns::new();
    edns.set_max_payload(4_096).set_version(0);
    roomy.set_edns(edns.clone());

    let bytes = fixture.zone.answer(&plain.to_vec().unwrap(), Transport::Udp).unwrap();
    let few = Message::from_vec(&bytes).unwrap();
    assert!(bytes.len() <= 512 && few.metadata.truncation && few.edns.is_none(), "{few}");
    let bytes = fixture.zone.answer(&roomy.to_vec().unwrap(), Transport::Udp).unwrap();
    let more = Message::from_vec(&bytes).unwrap();
    assert!(bytes.len() <= 1_232 && more.metadata.truncation && more.answers.len() > few.answers.len(), "{more}");
    assert_eq!(more.edns.unwrap().max_payload(), 1_232);
    let all = fixture.send(&plain, Transport::Tcp);
    assert!(!all.metadata.truncation);
    assert_eq!(all.answers.len(), 100);

    // Every member is first once.
    let firsts: BTreeSet<String> =
        (0..100).map(|_| fixture.send(&plain, Transport::Udp).answers[0].data.to_string()).collect();
    assert_eq!(firsts.len(), 100);

    // Additional addresses are omitted without TC; SRV records are not.
    let mut srv = query("o-1.member.convoke.", RecordType::SRV);
    assert_eq!(fixture.send(&srv, Transport::Udp).additionals.len(), 1);
    srv.metadata.recursion_desired = true;
    assert!(fixture.send(&srv, Transport::Udp).metadata.recursion_desired);
    assert_eq!(fixture.zone.counters().truncated, 102);
}

#[tokio::test]
async fn large_services_rotate_through_all_members() {
    let mut fixture = with_region("").await;
    for n in 0..600_u16 {
        let [high, low] = n.to_be_bytes();
        fixture.register(at(&format!("o-{n}"), "orders", "", &format!("10.1.{high}.{low}:80"))).await;
    }
    let question = query("orders.service.convoke.", RecordType::A);
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let answer = fixture.send(&question, Transport::Tcp);
        assert!(answer.answers.len() >= 256);
        seen.extend(answer.answers.iter().map(|record| record.data.to_string()));
    }
    assert_eq!(seen.len(), 600);
}

#[tokio::test]
async fn invalid_queries_get_the_matching_response_code() {
    let fixture = with_region("").await;
    let code = |message: &Message| fixture.send(message, Transport::Udp).metadata.response_code;
    assert_eq!(code(&query("example.org.", RecordType::A)), ResponseCode::Refused);
    assert_eq!(code(&query(".", RecordType::NS)), ResponseCode::Refused);
    assert_eq!(code(&query("convoke.", RecordType::AXFR)), ResponseCode::Refused);
    let mut chaos = query("orders.service.convoke.", RecordType::A);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos), ResponseCode::Refused);
    let mut update = query("convoke.", RecordType::SOA);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update), ResponseCode::NotImp);
    let mut two = query("convoke.", RecordType::SOA);
    two.add_query(two.queries[0].clone());
    assert_eq!(code(&two), ResponseCode::FormErr);
    let mut future = query("convoke.", RecordType::SOA);
    let mut edns = Edns::new();
    edns.set_version(1);
    future.set_edns(edns);
    // The response code 16 has two names.
    assert_eq!(u16::from(code(&future)), u16::from(ResponseCode::BADVERS));

    let good = query("orders.service.convoke.", RecordType::A).to_vec().unwrap();
    let mut counts = good.clone();
    counts[4..12].fill(0xff);
    let answer = fixture.zone.answer(&counts, Transport::Udp).unwrap();
    assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, ResponseCode::FormErr);
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(fixture.zone.answer(&answer, Transport::Udp), None, "responses get no response");
    assert_eq!(fixture.zone.answer(&[], Transport::Udp), None);
    // Truncated packets and packets with one changed byte must not cause a panic.
    for end in 12..good.len() {
        fixture.zone.answer(&good[..end], Transport::Udp).unwrap();
    }
    for at in 0..good.len() {
        for byte in [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff] {
            let mut changed = good.clone();
            changed[at] = byte;
            let _ = fixture.zone.answer(&changed, Transport::Tcp);
        }
    }
    let counters = fixture.zone.counters();
    assert!(counters.ignored >= 2 && counters.rejected >= 4 && counters.malformed >= 4, "{counters:?}");
}

#[tokio::test]
async fn a_node_that_is_not_ready_answers_servfail() {
    let mut config = Config::new("n0").unwrap();
    config.join = vec![convoke_testkit::free_address()];
    let node = Node::start(config).await.unwrap();
    let zone = Zone::new(node.handle(), Duration::from_secs(1));
    let answer = zone.answer(&query("orders.service.convoke.", RecordType::A).to_vec().unwrap(), Transport::Udp);
    assert_eq!(Message::from_vec(&answer.unwrap()).unwrap().metadata.response_code, ResponseCode::ServFail);
}

/// A resolver that got NXDOMAIN would remember it, although the name may exist at the nodes that this one has not reached.
#[tokio::test]
async fn unknown_names_are_failures_at_a_node_that_is_alone() {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    let node = start_alone(config).await;
    let client = TestClient::attach(&node, "client", Vec::new()).await;
    let zone = Zone::new(node.handle(), Duration::from_secs(3));
    let mut fixture = Fixture { node, client, zone };
    fixture.register(at("o-1", "orders", "eu", "10.0.0.1:80")).await;
    assert_eq!(fixture.addresses("orders.service.convoke."), ["10.0.0.1".to_owned()].into());
    let unknown = [
        ("payments.service.convoke.", RecordType::A, ResponseCode::NXDomain),
        ("us.orders.service.convoke.", RecordType::A, ResponseCode::NoError),
        ("o-9.member.convoke.", RecordType::A, ResponseCode::NXDomain),
        ("orders.service.convoke.", RecordType::AAAA, ResponseCode::NoError),
        ("_payments._tcp.service.convoke.", RecordType::SRV, ResponseCode::NXDomain),
    ];
    for (name, wanted, _) in unknown {
        let answer = fixture.resolve(name, wanted);
        assert_eq!(answer.metadata.response_code, ResponseCode::ServFail, "{name}");
        assert!(answer.answers.is_empty() && answer.authorities.is_empty(), "{name}: nothing to remember");
    }
    fixture.node.declare_first().await.unwrap();
    for (name, wanted, code) in unknown {
        assert_eq!(fixture.resolve(name, wanted).metadata.response_code, code, "{name}");
    }
}
