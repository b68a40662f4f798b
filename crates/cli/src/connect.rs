//! Connections to nodes. Several addresses are tried in turn within one timeout.

use crate::context::current_context;
use crate::{CLIENT_PORT, CommandError, ConnectArgs, Result, with_port};
use convoke_client::log::{connect_lazy, connector};
use convoke_client::{AuthorizedChannel, Builder, Client, ClientTls, ConnectionState, TokenSource, peer_port_answer};
use convoke_proto::v1::admin_client::AdminClient;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_proto::{Error, ErrorCode};
use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;
use tonic::{Response, Status};

/// `host:port` of all given nodes.
pub fn addresses(connect: &ConnectArgs) -> Result<Vec<String>> {
    let chosen = chosen_addresses(connect)?;
    let bare = |address: &'_ str| {
        let address = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://")).unwrap_or(address);
        address.trim_end_matches('/').to_owned()
    };
    let given = chosen.iter().map(|address| bare(address.trim()));
    let mut addresses = Vec::new();
    for given in given.filter(|address| !address.is_empty()) {
        let address = with_port(&given, CLIENT_PORT);
        if address.starts_with('[') && address.parse::<SocketAddr>().is_err() {
            return Err(CommandError::usage(format!("{given:?} is not a node address: use HOST:PORT")));
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(CommandError::usage("no node address: set --addr HOST:PORT or CONVOKE_ADDR"));
    }
    Ok(addresses)
}

/// The addresses of the flag or the variable; otherwise of the current context; otherwise the default.
fn chosen_addresses(connect: &ConnectArgs) -> Result<Vec<String>> {
    if !connect.addr.is_empty() {
        return Ok(connect.addr.clone());
    }
    Ok(match current_context()? {
        Some(context) if !context.addr.is_empty() => context.addr,
        _ => vec![format!("127.0.0.1:{CLIENT_PORT}")],
    })
}

/// The token of the flag or the variables; otherwise of the current context. A context applies only to its own addresses: its
/// token is not sent to an address that was given by hand.
pub fn token(connect: &ConnectArgs) -> Result<Option<TokenSource>> {
    if let Some(path) = &connect.token_file {
        return token_file(path).map(Some);
    }
    if let Some(token) = std::env::var("CONVOKE_TOKEN").ok().filter(|token| !token.trim().is_empty()) {
        return Ok(Some(TokenSource::fixed(token)));
    }
    if !connect.addr.is_empty() {
        return Ok(None);
    }
    let context = current_context()?.and_then(|context| context.token_file);
    context.map(|path| token_file(&path)).transpose()
}

fn token_file(path: &Path) -> Result<TokenSource> {
    // Read once here, so that a wrong path is an error and not a denial.
    let text = std::fs::read_to_string(path)
        .map_err(|error| CommandError::usage(format!("cannot read the token file {}: {error}", path.display())))?;
    if text.trim().is_empty() || !text.trim().chars().all(|char| char.is_ascii_graphic()) {
        let message = "contains no token: it must have one line, as `convoke token issue` writes it";
        return Err(CommandError::usage(format!("{} {message}", path.display())));
    }
    Ok(TokenSource::file(path))
}

/// Returns the TLS settings: with `--ca` or an `https://` address, every connection uses TLS and never falls back.
pub fn tls(connect: &ConnectArgs) -> Result<Option<ClientTls>> {
    let chosen = chosen_addresses(connect)?;
    let starts = |scheme: &str| chosen.iter().any(|address| address.trim().starts_with(scheme));
    // A context applies only to its own addresses.
    let context = if connect.addr.is_empty() { current_context()? } else { None }.unwrap_or_default();
    let given = |flag: &Option<PathBuf>, stored: Option<PathBuf>| flag.clone().or(stored);
    let ca = given(&connect.ca, context.ca);
    let (cert, key) = (given(&connect.cert, context.cert), given(&connect.key, context.key));
    let own = match (&cert, &key) {
        (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
        (None, None) => None,
        _ => return Err(CommandError::usage("--cert and --key belong together: give both or none")),
    };
    let Some(ca) = &ca else {
        return if starts("https://") || own.is_some() {
            Err(CommandError::usage("TLS needs the certificate authority of the cluster: set --ca FILE or CONVOKE_CA"))
        } else {
            Ok(None)
        };
    };
    if starts("http://") {
        return Err(CommandError::usage(
            "an address begins with http:// although --ca is set: use https://, or no --ca",
        ));
    }
    ClientTls::load(ca, own).map(Some).map_err(|error| CommandError::usage(error.to_string()))
}

/// Calls the first reachable node that is ready. The call must be idempotent.
pub async fn call<T>(
    connect: &ConnectArgs,
    what: impl AsyncFn(NodeChannel) -> Result<Response<T>, Status>,
) -> Result<T> {
    let attempt = async |node: NodeChannel, deadline: Instant| match timeout_at(deadline, what(node)).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(AttemptError::Silent),
    };
    call_until(connect, attempt).await
}

