//! Finding the leader, and listening to it.

use super::ambassador::Shared;
use crate::Error;
use crate::connect::Connect;
use crate::connection::connect_by;
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_response::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// How long a node has to say whether it leads.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// A leader that owes answers and says nothing for so long may have been deposed without knowing: others are asked.
const DOUBT_AFTER: Duration = Duration::from_secs(2);

/// A node that says it leads.
#[derive(Debug)]
struct Found {
    epoch: v1::Epoch,
    channel: Channel,
    outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    incoming: Streaming<v1::SubmitResponse>,
}

/// How long the ambassador stays after its last handle, for sessions to be ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs until the last handle is gone, and a little longer if sessions are being ended.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut leaving = shared.leaving.subscribe();
    let gone = async {
        let _ = leaving.wait_for(|leaving| *leaving).await;
        let _ = tokio::time::timeout(FAREWELL, shared.ended()).await;
    };
    tokio::select! {
        biased;
        ((), ()) = async { tokio::join!(keep_time(&shared), keep_linked(&shared)) } => {}
        () = gone => {}
    }
}

/// Calls the core when it wants to be called.
async fn keep_time(shared: &Shared) {
    loop {
        let next = shared.with(|core, now, out| {
            core.tick(now, out);
            core.next_wake().map(|at| at.saturating_sub(now))
        });
        let waiting = async {
            match next {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        // In a fixed order, here and below, so that a simulation repeats itself.
        tokio::select! {
            biased;
            () = waiting => {}
            () = shared.timers.notified() => {}
        }
    }
}

/// Finds a leader whenever there is something to say and no link.
async fn keep_linked(shared: &Shared) {
    let mut random = fastrand::Rng::new();
    let mut waiting = None;
    loop {
        while !shared.wants_link() {
            shared.stirred.notified().await;
        }
        let found = match waiting.take() {
            Some(found) => Some(found),
            None => find(shared, &mut random).await,
        };
        if let Some(found) = found {
            waiting = listen(shared, found).await;
        }
    }
}

/// Asks everybody at once, round by round, until one says that it leads, or nobody wants to know any more.
async fn find(shared: &Shared, random: &mut fastrand::Rng) -> Option<Found> {
    loop {
        let addresses = shared.peers().all();
        let (found, news) = ask_all(shared, &addresses).await;
        if let Some(found) = found {
            shared.peers().found();
            return Some(found);
        }
        if !shared.wants_link() {
            return None;
        }
        if !news {
            let pause = shared.peers().pause(random);
            tokio::time::sleep(pause).await;
        }
    }
}

/// The first that says it leads; else whether somebody named a leader that was not asked.
async fn ask_all(shared: &Shared, addresses: &[String]) -> (Option<Found>, bool) {
    let mut asking = JoinSet::new();
    for address in addresses {
        let (connect, address) = (shared.connect.clone(), address.clone());
        asking.spawn(async move {
            match tokio::time::timeout(ASK_TIMEOUT, ask(&*connect, &address)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::new(crate::Code::Timeout, format!("{address} does not answer"))),
            }
        });
    }
    let mut news = false;
    while let Some(answer) = asking.join_next().await {
        match answer {
            Ok(Ok(found)) => return (Some(found), false),
            Ok(Err(error)) => {
                let members = error.log.map(|log| log.members).unwrap_or_default();
                news |= shared.peers().learn(&members);
            }
            Err(_) => {}
        }
    }
    (None, news)
}

async fn ask(connect: &dyn Connect, address: &str) -> Result<Found, Error> {
    let channel = connect_by(connect, address).await?;
    let (outgoing, messages) = mpsc::unbounded_channel();
    let mut client = LogClient::new(channel.clone()).max_decoding_message_size(convoke_proto::MESSAGE_BYTES_MAX);
    let mut incoming = client.submit(UnboundedReceiverStream::new(messages)).await?.into_inner();
    match incoming.message().await?.and_then(|first| first.message) {
        Some(Message::Welcome(v1::Welcome { epoch: Some(epoch) })) => Ok(Found { epoch, channel, outgoing, incoming }),
        _ => Err(Error::new(crate::Code::Internal, format!("{address} did not say in which epoch it leads"))),
    }
}

/// Listens to a leader until the link is of no use. Returns another leader if one was found meanwhile.
async fn listen(shared: &Shared, found: Found) -> Option<Found> {
    let Found { epoch, channel, outgoing, mut incoming } = found;
    let link = shared.link_up(epoch, channel, outgoing);
    let mut linked = shared.linked.subscribe();
    let given_up = async move {
        // Ends when the core has left this link.
        let _ = linked.wait_for(|linked| linked.as_ref().is_none_or(|present| present.link != link)).await;
    };
    tokio::pin!(given_up);
    let found = loop {
        tokio::select! {
            biased;
            () = &mut given_up => break None,
            message = incoming.next() => match message {
                Some(Ok(message)) => shared.with(|core, now, out| core.received(now, link, message, out)),
                Some(Err(status)) => {
                    let error = Error::from(status);
                    shared.peers().learn(&error.log.map(|log| log.members).unwrap_or_default());
                    break None;
                }
                None => break None,
            },
            () = doubt(shared) => {
                let addresses = shared.peers().all();
                match ask_all(shared, &addresses).await.0 {
                    Some(other) if (other.epoch.term, other.epoch.replica) > (epoch.term, epoch.replica) => break Some(other),
                    _ => {}
                }
            }
        }
    };
    shared.link_down(link);
    found
}

/// Ends when the leader owes answers, to requests or to reads, and has said nothing for a while: every message of its begins this anew. A
/// request may be sent at any time meanwhile, so that is asked at the end, not at the beginning.
async fn doubt(shared: &Shared) {
    loop {
        tokio::time::sleep(DOUBT_AFTER).await;
        if shared.is_asking() || shared.with(|core, _, _| core.owed_answers()) {
            return;
        }
    }
}
