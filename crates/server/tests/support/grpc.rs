//! The generated gRPC clients.

use super::Served;
use convoke_proto::Error;
use convoke_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use v1::admin_client::AdminClient;
use v1::client_message::Message as ClientMessage;
use v1::registry_client::RegistryClient;
use v1::server_message::Message as ServerMessage;
use v1::watch_event::Event;

pub async fn channel(served: &Served) -> Channel {
    Channel::from_shared(format!("http://{}", served.address())).unwrap().connect().await.unwrap()
}

pub async fn registry(served: &Served) -> RegistryClient<Channel> {
    RegistryClient::new(channel(served).await)
}

pub async fn admin(served: &Served) -> AdminClient<Channel> {
    AdminClient::new(channel(served).await)
}

/// An attach stream.
pub struct Attachment {
    pub send: mpsc::Sender<v1::ClientMessage>,
    pub receive: Streaming<v1::ServerMessage>,
    seq: u64,
}

impl Attachment {
    pub async fn open(served: &Served) -> Attachment {
        let (send, messages) = mpsc::channel(64);
        let response = registry(served).await.attach(ReceiverStream::new(messages)).await.unwrap();
        Attachment { send, receive: response.into_inner(), seq: 0 }
    }

    /// Opens a stream and attaches. The attach must succeed.
    pub async fn attached(served: &Served, attach: v1::Attach) -> (Attachment, v1::Attached) {
        let mut this = Attachment::open(served).await;
        this.send(ClientMessage::Attach(attach)).await;
        match this.receive().await {
            ServerMessage::Attached(attached) => (this, attached),
            other => panic!("not attached: {other:?}"),
        }
    }

    pub async fn send(&self, message: ClientMessage) {
        self.send.send(v1::ClientMessage { message: Some(message) }).await.unwrap();
    }

    pub async fn receive(&mut self) -> ServerMessage {
        self.receive.message().await.unwrap().expect("the stream continues").message.expect("a known message")
    }

    /// Returns the error with which the stream ends.
    pub async fn ending(mut self) -> Error {
        loop {
            match self.receive.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("ended without an error"),
                Err(status) => return Error::from(status),
            }
        }
    }

    pub fn request(&mut self, operation: v1::request::Operation) -> v1::Request {
        self.seq += 1;
        v1::Request { seq: self.seq, operation: Some(operation) }
    }

    /// Sends one request and returns its answer.
    pub async fn call(&mut self, operation: v1::request::Operation) -> Result<String, Error> {
        let request = self.request(operation);
        let seq = request.seq;
        self.send(ClientMessage::Requests(v1::Requests { requests: vec![request] })).await;
        let ServerMessage::Answers(answers) = self.receive().await else { panic!("no answers") };
        let [answer] = &answers.answers[..] else { panic!("not one answer: {answers:?}") };
        assert_eq!(answer.seq, seq);
        match &answer.error {
            None => Ok(answer.version.clone()),
            Some(error) => Err(error.clone().into()),
        }
    }
}

pub fn attach(client: &str, claim: u64, ids: &[&str]) -> v1::Attach {
    v1::Attach {
        client: client.into(),
        nonce: 7,
        claim,
        members: ids.iter().map(|id| register(id)).collect(),
        ..v1::Attach::default()
    }
}

pub fn register(id: &str) -> v1::Register {
    v1::Register { member: Some(spec(id)), takeover: false }
}

pub fn spec(id: &str) -> v1::MemberSpec {
    v1::MemberSpec { id: id.into(), service: "orders".into(), ..v1::MemberSpec::default() }
}

/// Returns the next event of a watch, without marks.
pub async fn next(watch: &mut Streaming<v1::WatchEvent>) -> Event {
    loop {
        match watch.message().await.unwrap().expect("the watch continues").event.expect("a known event") {
            Event::Mark(_) => {}
            event => return event,
        }
    }
}
