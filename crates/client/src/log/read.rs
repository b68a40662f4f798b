//! Reads. They change nothing, so they can be repeated.

use super::ambassador::{Linked, NameLog, Shared};
use super::core;
use super::kv::Handle;
use crate::connect::LogChannel;
use crate::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::read_request::What;
use std::time::Duration;
use tonic::service::interceptor::InterceptedService;

/// Pause before a read is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Deadline for one of several replicas to answer a local read.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Consistency of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Sees every write acknowledged before the read began. An abandoned request of this handle may still change the
    /// state afterwards.
    Linearizable,
    /// Linearizable, and no abandoned request of this handle can change the result later. No extra cost if
    /// nothing was abandoned.
    #[default]
    Barrier,
    /// Sees the state of any reachable replica: fast, available without a leader, possibly stale.
    Local,
}

/// Performs a read for a handle.
pub(super) async fn read(handle: &Handle, what: What, consistency: Consistency) -> Result<v1::ReadResponse, Error> {
    read_at(handle, what, 0, consistency).await
}

/// Performs a read at a revision; 0 is the current one.
pub(super) async fn read_at(
    handle: &Handle,
    what: What,
    revision: u64,
    consistency: Consistency,
) -> Result<v1::ReadResponse, Error> {
    let what = (what, revision);
    let (shared, timeout) = (handle.shared(), handle.timeout);
    let read = match consistency {
        Consistency::Local => within(timeout, || silent("any replica"), local(shared, what)).await,
        Consistency::Linearizable => within(timeout, no_leader, at_leader(shared, what, None)).await,
        Consistency::Barrier => within(timeout, no_leader, at_leader(shared, what, Some(handle.lane))).await,
    };
    read.map_err(|error| shared.explain(error))
}

/// Reads at the current leader. With a lane, the read is a barrier read of that lane.
pub(super) async fn at_leader(
    shared: &Shared,
    (what, revision): (What, u64),
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
                log: Some(barrier.log),
                secret: barrier.secret.to_vec(),
                epoch: Some(barrier.epoch),
                below: barrier.below,
            }),
            log: None,
            revision,
            what: Some(what.clone()),
        };
        match shared.answer_over(linked.link, client(shared, linked.channel).read(request)).await {
            Some(Ok(response)) => {
                if let (Some(lane), Some(barrier)) = (lane, barrier) {
                    shared.with(|core, _, _| core.barrier_passed(lane, barrier.below));
                }
                return Ok(response.into_inner());
            }
            Some(Err(status)) => {
                let error = Error::from(status);
                // Without a barrier, another log was named.
                if error.code == ErrorCode::SessionGone && barrier.is_none() {
                    return Err(error);
                }
                retry(shared, linked.link, error).await?;
            }
            // The link was lost; repeat the read at the new leader.
            None => {}
        }
    }
}

/// Waits until no call below the last abandoned one is still wanted.
async fn barrier(shared: &Shared, lane: core::LaneId) -> Option<core::Barrier> {
    let mut answers = shared.answers.subscribe();
    loop {
        answers.mark_unchanged();
        match shared.with(|core, _, _| core.barrier(lane)) {
            Ok(barrier) => return barrier,
            // The sender lives as long as the caller.
            Err(core::StillWanted) => drop(answers.changed().await),
        }
    }
}

/// Returns `Ok` if a retry may succeed, otherwise the error.
pub(super) async fn retry(shared: &Shared, link: core::LinkId, error: Error) -> Result<(), Error> {
    let named = error.retry_after();
    match error.code {
        // The session behind the barrier is gone: nothing of it can change anything.
        ErrorCode::SessionGone => {}
        ErrorCode::ResourceExhausted => {}
        ErrorCode::NotLeader
        | ErrorCode::NoQuorum
        | ErrorCode::NotReady
        | ErrorCode::StaleEpoch
        | ErrorCode::OutcomeUnknown => {
            let replicas = error.log.map(|log| log.replicas).unwrap_or_default();
            shared.peers().learn(&replicas);
            shared.link_down(link);
        }
        _ => return Err(error),
    }
    tokio::time::sleep(PAUSE + named).await;
    Ok(())
}

/// Waits for a link to the leader and returns it.
pub(super) async fn link(shared: &Shared) -> Linked {
    let wanted = shared.want_link();
    let mut linked = shared.linked.subscribe();
    let found = linked.wait_for(Option::is_some).await.ok().and_then(|linked| linked.clone());
    drop(wanted);
    match found {
        Some(linked) => linked,
        // Unreachable in practice: the sender lives as long as `shared`.
        None => std::future::pending().await,
    }
}

/// Asks the replicas and the configured nodes one after the other until one answers.
async fn local(shared: &Shared, (what, revision): (What, u64)) -> Result<v1::ReadResponse, Error> {
    let addresses = shared.peers().all();
    let mut last = Error::new(ErrorCode::NotReady, "no node is known");
    for (left, address) in addresses.iter().rev().enumerate().map(|(place, address)| (addresses.len() - place, address))
    {
        let request = v1::ReadRequest {
            consistency: v1::Consistency::Local.into(),
            barrier: None,
            log: None,
            revision,
            what: Some(what.clone()),
        };
        let asked = async {
            let channel = shared.channel(address).await?;
            client(shared, channel).read(request).await.map_err(Error::from)
        };
        // A silent node must not block the others; only the last one has no deadline.
        let timeout = (left > 1).then_some(LOCAL_TIMEOUT);
        match within(timeout, || silent(address), asked).await {
            Ok(response) => return Ok(response.into_inner()),
            // Another replica would answer the same.
            Err(error)
                if matches!(error.code, ErrorCode::InvalidArgument | ErrorCode::TooLarge | ErrorCode::Compacted) =>
            {
                return Err(error);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn client(shared: &Shared, channel: LogChannel) -> LogClient<InterceptedService<LogChannel, NameLog>> {
    LogClient::with_interceptor(channel, shared.name_log()).max_decoding_message_size(convoke_proto::MESSAGE_BYTES_MAX)
}

/// Returns the result, or `late` on a timeout.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Ambassador, Options};

    /// A local read does not need a leader, so its error must not name one.
    #[tokio::test]
    async fn a_local_read_that_is_not_answered_names_no_leader() {
        // Accepts connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ambassador = Ambassador::start([silent.local_addr().unwrap().to_string()]).unwrap();
        let kv = ambassador.kv_with(Options::default().timeout(Duration::from_millis(100)));
        let error = kv.get_with("a", Consistency::Local).await.unwrap_err();
        assert_eq!(error, Error::new(ErrorCode::Timeout, "no answer from any replica in time; try again"));
        let error = kv.get_with("a", Consistency::Linearizable).await.unwrap_err();
        assert!(error.message.contains("no leader"), "{error}");
    }
}
