//! The DNS server on real sockets.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_dns::{Config, Dns, StartError};
use convoke_node::Node;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

async fn started() -> (Node, Dns) {
    let node = Node::start(convoke_node::Config::new("n0").unwrap()).await.unwrap();
    node.ready().await.unwrap();
    let dns = Dns::bind(&Config::default()).await.unwrap().serve(node.handle());
    (node, dns)
}

fn query() -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii("none.service.convoke.").unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn code(answer: &[u8]) -> ResponseCode {
    Message::from_vec(answer).unwrap().metadata.response_code
}

#[tokio::test]
async fn udp_answers_and_survives_garbage() {
    let (_node, dns) = started().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for garbage in [&b""[..], b"x", &[0xff; 11], &[0xff; 2_000]] {
        socket.send_to(garbage, dns.address()).await.unwrap();
    }
    socket.send_to(&query(), dns.address()).await.unwrap();
    let mut answer = vec![0; 2_000];
    let length = socket.recv(&mut answer).await.unwrap();
    assert_eq!(code(&answer[..length]), ResponseCode::NXDomain);
    let counters = dns.counters();
    assert_eq!((counters.queries_udp, counters.ignored, counters.unknown_names), (5, 4, 1));
}

#[tokio::test]
async fn tcp_serves_several_queries_on_one_connection() {
    let (_node, dns) = started().await;
    let mut stream = TcpStream::connect(dns.address()).await.unwrap();
    let query = query();
    let framed = [&u16::try_from(query.len()).unwrap().to_be_bytes()[..], &query].concat();
    stream.write_all(&[framed.clone(), framed].concat()).await.unwrap();
    for _ in 0..2 {
        let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(code(&answer), ResponseCode::NXDomain);
    }
    // An empty message ends the connection. The server still accepts new connections.
    stream.write_all(&[0, 0]).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(dns.counters().queries_tcp, 3);
    TcpStream::connect(dns.address()).await.unwrap();
}

#[tokio::test]
async fn bind_errors_state_the_reason() {
    let (_node, dns) = started().await;
    let taken = Config { bind: dns.address().to_string(), ..Config::default() };
    let error = Dns::bind(&taken).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen for DNS on {}", dns.address())), "{error}");
    let public = Config { bind: "0.0.0.0:0".to_owned(), ..Config::default() };
    assert!(matches!(Dns::bind(&public).await, Err(StartError::Public { .. })));
}

#[tokio::test]
async fn clients_of_other_networks_are_refused() {
    let node = Node::start(convoke_node::Config::new("n0").unwrap()).await.unwrap();
    node.ready().await.unwrap();
    let config = Config { networks: vec!["10.0.0.0/8".to_owned()], ..Config::default() };
    let dns = Dns::bind(&config).await.unwrap().serve(node.handle());
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&query(), dns.address()).await.unwrap();
    let mut packet = [0; 512];
    let (length, _) = socket.recv_from(&mut packet).await.unwrap();
    assert_eq!(code(&packet[..length]), ResponseCode::Refused);
    let mut stream = TcpStream::connect(dns.address()).await.unwrap();
    let asked = query();
    stream.write_all(&u16::try_from(asked.len()).unwrap().to_be_bytes()).await.unwrap();
    stream.write_all(&asked).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(code(&answer), ResponseCode::Refused);
    assert_eq!(dns.counters().rejected, 2);

    let wrong = Config { networks: vec!["10.0.0.0/40".to_owned()], ..Config::default() };
    let error = Dns::bind(&wrong).await.unwrap_err();
    assert!(matches!(&error, StartError::Network { network } if network == "10.0.0.0/40"), "{error}");
}
