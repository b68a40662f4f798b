//! Serves other replicas, one task per connection.
//!
//! Entries reach the engine in the order of arrival. The number of requests in progress is bounded; beyond it the
//! connection is not read, and TCP slows the sender down.

use super::dial::Duplex;
use super::frame::{Frame, Frames, put};
use super::message::{self, Adopt, Appended, Hello, Lost, kind};
use crate::counters::add;
use crate::engine::Engine;
use crate::group::loss;
use crate::plane::{Arrival, Plane};
use crate::raft::{self, EngineSnapshot, Raft, SnapshotMeta, Vote};
use crate::state::Image;
use bytes::{Bytes, BytesMut};
use convoke_log::snapshot::Restore;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use smol_str::SmolStr;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

/// Deadline for the first frame of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum requests in progress per connection.
const IN_PROGRESS_MAX: usize = 64;
/// Deadline for writing an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without messages for this time is closed; the client opens another one when needed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Kind and content of an answer, or the reason for a rejection.
type Answer = Result<(u8, Vec<u8>), String>;

/// Serves a connection after its preamble, until it ends.
///
/// `authenticated` is the node that the certificate of the connection names; `None` without TLS.
pub(crate) async fn serve(
    plane: Arc<Plane>,
    stream: Box<dyn Duplex>,
    from: SocketAddr,
    authenticated: Option<SmolStr>,
) {
    let (read, write) = tokio::io::split(stream);
    let mut frames = Frames::new(read, plane.config.limits.frame_bytes);
    let mut writer = Writer { write, buffer: BytesMut::new() };
    let mut stopping = plane.stopping.subscribe();
    let serving = async {
        let hello = match timeout(HELLO_TIMEOUT, frames.next()).await {
            Ok(Ok(Some(frame))) if frame.kind == kind::HELLO => Hello::decode(&frame.content),
            _ => return Err(io::ErrorKind::TimedOut.into()),
        };
        let welcome = match hello {
            Ok(hello) => plane.welcome(&hello, authenticated.as_deref()).map(|engine| {
                plane.learn_client_address(&hello.node, &hello.client);
                (engine, hello.node)
            }),
            Err(error) => Err(error.to_string()),
        };
        match welcome {
            Ok((engine, node)) => {
                let from_leader = engine.clone().map(|engine| (engine, node.clone()));
                let authenticated = authenticated.is_some();
                let connection =
                    InboundConnection { plane: plane.clone(), engine, node, authenticated, incoming: None };
                let ended = connection.run(&mut frames, &mut writer).await;
                if let Some((engine, node)) = from_leader.filter(|_| was_closed(&ended)) {
                    loss::connection_ended(&plane, &engine, &node);
                }
                ended
            }
            Err(why) => {
                add(&plane.counting.connections_rejected, 1);
                tracing::debug!(%from, reason = %why, "log connection rejected");
                writer.put(kind::REJECTED, 0, why.as_bytes());
                writer.flush().await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
        ended = serving => ended,
    };
    if let Err(error) = ended {
        if error.kind() == io::ErrorKind::InvalidData {
            add(&plane.counting.messages_malformed, 1);
            tracing::warn!(%from, %error, "log connection closed after malformed message");
        } else {
            tracing::debug!(%from, %error, "log connection ended");
        }
    }
}

impl Plane {
    /// Checks that a connection is meant for this replica. A connection without a target may only probe and adopt.
    fn welcome(&self, hello: &Hello, authenticated: Option<&str>) -> Result<Option<Arc<Engine>>, String> {
        if let Some(named) = authenticated.filter(|named| *named != hello.node) {
            return Err(format!("the certificate of this connection names node {named}, not {}", hello.node));
        }
        if hello.cluster != self.config.cluster {
            return Err(format!("this node belongs to cluster {}", self.config.cluster));
        }
        let Some(target) = hello.to else { return Ok(None) };
        match self.engine.load_full() {
            Some(engine) if engine.log == target.log && engine.state.me().0 == target.replica => Ok(Some(engine)),
            Some(engine) => Err(format!("this node is replica {} of log {:032x}", engine.state.me(), engine.log)),
            None => Err("this node is not a replica of any log".to_owned()),
        }
    }
}

/// State of one connection.
struct InboundConnection {
    plane: Arc<Plane>,
    engine: Option<Arc<Engine>>,
    /// Id of the node at the other end.
    node: String,
    /// Whether a certificate has proved it.
    authenticated: bool,
    incoming: Option<Incoming>,
}

/// A snapshot being received.
struct Incoming {
    vote: Vote,
    meta: SnapshotMeta,
    restore: Restore,
    /// Sequence number of the transfer. A later transfer replaces this one, because each snapshot is complete.
    number: u64,
}

type InProgress = FuturesUnordered<BoxFuture<'static, (u64, Answer)>>;

impl InboundConnection {
    async fn run<R: tokio::io::AsyncRead + Unpin>(
        mut self,
        frames: &mut Frames<R>,
        writer: &mut Writer,
    ) -> io::Result<()> {
        let mut in_progress = InProgress::new();
        let mut arriving = self.plane.arriving.subscribe();
        loop {
            let number = self.incoming.as_ref().map(|incoming| incoming.number);
            tokio::select! {
                biased;
                () = overtaken(&mut arriving, number), if number.is_some() => {
                    return Err(io::Error::other("another snapshot transfer replaced this one"));
                }
                Some((number, answer)) = in_progress.next(), if !in_progress.is_empty() => {
                    writer.answer(number, answer);
                    while let Some(Some((number, answer))) = in_progress.next().now_or_never() {
                        writer.answer(number, answer);
                    }
                    writer.flush().await?;
                }
                frame = timeout(IDLE_TIMEOUT, frames.next()), if in_progress.len() < IN_PROGRESS_MAX => {
                    match frame {
                        Ok(Ok(Some(frame))) => self.take(frame, &mut in_progress, writer).await?,
                        Ok(Ok(None)) => return Ok(()),
                        Ok(Err(error)) => return Err(error),
                        Err(_) if in_progress.is_empty() => return Err(io::ErrorKind::TimedOut.into()),
                        Err(_) => {}
                    }
                }
            }
        }
    }

    async fn take(&mut self, frame: Frame, in_progress: &mut InProgress, writer: &mut Writer) -> io::Result<()> {
        let Frame { kind, number, content } = frame;
        match kind {
            kind::PROBE => {
                let probed = self.plane.probed().encode_for(&content);
                writer.answer(number, Ok((kind::PROBE, probed)));
                writer.flush().await
            }
            kind::ADOPT => {
                let adopt = Adopt::decode(&content).map_err(malformed)?;
                let plane = self.plane.clone();
                let adopted = async move { (number, plane.adopt(adopt).await.map(|()| (kind::ADOPT, Vec::new()))) };
                in_progress.push(adopted.boxed());
                Ok(())
            }
            _ => {
                let Some(engine) = self.engine.clone() else {
                    return Err(malformed("a request for a replica on a connection without a target"));
                };
                self.take_for(&engine, kind, number, content, in_progress, writer).await
            }
        }
    }

    /// Checks who sends a message of a leader or candidate (TS4).
    fn check_sender(&self, engine: &Engine, vote: &Vote) -> Result<(), String> {
        if self.authenticated { engine.check_sender(&vote.leader_id, &self.node) } else { Ok(()) }
    }

    async fn take_for(
        &mut self,
        engine: &Arc<Engine>,
        kind: u8,
        number: u64,
        content: Bytes,
        in_progress: &mut InProgress,
        writer: &mut Writer,
    ) -> io::Result<()> {
        let raft = engine.raft.clone();
        let answer: BoxFuture<'static, Answer> = match kind {
            kind::APPEND => {
                let (append, extras) = message::decode_append(&content).map_err(malformed)?;
                let engine = engine.clone();
                let sender = self.check_sender(&engine, &append.vote);
                let checked = sender.and_then(|()| engine.apply_extras(&append.vote, &extras));
                async move {
                    checked?;
                    let appended = raft.append_entries(append).await;
                    if !matches!(appended, Err(_) | Ok(Appended::HigherVote(_))) {
                        engine.record_leader_contact();
                    }
                    answer(kind, appended.map(|a| message::encode_appended(&a)))
                }
                .boxed()
            }
            kind::VOTE => {
                let (mut ballot, about_me) = message::decode_ballot(&content).map_err(malformed)?;
                let sender = self.check_sender(engine, &ballot.vote);
                let checked = sender.and_then(|()| engine.judge(&ballot, about_me));
                engine.waive_lease(&mut ballot);
                async move {
                    checked?;
                    answer(kind, raft.vote(ballot).await.map(|v| message::encode_voted(&v)))
                }
                .boxed()
            }
            kind::PRE_VOTE => {
                let (ballot, about_me) = message::decode_ballot(&content).map_err(malformed)?;
                let sender = self.check_sender(engine, &ballot.vote);
                let checked = sender.and_then(|()| engine.judge(&ballot, about_me));
                async move {
                    checked?;
                    answer(kind, raft.pre_vote(ballot).await.map(|v| message::encode_voted(&v)))
                }
                .boxed()
            }
            kind::LOST => {
                let (lost, engine) = (Lost::decode(&content).map_err(malformed)?, engine.clone());
                async move {
                    engine.excluded().map_or(Ok(()), Err)?;
                    Ok((kind, vec![u8::from(engine.confirm_loss(&lost).await)]))
                }
                .boxed()
            }
            kind::TRANSFER => {
                let transfer = message::decode_transfer(&content).map_err(malformed)?;
                let sender = self.check_sender(engine, transfer.from_leader());
                let checked = sender.and_then(|()| engine.excluded().map_or(Ok(()), Err));
                async move {
                    checked?;
                    answer(kind, raft.handle_transfer_leader(transfer).await.map(|t| message::encode_transferred(&t)))
                }
                .boxed()
            }
            kind::SNAPSHOT => {
                let (vote, meta) = message::decode_snapshot(&content).map_err(malformed)?;
                let sender = self.check_sender(engine, &vote);
                let checked = sender.and_then(|()| engine.excluded().map_or(Ok(()), Err));
                let answer = match checked.and_then(|()| self.plane.arrival(vote).ok_or_else(later_leader)) {
                    Ok(number) => {
                        let index = meta.last_log_id.as_ref().map_or(0, |id| raft::position(id).index);
                        tracing::info!(from = %self.node, index, "receiving snapshot");
                        self.incoming = Some(Incoming { vote, meta, restore: Restore::new(), number });
                        Ok((kind, Vec::new()))
                    }
                    Err(why) => Err(why),
                };
                writer.answer(number, answer);
                return writer.flush().await;
            }
            kind::SNAPSHOT_FRAME => {
                let incoming =
                    self.incoming.as_mut().ok_or_else(|| malformed("a snapshot frame without a snapshot header"))?;
                return incoming.restore.frame(&content).map_err(malformed);
            }
            kind::SNAPSHOT_END => {
                let incoming =
                    self.incoming.take().ok_or_else(|| malformed("a snapshot frame without a snapshot header"))?;
                let counting = self.plane.counting.clone();
                let checked = engine.excluded().map_or(Ok(()), Err);
                let installing = self.plane.installing.clone().try_acquire_owned();
                async move {
                    checked?;
                    let _permit = installing.map_err(|_| "another snapshot is being installed".to_owned())?;
                    let installed = install(raft, incoming).await?;
                    add(&counting.snapshots_installed, 1);
                    Ok((kind, message::encode_vote(&installed)))
                }
                .boxed()
            }
            _ => return Err(malformed(format!("a message of unknown kind {kind}"))),
        };
        let answer = async move { (number, answer.await) };
        in_progress.push(begun(answer.boxed()));
        Ok(())
    }
}

fn later_leader() -> String {
    "a later leader is already sending a snapshot".to_owned()
}

/// Returns whether the other end closed or reset the connection.
fn was_closed(ended: &io::Result<()>) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match ended {
        Ok(()) => true,
        Err(error) => matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof),
    }
}

