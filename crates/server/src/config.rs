//! Settings of the client port.

use crate::access::AuthConfig;
use crate::audit::AuditConfig;
use crate::error::StartError;
use crate::rates::RateLimits;
use convoke_checks::CheckerConfig;
use convoke_tls::NodeTls;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of a server, apart from those of its node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on for clients, `host:port`. With port 0 the system chooses a free port.
    pub bind: String,
    /// Allows listeners on non-loopback addresses, although every process that can connect to
    /// the port has full access.
    pub insecure_public: bool,
    /// TLS of the client port; `None` if it is off.
    pub tls: Option<NodeTls>,
    /// Names, without ports, under which clients may reach this node over HTTP, in addition to addresses, names of
    /// private networks and the names that the node advertises. `*` accepts every name.
    pub allowed_hosts: Vec<String>,
    /// Settings of the DNS server; `None` if DNS is off.
    pub dns: Option<convoke_dns::Config>,
    /// Address of a listener that serves Consul's HTTP API alone, `host:port`; `None` for none. The client port serves it
    /// as well.
    pub consul: Option<String>,
    /// The runner of health checks. Loopback addresses are also allowed if the client port is bound to one.
    pub checks: CheckerConfig,
    /// Access control; `None` allows everything to everybody.
    pub auth: Option<AuthConfig>,
    /// Audit log; `None` writes none.
    pub audit: Option<AuditConfig>,
    pub limits: ServerLimits,
    /// Rate limits; none by default.
    pub rates: RateLimits,
    pub timeouts: Timeouts,
}

/// Limits of the resources that clients can use. At a limit, a request is rejected and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Open connections. At the limit, new connections are closed.
    pub connections: usize,
    /// Open connections from one address. At the limit, new connections from it are closed.
    pub connections_per_address: usize,
    /// Concurrent calls on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Open attach streams.
    pub attaches: usize,
    /// Open streams of server-sent events.
    pub http_watchers: usize,
    /// HTTP sessions held by this node.
    pub http_sessions: usize,
    /// Members in one attach that is sent in parts.
    pub attach_members: usize,
    /// Size of one attach that is sent in parts.
    pub attach_bytes: usize,
    /// Size of the body of one HTTP request.
    pub body_bytes: usize,
    /// Size of all headers of one request.
    pub header_bytes: usize,
    /// Size of path and query of one request.
    pub uri_bytes: usize,
    /// Members on one page of a list.
    pub page_members: usize,
    /// Open links of ambassadors to the log.
    pub log_links: usize,
    /// Size of the value of one key over HTTP. The log has its own limit in addition.
    pub value_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 50_000,
            connections_per_address: 25_000,
            streams_per_connection: 256,
            attaches: 200_000,
            http_watchers: 10_000,
            http_sessions: 100_000,
            attach_members: 100_000,
            attach_bytes: 128 * 1024 * 1024,
            body_bytes: 256 * 1024,
            header_bytes: 32 * 1024,
            uri_bytes: 16 * 1024,
            page_members: 1_000,
            log_links: 50_000,
            value_bytes: 1024 * 1024,
        }
    }
}

/// Timeouts of the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the headers of an HTTP/1.1 request and for the first bytes of any connection. An idle HTTP/1.1 connection is
    /// closed after the same time.
    pub headers: Duration,
    /// For the body of a request, and again for the node's answer to it. Over gRPC: for the request, or for the first
    /// message of a stream.
    pub request: Duration,
    /// A client that reads nothing of what the server writes for this long is disconnected.
    pub stall: Duration,
    /// Interval of comments in idle event streams, which show the client that the connection works. An HTTP/2 client is
    /// pinged after twice this time without a message, and disconnected if it does not answer for as long again.
    pub keep_alive: Duration,
    /// An HTTP/2 connection without an open call is closed after this time, or at most twice this time.
    pub idle: Duration,
    /// For another node to answer a forwarded request of an HTTP session.
    pub forward: Duration,
    /// From the node's stop until open calls of clients are cut off.
    pub shutdown: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            headers: Duration::from_secs(30),
            request: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            keep_alive: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            forward: Duration::from_secs(2),
            shutdown: Duration::from_secs(5),
        }
    }
}

impl Default for Config {
    /// A free port of the loopback interface, no DNS.
    fn default() -> Self {
        Config {
            bind: "127.0.0.1:0".to_owned(),
            insecure_public: false,
            tls: None,
            allowed_hosts: Vec::new(),
            dns: None,
            consul: None,
            checks: CheckerConfig::default(),
            auth: None,
            audit: None,
            limits: ServerLimits::default(),
            rates: RateLimits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    /// Checks everything that can be checked before a socket is opened.
    pub fn validate(&self) -> Result<(), StartError> {
        let ServerLimits {
            connections,
            connections_per_address,
            streams_per_connection,
            attaches,
            http_watchers,
            http_sessions,
            attach_members,
            attach_bytes,
            body_bytes,
            header_bytes,
            uri_bytes,
            page_members,
            log_links,
            value_bytes,
        } = self.limits;
        let limits = [
            ("connections", connections),
            ("connections_per_address", connections_per_address),
            ("streams_per_connection", streams_per_connection as usize),
            ("attaches", attaches),
            ("http_watchers", http_watchers),
            ("http_sessions", http_sessions),
            ("attach_members", attach_members),
            ("attach_bytes", attach_bytes),
            ("body_bytes", body_bytes),
            ("header_bytes", header_bytes),
            ("uri_bytes", uri_bytes),
            ("page_members", page_members),
            ("log_links", log_links),
            ("value_bytes", value_bytes),
        ];
        let Timeouts { headers, request, stall, keep_alive, idle, forward, shutdown } = self.timeouts;
        let timeouts = [
            ("headers", headers),
            ("request", request),
            ("stall", stall),
            ("keep_alive", keep_alive),
            ("idle", idle),
            ("forward", forward),
            ("shutdown", shutdown),
        ];
        let zero = limits.iter().find(|(_, limit)| *limit == 0).map(|(name, _)| *name);
        if let Some(name) = zero.or(timeouts.iter().find(|(_, timeout)| timeout.is_zero()).map(|(name, _)| *name)) {
            return Err(StartError::Zero { name });
        }
        match &self.audit {
            Some(AuditConfig { max_bytes: 0, .. }) => return Err(StartError::Zero { name: "max_bytes" }),
            Some(AuditConfig { files: 0, .. }) => return Err(StartError::Zero { name: "files" }),
            _ => {}
        }
        // A host name is resolved, and checked, when the port is bound.
        for bind in [&self.bind].into_iter().chain(&self.consul) {
            let public = bind.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
            if public && !self.insecure_public {
                return Err(StartError::Public { address: bind.clone() });
            }
        }
        self.dns.as_ref().map_or(Ok(()), |dns| Ok(dns.validate()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn zero_is_rejected_for_every_setting() {
        Config::default().validate().unwrap();
        let mut config = Config::default();
        config.timeouts.keep_alive = Duration::ZERO;
        assert_eq!(config.validate().unwrap_err().to_string(), "keep_alive is 0: set it to at least 1");
        config.limits.http_watchers = 0;
        assert!(matches!(config.validate().unwrap_err(), StartError::Zero { name: "http_watchers" }));
    }
}
