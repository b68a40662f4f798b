//! Reads. They change nothing, so they are simply asked again.

use super::ambassador::{Linked, Shared};
use super::kv::Handle;
use super::{KeyValue, core};
use crate::connect::LogChannel;
use crate::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::read_request::What;
use prost::bytes::Bytes;
use std::time::Duration;

/// Pause before a read is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// How long one of several replicas may take to answer a local read.
const LOCAL_PATIENCE: Duration = Duration::from_secs(2);

/// What a read may miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Sees everything that was answered before it began. A request this handle has abandoned may still change it afterwards.
    Linearizable,
    /// The same, and nothing this handle has abandoned can change it afterwards. Costs no more if nothing was.
    #[default]
    Barrier,
    /// Whatever a reachable replica holds: fast, available without a leader, and possibly old.
    Local,
}

/// Some keys, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub records: Vec<KeyValue>,
    /// There are more, behind the last one.
    pub more: bool,
    /// Of all keys, when this page was read.
    pub revision: u64,
}

/// Reads for a handle.
pub(super) async fn read(handle: &Handle, what: What, consistency: Consistency) -> Result<v1::ReadResponse, Error> {
    let (shared, timeout) = (handle.shared(), handle.timeout);
    match consistency {
        Consistency::Local => within(timeout, || silent("any replica"), local(shared, what)).await,
        Consistency::Linearizable => within(timeout, no_leader, at_leader(shared, what, None)).await,
        Consistency::Barrier => within(timeout, no_leader, at_leader(shared, what, Some(handle.lane))).await,
    }
}

/// Reads at the leader, whoever that is by then. With a lane: behind what it has given up.
pub(super) async fn at_leader(
    shared: &Shared,
    what: What,
    lane: Option<core::LaneId>,
) -> Result<v1::ReadResponse, Error> {
    loop {
        let linked = link(shared).await;
        let barrier = match lane {
            Some(lane) => barrier(shared, lane).await,
            None => None,
        };
        let consistency = if barrier.is_some() { v1::Consistency::Barrier } else { v1::Consistency::Linearizable };
        let request = v1::ReadRequest {
            consistency: consistency.into(),
            barrier: barrier.map(|barrier| v1::Barrier {
                session: barrier.session,
                epoch: Some(barrier.epoch),
                below: barrier.below,
            }),
            what: Some(what.clone()),
        };
        match shared.answer_over(linked.link, client(linked.channel).read(request)).await {
            Some(Ok(response)) => {
                if let (Some(lane), Some(barrier)) = (lane, barrier) {
                    shared.with(|core, _, _| core.barrier_passed(lane, barrier.below));
                }
                return Ok(response.into_inner());
            }
            Some(Err(status)) => retry(shared, linked.link, status.into()).await?,
            // Somebody else leads, perhaps: asked there, from the beginning.
            None => {}
        }
    }
}

/// Waits until nothing stands before the last call that was given up.
async fn barrier(shared: &Shared, lane: core::LaneId) -> Option<core::Barrier> {
    let mut answers = shared.answers.subscribe();
    loop {
        answers.mark_unchanged();
        match shared.with(|core, _, _| core.barrier(lane)) {
            Ok(barrier) => return barrier,
            // It lives as long as whoever asks.
            Err(core::StillWanted) => drop(answers.changed().await),
        }
    }
}

