//! One connection to a node: the attach stream and the discovery of other nodes.

use crate::Error;
use crate::connect::{Connect, LogChannel};
use crate::peer_port::peer_port_answer;
use crate::seeds::KnownNode;
use crate::session::ConnectionId;
use crate::token::AuthorizedChannel;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_proto::{ErrorCode, NODE_SERVICE, json, v1};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Endpoint;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection whose peer does not answer is closed after the sum of both.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(4);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// Messages that may wait to be sent. The session limits requests in flight; this is for the parts of an attach.
const OUTGOING_MAX: usize = 1024;
/// Interval at which the list of nodes is requested.
const LEARN_INTERVAL: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(4);

/// A connected channel, for watches and queries.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) connection: ConnectionId,
    pub(crate) channel: AuthorizedChannel,
}

#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    Connected(AuthorizedChannel),
    Received(v1::ServerMessage),
    Learnt(Vec<KnownNode>),
    Ended(Error),
}

pub(crate) type ConnectionEvents = mpsc::Sender<(ConnectionId, ConnectionEvent)>;

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) channel: Option<AuthorizedChannel>,
    outgoing: mpsc::Sender<v1::ClientMessage>,
    task: JoinHandle<()>,
}

impl Connection {
    pub(crate) fn open(
        id: ConnectionId,
        address: String,
        attach: bool,
        events: ConnectionEvents,
        connector: Arc<dyn Connect>,
    ) -> Connection {
        let (outgoing, messages) = mpsc::channel(OUTGOING_MAX);
        let task = tokio::spawn(async move {
            let error = run(id, &address, attach, messages, &events, &*connector).await;
            // The receiver is dropped only together with the client.
            let _ = events.send((id, ConnectionEvent::Ended(error))).await;
        });
        Connection { id, channel: None, outgoing, task }
    }

    /// Returns false if the node does not read what was sent.
    pub(crate) fn send(&self, message: v1::ClientMessage) -> bool {
        self.outgoing.try_send(message).is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs until the connection ends and returns the reason.
async fn run(
    id: ConnectionId,
    address: &str,
    attach: bool,
    messages: mpsc::Receiver<v1::ClientMessage>,
    events: &ConnectionEvents,
    connector: &dyn Connect,
) -> Error {
    let channel = match connect_remote(connector, address).await {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    if events.send((id, ConnectionEvent::Connected(channel.clone()))).await.is_err() {
        return Error::new(ErrorCode::NotReady, "the client was dropped");
    }
    let (mut answered, mut listed) = (false, false);
    let error = if attach {
        tokio::select! {
            error = exchange_messages(id, channel.clone(), messages, events, &mut answered) => error,
            error = learn(id, channel, None, events, &mut listed) => error,
        }
    } else {
        learn(id, channel, Some(PROBE_INTERVAL), events, &mut answered).await
    };
    // A port that speaks TLS is not asked without it.
    if answered || connector.is_secure() {
        return error;
    }
    peer_port_answer(address).await.map_or(error, |answer| Error::new(ErrorCode::NotReady, answer))
}

/// Whether a gRPC server has sent this status, instead of a connection that broke or speaks another protocol.
fn is_answer(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}

/// Returns a channel to a node of the log. No connection is opened if the node is in this process.
pub(crate) async fn connect_by(connector: &dyn Connect, address: &str) -> Result<LogChannel, Error> {
    match connector.local(address) {
        Some(node) => Ok(LogChannel::Local(node)),
        None => connect_remote(connector, address).await.map(LogChannel::Remote),
    }
}

async fn connect_remote(connector: &dyn Connect, address: &str) -> Result<AuthorizedChannel, Error> {
    let unreachable = |error: tonic::transport::Error| {
        let cause = root_cause(&error);
        Error::new(ErrorCode::NotReady, format!("cannot connect to {address}: {cause}"))
    };
    let endpoint = endpoint(address)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let channel = connector.connect(&endpoint).await.map_err(unreachable)?;
    Ok(AuthorizedChannel::renewing(channel, connector.token()))
}

/// The innermost error: the outer ones only say that a connection failed.
fn root_cause(error: &dyn std::error::Error) -> &dyn std::error::Error {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}

/// User agent, which operators see in the list of watchers.
const USER_AGENT: &str = concat!("convoke-client/", env!("CARGO_PKG_VERSION"));

/// Checks an address of the form `host:port`.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, Error> {
    let invalid = || Error::new(ErrorCode::InvalidArgument, format!("{address:?} is not host:port")).field("seeds");
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() || address.contains('/') {
        return Err(invalid());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| invalid())?;
    endpoint.user_agent(USER_AGENT).map_err(|_| invalid())
}

async fn exchange_messages(
    id: ConnectionId,
    channel: AuthorizedChannel,
    messages: mpsc::Receiver<v1::ClientMessage>,
    events: &ConnectionEvents,
    answered: &mut bool,
) -> Error {
    let mut stream = match RegistryClient::new(channel).attach(ReceiverStream::new(messages)).await {
        Ok(response) => response.into_inner(),
        Err(status) => {
            *answered = is_answer(&status);
            return status.into();
        }
    };
    *answered = true;
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                if events.send((id, ConnectionEvent::Received(message))).await.is_err() {
                    return Error::new(ErrorCode::NotReady, "the client was dropped");
                }
            }
            Ok(None) => return Error::new(ErrorCode::NotReady, "the node closed the connection"),
            Err(status) => return status.into(),
        }
    }
}

/// Requests the list of nodes periodically. With `probe`, the request also shows whether the node still answers,
/// and this function returns when it does not.
async fn learn(
    id: ConnectionId,
    channel: AuthorizedChannel,
    probe: Option<Duration>,
    events: &ConnectionEvents,
    answered_once: &mut bool,
) -> Error {
    let mut client = RegistryClient::new(channel);
    loop {
        let request = v1::ListRequest { filter: format!("service == {NODE_SERVICE:?}"), ..v1::ListRequest::default() };
        let mut request = tonic::Request::new(request);
        request.set_timeout(KEEP_ALIVE_TIMEOUT);
        let answered = match client.list(request).await {
            Ok(response) => {
                *answered_once = true;
                let nodes: Vec<KnownNode> = response.into_inner().members.into_iter().map(node).collect();
                if !nodes.is_empty() {
                    let _ = events.send((id, ConnectionEvent::Learnt(nodes))).await;
                }
                true
            }
            Err(status) if probe.is_some() => {
                *answered_once |= is_answer(&status);
                return status.into();
            }
            Err(_) => false,
        };
        let pause = probe.unwrap_or(if answered { LEARN_INTERVAL } else { PROBE_INTERVAL });
        tokio::time::sleep(pause).await;
    }
}

fn node(member: v1::Member) -> KnownNode {
    let member = json::Member::from(member);
    let routable = member.routable();
    let region = member.metadata.get("region").cloned().unwrap_or_default();
    KnownNode { address: member.address, region, routable }
}
