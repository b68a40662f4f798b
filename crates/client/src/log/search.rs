//! Search for the leader: asks all known nodes, round by round.

use super::ambassador::{NameLog, Shared};
use crate::Error;
use crate::connect::{Answers, Connect, LogChannel};
use crate::connection::connect_by;
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_response::Message;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Deadlines for the answer of a node: in the first round, and at most. They grow, so that busy nodes can answer too.
const PROBE_TIMEOUT_BASE: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT_CAP: Duration = Duration::from_secs(5);
/// Duration of a round. A slow node does not delay the next one, because another node may have become leader.
const ROUND: Duration = Duration::from_secs(1);
/// How long a round goes on after its first answer. A frozen leader does not answer, and its successor may reject the first
/// probe because it has just been elected.
const ROUND_AFTER_ANSWER: Duration = Duration::from_millis(50);
/// Number of unanswered probes in a row after which the connection to a node is replaced.
const SILENCES_MAX: u32 = 2;

/// A connection to a node that leads.
pub(super) struct LeaderLink {
    pub(super) epoch: v1::Epoch,
    pub(super) log: v1::LogId,
    pub(super) channel: LogChannel,
    pub(super) outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    pub(super) incoming: Answers,
}

impl fmt::Debug for LeaderLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderLink").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// Result of a probe.
#[derive(Debug)]
pub(super) enum ProbeResult {
    Leader(Box<LeaderLink>),
    /// A node named replicas, with a leader that was not asked.
    NewReplicas,
    None,
}

/// A search. It keeps its connections between rounds, because a search without a leader can take long for many clients
/// at once.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Connections to all known nodes.
    candidates: BTreeMap<String, Candidate>,
    asking: JoinSet<LeaderProbe>,
    rounds: u32,
}

#[derive(Debug, Default)]
struct Candidate {
    channel: Option<LogChannel>,
    /// A probe is in flight.
    asked: bool,
    silences: u32,
}

#[derive(Debug)]
struct LeaderProbe {
    address: String,
    channel: Option<LogChannel>,
    answer: Result<Result<LeaderLink, Error>, Elapsed>,
}

impl Search {
    /// Asks all nodes and waits for answers until the end of the round. With `after`, only a leader of a later epoch
    /// counts: a leader that was deposed without knowing it answers, too.
    pub(super) async fn round(&mut self, shared: &Shared, after: Option<v1::Epoch>) -> ProbeResult {
        let is_later = |epoch: &v1::Epoch| {
            after.as_ref().is_none_or(|after| (epoch.term, epoch.replica) > (after.term, after.replica))
        };
        self.ask(shared);
        let end = tokio::time::sleep(ROUND);
        tokio::pin!(end);
        let (mut new_replicas, mut answered) = (false, false);
        while self.is_asking() {
            tokio::select! {
                biased;
                result = self.next_result(shared) => match result {
                    ProbeResult::Leader(leader) if is_later(&leader.epoch) => return ProbeResult::Leader(leader),
                    ProbeResult::NewReplicas => new_replicas = true,
                    ProbeResult::Leader(_) | ProbeResult::None => {}
                },
                () = &mut end => break,
            }
            // Later answers are received in the pause or in the next round.
            if !answered && after.is_none() {
                answered = true;
                end.as_mut().reset(Instant::now() + ROUND_AFTER_ANSWER);
            }
        }
        if new_replicas { ProbeResult::NewReplicas } else { ProbeResult::None }
    }

    /// Returns whether a node may still answer.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Returns the next answer. Cancel safe.
    pub(super) async fn next_result(&mut self, shared: &Shared) -> ProbeResult {
        let Some(Ok(LeaderProbe { address, channel, answer })) = self.asking.join_next().await else {
            return ProbeResult::None;
        };
        if let Some(candidate) = self.candidates.get_mut(&address) {
            let silences = if answer.is_err() { candidate.silences + 1 } else { 0 };
            *candidate = if silences < SILENCES_MAX {
                Candidate { channel, asked: false, silences }
            } else {
                Candidate::default()
            };
        }
        match answer {
            Ok(Ok(leader)) => ProbeResult::Leader(Box::new(leader)),
            Ok(Err(error)) => {
                use crate::ErrorCode::{FailedPrecondition, PermissionDenied, Unauthenticated};
                if matches!(error.code, FailedPrecondition | PermissionDenied | Unauthenticated) {
                    shared.set_rejection(Some(error.clone()));
                }
                let replicas = error.log.map(|log| log.replicas).unwrap_or_default();
                if shared.peers().learn(&replicas) { ProbeResult::NewReplicas } else { ProbeResult::None }
            }
            Err(_) => ProbeResult::None,
        }
    }

    /// Asks all nodes without a probe in flight.
    fn ask(&mut self, shared: &Shared) {
        let addresses = shared.peers().all();
        let timeout = (PROBE_TIMEOUT_BASE * 2_u32.saturating_pow(self.rounds.min(10))).min(PROBE_TIMEOUT_CAP);
        self.rounds = self.rounds.saturating_add(1);
        self.candidates.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let candidate = self.candidates.entry(address.clone()).or_default();
            if !candidate.asked {
                candidate.asked = true;
                self.asking.spawn(ask(
                    shared.connect.clone(),
                    address,
                    candidate.channel.clone(),
                    shared.name_log(),
                    timeout,
                ));
            }
        }
    }
}

/// Probes a node. The connection is kept even if the answer is late.
async fn ask(
    connect: Arc<dyn Connect>,
    address: String,
    mut channel: Option<LogChannel>,
    name_log: NameLog,
    timeout: Duration,
) -> LeaderProbe {
    let asking = async {
        let channel = match &channel {
            Some(channel) => channel.clone(),
            None => channel.insert(connect_by(&*connect, &address).await?).clone(),
        };
        ask_over(channel, name_log, &address).await
    };
    let answer = tokio::time::timeout(timeout, asking).await;
    LeaderProbe { address, channel, answer }
}

async fn ask_over(channel: LogChannel, name_log: NameLog, address: &str) -> Result<LeaderLink, Error> {
    #[allow(clippy::disallowed_methods, reason = "the ambassador limits its requests in flight")]
    let (outgoing, messages) = mpsc::unbounded_channel();
    let mut incoming: Answers = match &channel {
        LogChannel::Local(node) => node.submit(messages)?,
        LogChannel::Remote(channel) => {
            let mut client = LogClient::with_interceptor(channel.clone(), name_log)
                .max_decoding_message_size(convoke_proto::MESSAGE_BYTES_MAX);
            Box::pin(client.submit(UnboundedReceiverStream::new(messages)).await?.into_inner())
        }
    };
    match incoming.next().await.transpose()?.and_then(|first| first.message) {
        Some(Message::Welcome(v1::Welcome { epoch: Some(epoch), log: Some(log) })) => {
            Ok(LeaderLink { epoch, log, channel, outgoing, incoming })
        }
        _ => Err(Error::new(crate::ErrorCode::Internal, format!("{address} sent no epoch and log id"))),
    }
}
