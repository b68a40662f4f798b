//! TLS of a node: both ports, and the connections to other nodes.

use crate::counters::{Counting, TlsCounters};
use crate::error::{HandshakeError, TlsError};
use crate::expiry::{CertificateExpiry, Urgency};
use crate::files::Files;
use crate::identity::Identity;
use crate::material::{FileKind, Material, provider};
use crate::mode::{ClientCertificates, Mode};
use crate::pending::PendingHandshakes;
use crate::reload::Stamp;
use crate::stream::Stream;
use crate::trust::{Checks, Passed, Trusted};
use crate::verify::{Callers, DialledNode, explain, speaks_plain};
use arc_swap::ArcSwap;
use convoke_counters::add;
use rustls::client::ResolvesClientCert;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{ServerName, UnixTime};
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// First byte of a TLS connection: a record of the handshake.
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;
/// Nodes and addresses remembered as users of TLS. More than the nodes of any cluster.
const SEEN_MAX: usize = 8_192;
/// Interval at which the files are compared.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which an expiry that is near is logged again.
const REMINDER_INTERVAL: Duration = Duration::from_secs(24 * 3_600);

/// Settings of TLS of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cluster: String,
    /// Id of the node, which its certificate must name.
    pub node: String,
    pub files: Files,
    /// The client port.
    pub client: Mode,
    /// The peer port.
    pub peer: Mode,
    pub client_certificates: ClientCertificates,
    /// Accept TLS 1.2 on the client port, too.
    pub client_tls12: bool,
    /// Handshakes in progress on the client port. Above the limit, the oldest is cut off.
    pub handshakes: usize,
    /// Time limit of a handshake on the client port. The peer port has its own for everything before the first frame.
    pub handshake_timeout: Duration,
}

/// An accepted or dialled connection.
#[derive(Debug)]
pub struct Accepted {
    pub stream: Stream,
    /// `None` without TLS, and on the client port without a client certificate.
    pub identity: Option<Identity>,
}

/// Who should answer a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialTarget<'a> {
    AnyNode,
    Node(&'a str),
}

/// What operators see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    pub client: Mode,
    pub peer: Mode,
    pub client_certificates: ClientCertificates,
    pub identity: Identity,
    pub expiry: CertificateExpiry,
    /// Why changed files are not used, if they are not.
    pub reload_error: Option<String>,
}

impl TlsStatus {
    /// Reasons for which the node is degraded (TS5, TS7, TS10).
    pub fn degraded(&self, now: SystemTime) -> Vec<String> {
        let optional = |port: &str, key: &str, mode: Mode| {
            (mode == Mode::Optional).then(|| {
                format!("the {port} port accepts connections without TLS: set {key} to required when all use it")
            })
        };
        let expiry = self.expiry.warning(now).filter(|_| self.expiry.urgency(now) >= Urgency::VerySoon);
        let reload = self.reload_error.as_ref().map(|error| format!("changed TLS files are not used: {error}"));
        [optional("client", "tls.client", self.client), optional("peer", "tls.peer", self.peer), expiry, reload]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// TLS of a node. Cheap to clone.
#[derive(Clone)]
pub struct NodeTls(Arc<Inner>);

impl fmt::Debug for NodeTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeTls").field(&self.0.settings).finish()
    }
}

type Records = Box<dyn Fn(&str, Option<&str>) -> bool + Send + Sync>;

struct Inner {
    settings: Settings,
    current: ArcSwap<Current>,
    pending: PendingHandshakes,
    counting: Counting,
    /// Addresses and nodes that were seen with TLS.
    seen: Mutex<HashSet<String>>,
    /// Whether the record of the node at an address, or of a node, says that it uses TLS.
    records: OnceLock<Records>,
    reload_error: Mutex<Option<String>>,
    /// Open connections whose certificates count (TS12).
    trusted: Trusted,
}

/// Everything that a reload replaces.
struct Current {
    stamp: Stamp,
    material: Material,
    client_port: Arc<ServerConfig>,
    peer_port: Arc<ServerConfig>,
    dialler: Arc<ClientConfig>,
    checks: Checks,
}

