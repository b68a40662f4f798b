//! A client of the log that performs the steps of an ambassador explicitly.

use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_request;
use convoke_proto::v1::submit_response::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// One link of a client.
pub struct Link {
    outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    incoming: tonic::Streaming<v1::SubmitResponse>,
    pub epoch: Option<v1::Epoch>,
    pub log: Option<v1::LogId>,
    pub secret: Vec<u8>,
}

impl Link {
    pub async fn to(address: &str) -> Link {
        Link::connect(address, None).await
    }

    /// Connects with a token, which the link shows once.
    pub async fn with_token(address: &str, token: &str) -> Link {
        Link::connect(address, Some(token)).await
    }

    async fn connect(address: &str, token: Option<&str>) -> Link {
        let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap().connect().await;
        let bearer = token.map(|token| format!("Bearer {token}").parse().unwrap());
        let mut client = LogClient::with_interceptor(channel.unwrap(), move |mut call: tonic::Request<()>| {
            bearer.clone().and_then(|bearer| call.metadata_mut().insert("authorization", bearer));
            Ok(call)
        });
        // A new leader has to apply the first entry of its term.
        let (outgoing, incoming) = loop {
            #[allow(clippy::disallowed_methods, reason = "the test sends few messages")]
            let (outgoing, messages) = mpsc::unbounded_channel();
            match client.submit(UnboundedReceiverStream::new(messages)).await {
                Ok(response) => break (outgoing, response.into_inner()),
                Err(status) if status.code() == tonic::Code::Unavailable => tokio::task::yield_now().await,
                Err(status) => panic!("{status}"),
            }
        };
        let mut link = Link { outgoing, incoming, epoch: None, log: None, secret: vec![7; 16] };
        let Message::Welcome(welcome) = link.receive().await else { panic!("a leader sends its welcome first") };
        (link.epoch, link.log) = (welcome.epoch, welcome.log);
        link
    }

    pub async fn receive(&mut self) -> Message {
        self.incoming.message().await.unwrap().unwrap().message.unwrap()
    }

    pub fn send(&self, message: submit_request::Message) {
        self.send_tagged(1, message);
    }

    pub fn send_tagged(&self, tag: u64, message: submit_request::Message) {
        self.outgoing.send(v1::SubmitRequest { tag, message: Some(message), ..Default::default() }).unwrap();
    }

    /// Returns the next answer with its tag.
    pub async fn receive_tagged(&mut self) -> (u64, Message) {
        let response = self.incoming.message().await.unwrap().unwrap();
        (response.tag, response.message.unwrap())
    }

    pub fn opening(&self) -> v1::OpenSession {
        let secret = self.secret.clone();
        v1::OpenSession { epoch: self.epoch, log: self.log, ttl_ms: 60_000, secret, ..Default::default() }
    }

    pub async fn open(&mut self) -> u64 {
        self.send(submit_request::Message::Open(self.opening()));
        let Message::Opened(opened) = self.receive().await else { panic!("a session is opened") };
        opened.session
    }

    pub fn keep_alive(&self, session: u64) {
        let secret = self.secret.clone();
        let sent = v1::KeepAlive { session, epoch: self.epoch, log: self.log, secret };
        self.send(submit_request::Message::KeepAlive(sent));
    }

    pub fn put(&self, session: u64, number: u64, value: &'static str) {
        let put = v1::PutKey { key: "a".into(), value: value.into(), ..Default::default() };
        self.submit(session, number, v1::log_request::Body::Put(put));
    }

    pub fn submit(&self, session: u64, number: u64, body: v1::log_request::Body) {
        self.send(submit_request::Message::Request(v1::LogRequest {
            session,
            number,
            abandon_below: number,
            epoch: self.epoch,
            log: self.log,
            secret: self.secret.clone(),
            body: Some(body),
            ..Default::default()
        }));
    }

    pub async fn fate(&mut self) -> v1::Fate {
        let Message::Answer(answer) = self.receive().await else { panic!("a request is answered") };
        answer.fate.unwrap()
    }

    /// Returns the error with which the node ends the link.
    pub async fn ended(&mut self) -> tonic::Status {
        self.incoming.message().await.expect_err("the node ends the link")
    }

    pub async fn rejected(&mut self) -> convoke_proto::Error {
        match self.receive().await {
            Message::Rejected(error) => error.into(),
            other => panic!("it is rejected, not {other:?}"),
        }
    }
}
