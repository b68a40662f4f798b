//! The zone on UDP and TCP.

use crate::counters::Counters;
use crate::error::StartError;
use crate::zone::{Transport, Zone};
use convoke_node::NodeHandle;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// TCP connections at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a TCP connection may be silent, and how long it may take for an answer to be read.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Tasks that take queries from the UDP socket.
const UDP_TASKS: usize = 2;
/// Queries that a task takes before others have their turn.
const BURST: usize = 64;
/// A query over UDP that is longer than this is no query.
const QUERY_BYTES_MAX: usize = 4_096;
/// Attempts to find a port that is free for both.
const ANY_PORT_ATTEMPTS: usize = 32;
/// RFC 2181, section 8.
const TTL_MAX: Duration = Duration::from_secs(i32::MAX as u64);
/// Out of file descriptors: others may give some back.
const PAUSE: Duration = Duration::from_millis(50);

/// Where and how DNS is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `host:port`, for UDP and TCP; port 0 = any that is free for both.
    pub bind: String,
    /// Listen on other than loopback addresses although anybody who reaches them may ask.
    pub insecure_public: bool,
    /// How long resolvers may remember an answer, in whole seconds.
    pub ttl: Duration,
}

impl Default for Config {
    /// Any free port of the loopback interface.
    fn default() -> Self {
        Config { bind: "127.0.0.1:0".to_owned(), insecure_public: false, ttl: Duration::from_secs(1) }
    }
}

impl Config {
    /// Checks what can be checked before anything is opened.
    pub fn validate(&self) -> Result<(), StartError> {
        if self.ttl.subsec_nanos() != 0 || self.ttl > TTL_MAX {
            return Err(StartError::Ttl { ttl: self.ttl });
        }
        Ok(())
    }
}

/// Bound sockets; questions wait until they are served.
#[derive(Debug)]
pub struct Bound {
    udp: UdpSocket,
    tcp: TcpListener,
    address: SocketAddr,
    ttl: Duration,
}

/// DNS of a running node. Dropping it ends it.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    zone: Arc<Zone>,
    _tasks: JoinSet<()>,
}

impl Dns {
    /// Binds both sockets. Refuses addresses that other machines reach, unless told otherwise.
    pub async fn bind(config: &Config) -> Result<Bound, StartError> {
        config.validate()?;
        let (udp, tcp, address) = bind(config).await?;
        Ok(Bound { udp, tcp, address, ttl: config.ttl })
    }

    /// Of both sockets.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counters(&self) -> Counters {
        self.zone.counters()
    }
}

impl Bound {
    /// Serves a node in the current tokio runtime.
    pub fn serve(self, node: NodeHandle) -> Dns {
        let Bound { udp, tcp, address, ttl } = self;
        let zone = Arc::new(Zone::new(node, ttl));
        let mut tasks = JoinSet::new();
        let udp = Arc::new(udp);
        for _ in 0..UDP_TASKS {
            tasks.spawn(serve_udp(udp.clone(), zone.clone()));
        }
        tasks.spawn(serve_tcp(tcp, zone.clone()));
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

async fn serve_udp(socket: Arc<UdpSocket>, zone: Arc<Zone>) {
    let mut packet = vec![0; QUERY_BYTES_MAX];
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!("cannot wait for DNS queries: {error}");
            tokio::time::sleep(PAUSE).await;
        }
        for _ in 0..BURST {
            let Ok((length, client)) = socket.try_recv_from(&mut packet) else { break };
            if let Some(answer) = zone.answer(&packet[..length], Transport::Udp) {
                // Who cannot be reached asks again, or does not.
                let _ = socket.send_to(&answer, client).await;
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let gate = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                let Ok(permit) = gate.clone().try_acquire_owned() else {
                    zone.counting.connection_rejected();
                    continue;
                };
                let zone = zone.clone();
                connections.spawn(async move {
                    let _permit = permit;
                    // However it ends, the client can connect again.
                    let _ = converse(stream, &zone).await;
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a DNS client: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Questions and answers one after the other, each with its length before it.
async fn converse(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut packet = Vec::new();
    loop {
        let length = timeout(IDLE_MAX, stream.read_u16()).await??;
        packet.resize(length.into(), 0);
        timeout(IDLE_MAX, stream.read_exact(&mut packet)).await??;
        let Some(answer) = zone.answer(&packet, Transport::Tcp) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
        timeout(IDLE_MAX, stream.write_all(&framed)).await??;
    }
}
