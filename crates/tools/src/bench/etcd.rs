//! The same load on etcd, for comparison: `KV.Put` of its gRPC interface, with only the fields that are needed.

use super::cluster::Cluster;
use super::load::{Tally, measure};
use super::report::Report;
use crate::args::{BenchCommon, LogLoad};
use convoke_cli::{CommandError, Result};
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The header is not used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// The same number of clients, connections, keys and bytes as for the log; starts no processes.
pub(super) async fn etcd(common: &BenchCommon, load: &LogLoad) -> Result<Report> {
    let cluster = Cluster::given(&BenchCommon { nodes_given: load.etcd.clone(), ..common.clone() })?;
    let mut channels = Vec::new();
    for link in 0..load.links as usize {
        channels.push(connect(&load.etcd[link % load.etcd.len()]).await?);
    }
    let issued = Arc::new(AtomicU64::new(0));
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for client in 0..(load.clients * load.pipeline) as usize {
        let channel = channels[client % channels.len()].clone();
        let (tally, issued, load) = (tally.clone(), issued.clone(), load.clone());
        workers.spawn(async move {
            let value = vec![b'x'; load.value as usize];
            while tally.open() {
                let number = issued.fetch_add(1, Ordering::Relaxed);
                let key = format!("bench/{:08}", number % u64::from(load.keys)).into_bytes();
                tally.time(put(channel.clone(), PutRequest { key, value: value.clone() })).await;
            }
            Ok(())
        });
    }
    let report = measure(&cluster, "etcd", &tally, workers).await?;
    Ok(report.figure("clients", "Clients", load.clients.into(), "").figure(
        "value_bytes",
        "Value",
        load.value.into(),
        "bytes",
    ))
}

async fn connect(address: &str) -> Result<Channel> {
    let unreachable =
        |error: tonic::transport::Error| CommandError::unreachable(format!("cannot reach etcd at {address}: {error}"));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unreachable)?;
    endpoint.tcp_nodelay(true).connect().await.map_err(unreachable)
}

async fn put(channel: Channel, request: PutRequest) -> Result<PutResponse, Error> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Error::new(ErrorCode::NotReady, error.to_string()))?;
    let codec: ProstCodec<PutRequest, PutResponse> = ProstCodec::default();
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
    Ok(grpc.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}
