//! Settings of a node on the network.

use crate::error::StartError;
use convoke_core::version::{InvalidNodeId, NodeId};
use convoke_core::{Limits, Timers};
use convoke_tls::NodeTls;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings a node starts with.
#[derive(Clone, Debug)]
pub struct Config {
    pub id: NodeId,
    /// Nodes of another cluster are rejected.
    pub cluster: String,
    pub region: String,
    /// TLS of the peer port; `None` if it is off.
    pub tls: Option<NodeTls>,
    /// Address to listen on for peers, `host:port`; port 0 = any free port.
    pub bind: String,
    /// Address that other nodes dial, `host:port`, if it differs from the bound address; port 0 = the bound port.
    pub advertise: Option<String>,
    /// Address that clients dial, shown in the node's own member; empty if the node serves no clients.
    pub client_address: String,
    /// Peer addresses to start from. Names are resolved again with every attempt.
    pub join: Vec<String>,
    /// Directory for the incarnation; `None` = in memory, and a restarted node learns its incarnation from its peers.
    pub data_dir: Option<PathBuf>,
    pub timers: Timers,
    /// Limits of the registry.
    pub limits: Limits,
    /// Limits of connections and queues.
    pub network: NetworkLimits,
    /// Share of members or nodes that may be declared gone at once without waiting for confirmation (L6).
    pub mass_failure_share: f64,
    /// With fewer members of a service than this share that are not critical, all are routable (HC6).
    pub panic_share: f64,
    /// Move sessions to nodes of the region that have fewer (N10).
    pub rebalance: bool,
    /// Jitter of the retry interval, as a share (P4).
    pub retry_jitter: f64,
}

/// Limits of connections and queues, outside the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Inputs that may wait for the event loop. Beyond that, client requests are rejected and peers wait.
    pub inbox: usize,
    /// Bytes that may wait to be written to one peer; beyond, the link is closed.
    pub link_queue_bytes: usize,
    /// Bytes waiting for a peer above which the node stops pushing to it; an exchange brings the rest (D5).
    pub congestion_bytes: usize,
    /// Inbound peer connections that have not completed the handshake. Half of them are reserved for addresses of known
    /// peers.
    pub unidentified_links: usize,
    /// Time limit for the handshake of an inbound peer connection.
    pub handshake_timeout: Duration,
    /// Time limit for one attempt to connect to a peer.
    pub dial_timeout: Duration,
    /// Unanswered operations of one client connection.
    pub unanswered_operations: usize,
    /// Notices that may wait for one client connection; beyond, it is closed.
    pub notices: usize,
    /// Events kept in memory for the event list.
    pub events_kept: usize,
    /// Member changes kept in memory for the event list.
    pub changes_kept: usize,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        NetworkLimits {
            inbox: 8_192,
            link_queue_bytes: 16 * 1024 * 1024,
            // Well above the window of an exchange, so that an exchange alone is no congestion.
            congestion_bytes: 2 * 1024 * 1024,
            unidentified_links: 256,
            handshake_timeout: Duration::from_secs(3),
            dial_timeout: Duration::from_secs(3),
            unanswered_operations: 16_384,
            notices: 16_384,
            events_kept: 1_024,
            changes_kept: 4_096,
        }
    }
}

impl Config {
    /// A node in memory on any free port of the loopback interface.
    pub fn new(id: &str) -> Result<Self, InvalidNodeId> {
        let core = convoke_core::Config::new(NodeId::new(id)?);
        Ok(Config {
            id: core.node,
            cluster: core.cluster,
            region: core.region,
            tls: None,
            bind: "127.0.0.1:0".to_owned(),
            advertise: None,
            client_address: String::new(),
            join: Vec::new(),
            data_dir: None,
            timers: core.timers,
            limits: core.limits,
            network: NetworkLimits::default(),
            mass_failure_share: core.mass_failure_share,
            panic_share: core.panic_share,
            rebalance: true,
            retry_jitter: core.retry_jitter,
        })
    }

    /// The core's settings, once the peer address is known.
    pub(crate) fn core(&self, peer_address: &str, hash_seed: u64, random_seed: u64) -> convoke_core::Config {
        convoke_core::Config {
            node: self.id.clone(),
            cluster: self.cluster.clone(),
            tls: self.tls.as_ref().map(NodeTls::record).unwrap_or_default(),
            region: self.region.clone(),
            peer_address: peer_address.to_owned(),
            client_address: self.client_address.clone(),
            seeds: self.join.clone(),
            timers: self.timers.clone(),
            limits: self.limits.clone(),
            mass_failure_share: self.mass_failure_share,
            panic_share: self.panic_share,
            rebalance: self.rebalance,
            retry_jitter: self.retry_jitter,
            hash_seed,
            random_seed,
        }
    }

    /// The address that peers dial if the listener is bound to `local`.
    pub(crate) fn peer_address(&self, local: SocketAddr) -> Result<String, StartError> {
        let port = local.port();
        match &self.advertise {
            Some(address) => match address.rsplit_once(':') {
                Some((host, "0")) if !host.is_empty() => Ok(format!("{host}:{port}")),
                Some((host, given)) if !host.is_empty() && given.parse::<u16>().is_ok() => Ok(address.clone()),
                _ => Err(StartError::Advertise { address: address.clone() }),
            },
            None if local.ip().is_unspecified() => Err(StartError::Advertise { address: local.to_string() }),
            None => Ok(local.to_string()),
        }
    }

    /// Checks everything that can be checked before a file or socket is opened.
    pub fn validate(&self) -> Result<(), StartError> {
        self.core("", 0, 0).validate()?;
        let network = &self.network;
        for (name, value) in [
            ("inbox", network.inbox),
            ("unidentified_links", network.unidentified_links),
            ("unanswered_operations", network.unanswered_operations),
            ("notices", network.notices),
            ("events_kept", network.events_kept),
            ("changes_kept", network.changes_kept),
            ("congestion_bytes", network.congestion_bytes),
        ] {
            if value == 0 {
                return Err(StartError::Zero { name });
            }
        }
        // The frames that the core sends without waiting for an acknowledgement must fit: a window of chunks, and one
        // frame more.
        let needed = (self.limits.chunk_window + 1) * self.limits.chunk_bytes + 2 * self.limits.frame_bytes;
        if network.link_queue_bytes < needed {
            return Err(StartError::LinkQueue { value: network.link_queue_bytes, needed });
        }
        // A host name is resolved when it is bound; it never stands for all addresses.
        let local = self.bind.parse().unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        self.peer_address(local).map(drop)
    }
}