impl NodeTls {
    /// Reads and checks the files.
    pub fn load(settings: Settings) -> Result<NodeTls, TlsError> {
        let current = Current::load(&settings)?;
        Ok(NodeTls(Arc::new(Inner {
            pending: PendingHandshakes::new(settings.handshakes),
            settings,
            current: ArcSwap::from_pointee(current),
            counting: Counting::default(),
            seen: Mutex::default(),
            records: OnceLock::new(),
            reload_error: Mutex::default(),
            trusted: Trusted::default(),
        })))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub fn counters(&self) -> TlsCounters {
        self.0.counting.read()
    }

    /// Handshakes in progress on the client port.
    pub fn pending(&self) -> usize {
        self.0.pending.len()
    }

    pub fn status(&self) -> TlsStatus {
        let Settings { client, peer, client_certificates, .. } = self.0.settings;
        let current = self.0.current.load();
        TlsStatus {
            client,
            peer,
            client_certificates,
            identity: current.material.identity.clone(),
            expiry: current.material.expiry,
            reload_error: self.0.reload_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// What the record of this node says about TLS: the ports that use it.
    pub fn record(&self) -> String {
        let Settings { client, peer, .. } = &self.0.settings;
        let ports = [("client", client), ("peer", peer)].into_iter().filter(|(_, mode)| mode.is_on());
        ports.map(|(port, _)| port).collect::<Vec<_>>().join(" ")
    }

    /// Sets the source of records of other nodes: whether the one at an address, or with an id, uses TLS (TS5).
    pub fn set_records(&self, records: impl Fn(&str, Option<&str>) -> bool + Send + Sync + 'static) {
        // The first source stays.
        let _ = self.0.records.set(Box::new(records));
    }

    /// Accepts a connection to the peer port. The caller sets the time limit.
    pub async fn accept_peer(&self, socket: TcpStream) -> Result<Accepted, HandshakeError> {
        let counting = &self.0.counting;
        match self.0.settings.peer {
            _ if is_tls(&socket).await? => {}
            Mode::Required => {
                add(&counting.peer_plain_rejected, 1);
                return Err(HandshakeError::Plain);
            }
            Mode::Off => return Ok(plain(socket)),
            Mode::Optional => {
                add(&counting.peer_plain_accepted, 1);
                return Ok(plain(socket));
            }
        }
        if self.0.settings.peer == Mode::Off {
            return Err(HandshakeError::Tls);
        }
        let current = self.0.current.load_full();
        let accepted = accept(socket, current.peer_port.clone()).await;
        let accepted = accepted.map(|(stream, identity)| self.watch(&current, stream, identity, Passed::Peer));
        add(if accepted.is_ok() { &counting.peer_accepted } else { &counting.peer_handshakes_failed }, 1);
        accepted
    }

    /// Accepts a connection to the client port. `first_byte` limits the wait for the first byte.
    pub async fn accept_client(&self, socket: TcpStream, first_byte: Duration) -> Result<Accepted, HandshakeError> {
        let counting = &self.0.counting;
        let tls = tokio::time::timeout(first_byte, is_tls(&socket)).await.map_err(|_| HandshakeError::TimedOut)??;
        match self.0.settings.client {
            Mode::Off if tls => return Err(HandshakeError::Tls),
            Mode::Off => return Ok(plain(socket)),
            Mode::Optional | Mode::Required if tls => {}
            Mode::Optional => {
                add(&counting.client_plain_accepted, 1);
                return Ok(plain(socket));
            }
            Mode::Required => {
                add(&counting.client_plain_rejected, 1);
                answer_plain(&socket).await;
                return Err(HandshakeError::Plain);
            }
        }
        let current = self.0.current.load_full();
        let config = current.client_port.clone();
        let handshake = self.0.pending.begin();
        let accepted = tokio::select! {
            biased;
            accepted = tokio::time::timeout(self.0.settings.handshake_timeout, accept(socket, config)) => {
                accepted.unwrap_or(Err(HandshakeError::TimedOut))
            }
            () = handshake.displaced() => Err(HandshakeError::Displaced),
        };
        let counter = match &accepted {
            Ok(_) => &counting.client_accepted,
            Err(HandshakeError::TimedOut) => &counting.client_handshakes_timed_out,
            Err(HandshakeError::Displaced) => &counting.client_handshakes_displaced,
            Err(_) => &counting.client_handshakes_failed,
        };
        add(counter, 1);
        accepted.map(|(stream, identity)| self.watch(&current, stream, identity, Passed::Client))
    }

    /// Ends the connection when its certificate is no longer valid (TS12).
    fn watch(
        &self,
        checked_with: &Arc<Current>,
        stream: TlsStream<TcpStream>,
        identity: Option<Identity>,
        passed: Passed,
    ) -> Accepted {
        let watched = self.0.trusted.add(stream, passed);
        let current = self.0.current.load_full();
        if !Arc::ptr_eq(checked_with, &current) {
            // The authorities changed during the handshake.
            self.0.trusted.end_invalid(UnixTime::now(), Some(&current.checks));
        }
        Accepted { stream: Stream::Tls(Box::new(watched)), identity }
    }

    /// Connects to the peer port of another node. `connect` opens a socket to `address`; it is called again for a
    /// connection without TLS. The caller sets the time limit.
    pub async fn dial_peer<C, F>(
        &self,
        address: &str,
        to: DialTarget<'_>,
        connect: C,
    ) -> Result<Accepted, HandshakeError>
    where
        C: Fn() -> F,
        F: Future<Output = io::Result<TcpStream>>,
    {
        self.dial(self.0.settings.peer, address, to, connect).await
    }

    /// Connects to the client port of another node, with the certificate of this node.
    pub async fn dial_client<C, F>(
        &self,
        address: &str,
        to: DialTarget<'_>,
        connect: C,
    ) -> Result<Accepted, HandshakeError>
    where
        C: Fn() -> F,
        F: Future<Output = io::Result<TcpStream>>,
    {
        self.dial(self.0.settings.client, address, to, connect).await
    }

    async fn dial<C, F>(
        &self,
        mode: Mode,
        address: &str,
        to: DialTarget<'_>,
        connect: C,
    ) -> Result<Accepted, HandshakeError>
    where
        C: Fn() -> F,
        F: Future<Output = io::Result<TcpStream>>,
    {
        let socket = connect().await?;
        if mode == Mode::Off {
            return Ok(plain(socket));
        }
        let counting = &self.0.counting;
        let current = self.0.current.load_full();
        let connector = TlsConnector::from(current.dialler.clone());
        // The identity is checked instead of the name, and no name is sent.
        let name = ServerName::try_from("node.invalid").expect("a valid name");
        match connector.connect(name, socket).await {
            Ok(stream) => {
                let stream = TlsStream::from(stream);
                let identity = identity_of(&stream);
                if let (DialTarget::Node(expected), Some(found)) = (to, &identity)
                    && found.name != expected
                {
                    add(&counting.dials_failed, 1);
                    return Err(HandshakeError::OtherNode { found: found.clone(), expected: expected.to_owned() });
                }
                add(&counting.dials, 1);
                self.remember(address, identity.as_ref());
                Ok(self.watch(&current, stream, identity, Passed::Dialled))
            }
            Err(error) if mode == Mode::Optional && speaks_plain(&error) => {
                if self.uses_tls(address, to) {
                    add(&counting.dials_plain_rejected, 1);
                    return Err(HandshakeError::NoFallback { address: address.to_owned() });
                }
                let socket = connect().await?;
                add(&counting.dials_plain, 1);
                Ok(plain(socket))
            }
            Err(error) => {
                add(&counting.dials_failed, 1);
                Err(HandshakeError::Failed(explain(error)))
            }
        }
    }

    /// Remembers that an address and a node use TLS, so that no dial falls back (TS5).
    fn remember(&self, address: &str, identity: Option<&Identity>) {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for key in std::iter::once(address.to_owned()).chain(identity.map(|identity| node_key(&identity.name))) {
            if seen.len() < SEEN_MAX {
                seen.insert(key);
            }
        }
    }

    /// Whether a node is known to use TLS. If too many are known to be remembered, every node counts as one.
    fn uses_tls(&self, address: &str, to: DialTarget<'_>) -> bool {
        let node = match to {
            DialTarget::AnyNode => None,
            DialTarget::Node(node) => Some(node),
        };
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= SEEN_MAX || seen.contains(address) || node.is_some_and(|node| seen.contains(&node_key(node))) {
            return true;
        }
        drop(seen);
        self.0.records.get().is_some_and(|records| records(address, node))
    }

    /// Reads the files again when they change, and logs when an expiry is near. Never ends.
    pub async fn follow(self) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut tried, mut warned): (Option<Stamp>, Option<(Urgency, tokio::time::Instant)>) = (None, None);
        loop {
            ticks.tick().await;
            let tls = self.clone();
            let seen = tried.take();
            // The task cannot panic, and the runtime waits for blocking tasks at its end.
            tried = tokio::task::spawn_blocking(move || tls.reload(seen)).await.unwrap_or(None);
            self.0.trusted.end_invalid(UnixTime::now(), None);
            let (expiry, now) = (self.status().expiry, SystemTime::now());
            let urgency = expiry.urgency(now);
            let due = warned.is_none_or(|(before, at)| urgency > before || at.elapsed() >= REMINDER_INTERVAL);
            if let Some(warning) = expiry.warning(now).filter(|_| due) {
                tracing::warn!(node = %self.0.settings.node, "{warning}");
                warned = Some((urgency, tokio::time::Instant::now()));
            } else if urgency == Urgency::None {
                warned = None;
            }
        }
    }

    /// Reads the files if they differ from those in use and from those that were tried last. Returns the stamp of files
    /// that are not valid.
    fn reload(&self, tried: Option<Stamp>) -> Option<Stamp> {
        let Inner { settings, current, counting, reload_error, .. } = &*self.0;
        let stamp = stamp(&settings.files);
        if stamp == current.load().stamp {
            *reload_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return None;
        }
        if tried.as_ref() == Some(&stamp) {
            return tried;
        }
        let failure = match Current::load(settings) {
            Ok(new) => {
                add(&counting.reloads, 1);
                let until = crate::expiry::format_time(new.material.expiry.first());
                tracing::info!(node = %settings.node, %until, "TLS certificates and keys read again");
                let new = Arc::new(new);
                current.store(new.clone());
                let ended = self.0.trusted.end_invalid(UnixTime::now(), Some(&new.checks));
                if ended > 0 {
                    tracing::info!(node = %settings.node, ended, "connections ended: their certificates are not valid any more");
                }
                None
            }
            Err(error) => {
                add(&counting.reloads_failed, 1);
                tracing::warn!(node = %settings.node, %error, "changed TLS files are not used; the earlier ones stay");
                Some(error.to_string())
            }
        };
        let failed = failure.is_some();
        *reload_error.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        failed.then_some(stamp)
    }
}

impl Current {
    fn load(settings: &Settings) -> Result<Current, TlsError> {
        let Settings { files, cluster, .. } = settings;
        for (name, path) in [("tls.ca", &files.ca), ("tls.cert", &files.cert), ("tls.key", &files.key)] {
            if path.as_os_str().is_empty() {
                return Err(TlsError::Missing(name));
            }
        }
        // Before the files are read: a change in between is noticed later.
        let stamp = stamp(files);
        let of = |kind: FileKind| match kind {
            FileKind::Ca => files.ca.clone(),
            FileKind::Cert => files.cert.clone(),
            FileKind::Key => files.key.clone(),
        };
        let material = Material::parse(&files.read()?, UnixTime::now())
            .map_err(|(kind, error)| TlsError::Material { path: of(kind), error })?;
        let expected = Identity::node(cluster, &settings.node);
        if material.identity != expected {
            let (found, expected) = (Box::new(material.identity), Box::new(expected));
            let error = crate::MaterialError::OfAnother { found, expected };
            return Err(TlsError::Material { path: files.cert.clone(), error });
        }
        let resolver = Arc::new(SingleCertAndKey::from(rustls::sign::CertifiedKey::clone(&material.key)));
        Ok(Current {
            client_port: Arc::new(client_port(settings, &material, resolver.clone())?),
            peer_port: Arc::new(peer_port(settings, &material, resolver.clone())?),
            dialler: Arc::new(dialler(settings, &material, resolver)?),
            checks: Checks {
                clients: Callers::clients(material.roots.clone(), cluster, true)?,
                peers: Callers::peers(material.roots.clone(), cluster)?,
                dialled: DialledNode::new(material.roots.clone(), cluster),
            },
            material,
            stamp,
        })
    }
}

fn client_port(
    settings: &Settings,
    material: &Material,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, TlsError> {
    let versions: &[_] = if settings.client_tls12 {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    } else {
        &[&rustls::version::TLS13]
    };
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
    let callers = |required| Callers::clients(material.roots.clone(), &settings.cluster, required).map(Arc::new);
    let builder = match settings.client_certificates {
        ClientCertificates::Off => builder.with_no_client_auth(),
        ClientCertificates::Request => builder.with_client_cert_verifier(callers(false)?),
        ClientCertificates::Require => builder.with_client_cert_verifier(callers(true)?),
    };
    let mut config = without_resumption(builder.with_cert_resolver(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn peer_port(
    settings: &Settings,
    material: &Material,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, TlsError> {
    let callers = Callers::peers(material.roots.clone(), &settings.cluster)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(without_resumption(builder.with_client_cert_verifier(Arc::new(callers)).with_cert_resolver(resolver)))
}

fn dialler(
    settings: &Settings,
    material: &Material,
    resolver: Arc<dyn ResolvesClientCert>,
) -> Result<ClientConfig, TlsError> {
    let dialled = DialledNode::new(material.roots.clone(), &settings.cluster);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(dialled))
        .with_client_cert_resolver(resolver);
    config.enable_sni = false;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A resumed session would skip the check of the certificate, which may have expired since (TS4).
fn without_resumption(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

fn stamp(files: &Files) -> Stamp {
    Stamp::of([files.ca.as_path(), files.cert.as_path(), files.key.as_path()])
}

fn node_key(node: &str) -> String {
    format!("node {node}")
}

fn plain(socket: TcpStream) -> Accepted {
    Accepted { stream: Stream::Plain(socket), identity: None }
}

/// Whether the first byte belongs to TLS. No protocol of Convoke begins with it.
async fn is_tls(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match socket.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0] == HANDSHAKE_RECORD),
    }
}

async fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<(TlsStream<TcpStream>, Option<Identity>), HandshakeError> {
    let stream =
        TlsAcceptor::from(config).accept(socket).await.map_err(|error| HandshakeError::Failed(explain(error)))?;
    let stream = TlsStream::from(stream);
    let identity = identity_of(&stream);
    Ok((stream, identity))
}

/// The identity of the other end, whose certificate has been checked.
fn identity_of(stream: &TlsStream<TcpStream>) -> Option<Identity> {
    Identity::of(stream.get_ref().1.peer_certificates()?.first()?).ok()
}

/// Tells a client without TLS what to do. Whoever does not speak HTTP/1.1 does not understand it, and is closed as well.
async fn answer_plain(socket: &TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 70\r\n\
        connection: close\r\n\r\nthis port requires TLS: use https:// and the CA of the cluster (--ca)\n";
    // The request is read, as far as it has arrived: closing with unread bytes would reset the connection.
    let mut rest = [0; 4096];
    let _ = socket.try_read(&mut rest);
    let sent = async {
        socket.writable().await.ok()?;
        socket.try_write(ANSWER).ok()
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), sent).await;
}