/// Ends when another snapshot transfer replaces this one.
async fn overtaken(arriving: &mut watch::Receiver<Arrival>, number: Option<u64>) {
    // The plane owns the sender and outlives its connections.
    let _ = arriving.wait_for(|arrival| Some(arrival.number) != number).await;
}

/// Polls a request once, so that entries reach the engine's queue before those of the next frame.
fn begun(answer: BoxFuture<'static, (u64, Answer)>) -> BoxFuture<'static, (u64, Answer)> {
    // Without `unconstrained`, tokio's cooperative budget could make the engine's queue appear full. The waker of this
    // first poll is irrelevant: `FuturesUnordered` polls again with its own.
    let mut answer = tokio::task::unconstrained(answer);
    match answer.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => std::future::ready(answer).boxed(),
        Poll::Pending => answer.boxed(),
    }
}

fn answer<E: std::fmt::Display>(kind: u8, result: Result<Vec<u8>, E>) -> Answer {
    result.map(|content| (kind, content)).map_err(|error| error.to_string())
}

async fn install(raft: Raft, incoming: Incoming) -> Result<Vote, String> {
    let Incoming { vote, meta, restore, .. } = incoming;
    let machine = restore.finish().map_err(|error| error.to_string())?;
    if crate::raft::log_id(machine.applied()) != meta.last_log_id {
        return Err("the snapshot does not match the entry in its header".to_owned());
    }
    let image = Image { meta: meta.clone(), machine: Arc::new(machine) };
    let snapshot = EngineSnapshot { meta, snapshot: image };
    let installed = raft.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())?;
    Ok(installed.vote)
}

