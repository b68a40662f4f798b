//! etcd under the same load, for comparison, over its gRPC interface. The processes are started by `bench/etcd.py`.

mod messages;

pub(super) use messages::*;

use convoke_cli::{CommandError, Result};
use convoke_proto::{Error, ErrorCode};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Requests of a stream that wait to be sent.
const WAITING_MAX: usize = 1_024;

pub(super) async fn connect(address: &str) -> Result<Channel> {
    let unreachable =
        |error: tonic::transport::Error| CommandError::unreachable(format!("cannot reach etcd at {address}: {error}"));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unreachable)?;
    endpoint.tcp_nodelay(true).connect().await.map_err(unreachable)
}

async fn ready(channel: &Channel) -> Result<Grpc<Channel>, Error> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Error::new(ErrorCode::NotReady, error.to_string()))?;
    Ok(grpc)
}

async fn unary<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A, Error>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let path = PathAndQuery::from_static(path);
    Ok(ready(channel).await?.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

/// Opens a stream in both directions. etcd answers nothing, not even the call, before it receives the first request.
async fn stream<Q, A>(channel: &Channel, path: &'static str, first: Q) -> Result<(mpsc::Sender<Q>, Streaming<A>), Error>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let (send, requests) = mpsc::channel(WAITING_MAX);
    send.send(first).await.map_err(|_| ended())?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let (path, request) = (PathAndQuery::from_static(path), tonic::Request::new(ReceiverStream::new(requests)));
    let opened = ready(channel).await?.streaming(request, path, codec).await?;
    Ok((send, opened.into_inner()))
}

pub(super) fn ended() -> Error {
    Error::new(ErrorCode::NotReady, "the server ended the stream")
}

pub(super) async fn put(channel: &Channel, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
    unary::<_, PutResponse>(channel, "/etcdserverpb.KV/Put", PutRequest { key, value }).await.map(drop)
}

pub(super) async fn txn(channel: &Channel, txn: TxnRequest) -> Result<TxnResponse, Error> {
    unary(channel, "/etcdserverpb.KV/Txn", txn).await
}

/// Grants a lease and returns its id.
pub(super) async fn grant(channel: &Channel, ttl: Duration) -> Result<i64, Error> {
    let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    let granted: LeaseGrantResponse =
        unary(channel, "/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl }).await?;
    Ok(granted.id)
}

pub(super) type KeepAlives = (mpsc::Sender<LeaseKeepAliveRequest>, Streaming<LeaseKeepAliveResponse>);

/// Opens a stream for the keep-alives of any number of leases, and sends the first one.
pub(super) async fn keep_alives(channel: &Channel, first: i64) -> Result<KeepAlives, Error> {
    stream(channel, "/etcdserverpb.Lease/LeaseKeepAlive", LeaseKeepAliveRequest { id: first }).await
}

/// Waits for a lock of etcd's lock service. Returns the key to unlock.
pub(super) async fn lock(channel: &Channel, name: Vec<u8>, lease: i64) -> Result<Vec<u8>, Error> {
    let locked: LockResponse = unary(channel, "/v3lockpb.Lock/Lock", LockRequest { name, lease }).await?;
    Ok(locked.key)
}

pub(super) async fn unlock(channel: &Channel, key: Vec<u8>) -> Result<(), Error> {
    unary::<_, UnlockResponse>(channel, "/v3lockpb.Lock/Unlock", UnlockRequest { key }).await.map(drop)
}

/// Watches of one stream. They end with the sender.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) responses: Streaming<WatchResponse>,
    _send: mpsc::Sender<WatchRequest>,
}

/// Opens a stream with this many watches of one prefix, as etcd's client does, and waits until they have started.
pub(super) async fn watch(channel: &Channel, prefix: &str, count: u32) -> Result<Watches, Error> {
    let mut range_end = prefix.as_bytes().to_vec();
    if let Some(last) = range_end.last_mut() {
        *last += 1;
    }
    let create = WatchRequest { create: Some(WatchCreateRequest { key: prefix.into(), range_end }) };
    let (send, mut responses) = stream(channel, "/etcdserverpb.Watch/Watch", create.clone()).await?;
    for number in 0..count {
        if number > 0 {
            send.send(create.clone()).await.map_err(|_| ended())?;
        }
        let response: WatchResponse = responses.message().await?.ok_or_else(ended)?;
        if !response.created || response.canceled {
            return Err(Error::new(ErrorCode::Internal, "etcd did not start a watch"));
        }
    }
    Ok(Watches { responses, _send: send })
}
