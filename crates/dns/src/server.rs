//! The DNS server: UDP and TCP sockets for a zone.

use crate::clients::{Networks, Permission, ResponseRates};
use crate::counters::Counters;
use crate::error::StartError;
use crate::zone::{Shown, Transport, Zone};
use convoke_node::NodeHandle;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum number of concurrent TCP connections.
const CONNECTIONS_MAX: usize = 256;
/// Time after which a TCP connection without a query is closed. Also the time limit for writing a response.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Number of tasks that serve the UDP socket.
const UDP_TASKS: usize = 2;
/// Queries that a task serves before it yields.
const BURST: usize = 64;
/// Size of the UDP receive buffer. Longer packets are truncated and then fail to decode.
const QUERY_BYTES_MAX: usize = 4_096;
/// Attempts to find a port that is free for UDP and TCP.
const ANY_PORT_ATTEMPTS: usize = 32;
/// Maximum TTL (RFC 2181, section 8).
const TTL_MAX: Duration = Duration::from_secs(i32::MAX as u64);
/// Delay after a socket error, for example when the process has no free file descriptors.
const ERROR_DELAY: Duration = Duration::from_millis(50);

/// Configuration of the DNS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `host:port` for UDP and TCP. Port 0 means any port that is free for both.
    pub bind: String,
    /// Whether to allow non-loopback addresses. Everyone who can reach them can query the registry.
    pub insecure_public: bool,
    /// Time for which resolvers may cache an answer, in whole seconds.
    pub ttl: Duration,
    /// Clients that get answers, as ranges such as `10.0.0.0/8` or addresses; all clients if it is empty.
    pub networks: Vec<String>,
    /// Answers per second over UDP to one network of clients (/24, or /56 with IPv6); 0 means no limit. Clients on this
    /// machine are not limited.
    pub responses_per_second: u32,
    /// Whether to answer names in Consul's form as well (Q12).
    pub consul: bool,
}

impl Default for Config {
    /// Uses any free port of the loopback interface.
    fn default() -> Self {
        Config {
            bind: "127.0.0.1:0".to_owned(),
            insecure_public: false,
            ttl: Duration::from_secs(1),
            networks: Vec::new(),
            responses_per_second: 1_000,
            consul: false,
        }
    }
}

impl Config {
    /// Checks the configuration without opening sockets.
    pub fn validate(&self) -> Result<(), StartError> {
        if self.ttl.subsec_nanos() != 0 || self.ttl > TTL_MAX {
            return Err(StartError::Ttl { ttl: self.ttl });
        }
        self.served().map(|_| ())
    }

    fn served(&self) -> Result<Networks, StartError> {
        Networks::parse(&self.networks).map_err(|network| StartError::Network { network })
    }
}

/// Bound sockets. Queries wait in them until [`Bound::serve`] is called.
#[derive(Debug)]
pub struct Bound {
    udp: UdpSocket,
    tcp: TcpListener,
    address: SocketAddr,
    ttl: Duration,
    consul: bool,
    clients: Clients,
}

/// Which clients get answers, and how many.
#[derive(Debug)]
struct Clients {
    networks: Networks,
    rates: Mutex<ResponseRates>,
    started: Instant,
}

impl Clients {
    fn permit(&self, client: SocketAddr) -> Permission {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).permit(self.started.elapsed(), client.ip())
    }

    /// The response to a packet over UDP.
    fn answer_udp(&self, zone: &Zone, packet: &[u8], client: SocketAddr) -> Option<Vec<u8>> {
        match self.permit(client) {
            Permission::Answer => self.answer(zone, packet, client, Transport::Udp),
            Permission::Truncate => zone.truncate(packet),
            Permission::Drop => {
                zone.counting.rate_limited();
                None
            }
        }
    }

    fn answer(&self, zone: &Zone, packet: &[u8], client: SocketAddr, transport: Transport) -> Option<Vec<u8>> {
        match self.networks.contain(client.ip()) {
            true => zone.answer(packet, transport),
            false => zone.refuse(packet, transport),
        }
    }
}

/// The running DNS server of a node. Dropping it stops the server.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    zone: Arc<Zone>,
    _tasks: JoinSet<()>,
}

