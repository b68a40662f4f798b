//! Key writes over HTTP at the node that leads the log.

use super::super::cluster::Cluster;
use super::super::load::{Tally, measure};
use super::super::report::Report;
use super::connection::{Connection, request};
use super::{parsed, send_requests};
use crate::args::{BenchCommon, HttpKvLoad};
use convoke_cli::{CommandError, Result};
use tokio::task::JoinSet;

pub(in crate::bench) async fn put_keys(common: &BenchCommon, load: &HttpKvLoad) -> Result<Report> {
    let cluster =
        if common.nodes_given.is_empty() { Cluster::start_log(common).await? } else { Cluster::of(common).await? };
    let leader = leader(&cluster).await?;
    let value = vec![b'x'; load.value as usize];
    let mut connections = Vec::new();
    for _ in 0..load.clients {
        let mut connection = Connection::open(&leader).await?;
        // The node opens its log session before the measurement begins.
        connection.call(&request("PUT", "/api/v1/kv/bench/warm-up", b"x")).await?;
        connections.push(connection);
    }
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for (number, connection) in (0..).zip(connections) {
        let (value, keys, step) = (value.clone(), load.keys, load.clients);
        let requests = (0..=u32::MAX).map(move |index| {
            let key = index.wrapping_mul(step).wrapping_add(number) % keys;
            request("PUT", &format!("/api/v1/kv/bench/{key:08}"), &value)
        });
        let written = |body: &[u8]| body.starts_with(b"{\"revision\":");
        workers.spawn(send_requests(connection, tally.clone(), 1, requests, written));
    }
    let report = measure(&cluster, "http-kv", &tally, workers).await?;
    let report = report.figure("clients", "Clients", load.clients.into(), "");
    Ok(report.figure("value_bytes", "Value", load.value.into(), "bytes"))
}

/// The client address of the node that leads the log.
async fn leader(cluster: &Cluster) -> Result<String> {
    for address in cluster.addresses() {
        let mut connection = Connection::open(&address).await?;
        let status: serde_json::Value = parsed(&connection.call(&request("GET", "/api/v1/log/status", b"")).await?)?;
        if status["role"] == "leader" {
            return Ok(address);
        }
    }
    Err(CommandError::unreachable("no node is the leader of the log"))
}
