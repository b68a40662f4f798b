//! The engine's connections to other replicas.

use super::dial::Dial;
use super::link::{Link, LinkConfig, LinkError};
use super::message::{self, Append, AppendExtras, Appended, Ballot, Hello, Target, Transfer, Transferred, Voted, kind};
use crate::acknowledgements::AcknowledgementTable;
use crate::config::Config;
use crate::counters::{Counting, add};
use crate::raft::{EngineSnapshot, Types, Vote};
use crate::state::Image;
use convoke_log::codec::CodecError;
use convoke_log::command::ReplicaLocation;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use openraft::error::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{SnapshotResponse, StreamAppendResult};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Creates clients. Heartbeats, entries and snapshots use separate connections and do not delay each other.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) config: Arc<Config>,
    pub(crate) dialer: Arc<dyn Dial>,
    pub(crate) log: u128,
    pub(crate) counting: Arc<Counting>,
    pub(crate) acknowledgements: Arc<AcknowledgementTable>,
}

impl Network {
    fn client(&self, target: u64, node: &ReplicaLocation, timeout: Duration) -> Client {
        let to = Target { log: self.log, replica: target };
        let network = self.clone();
        let link = network.link(node, to, timeout);
        Client { link, network, node: node.clone(), to, answer_timeout: timeout }
    }

    fn link(&self, node: &ReplicaLocation, to: Target, timeout: Duration) -> Link {
        link(&self.config, &self.dialer, &self.counting, &node.address, Some((to, node)), timeout)
    }
}

/// Creates a link to the node at an address, or to a replica wherever its node is now.
pub(crate) fn link(
    config: &Config,
    dialer: &Arc<dyn Dial>,
    counting: &Arc<Counting>,
    address: &str,
    to: Option<(Target, &ReplicaLocation)>,
    timeout: Duration,
) -> Link {
    Link::open(LinkConfig {
        dialer: dialer.clone(),
        address: address.to_owned(),
        node: to.map(|(_, replica)| replica.node.clone()),
        hello: Hello {
            cluster: config.cluster.clone(),
            node: config.node.clone(),
            client: config.client_address.clone(),
            to: to.map(|(target, _)| target),
        },
        rpc_timeout: config.timers.rpc_timeout,
        answer_timeout: timeout,
        queue: config.limits.appends_in_flight + 16,
        frame_bytes: config.limits.frame_bytes,
        counting: counting.clone(),
    })
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &ReplicaLocation) -> Client {
        self.client(target, node, ANSWER_TIMEOUTS * self.config.timers.rpc_timeout)
    }

    /// Installing a snapshot takes long, so its answer has a longer deadline.
    async fn new_snapshot_client(&mut self, target: u64, node: &ReplicaLocation) -> Client {
        self.client(target, node, INSTALL_STALLS * self.config.timers.snapshot_stall)
    }
}

/// Client of one other replica.
#[derive(Debug)]
pub(crate) struct Client {
    link: Link,
    network: Network,
    node: ReplicaLocation,
    to: Target,
    answer_timeout: Duration,
}

fn rpc_error(error: &LinkError) -> RPCError<Types> {
    match error {
        LinkError::Unreachable { .. } | LinkError::Rejected { .. } => RPCError::Unreachable(Unreachable::new(error)),
        LinkError::Broken(_) | LinkError::Overdue(_) => RPCError::Network(NetworkError::new(error)),
    }
}

fn garbled(error: CodecError) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&error))
}

impl RaftNetworkV2<Types> for Client {
    type SnapshotData = Image;

    async fn append_entries(&mut self, append: Append, _: RPCOption) -> Result<Appended, RPCError<Types>> {
        let answer = self
            .link
            .ask(kind::APPEND, message::encode_append(&append, &AppendExtras::of(&self.network.acknowledgements)))
            .await
            .map_err(|error| rpc_error(&error))?;
        message::decode_appended(&answer).map_err(garbled)
    }

    /// Pipelines messages. They arrive in order, and so do the answers.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>>
    where
        S: Stream<Item = Append> + OptionalSend + Unpin + 'static,
    {
        let (link, acknowledgements, replica) = (&self.link, &self.network.acknowledgements, self.to.replica);
        let answers = input
            .map(move |append| {
                // Queued before the next message is created, so the order of messages is that of the log.
                let pending =
                    link.send(kind::APPEND, message::encode_append(&append, &AppendExtras::of(acknowledgements)));
                let last = append.entries.last().map(|entry| entry.log_id).or(append.prev_log_id);
                async move {
                    let answer = link.answer(pending).await;
                    acknowledgements.set_refused(replica, matches!(answer, Err(LinkError::Unreachable { .. })));
                    let answer = answer.map_err(|error| rpc_error(&error))?;
                    let appended = message::decode_appended(&answer).map_err(garbled)?;
                    Ok(appended.into_stream_result(append.prev_log_id, last))
                }
            })
            .buffered(self.network.config.limits.appends_in_flight);
        // After a conflict or an error, all later answers are void.
        let answers = answers.scan(false, |over, answer: Result<StreamAppendResult<Types>, RPCError<Types>>| {
            let item = (!*over).then_some(answer);
            *over |= !matches!(item, Some(Ok(Ok(_))));
            std::future::ready(item)
        });
        Box::pin(std::future::ready(Ok(answers.boxed())))
    }

    async fn vote(&mut self, ballot: Ballot, _: RPCOption) -> Result<Voted, RPCError<Types>> {
        let answer = self.link.ask(kind::VOTE, self.encode_ballot(&ballot)).await.map_err(|error| rpc_error(&error))?;
        message::decode_voted(&answer).map_err(garbled)
    }