fn malformed(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes answers, all waiting ones at once.
struct Writer {
    write: WriteHalf<Box<dyn Duplex>>,
    buffer: BytesMut,
}

impl Writer {
    fn put(&mut self, kind: u8, number: u64, content: &[u8]) {
        put(&mut self.buffer, kind, number, content);
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        match answer {
            Ok((kind, content)) => self.put(kind | kind::ANSWER, number, &content),
            Err(why) => self.put(kind::REJECTED, number, why.as_bytes()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let write = async {
            self.write.write_all(&self.buffer).await?;
            self.write.flush().await
        };
        timeout(WRITE_TIMEOUT, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::message::Target;
    use crate::raft::LeaderId;
    use crate::{Config, LogHandle, Replica};
    use tokio::io::DuplexStream;

    /// Another replica.
    struct Peer {
        frames: Frames<tokio::io::ReadHalf<DuplexStream>>,
        write: WriteHalf<DuplexStream>,
    }

    impl Peer {
        async fn connect(handle: &LogHandle) -> Peer {
            Peer::connect_as(handle, None).await
        }

        /// Says that it is node `b`, on a connection whose certificate names another node, if given.
        async fn connect_as(handle: &LogHandle, certificate: Option<&str>) -> Peer {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let from = "127.0.0.1:1".parse().unwrap();
            match certificate {
                Some(node) => handle.accept_authenticated(theirs, from, node),
                None => handle.accept(theirs, from),
            }
            let status = handle.status();
            let to = Some(Target { log: status.log.unwrap(), replica: status.replica.unwrap().0 });
            let hello = Hello { cluster: "default".to_owned(), node: "b".to_owned(), client: String::new(), to };
            let (read, write) = tokio::io::split(ours);
            let mut peer = Peer { frames: Frames::new(read, 1 << 20), write };
            peer.send(kind::HELLO, 0, &hello.encode()).await;
            peer
        }

        async fn send(&mut self, kind: u8, number: u64, content: &[u8]) {
            let mut buffer = BytesMut::new();
            put(&mut buffer, kind, number, content);
            self.write.write_all(&buffer).await.unwrap();
        }

        /// Begins a snapshot as the leader of a term. Returns whether it was accepted.
        async fn begin(&mut self, term: u64) -> bool {
            self.begin_as(term, 2).await
        }

        async fn begin_as(&mut self, term: u64, node_id: u64) -> bool {
            let vote = Vote { leader_id: LeaderId { term, node_id }, committed: true };
            self.send(kind::SNAPSHOT, 1, &message::encode_snapshot(&vote, &SnapshotMeta::default())).await;
            self.frames.next().await.unwrap().unwrap().kind != kind::REJECTED
        }
    }

    #[tokio::test]
    async fn a_snapshot_whose_sender_fell_silent_makes_room_for_the_next() {
        let replica = Replica::start(Config::new("a", "127.0.0.1:1")).await.unwrap();
        let handle = replica.handle();
        let mut silent = Peer::connect(&handle).await;
        assert!(silent.begin(5).await);
        let mut next = Peer::connect(&handle).await;
        assert!(next.begin(5).await, "it does not wait for the first transfer");
        assert!(silent.frames.next().await.unwrap().is_none(), "the first transfer has ended");
        let mut deposed = Peer::connect(&handle).await;
        assert!(!deposed.begin(4).await, "an older leader replaces no transfer");
        let mut later = Peer::connect(&handle).await;
        assert!(later.begin(6).await);
        assert!(next.frames.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn m6_a_replica_that_lost_data_takes_no_snapshot() {
        let replica = Replica::start(Config::new("a", "127.0.0.1:1")).await.unwrap();
        let handle = replica.handle();
        let mut peer = Peer::connect(&handle).await;
        assert!(peer.begin(5).await, "nothing shows a loss yet");
        let vote = Vote { leader_id: LeaderId { term: 5, node_id: 2 }, committed: true };
        let seen = crate::acknowledgements::Seen { leader: vote.leader_id, matched: 1_000, committed: 1_000 };
        let me = handle.status().replica.unwrap().0;
        let extras = message::AppendExtras { seen: vec![(me, seen)], ..message::AppendExtras::default() };
        let append = message::Append { vote, prev_log_id: None, entries: Vec::new(), leader_commit: None };
        peer.send(kind::APPEND, 2, &message::encode_append(&append, &extras)).await;
        assert_eq!(peer.frames.next().await.unwrap().unwrap().kind, kind::REJECTED);
        assert!(handle.status().excluded);
        // The transfer that had begun is not installed, and no other one begins.
        peer.send(kind::SNAPSHOT_END, 3, &[]).await;
        let answer = peer.frames.next().await.unwrap().unwrap();
        assert_eq!(answer.kind, kind::REJECTED);
        assert!(String::from_utf8_lossy(&answer.content).contains("went back in time"), "{answer:?}");
        assert!(!peer.begin(6).await);
    }

    #[tokio::test]
    async fn ts4_a_node_sends_only_as_itself() {
        let replica = Replica::start(Config::new("a", "127.0.0.1:1")).await.unwrap();
        let handle = replica.handle();
        let mut honest = Peer::connect_as(&handle, Some("b")).await;
        assert!(honest.begin(5).await, "a replica that is not configured yet");
        assert!(!honest.begin_as(6, 1).await, "replica 1 is on node a");
        let mut impostor = Peer::connect_as(&handle, Some("c")).await;
        assert_eq!(impostor.frames.next().await.unwrap().unwrap().kind, kind::REJECTED, "it says that it is node b");
        assert_eq!(handle.plane.counting.senders_rejected.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn strangers_leave_places_for_known_peers() {
        let mut config = Config::new("a", "127.0.0.1:1");
        config.limits.connections = 4;
        let replica = Replica::start(config).await.unwrap();
        let handle = replica.handle();
        let mut strangers = Vec::new();
        for _ in 0..10 {
            let (ours, theirs) = tokio::io::duplex(1_024);
            handle.accept_stranger(theirs, "127.0.0.2:1".parse().unwrap());
            strangers.push(ours);
        }
        let mut known = Peer::connect(&handle).await;
        assert!(known.begin(5).await, "strangers keep replicas out");
        // A stranger that ends makes room for another one.
        strangers.clear();
        while handle.plane.strangers.available_permits() < 2 {
            tokio::task::yield_now().await;
        }
    }
}