/// Like [`call`] for answers of several parts: the first part must arrive before the deadline.
pub async fn call_until<T>(
    connect: &ConnectArgs,
    what: impl AsyncFn(NodeChannel, Instant) -> Result<T, AttemptError>,
) -> Result<T> {
    let (addresses, tls, token) = (addresses(connect)?, tls(connect)?, token(connect)?);
    let (secure, connector) = (tls.is_some(), connector(tls, None));
    let deadline = Instant::now() + connect.timeout;
    let mut missed = Vec::new();
    let mut reached = false;
    for (index, address) in addresses.iter().enumerate() {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| CommandError::usage(format!("{address:?} is not a node address: use HOST:PORT")))?;
        // A node that does not answer leaves time for the remaining addresses.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let share_ends = Instant::now() + share;
        let attempt = async {
            let connected =
                timeout_at(share_ends, connector.connect(&endpoint)).await.map_err(|_| AttemptError::Silent)?;
            let channel = connected.map_err(|error| AttemptError::Connect(root_cause(&error)))?;
            what(NodeChannel(AuthorizedChannel::renewing(channel, token.clone())), share_ends).await
        };
        match attempt.await {
            Ok(answer) => return Ok(answer),
            Err(AttemptError::Rejected(error)) => return Err(error.into()),
            Err(AttemptError::Slow { received }) => return Err(slow(address, &received, connect.timeout)),
            Err(AttemptError::Connect(cause)) => {
                let answer = if secure { None } else { peer_port_answer(address).await };
                let cause = answer.unwrap_or(cause);
                missed.push(format!("{address} ({cause})"));
            }
            Err(AttemptError::NotReady(reason)) => {
                reached = true;
                missed.push(format!("{address} ({reason})"));
            }
            Err(AttemptError::Silent) => missed.push(format!("{address} (no answer within {})", seconds(share))),
        }
    }
    if reached {
        return Err(CommandError::unreachable(format!("no node is ready at {}", missed.join(", "))));
    }
    Err(unreachable(&missed))
}

/// Starts an SDK client and waits until it is connected.
pub async fn attach(connect: &ConnectArgs, builder: Builder) -> Result<Client> {
    let addresses = addresses(connect)?;
    let builder = match token(connect)? {
        Some(token) => builder.token(token),
        None => builder,
    };
    let builder = match tls(connect)? {
        Some(tls) => builder.tls(tls),
        None => builder,
    };
    let client = builder.seeds(addresses.clone()).operation_timeout(connect.timeout).build()?;
    let connected = tokio::select! {
        connected = client.wait_connected() => connected,
        denial = denied(&client) => Err(denial),
    };
    match connected {
        Ok(()) => Ok(client),
        Err(Error { code: ErrorCode::Timeout, .. }) => {
            let cause = match client.state() {
                ConnectionState::Disconnected { reason, .. } => reason.message,
                _ => format!("no answer within {}", seconds(connect.timeout)),
            };
            Err(unreachable(&[format!("{} ({cause})", addresses.join(", "))]))
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits until a node denies the client to attach. The SDK tries again with the next token, but a command has only one.
async fn denied(client: &Client) -> Error {
    let mut states = client.states();
    while let Some(state) = states.next().await {
        match state {
            ConnectionState::Disconnected { reason, .. }
                if matches!(reason.code, ErrorCode::PermissionDenied | ErrorCode::Unauthenticated) =>
            {
                return reason;
            }
            _ => {}
        }
    }
    std::future::pending().await
}

/// Reports lost and restored connections on stderr.
pub async fn report_connection(client: &Client) -> Infallible {
    let mut states = client.states();
    let mut lost = false;
    while let Some(state) = states.next().await {
        match state {
            ConnectionState::Disconnected { reason, .. } if !lost => {
                lost = true;
                eprintln!("convoke: connection lost ({}); trying other nodes", reason.message);
            }
            ConnectionState::Connected { node, address } if lost => {
                lost = false;
                eprintln!("convoke: connected to {node} at {address}");
            }
            _ => {}
        }
    }
    std::future::pending().await
}

fn unreachable(missed: &[String]) -> CommandError {
    CommandError::unreachable(format!(
        "cannot reach a node at {}: start one with `convoke dev`, or use another address with --addr",
        missed.join(", ")
    ))
}

fn slow(address: &str, received: &str, timeout: Duration) -> CommandError {
    let timeout = seconds(timeout);
    CommandError::failed(format!(
        "{address} sent {received} within {timeout}, and the list is not complete: raise --timeout"
    ))
}

/// A connection to a node.
#[derive(Clone, Debug)]
pub struct NodeChannel(AuthorizedChannel);

impl NodeChannel {
    /// Connects with the first call, and again when needed. Every call has this timeout.
    pub fn lazy(
        address: &str,
        timeout: Duration,
        tls: Option<ClientTls>,
        token: Option<TokenSource>,
    ) -> Result<NodeChannel> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| CommandError::usage(format!("{address:?} is not a node address: use HOST:PORT")))?;
        Ok(NodeChannel(connect_lazy(&endpoint.connect_timeout(timeout).timeout(timeout), tls, token)))
    }

    pub fn admin(self) -> AdminClient<AuthorizedChannel> {
        AdminClient::new(self.0)
    }

    pub fn log(self) -> LogClient<AuthorizedChannel> {
        LogClient::new(self.0)
    }

    pub fn registry(self) -> RegistryClient<AuthorizedChannel> {
        RegistryClient::new(self.0)
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum AttemptError {
    /// The connection failed; another node may answer.
    Connect(String),
    /// No answer in time; another node may answer.
    Silent,
    /// The node answered that it cannot serve the request yet; another node may serve it.
    NotReady(String),
    /// A part of the list arrived in time; another node would have to send as much.
    Slow { received: String },
    /// The node rejected the request; another node would do the same.
    Rejected(Error),
}

impl From<Status> for AttemptError {
    fn from(status: Status) -> AttemptError {
        // The connection broke, or the peer is not a Convoke node.
        if status.source().is_some() {
            return AttemptError::Connect(root_cause(&status));
        }
        match Error::from(&status) {
            Error { code: ErrorCode::NotReady, message, .. } => AttemptError::NotReady(message),
            error => AttemptError::Rejected(error),
        }
    }
}

/// The innermost error is the most specific one.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match innermost.downcast_ref::<std::io::Error>() {
        Some(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => innermost.to_string(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
