//! Settings of a node on the network.

use crate::error::StartError;
use convoke_core::version::{InvalidNodeId, NodeId};
use convoke_core::{Limits, Timers};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything a node needs to know to start.
#[derive(Clone, Debug)]
pub struct Config {
    pub id: NodeId,
    /// Nodes of another cluster are refused.
    pub cluster: String,
    pub region: String,
    /// Where to listen for peers, `host:port`; port 0 = any free one.
    pub bind: String,
    /// What other nodes dial, `host:port`, if that is not the address bound to; port 0 = the port bound to.
    pub advertise: Option<String>,
    /// Address clients dial, shown in the node's own member record; empty if it serves none.
    pub client_address: String,
    /// Peer addresses to start from. Names are resolved anew with every attempt.
    pub join: Vec<String>,
    /// Where the incarnation is kept; `None` = in memory: after a restart peers tell it.
    pub data_dir: Option<PathBuf>,
    pub timers: Timers,
    /// Bounds of the registry.
    pub limits: Limits,
    /// Bounds of connections and queues.
    pub network: NetworkLimits,
    /// Share of members or nodes that may be judged gone at once without a second thought (L6).
    pub mass_failure_share: f64,
    /// Jitter of the retry interval, as a share (P4).
    pub retry_jitter: f64,
}

/// Bounds of what a node holds outside the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Inputs that may wait for the owner task. Clients are refused beyond, peers wait.
    pub inbox: usize,
    /// Bytes that may wait to be written to one peer; beyond, the link is closed.
    pub link_queue_bytes: usize,
    /// Bytes waiting for a peer from which on nothing more is pushed to it; exchanges repair (D5).
    pub congestion_bytes: usize,
    /// Inbound peer connections that have not yet said who they are.
    pub unidentified_links: usize,
    /// How long such a connection may take.
    pub handshake_timeout: Duration,
    /// How long one attempt to connect to a peer may take.
    pub dial_timeout: Duration,
    /// Operations of one client connection that may be unanswered.
    pub unanswered_operations: usize,
    /// Notices that may wait for one client connection; beyond, it is closed.
    pub notices: usize,
    /// Events kept for those who ask what happened.
    pub events_kept: usize,
    /// Changes of members kept for the same.
    pub changes_kept: usize,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        NetworkLimits {
            inbox: 8_192,
            link_queue_bytes: 16 * 1024 * 1024,
            // Well above the window of an exchange: that one alone is no congestion.
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
            bind: "127.0.0.1:0".to_owned(),
            advertise: None,
            client_address: String::new(),
            join: Vec::new(),
            data_dir: None,
            timers: core.timers,
            limits: core.limits,
            network: NetworkLimits::default(),
            mass_failure_share: core.mass_failure_share,
            retry_jitter: core.retry_jitter,
        })
    }

    /// The core's part, once the address is known.
    pub(crate) fn core(&self, peer_address: &str, hash_seed: u64, random_seed: u64) -> convoke_core::Config {
        convoke_core::Config {
            node: self.id.clone(),
            cluster: self.cluster.clone(),
            region: self.region.clone(),
            peer_address: peer_address.to_owned(),
            client_address: self.client_address.clone(),
            seeds: self.join.clone(),
            timers: self.timers.clone(),
            limits: self.limits.clone(),
            mass_failure_share: self.mass_failure_share,
            retry_jitter: self.retry_jitter,
            hash_seed,
            random_seed,
        }
    }

    /// What peers are told to dial, if this is bound to.
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

    /// Checks what can be checked before anything is opened.
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
        // What the core sends without waiting for an answer must fit: a window of chunks, and a frame on top.
        let needed = (self.limits.chunk_window + 1) * self.limits.chunk_bytes + 2 * self.limits.frame_bytes;
        if network.link_queue_bytes < needed {
            return Err(StartError::LinkQueue { value: network.link_queue_bytes, needed });
        }
        // What a name stands for is known when it is bound to; it does not stand for all addresses.
        let local = self.bind.parse().unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        self.peer_address(local).map(drop)
    }
}
