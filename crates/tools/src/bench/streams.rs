//! Attach streams and watches without the SDK: many on one connection, with little work for the load generator.

use super::members::PATIENCE;
use super::tls;
use convoke_cli::{CommandError, Result};
use convoke_client::AuthorizedChannel;
use convoke_client::log::connector;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_proto::{Error, ErrorCode, v1};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;
use v1::client_message::Message as ClientMessage;
use v1::request::Operation;
use v1::server_message::Message as ServerMessage;

/// Heartbeat interval of a session that is only kept alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn connect(address: &str) -> Result<AuthorizedChannel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|_| CommandError::usage(format!("{address:?} is not a node address: use HOST:PORT")))?;
    let endpoint = endpoint.tcp_nodelay(true).connect_timeout(PATIENCE);
    let channel = connector(tls::current(), None)
        .connect(&endpoint)
        .await
        .map_err(|error| CommandError::unreachable(format!("cannot reach a node at {address}: {error}")))?;
    Ok(AuthorizedChannel::new(channel, tls::token()))
}

/// A session on a stream of its own.
#[derive(Debug)]
pub(super) struct Session {
    send: mpsc::Sender<v1::ClientMessage>,
    receive: Streaming<v1::ServerMessage>,
    sequence: u64,
}

impl Session {
    pub(super) async fn attach(channel: AuthorizedChannel, client: String) -> Result<Session, Error> {
        let (send, messages) = mpsc::channel(4);
        let attach = v1::Attach { client, nonce: std::process::id().into(), claim: 1, ..v1::Attach::default() };
        let mut session = {
            send_message(&send, ClientMessage::Attach(attach)).await?;
            let receive = RegistryClient::new(channel).attach(ReceiverStream::new(messages)).await?.into_inner();
            Session { send, receive, sequence: 0 }
        };
        match session.next_message().await? {
            ServerMessage::Attached(_) => Ok(session),
            ServerMessage::AttachRejected(rejected) => Err(rejected.error.unwrap_or_default().into()),
            _ => Err(unexpected()),
        }
    }

    /// Sends a heartbeat and waits for the answer.
    pub(super) async fn heartbeat(&mut self) -> Result<(), Error> {
        self.sequence += 1;
        send_message(&self.send, ClientMessage::Heartbeat(v1::Heartbeat { sent: self.sequence })).await?;
        match self.next_message().await? {
            ServerMessage::HeartbeatAck(v1::HeartbeatAck { sent, error: None, .. }) if sent == self.sequence => Ok(()),
            ServerMessage::HeartbeatAck(v1::HeartbeatAck { error: Some(error), .. }) => Err(error.into()),
            _ => Err(unexpected()),
        }
    }

    /// Registers all of them in one message; every one must be acknowledged.
    pub(super) async fn register(&mut self, members: Vec<v1::MemberSpec>) -> Result<(), Error> {
        let count = members.len();
        let requests = members.into_iter().map(|member| {
            self.sequence += 1;
            let register = v1::Register { member: Some(member), takeover: false };
            v1::Request { seq: self.sequence, operation: Some(Operation::Register(register)) }
        });
        let requests = v1::Requests { requests: requests.collect() };
        send_message(&self.send, ClientMessage::Requests(requests)).await?;
        let mut acknowledged = 0;
        while acknowledged < count {
            let ServerMessage::Answers(answers) = self.next_message().await? else { return Err(unexpected()) };
            acknowledged += answers.answers.len();
            if let Some(error) = answers.answers.into_iter().find_map(|answer| answer.error) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Keeps the session alive as long as possible.
    pub(super) async fn hold(mut self) {
        while self.heartbeat().await.is_ok() {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    async fn next_message(&mut self) -> Result<ServerMessage, Error> {
        loop {
            match self.receive.message().await?.and_then(|message| message.message) {
                Some(ServerMessage::Notice(_)) => {}
                Some(message) => return Ok(message),
                None => return Err(Error::new(ErrorCode::NotReady, "the node ended the stream")),
            }
        }
    }
}

async fn send_message(send: &mpsc::Sender<v1::ClientMessage>, message: ClientMessage) -> Result<(), Error> {
    let message = v1::ClientMessage { message: Some(message) };
    send.send(message).await.map_err(|_| Error::new(ErrorCode::NotReady, "the node ended the stream"))
}

fn unexpected() -> Error {
    Error::new(ErrorCode::Internal, "unexpected answer of the node")
}

/// Opens a watch and reads its snapshot.
pub(super) async fn watch(channel: AuthorizedChannel, filter: &str) -> Result<Streaming<v1::WatchEvent>, Error> {
    let request = v1::WatchRequest { filter: filter.to_owned(), resume: None };
    let mut events = RegistryClient::new(channel).watch(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        if matches!(event.event, Some(v1::watch_event::Event::CaughtUp(_))) {
            return Ok(events);
        }
    }
    Err(Error::new(ErrorCode::NotReady, "the node ended the watch"))
}