impl Dns {
    /// Binds both sockets. Rejects non-loopback addresses unless `insecure_public` is set.
    pub async fn bind(config: &Config) -> Result<Bound, StartError> {
        config.validate()?;
        let rates = Mutex::new(ResponseRates::new(config.responses_per_second));
        let clients = Clients { networks: config.served()?, rates, started: Instant::now() };
        let (udp, tcp, address) = bind(config).await?;
        Ok(Bound { udp, tcp, address, ttl: config.ttl, consul: config.consul, clients })
    }

    /// Returns the address of both sockets.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        self.zone.counters()
    }
}

impl Bound {
    /// Serves the registry of a node in the current tokio runtime.
    pub fn serve(self, node: NodeHandle) -> Dns {
        self.serve_shown(node, Shown::default())
    }

    /// Serves only the services that callers without credentials may read.
    pub fn serve_shown(self, node: NodeHandle, shown: Shown) -> Dns {
        let Bound { udp, tcp, address, ttl, consul, clients } = self;
        let zone = Arc::new(Zone::new(node, ttl).limited(shown).with_consul(consul));
        let mut tasks = JoinSet::new();
        let (udp, clients) = (Arc::new(udp), Arc::new(clients));
        for _ in 0..UDP_TASKS {
            tasks.spawn(serve_udp(udp.clone(), zone.clone(), clients.clone()));
        }
        tasks.spawn(serve_tcp(tcp, zone.clone(), clients));
        Dns { address, zone, _tasks: tasks }
    }
}

async fn bind(config: &Config) -> Result<(UdpSocket, TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Bind { address: config.bind.clone(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&config.bind).await.map_err(failed)?.collect();
    if !config.insecure_public && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(StartError::Public { address: config.bind.clone() });
    }
    let mut last: io::Error = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        let attempts = if address.port() == 0 { ANY_PORT_ATTEMPTS } else { 1 };
        for _ in 0..attempts {
            match bind_both(address).await {
                Ok(bound) => return Ok(bound),
                Err(error) => last = error,
            }
        }
    }
    Err(failed(last))
}

async fn bind_both(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener, SocketAddr)> {
    let tcp = TcpListener::bind(address).await?;
    let address = tcp.local_addr()?;
    Ok((UdpSocket::bind(address).await?, tcp, address))
}

async fn serve_udp(socket: Arc<UdpSocket>, zone: Arc<Zone>, clients: Arc<Clients>) {
    let mut packet = vec![0; QUERY_BYTES_MAX];
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!(%error, "cannot receive DNS queries");
            tokio::time::sleep(ERROR_DELAY).await;
        }
        for _ in 0..BURST {
            let Ok((length, client)) = socket.try_recv_from(&mut packet) else { break };
            if let Some(answer) = clients.answer_udp(&zone, &packet[..length], client) {
                // UDP is unreliable anyway: a client without a response sends the query again.
                let _ = socket.send_to(&answer, client).await;
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>, clients: Arc<Clients>) {
    let gate = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                while connections.try_join_next().is_some() {}
                let Ok(permit) = gate.clone().try_acquire_owned() else {
                    zone.counting.connection_rejected();
                    continue;
                };
                let (zone, clients) = (zone.clone(), clients.clone());
                connections.spawn(async move {
                    let _permit = permit;
                    // An error ends this connection only; the client can connect again.
                    let _ = serve_connection(stream, client, &zone, &clients).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept DNS connection");
                tokio::time::sleep(ERROR_DELAY).await;
            }
        }
    }
}

/// Serves queries one after the other. A length precedes every message (RFC 1035, section 4.2.2).
async fn serve_connection(mut stream: TcpStream, client: SocketAddr, zone: &Zone, clients: &Clients) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut packet = Vec::new();
    loop {
        let length = timeout(IDLE_MAX, stream.read_u16()).await??;
        packet.resize(length.into(), 0);
        timeout(IDLE_MAX, stream.read_exact(&mut packet)).await??;
        let Some(answer) = clients.answer(zone, &packet, client, Transport::Tcp) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
        timeout(IDLE_MAX, stream.write_all(&framed)).await??;
    }
}
