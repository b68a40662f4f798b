//! Names in Consul's form are answered as the real Consul answers them. Its answers are recorded as those over HTTP are (see
//! `consul_recorded.rs`), and the differences are listed with their reasons.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ConsulAgent, eventually, golden, skip};
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, Record};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use support::Served;
use support::http::{answer, open, request};
use tokio::net::UdpSocket;

const SETUP: &str = include_str!("consul_answers/dns_setup.txt");
const QUERIES: &str = include_str!("consul_answers/dns_queries.txt");
/// The instances of the setup are complete when these names are answered: an agent tells its server of a change a moment later.
const COMPLETE: [&str; 4] =
    ["same.service.consul", "ext.service.consul", "named.service.consul", "v4.web.service.consul"];

fn lines(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap())
}

async fn set_up(address: SocketAddr) {
    for (path, body) in lines(SETUP) {
        let mut sender = open(address).await;
        let found = answer(sender.send_request(request("PUT", path, &[], body)).await.unwrap()).await;
        assert_eq!(found.status.as_u16(), 200, "{path} {body}: {}", found.body_text());
    }
}

async fn resolve(dns: SocketAddr, name: &str, wanted: &str) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(format!("{name}.")).unwrap(), wanted.parse().unwrap()));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut packet = vec![0; 4_096];
    // A packet can be lost.
    for _ in 0..10 {
        socket.send_to(&message.to_vec().unwrap(), dns).await.unwrap();
        if let Ok(received) = tokio::time::timeout(Duration::from_secs(2), socket.recv(&mut packet)).await {
            return Message::from_vec(&packet[..received.unwrap()]).unwrap();
        }
    }
    panic!("no answer for {name} {wanted}");
}

/// Records without order and without repetition. Consul counts the serial number of the SOA record in seconds.
fn shown(records: &[Record]) -> BTreeSet<String> {
    let data = |record: &Record| match &record.data {
        RData::SOA(soa) => format!("{} {} {} {}", soa.mname, soa.rname, soa.refresh, soa.minimum),
        data => data.to_string(),
    };
    records
        .iter()
        .map(|record| format!("{} {} {} {}", record.name, record.ttl, record.record_type(), data(record)))
        .collect()
}

async fn ask(dns: SocketAddr) -> Vec<Value> {
    let mut answers = Vec::new();
    for (name, wanted) in lines(QUERIES) {
        let found = resolve(dns, name, wanted).await;
        let mut value = json!({
            "query": format!("{name} {wanted}"),
            "code": found.metadata.response_code.to_string(),
            "authoritative": found.metadata.authoritative,
            "truncated": found.metadata.truncation,
        });
        for (section, records) in
            [("answers", &found.answers), ("authorities", &found.authorities), ("additionals", &found.additionals)]
        {
            let shown = shown(records);
            if !shown.is_empty() {
                value[section] = json!(shown);
            }
        }
        answers.push(value);
    }
    answers
}

async fn complete(dns: SocketAddr) {
    for name in COMPLETE {
        eventually("the changes are done", async || !resolve(dns, name, "A").await.answers.is_empty()).await;
    }
    let gone = async || resolve(dns, "drained.service.consul", "A").await.answers.is_empty();
    eventually("the maintenance is known", gone).await;
}

fn data(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{}/tests/consul_answers/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_dns_answers_of_consul_are_given() {
    let dns = convoke_dns::Config { ttl: Duration::ZERO, consul: true, ..convoke_dns::Config::default() };
    let adjust = |config: &mut convoke_server::Config| config.dns = Some(dns.clone());
    let served = Served::start("alpha", &[], |config| config.cluster = "dc1".into(), adjust).await;
    let dns = served.server.dns_address().unwrap();
    set_up(served.address()).await;
    complete(dns).await;
    let (recorded, answers) = (data("dns_recorded.json"), ask(dns).await);
    assert_eq!(recorded.len(), answers.len(), "the recording is of other queries: UPDATE_GOLDEN=1 with consul");
    let known = data("dns_differences.json");
    let (mut used, mut unknown) = (BTreeSet::new(), Vec::new());
    for (consul, convoke) in recorded.iter().zip(&answers).filter(|(consul, convoke)| consul != convoke) {
        let query = &convoke["query"];
        assert_eq!(&consul["query"], query);
        match known.iter().position(|known| known["queries"].as_array().unwrap().contains(query)) {
            Some(index) => {
                let difference = &known[index];
                assert!(!difference["why"].as_str().unwrap().is_empty());
                used.insert(query.to_string());
            }
            None => unknown.push(format!("{query}\n  consul:  {consul}\n  convoke: {convoke}")),
        }
    }
    assert!(unknown.is_empty(), "{} differences are not listed:\n{}", unknown.len(), unknown.join("\n"));
    let listed = known.iter().flat_map(|known| known["queries"].as_array().unwrap()).map(ToString::to_string);
    let unused: Vec<String> = listed.filter(|query| !used.contains(query)).collect();
    assert!(unused.is_empty(), "these differences do not exist any more: {unused:?}");
    // What differs is also compared with what was decided.
    let differing: Vec<&Value> = answers.iter().filter(|answer| used.contains(&answer["query"].to_string())).collect();
    golden!("consul_answers/dns_ours.json", &(serde_json::to_string_pretty(&differing).unwrap() + "\n"));
}

/// The recording is of the real program.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_dns_answers_are_those_of_consul() {
    let Some(consul) = ConsulAgent::start() else {
        let reason = "needs the program consul 1.8 in PATH or CONVOKE_CONSUL";
        return skip("recorded_dns_answers_are_those_of_consul", reason);
    };
    let dns = consul.dns.parse().unwrap();
    set_up(consul.address.parse().unwrap()).await;
    complete(dns).await;
    let text = serde_json::to_string_pretty(&ask(dns).await).unwrap() + "\n";
    golden!("consul_answers/dns_recorded.json", &text);
}
