//! Asking all known nodes who leads, round by round.

use super::ambassador::Shared;
use crate::Error;
use crate::connect::{Connect, LogChannel};
use crate::connection::connect_by;
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_response::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

/// How long a node has to say whether it leads: in the first round, and at most. Of nodes that are too busy to answer within the first,
/// nobody would ever hear.
const PATIENCE_BASE: Duration = Duration::from_secs(1);
const PATIENCE_CAP: Duration = Duration::from_secs(5);
/// A round does not wait for longer for whoever is slow: meanwhile one of the others may have come to lead.
const ROUND: Duration = Duration::from_secs(1);
/// After so many questions in a row that were not answered, a node is connected to anew: the connection may lead nowhere.
const SILENCES_MAX: u32 = 2;

/// A node that says it leads.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) epoch: v1::Epoch,
    pub(super) channel: LogChannel,
    pub(super) outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    pub(super) incoming: Streaming<v1::SubmitResponse>,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Heard {
    Leader(Box<Found>),
    /// Somebody named a leader that was not asked.
    News,
    Nothing,
}

/// Keeps its connections from round to round: who has no leader asks for long, and so do all others.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// To every known node.
    ways: BTreeMap<String, Way>,
    asking: JoinSet<LeaderProbe>,
    rounds: u32,
}

#[derive(Debug, Default)]
struct Way {
    channel: Option<LogChannel>,
    /// A question is on its way.
    asked: bool,
    silences: u32,
}

#[derive(Debug)]
struct LeaderProbe {
    address: String,
    channel: Option<LogChannel>,
    answer: Result<Result<Found, Error>, Elapsed>,
}

impl Search {
    /// Asks everybody, and waits a while for the answers.
    pub(super) async fn round(&mut self, shared: &Shared) -> Heard {
        self.ask(shared);
        let end = tokio::time::sleep(ROUND);
        tokio::pin!(end);
        let mut news = false;
        while self.is_asking() {
            tokio::select! {
                biased;
                heard = self.heard(shared) => match heard {
                    Heard::Leader(found) => return Heard::Leader(found),
                    Heard::News => news = true,
                    Heard::Nothing => {}
                },
                () = &mut end => break,
            }
        }
        if news { Heard::News } else { Heard::Nothing }
    }

    /// Whether somebody may still answer.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// The next answer. May be given up at any time.
    pub(super) async fn heard(&mut self, shared: &Shared) -> Heard {
        let Some(Ok(LeaderProbe { address, channel, answer })) = self.asking.join_next().await else {
            return Heard::Nothing;
        };
        if let Some(way) = self.ways.get_mut(&address) {
            let silences = if answer.is_err() { way.silences + 1 } else { 0 };
            *way = if silences < SILENCES_MAX { Way { channel, asked: false, silences } } else { Way::default() };
        }
        match answer {
            Ok(Ok(found)) => Heard::Leader(Box::new(found)),
            Ok(Err(error)) => {
                let members = error.log.map(|log| log.members).unwrap_or_default();
                if shared.peers().learn(&members) { Heard::News } else { Heard::Nothing }
            }
            Err(_) => Heard::Nothing,
        }
    }

    /// Everybody who is not being asked already.
    fn ask(&mut self, shared: &Shared) {
        let addresses = shared.peers().all();
        let patience = (PATIENCE_BASE * 2_u32.saturating_pow(self.rounds.min(10))).min(PATIENCE_CAP);
        self.rounds = self.rounds.saturating_add(1);
        self.ways.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let way = self.ways.entry(address.clone()).or_default();
            if !way.asked {
                way.asked = true;
                self.asking.spawn(ask(shared.connect.clone(), address, way.channel.clone(), patience));
            }
        }
    }
}

/// A connection that came about is kept, even if the answer did not come in time.
async fn ask(
    connect: Arc<dyn Connect>,
    address: String,
    mut channel: Option<LogChannel>,
    patience: Duration,
) -> LeaderProbe {
    let asking = async {
        let channel = match &channel {
            Some(channel) => channel.clone(),
            None => channel.insert(connect_by(&*connect, &address).await?).clone(),
        };
        ask_over(channel, &address).await
    };
    let answer = tokio::time::timeout(patience, asking).await;
    LeaderProbe { address, channel, answer }
}

async fn ask_over(channel: LogChannel, address: &str) -> Result<Found, Error> {
    let (outgoing, messages) = mpsc::unbounded_channel();
    let mut client = LogClient::new(channel.clone()).max_decoding_message_size(convoke_proto::MESSAGE_BYTES_MAX);
    let mut incoming = client.submit(UnboundedReceiverStream::new(messages)).await?.into_inner();
    match incoming.message().await?.and_then(|first| first.message) {
        Some(Message::Welcome(v1::Welcome { epoch: Some(epoch) })) => Ok(Found { epoch, channel, outgoing, incoming }),
        _ => Err(Error::new(crate::ErrorCode::Internal, format!("{address} did not say in which epoch it leads"))),
    }
}
