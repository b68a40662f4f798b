//! A message of empty elements, two bytes each on the wire, must not need hundreds of times its size in the node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::{Error, ErrorCode, MESSAGE_BYTES_MAX};
use convoke_testkit::TestNode;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use support::{convoke, query};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

/// Sends bytes as they are.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A `ClientMessage` whose field holds as many empty elements as fit into a message.
fn empties(field: u8, element: u8) -> Bytes {
    let count = (MESSAGE_BYTES_MAX - 16) / 2;
    let mut bytes = vec![field << 3 | 2];
    prost::encoding::encode_varint(count as u64 * 2, &mut bytes);
    bytes.extend([element << 3 | 2, 0].repeat(count));
    Bytes::from(bytes)
}

/// Largest memory that a process has used, in MiB.
fn peak(node: &TestNode) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// The error with which a stream of these messages ends.
async fn attach(node: &TestNode, messages: Vec<Bytes>) -> Error {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", node.clients)).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/convoke.v1.Registry/Attach");
    let stream = tokio_stream::StreamExt::chain(tokio_stream::iter(messages), tokio_stream::pending());
    let mut answers = match grpc.streaming(Request::new(stream), path, Raw).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Error::from(&status),
    };
    loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without an error"),
            Err(status) => return Error::from(&status),
        }
    }
}

#[test]
fn four_mebibytes_of_empty_elements_cost_a_few_mebibytes() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    query(&node, &["members"]);
    let before = peak(&node);
    let session = convoke_proto::v1::Attach { client: "c".into(), nonce: 1, claim: 1, ..Default::default() };
    let message = convoke_proto::v1::client_message::Message::Attach(session);
    let session = Bytes::from(convoke_proto::v1::ClientMessage { message: Some(message) }.encode_to_vec());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Members and unregistered ids of an attach, and requests.
    for messages in [vec![empties(1, 7)], vec![empties(1, 8)], vec![session, empties(3, 1)]] {
        let error = runtime.block_on(attach(&node, messages));
        assert_eq!((error.code, error.limit), (ErrorCode::TooLarge, Some(64 * 1024)), "{error}");
    }
    let grown = peak(&node) - before;
    println!("{before} MiB before, {grown} MiB more at most");
    assert!(grown < 40, "{grown} MiB for three messages of 4 MiB");
    assert_eq!(query(&node, &["status"])["ready"], true);
}