    async fn pre_vote(&mut self, ballot: Ballot, _: RPCOption) -> Result<Voted, RPCError<Types>> {
        let answer =
            self.link.ask(kind::PRE_VOTE, self.encode_ballot(&ballot)).await.map_err(|error| rpc_error(&error))?;
        message::decode_voted(&answer).map_err(garbled)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: EngineSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let sent = tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, snapshot) => sent,
        };
        if sent.is_err() {
            // The connection may be dead without an error, and its remaining content is useless.
            self.link = self.network.link(&self.node, self.to, self.answer_timeout);
        }
        sent
    }

    async fn transfer_leader(&mut self, transfer: Transfer, _: RPCOption) -> Result<Transferred, RPCError<Types>> {
        let answer = self
            .link
            .ask(kind::TRANSFER, message::encode_transfer(&transfer))
            .await
            .map_err(|error| rpc_error(&error))?;
        message::decode_transferred(&answer).map_err(garbled)
    }

    /// Backs off from a replica that is unreachable or not ready.
    fn backoff(&self) -> Option<Backoff> {
        let first = [20, 50, 100, 200].into_iter().map(Duration::from_millis);
        Some(Backoff::new(first.chain(std::iter::repeat(Duration::from_millis(500)))))
    }
}

impl Client {
    fn encode_ballot(&self, ballot: &Ballot) -> Vec<u8> {
        message::encode_ballot(ballot, self.network.acknowledgements.of(self.to.replica))
    }

    /// Sends a snapshot frame by frame on its own connection, as fast as the other side reads.
    ///
    /// The evidence about the receiver precedes it (M6): the snapshot could otherwise replace what a disk that went back
    /// in time has lost, before any other message shows the loss.
    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: EngineSnapshot,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let stall = self.network.config.timers.snapshot_stall;
        let failed = |error: LinkError| StreamingError::from(rpc_error(&error));
        // An append without entries and without a position conflicts with nothing.
        let nothing = Append { vote, prev_log_id: None, entries: Vec::new(), leader_commit: None };
        let extras = AppendExtras::of(&self.network.acknowledgements);
        let checked = self.link.send(kind::APPEND, message::encode_append(&nothing, &extras));
        let begun = self.link.send(kind::SNAPSHOT, message::encode_snapshot(&vote, &snapshot.meta));
        self.link.answer_within(checked, stall).await.map_err(failed)?;
        self.link.answer_within(begun, stall).await.map_err(failed)?;
        let image = snapshot.snapshot.machine.snapshot();
        for frame in image.frames() {
            self.link.send_without_answer(kind::SNAPSHOT_FRAME, frame, stall).await.map_err(failed)?;
        }
        // All frames are sent; the other side checks and stores the snapshot before it answers.
        let ended = self.link.send_waiting(kind::SNAPSHOT_END, Vec::new(), stall).await;
        let answer = self.link.answer_within(ended, INSTALL_STALLS * stall).await.map_err(failed)?;
        let vote = message::decode_vote(&answer).map_err(|error| StreamingError::from(garbled(error)))?;
        add(&self.network.counting.snapshots_sent, 1);
        Ok(SnapshotResponse::new(vote))
    }
}

/// Number of answer deadlines after which a connection without an answer is closed.
pub(crate) const ANSWER_TIMEOUTS: u32 = 3;
/// Number of stall timeouts that installing a snapshot may take.
const INSTALL_STALLS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acknowledgements::Seen;
    use crate::net::LOG_PREAMBLE;
    use crate::net::dial::Duplex;
    use crate::net::frame::Frames;
    use crate::raft::{LeaderId, SnapshotMeta};
    use convoke_log::{LogLimits, Machine};
    use std::io;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, DuplexStream};

    /// Opens one connection.
    #[derive(Debug)]
    struct Once(Mutex<Option<DuplexStream>>);

    impl Dial for Once {
        fn dial<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
            let stream = self.0.lock().unwrap().take();
            Box::pin(async move {
                let stream = stream.ok_or(io::ErrorKind::ConnectionRefused)?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            })
        }
    }

    #[tokio::test]
    async fn m6_evidence_precedes_a_snapshot() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let vote = Vote { leader_id: LeaderId { term: 3, node_id: 1 }, committed: true };
        let seen = Seen { leader: vote.leader_id, matched: 20, committed: 15 };
        let acknowledgements = Arc::new(AcknowledgementTable::default());
        acknowledgements.record(2, seen);
        let network = Network {
            config: Arc::new(Config::new("a", "127.0.0.1:1")),
            dialer: Arc::new(Once(Mutex::new(Some(ours)))),
            log: 7,
            counting: Arc::default(),
            acknowledgements,
        };
        let location = ReplicaLocation { node: "b".into(), address: "127.0.0.1:2".into() };
        let mut client = network.client(2, &location, Duration::from_secs(1));
        let machine = Arc::new(Machine::new(LogLimits::default()).unwrap());
        let image = Image { meta: SnapshotMeta::default(), machine };
        let sending = tokio::spawn(async move { client.send_snapshot(vote, image.into_engine()).await });
        let mut preamble = [0; LOG_PREAMBLE.len()];
        theirs.read_exact(&mut preamble).await.unwrap();
        let mut frames = Frames::new(theirs, 1 << 20);
        assert_eq!(frames.next().await.unwrap().unwrap().kind, kind::HELLO);
        let first = frames.next().await.unwrap().unwrap();
        assert_eq!(first.kind, kind::APPEND);
        let (append, extras) = message::decode_append(&first.content).unwrap();
        assert_eq!((append.vote, append.prev_log_id, append.entries.len()), (vote, None, 0));
        assert_eq!(extras.seen, [(2, seen)]);
        assert_eq!(frames.next().await.unwrap().unwrap().kind, kind::SNAPSHOT);
        sending.abort();
    }
}
