//! One node of the real core behind tonic.

use super::convert;
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{ConnId, Effect, Interest, SessionId, Start, SubscriberId};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};
use convoke_proto::v1::registry_server::{Registry, RegistryServer};
use convoke_proto::v1::{self, client_message::Message as ToNode, server_message::Message as FromNode};
use convoke_proto::{Code, Error};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

type Answers = mpsc::Sender<Result<v1::ServerMessage, Status>>;

pub struct Server {
    pub address: SocketAddr,
    state: Arc<Shared>,
}

struct Shared {
    start: Instant,
    state: Mutex<State>,
    woken: Notify,
}

struct State {
    node: Node,
    last: u64,
    connections: BTreeMap<ConnId, Answers>,
    subscribers: BTreeMap<SubscriberId, Arc<Notify>>,
}

impl Shared {
    fn now(&self) -> Time {
        Time::from_micros(1_000_000 + self.start.elapsed().as_micros() as u64)
    }

    fn with<R>(&self, call: impl FnOnce(&mut State, Time, &mut Output) -> R) -> R {
        let now = self.now();
        let mut state = self.state.lock().unwrap();
        let mut out = Output::default();
        let result = call(&mut state, now, &mut out);
        state.node.flush(now, &mut out);
        for effect in out.effects {
            match effect {
                Effect::Notify { conn, notice } => {
                    if let Some(answers) = state.connections.get(&conn) {
                        let message = Some(FromNode::Notice(convert::notice(notice)));
                        let _ = answers.try_send(Ok(v1::ServerMessage { message }));
                    }
                }
                Effect::Readable { subscriber } => {
                    if let Some(notify) = state.subscribers.get(&subscriber) {
                        notify.notify_one();
                    }
                }
                Effect::CloseClient { conn } => drop(state.connections.remove(&conn)),
                Effect::CloseAllClients => state.connections.clear(),
                _ => {}
            }
        }
        self.woken.notify_one();
        result
    }
}

