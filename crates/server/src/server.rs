//! Start and stop of the client port.

use crate::access::Gate;
use crate::audit::Prepared;
use crate::config::Config;
use crate::error::StartError;
use crate::log::LogPlane;
use crate::net::{self, Stage};
use crate::rates::RateLimiter;
use crate::service::Service;
use crate::surface::Surface;
use convoke_checks::{Checker, CheckerConfig};
use convoke_dns::Dns;
use convoke_node::{Ending, NodeHandle};
use convoke_replica::LogHandle;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A bound client port. Nodes advertise it, so it is bound before the node starts. Clients wait until it is served.
#[derive(Debug)]
pub struct Bound {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    /// For Consul's HTTP API alone.
    consul: Option<(TcpListener, SocketAddr)>,
    dns: Option<convoke_dns::Bound>,
    checker: Checker,
    gate: Gate,
    audit: Prepared,
}

/// The client port of a running node. Dropping it disconnects all clients.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    surface: Arc<Surface>,
    shutdown: std::time::Duration,
    stage: watch::Sender<Stage>,
    accepting: JoinHandle<()>,
    consul: Option<SocketAddr>,
    following: JoinHandle<()>,
}

impl Server {
    /// Binds the client port and, if configured, the DNS port. Rejects non-loopback addresses unless they are allowed.
    pub async fn bind(config: Config) -> Result<Bound, StartError> {
        config.validate()?;
        let gate = Gate::open(config.auth.as_ref())?;
        let audit = Prepared::open(config.audit.as_ref())?;
        let listen = async |at: &str| {
            let listener = net::listen(&config, at).await?;
            let address = listener.local_addr();
            let address = address.map_err(|source| StartError::Bind { address: at.to_owned(), source })?;
            Ok::<_, StartError>((listener, address))
        };
        let (listener, address) = listen(&config.bind).await?;
        let consul = match &config.consul {
            Some(at) => Some(listen(at).await.map_err(|error| match error {
                StartError::Bind { address, source } => StartError::BindConsul { address, source },
                other => other,
            })?),
            None => None,
        };
        let dns = match &config.dns {
            Some(config) => Some(Dns::bind(config).await?),
            None => None,
        };
        let allow_loopback = config.checks.allow_loopback || address.ip().is_loopback();
        let checks = CheckerConfig { allow_loopback, ..config.checks.clone() };
        let checker = Checker::new(&checks).map_err(StartError::Checks)?;
        Ok(Bound { config, listener, address, consul, dns, checker, gate, audit })
    }

    /// Binds and serves, for a node that does not advertise the address.
    pub async fn start(config: Config, node: NodeHandle) -> Result<Server, StartError> {
        Ok(Server::bind(config).await?.serve(node, None))
    }

    /// Returns the address of the client port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the listener for Consul's HTTP API, if there is one.
    pub fn consul_address(&self) -> Option<SocketAddr> {
        self.consul
    }

    /// Returns the address of the DNS server, if there is one.
    pub fn dns_address(&self) -> Option<SocketAddr> {
        self.surface.dns.as_ref().map(Dns::address)
    }

    /// Stops server and node gracefully (N6, R-31). No new connections are accepted, and clients are handed over to
    /// other nodes. When the node has stopped, calls end and connections close.
    pub async fn stop(mut self) -> Ending {
        self.stage.send_replace(Stage::Leaving);
        // HTTP sessions have no open stream on which to announce the handover; their clients use another node.
        self.surface.sessions.clear();
        let ending = self.surface.node.stop().await;
        self.stage.send_replace(Stage::Closing);
        // Clients that have not finished by then are cut off.
        let _ = tokio::time::timeout(self.shutdown, &mut self.accepting).await;
        self.surface.audit.flush().await;
        ending
    }
}

impl Bound {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves a node in the current tokio runtime, and its log plane if it runs one.
    pub fn serve(self, node: NodeHandle, log: Option<LogHandle>) -> Server {
        let Bound { config, listener, address, consul, dns, checker, gate, audit } = self;
        let dns = dns.map(|dns| dns.serve_shown(node.clone(), gate.shown_by_dns()));
        let mut own_ports = vec![address.port(), node.local_address().port()];
        own_ports.extend(dns.as_ref().map(|dns| dns.address().port()));
        own_ports.extend(consul.as_ref().map(|(_, address)| address.port()));
        let audit = audit.start(node.id().as_str());
        let shutdown = config.timeouts.shutdown;
        let (stage, stages) = watch::channel(Stage::Serving);
        let rates = Arc::new(RateLimiter::new(config.rates));
        let log = log.map(|log| LogPlane::new(log, node.clone(), &config, address, stages.clone(), rates.clone()));
        let surface =
            Surface::new(config, address, node, log, dns, checker.with_own_ports(own_ports), (gate, audit, rates));
        let following = tokio::spawn(surface.clone().follow());
        let consul_address = consul.as_ref().map(|(_, address)| *address);
        let accepting = tokio::spawn({
            let surface = surface.clone();
            async move {
                surface.health.publish(surface.node.phase()).await;
                let service = Service::new(&surface);
                let of_consul = async {
                    if let Some((listener, _)) = consul {
                        net::accept(listener, surface.clone(), service.only_consul(), stages.clone()).await;
                    }
                };
                tokio::join!(of_consul, net::accept(listener, surface.clone(), service.clone(), stages.clone()));
            }
        });
        Server { address, surface, shutdown, stage, accepting, consul: consul_address, following }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.following.abort();
    }
}
