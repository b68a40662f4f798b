//! The state that all connections share: the node, the settings, metrics and limits.

use crate::access::Gate;
use crate::audit::Audit;
use crate::clocks::Clocks;
use crate::config::{Config, ServerLimits};
use crate::encoded::EncodedChanges;
use crate::error::not_ready;
use crate::grpc::Health;
use crate::log::LogPlane;
use crate::metrics::Metrics;
use crate::net::Addresses;
use crate::rates::RateLimiter;
use crate::watchers::Watchers;
use crate::{consul, grpc, http};
use convoke_checks::Checker;
use convoke_dns::Dns;
use convoke_node::{NodeHandle, Phase};
use convoke_proto::Error;
use convoke_tls::PendingHandshakes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Interval at which unused sessions are removed.
const SWEEP: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) node: NodeHandle,
    pub(crate) config: Config,
    /// Address of the client port.
    pub(crate) address: SocketAddr,
    pub(crate) dns: Option<Dns>,
    /// Runs the health checks of the members that this node owns.
    pub(crate) checker: Arc<Checker>,
    /// Who may call.
    pub(crate) gate: Gate,
    /// Records changes and denials.
    pub(crate) audit: Audit,
    pub(crate) gates: Gates,
    /// How far the wall clocks of the nodes differ.
    pub(crate) clocks: Clocks,
    pub(crate) rates: Arc<RateLimiter>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    /// Names under which clients reach this node.
    pub(crate) hosts: http::Hosts,
    /// HTTP sessions.
    pub(crate) sessions: http::Sessions,
    /// HTTP client for requests to other nodes.
    pub(crate) peers: http::PeerClient,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) encoded: Arc<EncodedChanges>,
    pub(crate) chunks: http::SharedChunks,
    /// Answers of Consul's API that can be used again.
    pub(crate) consul: consul::ConsulAnswers,
    /// `None` if this node runs no log plane.
    pub(crate) log: Option<LogPlane>,
}

/// Permits that limit concurrent use.
#[derive(Debug)]
pub(crate) struct Gates {
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) addresses: Addresses,
    /// Connections without a request so far.
    pub(crate) silent: PendingHandshakes,
    pub(crate) attaches: Arc<Semaphore>,
    pub(crate) watchers: Arc<Semaphore>,
}

/// Connections without a request: at most this number, and an eighth of all. Above it the oldest ends.
const SILENT_MAX: usize = 2_048;
const SILENT_MIN: usize = 16;

impl Gates {
    fn new(limits: &ServerLimits) -> Self {
        let gate = |limit: usize| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Gates {
            connections: gate(limits.connections),
            addresses: Addresses::new(limits.connections_per_address),
            attaches: gate(limits.attaches),
            watchers: gate(limits.http_watchers),
            silent: PendingHandshakes::new((limits.connections / 8).clamp(SILENT_MIN, SILENT_MAX)),
        }
    }

    /// Acquires a permit or rejects the request.
    pub(crate) fn enter(gate: &Arc<Semaphore>, what: &str, limit: usize) -> Result<OwnedSemaphorePermit, Error> {
        gate.clone().try_acquire_owned().map_err(|_| {
            let message = format!("this node has reached its limit of {limit} {what}; try another node");
            Error::new(convoke_proto::ErrorCode::ResourceExhausted, message).limit(limit as u64)
        })
    }
}

impl Surface {
    pub(crate) fn new(
        config: Config,
        address: SocketAddr,
        node: NodeHandle,
        log: Option<LogPlane>,
        dns: Option<Dns>,
        checker: Arc<Checker>,
        (gate, audit, rates): (Gate, Audit, Arc<RateLimiter>),
    ) -> Arc<Surface> {
        let gates = Gates::new(&config.limits);
        let sessions = http::Sessions::new(config.limits.http_sessions);
        let hosts = http::Hosts::new(&config.allowed_hosts, [config.bind.as_str(), node.client_address()]);
        Arc::new(Surface {
            hosts,
            sessions,
            peers: http::PeerClient::new(config.tls.clone()),
            watchers: Arc::default(),
            encoded: Arc::new(EncodedChanges::new()),
            chunks: http::SharedChunks::new(),
            consul: consul::ConsulAnswers::new(),
            node,
            log,
            config,
            address,
            dns,
            checker,
            gate,
            audit,
            gates,
            clocks: Clocks::default(),
            rates,
            metrics: Metrics::new(http::requests(), grpc::requests()),
            health: Health::new(),
        })
    }

    /// Returns the number of attached clients.
    pub(crate) fn attached(&self) -> usize {
        // The semaphore has no more permits than this, whatever the limit.
        let limit = self.config.limits.attaches.min(Semaphore::MAX_PERMITS);
        limit.saturating_sub(self.gates.attaches.available_permits())
    }

    /// Runs periodic work until the node has stopped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let sweeping = async {
            let mut ticks = tokio::time::interval(SWEEP);
            loop {
                ticks.tick().await;
                self.sessions.sweep();
                self.encoded.clear();
                self.chunks.clear();
            }
        };
        tokio::select! {
            () = self.health.follow(&self.node) => {}
            () = sweeping => {}
            () = convoke_checks::run(self.node.clone(), self.checker.clone()) => {}
            () = self.clocks.follow(&self.node, &self.peers) => {}
            () = self.gate.follow_files() => {}
            () = self.gate.follow_revocations(&self.node) => {}
            () = self.health.follow_log(self.log.as_ref().map(|log| &log.handle)) => {}
        }
    }

    /// Returns the node if it may answer reads: it holds the whole registry, or held it until it began to stop. A
    /// node that is alone answers with what it holds, and asserts no absence: see [`NodeHandle::absence`] (N7).
    pub(crate) fn readable(&self) -> Result<&NodeHandle, Error> {
        match self.node.phase() {
            Phase::Ready | Phase::Alone | Phase::Stopping => Ok(&self.node),
            Phase::Starting | Phase::Stopped(_) => Err(not_ready()),
        }
    }
}