impl Server {
    pub async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = Config::new(NodeId::new("n1").unwrap());
        config.client_address = address.to_string();
        let node = Node::new(config, Start { nonce: 1, ..Start::default() }, Time::from_secs(1)).unwrap();
        let state = State { node, last: 0, connections: BTreeMap::new(), subscribers: BTreeMap::new() };
        let state = Arc::new(Shared { start: Instant::now(), state: Mutex::new(state), woken: Notify::new() });
        state.with(|state, now, out| state.node.begin(now, out));
        let waking = state.clone();
        tokio::spawn(async move {
            loop {
                let next = waking.state.lock().unwrap().node.next_wake();
                let pause = Duration::from_micros(next.as_micros().saturating_sub(waking.now().as_micros()));
                tokio::select! {
                    () = tokio::time::sleep(pause) => waking.with(|state, now, out| state.node.wake(now, out)),
                    () = waking.woken.notified() => {}
                }
            }
        });
        let service = RegistryServer::new(Service(state.clone()));
        let serving = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
        Server { address, state }
    }

    pub fn status(&self, id: &str) -> Option<String> {
        self.state.with(|state, _, _| state.node.member(id).map(|member| member.status().to_string()))
    }

    pub fn metadata(&self, id: &str) -> BTreeMap<String, String> {
        self.state.with(|state, _, _| state.node.member(id).map(|m| m.metadata().to_map()).unwrap_or_default())
    }

    pub fn drain(&self, id: &str) {
        self.state.with(|state, now, out| state.node.drain(now, id, true, out)).unwrap();
    }
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl Registry for Service {
    type AttachStream = ReceiverStream<Result<v1::ServerMessage, Status>>;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchEvent, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (answers, stream) = mpsc::channel(64);
        let shared = self.0.clone();
        let conn = shared.with(|state, _, _| {
            state.last += 1;
            state.connections.insert(ConnId(state.last), answers.clone());
            ConnId(state.last)
        });
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            let mut session = None;
            while let Some(Ok(message)) = messages.next().await {
                let Some(message) = message.message else { continue };
                let answer =
                    shared.with(|state, now, out| serve(&mut state.node, now, conn, &mut session, message, out));
                if answers.send(Ok(v1::ServerMessage { message: Some(answer) })).await.is_err() {
                    break;
                }
            }
            shared.with(|state, now, out| {
                state.connections.remove(&conn);
                state.node.disconnected(now, conn, out);
            });
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let invalid = |error: &dyn std::fmt::Display| Status::from(Error::new(Code::InvalidFilter, error.to_string()));
        let filter = Filter::parse(&request.filter).map_err(|error| invalid(&error))?;
        let resume = convert::resume(request.resume)?;
        let notify = Arc::new(Notify::new());
        let shared = self.0.clone();
        let subscribed = shared.with(|state, now, out| {
            let interest = Interest { space: Space::Member, filter };
            let subscriber = state.node.subscribe(now, interest, resume, out)?;
            state.subscribers.insert(subscriber, notify.clone());
            Ok(subscriber)
        });
        let subscriber = subscribed.map_err(|refusal| Status::from(Error::from(convert::error(refusal))))?;
        notify.notify_one();
        let (sender, stream) = mpsc::channel(16);
        tokio::spawn(async move {
            'stream: loop {
                tokio::select! {
                    () = notify.notified() => {}
                    () = sender.closed() => break,
                }
                loop {
                    let mut events = Vec::new();
                    let more = shared.with(|state, now, _| state.node.take(now, subscriber, 64, &mut events));
                    for event in events {
                        if sender.send(Ok(convert::event(event))).await.is_err() {
                            break 'stream;
                        }
                    }
                    if !more {
                        break;
                    }
                }
            }
            shared.with(|state, _, _| {
                state.subscribers.remove(&subscriber);
                state.node.unsubscribe(subscriber);
            });
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let request = request.into_inner();
        let filter = Filter::parse(&request.filter)
            .map_err(|error| Status::from(Error::new(Code::InvalidFilter, error.to_string())))?;
        let cursor = request.cursor.parse().ok();
        let (members, next) = self.0.with(|state, _, _| state.node.members(&filter, cursor, 2));
        Ok(Response::new(v1::ListResponse {
            members: members.iter().map(convert::member).collect(),
            next_cursor: next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let id = request.into_inner().id;
        let member = self.0.with(|state, _, _| state.node.member(&id));
        let member = member.ok_or_else(|| Status::from(Error::new(Code::NotFound, format!("no member {id:?}"))))?;
        Ok(Response::new(v1::GetResponse { member: Some(convert::member(&member)) }))
    }
}

fn serve(
    node: &mut Node,
    now: Time,
    conn: ConnId,
    held: &mut Option<SessionId>,
    message: ToNode,
    out: &mut Output,
) -> FromNode {
    match message {
        ToNode::Attach(attach) => {
            let claim = attach.claim;
            match node.attach(now, 0, conn, &convert::attach(attach), out) {
                Ok(attached) => {
                    *held = Some(attached.session);
                    FromNode::Attached(convert::attached(claim, "n1", attached))
                }
                Err(refusal) => {
                    let error = Some(convert::error(refusal));
                    FromNode::AttachRefused(v1::AttachRefused { claim, error })
                }
            }
        }
        ToNode::Heartbeat(v1::Heartbeat { sent }) => {
            let result = node.heartbeat(now, held.unwrap(), out);
            FromNode::HeartbeatAck(v1::HeartbeatAck { sent, error: result.err().map(convert::error) })
        }
        ToNode::Requests(requests) => {
            let answers = requests.requests.into_iter().map(|request| {
                let (seq, session) = (request.seq, held.unwrap());
                let result = match request.operation.unwrap() {
                    v1::request::Operation::Register(register) => {
                        node.register(now, 0, session, seq, &convert::register(register), out).map(Some)
                    }
                    v1::request::Operation::Update(update) => {
                        let (id, update, expected) = convert::update(update).unwrap();
                        node.update(now, session, seq, &id, &update, expected, out).map(Some)
                    }
                    v1::request::Operation::Unregister(v1::Unregister { id }) => {
                        node.unregister(now, session, seq, &id, out).map(|()| None)
                    }
                };
                match result {
                    Ok(version) => v1::Answer {
                        seq,
                        version: version.map(|version| version.to_string()).unwrap_or_default(),
                        error: None,
                    },
                    Err(refusal) => v1::Answer { seq, version: String::new(), error: Some(convert::error(refusal)) },
                }
            });
            FromNode::Answers(v1::Answers { answers: answers.collect() })
        }
        ToNode::Close(_) => {
            let result = node.close_session(now, held.unwrap(), out);
            FromNode::Closed(v1::Closed { error: result.err().map(convert::error) })
        }
    }
}