/// Goes on asking after what another try may mend; everything else is the answer.
pub(super) async fn retry(shared: &Shared, link: core::LinkId, error: Error) -> Result<(), Error> {
    match error.code {
        // The session behind the barrier is gone: nothing of it can change anything.
        ErrorCode::SessionGone => {}
        ErrorCode::ResourceExhausted => {}
        ErrorCode::NotLeader
        | ErrorCode::NoQuorum
        | ErrorCode::NotReady
        | ErrorCode::StaleEpoch
        | ErrorCode::OutcomeUnknown => {
            let members = error.log.map(|log| log.members).unwrap_or_default();
            shared.peers().learn(&members);
            shared.link_down(link);
        }
        _ => return Err(error),
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

/// The link to the leader, as soon as there is one.
pub(super) async fn link(shared: &Shared) -> Linked {
    let wanted = shared.want_link();
    let mut linked = shared.linked.subscribe();
    let found = linked.wait_for(Option::is_some).await.ok().and_then(|linked| linked.clone());
    drop(wanted);
    match found {
        Some(linked) => linked,
        // The sender is in what is borrowed here.
        None => std::future::pending().await,
    }
}

/// Asks the replicas one after the other, the configured nodes among them, until one has an answer.
async fn local(shared: &Shared, what: What) -> Result<v1::ReadResponse, Error> {
    let addresses = shared.peers().all();
    let mut last = Error::new(ErrorCode::NotReady, "no node is known");
    for (left, address) in addresses.iter().rev().enumerate().map(|(place, address)| (addresses.len() - place, address))
    {
        let request =
            v1::ReadRequest { consistency: v1::Consistency::Local.into(), barrier: None, what: Some(what.clone()) };
        let asked = async {
            let channel = shared.channel(address).await?;
            client(channel).read(request).await.map_err(Error::from)
        };
        // One that does not answer must not keep the others from being asked; the last has all the time there is.
        let patience = (left > 1).then_some(LOCAL_PATIENCE);
        match within(patience, || silent(address), asked).await {
            Ok(response) => return Ok(response.into_inner()),
            Err(error) if error.code == ErrorCode::InvalidArgument || error.code == ErrorCode::TooLarge => {
                return Err(error);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn client(channel: LogChannel) -> LogClient<LogChannel> {
    LogClient::new(channel).max_decoding_message_size(convoke_proto::MESSAGE_BYTES_MAX)
}

/// The result, or `late` if it does not come in time.
pub(super) async fn within<T>(
    timeout: Option<Duration>,
    late: impl FnOnce() -> Error,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(timeout) = timeout else { return future.await };
    tokio::time::timeout(timeout, future).await.unwrap_or_else(|_| Err(late()))
}

pub(super) fn no_leader() -> Error {
    Error::new(ErrorCode::Timeout, "no leader of the log answered in time; try again, or read locally")
}

fn silent(who: &str) -> Error {
    Error::new(ErrorCode::Timeout, format!("no answer from {who} in time; try again"))
}

/// All keys that begin with a prefix.
pub(super) fn prefix(prefix: Bytes) -> v1::KeyRange {
    // The first key behind the prefix: its last byte that can be raised, raised, and nothing after it.
    let until = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
        let mut until = prefix[..=last].to_vec();
        until[last] += 1;
        until.into()
    });
    v1::KeyRange { from: prefix, until }
}

/// What is left of a range behind a key.
pub(super) fn page(range: v1::KeyRange, after: Option<Bytes>) -> v1::KeyRange {
    match after {
        Some(after) if after >= range.from => {
            let from = [&after[..], &[0]].concat().into();
            v1::KeyRange { from, until: range.until }
        }
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Ambassador, Options};

    /// Nobody who reads locally asked for a leader.
    #[tokio::test]
    async fn a_local_read_that_is_not_answered_names_no_leader() {
        // Lets connect and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ambassador = Ambassador::start([silent.local_addr().unwrap().to_string()]).unwrap();
        let kv = ambassador.kv_with(Options::default().timeout(Duration::from_millis(100)));
        let error = kv.get_with("a", Consistency::Local).await.unwrap_err();
        assert_eq!(error, Error::new(ErrorCode::Timeout, "no answer from any replica in time; try again"));
        let error = kv.get_with("a", Consistency::Linearizable).await.unwrap_err();
        assert!(error.message.contains("no leader"), "{error}");
    }

    #[test]
    fn a_prefix_is_a_range_and_pages_begin_behind_a_key() {
        let range = prefix(Bytes::from_static(b"a\xff"));
        assert_eq!(range.until.as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix(Bytes::from_static(b"\xff")).until, None);
        assert_eq!(prefix(Bytes::new()).until, None);
        let next = page(range.clone(), Some(Bytes::from_static(b"a\xff1")));
        assert_eq!((&next.from[..], &next.until), (&b"a\xff1\0"[..], &range.until));
        assert_eq!(page(range.clone(), Some(Bytes::from_static(b"a"))), range, "never before its beginning");
    }
}
