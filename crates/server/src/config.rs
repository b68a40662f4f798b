//! Settings of the client surface.

use crate::error::StartError;
use std::net::SocketAddr;
use std::time::Duration;

/// Everything a server needs to know besides its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen for clients, `host:port`; port 0 = any free one.
    pub bind: String,
    /// Listen on other than loopback addresses although anybody who reaches the port may do everything.
    pub insecure_public: bool,
    /// DNS beside it, or none.
    pub dns: Option<convoke_dns::Config>,
    pub limits: ServerLimits,
    pub timeouts: Timeouts,
}

/// Bounds of what clients may make a server hold. Reaching one is a rejection and a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at once; beyond, new ones are closed.
    pub connections: usize,
    /// Calls at once on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Attach streams at once.
    pub attaches: usize,
    /// Server-sent event streams at once.
    pub watchers: usize,
    /// Sessions over HTTP held here at once.
    pub sessions: usize,
    /// Members in one attach that comes in parts.
    pub attach_members: usize,
    /// Bytes of one attach that comes in parts.
    pub attach_bytes: usize,
    /// Body of one HTTP request.
    pub body_bytes: usize,
    /// All headers of one request.
    pub header_bytes: usize,
    /// Path and query of one request.
    pub uri_bytes: usize,
    /// Members on one page of a listing.
    pub page_members: usize,
    /// Links of ambassadors to the log at once.
    pub log_links: usize,
    /// The value of one key over HTTP. The log itself has a limit, too.
    pub value_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 50_000,
            streams_per_connection: 256,
            attaches: 200_000,
            watchers: 10_000,
            sessions: 100_000,
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

/// How long a server waits for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the headers of a request on HTTP/1.1, and for the first bytes of any connection; an idle HTTP/1.1 connection
    /// is closed after it, too.
    pub headers: Duration,
    /// For the body of a request, and for the node's answer to it.
    pub request: Duration,
    /// A client that takes nothing of what is written to it for so long is disconnected.
    pub stall: Duration,
    /// Between signs of life in event streams that have nothing to tell.
    pub keep_alive: Duration,
    /// For another node to answer a request of one of its sessions.
    pub forward: Duration,
    /// From the node's end to cutting what clients have not finished.
    pub farewell: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            headers: Duration::from_secs(30),
            request: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            keep_alive: Duration::from_secs(10),
            forward: Duration::from_secs(2),
            farewell: Duration::from_secs(5),
        }
    }
}

impl Default for Config {
    /// Any free port of the loopback interface, no DNS.
    fn default() -> Self {
        Config {
            bind: "127.0.0.1:0".to_owned(),
            insecure_public: false,
            dns: None,
            limits: ServerLimits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    /// Checks what can be checked before anything is opened.
    pub fn validate(&self) -> Result<(), StartError> {
        let ServerLimits {
            connections,
            streams_per_connection,
            attaches,
            watchers,
            sessions,
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
            ("streams_per_connection", streams_per_connection as usize),
            ("attaches", attaches),
            ("watchers", watchers),
            ("sessions", sessions),
            ("attach_members", attach_members),
            ("attach_bytes", attach_bytes),
            ("body_bytes", body_bytes),
            ("header_bytes", header_bytes),
            ("uri_bytes", uri_bytes),
            ("page_members", page_members),
            ("log_links", log_links),
            ("value_bytes", value_bytes),
        ];
        let Timeouts { headers, request, stall, keep_alive, forward, farewell } = self.timeouts;
        let timeouts = [
            ("headers", headers),
            ("request", request),
            ("stall", stall),
            ("keep_alive", keep_alive),
            ("forward", forward),
            ("farewell", farewell),
        ];
        let zero = limits.iter().find(|(_, limit)| *limit == 0).map(|(name, _)| *name);
        if let Some(name) = zero.or(timeouts.iter().find(|(_, timeout)| timeout.is_zero()).map(|(name, _)| *name)) {
            return Err(StartError::Zero { name });
        }
        // What a name stands for is known when it is bound to.
        let public = self.bind.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
        if public && !self.insecure_public {
            return Err(StartError::Public { address: self.bind.clone() });
        }
        self.dns.as_ref().map_or(Ok(()), |dns| Ok(dns.validate()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn nothing_may_be_zero() {
        Config::default().validate().unwrap();
        let mut config = Config::default();
        config.timeouts.keep_alive = Duration::ZERO;
        assert_eq!(config.validate().unwrap_err().to_string(), "keep_alive is 0: set it to at least 1");
        config.limits.watchers = 0;
        assert!(matches!(config.validate().unwrap_err(), StartError::Zero { name: "watchers" }));
    }
}
