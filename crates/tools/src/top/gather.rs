//! Queries a node for everything that is shown.

use super::metrics;
use super::model::Answers;
use convoke_cli::http::{self, HttpClientError};
use convoke_cli::{CommandError, NodeChannel, Result};
use convoke_client::{ClientTls, TokenSource};
use convoke_proto::{Error, v1};
use hyper::{Method, StatusCode};
use std::time::Duration;
use tokio::time::timeout;

/// Tries the given nodes in turn and stays with the first one that answers.
#[derive(Debug)]
pub(crate) struct Gatherer {
    nodes: Vec<(String, NodeChannel)>,
    current: usize,
    patience: Duration,
    tls: Option<ClientTls>,
}

impl Gatherer {
    /// `addresses` must not be empty, and all must be valid.
    pub(crate) fn new(
        addresses: Vec<String>,
        patience: Duration,
        tls: Option<&ClientTls>,
        token: Option<&TokenSource>,
    ) -> Result<Gatherer> {
        let node = |address: String| {
            NodeChannel::lazy(&address, patience, tls.cloned(), token.cloned()).map(|node| (address, node))
        };
        let nodes = addresses.into_iter().map(node).collect::<Result<_>>()?;
        Ok(Gatherer { nodes, current: 0, patience, tls: tls.cloned() })
    }

    /// Queries the nodes in turn, the current one first, until one answers.
    pub(crate) async fn gather_from_any(&mut self) -> Result<Answers> {
        let mut missed = Vec::new();
        for _ in 0..self.nodes.len() {
            match self.gather().await {
                Ok(answers) => return Ok(answers),
                Err(failure) => missed.push(failure.message),
            }
        }
        let missed = missed.join(", ");
        Err(CommandError::unreachable(format!(
            "no node answers ({missed}): start one with `convoke dev`, or use another address with --addr"
        )))
    }

    /// Queries the current node; if it does not answer, the next attempt goes to another one.
    pub(crate) async fn gather(&mut self) -> Result<Answers> {
        let (address, node) = self.nodes[self.current].clone();
        let answers = match timeout(self.patience, ask(&address, node, self.tls.as_ref())).await {
            Ok(answers) => answers,
            Err(_) => Err(CommandError::unreachable("no answer in time")),
        };
        answers.map_err(|failure| {
            self.current = (self.current + 1) % self.nodes.len();
            CommandError::unreachable(format!("{address}: {failure}"))
        })
    }
}

async fn ask(address: &str, node: NodeChannel, tls: Option<&ClientTls>) -> Result<Answers> {
    let error_of = |status: tonic::Status| CommandError::from(Error::from(&status));
    let mut admin = node.clone().admin();
    let status = admin.status(v1::StatusRequest {}).await.map_err(error_of)?.into_inner();
    let nodes = admin.nodes(v1::NodesRequest {}).await.map_err(error_of)?.into_inner().nodes;
    let services = admin.services(v1::ServicesRequest { partial: true }).await.map_err(error_of)?.into_inner().services;
    let counters = match get(address, "/metrics", tls).await? {
        (StatusCode::OK, body) => metrics::parse(&String::from_utf8_lossy(&body)),
        // Rates are shown as zero; everything else is available.
        _ => metrics::Sample::new(),
    };
    // A rejection means that the node runs no log.
    let log = node.log().status(v1::LogStatusRequest {}).await.ok().map(tonic::Response::into_inner);
    Ok(Answers { address: address.to_owned(), status, nodes, services, counters, log })
}

async fn get(address: &str, path: &str, tls: Option<&ClientTls>) -> Result<(StatusCode, Vec<u8>)> {
    let failed = |why: HttpClientError| match why {
        HttpClientError::Refused => CommandError::unreachable("connection refused"),
        HttpClientError::Broken(why) => CommandError::unreachable(why),
    };
    let answer = http::request_with(address, Method::GET, path, None, tls).await.map_err(failed)?;
    let status = answer.status();
    Ok((status, answer.body().await.map_err(failed)?))
}
