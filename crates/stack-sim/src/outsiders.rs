//! Watches at nodes without a replica, which serve them from one shared stream (H8, H9). Each watch continues at its
//! position, wherever its stream ended. The received positions are compared with the history of the log.

use crate::lockers::ELECTION;
use crate::net::ClientConnect;
use crate::node::{client_address, name};
use crate::record::Record;
use crate::world::Shared;
use convoke_client::log::Connect;
use convoke_log::command::LockName;
use convoke_log::history::{EventChange, EventPosition};
use convoke_log::machine::Machine;
use convoke_proto::v1;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::log_client::LogClient;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

/// A node that sends nothing for this long is left.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);
/// Counted while a node without a replica serves a watch.
pub const OUTSIDE: &str = "messages of events from a node without a replica";
/// Watches of guarded keys, of the other keys, and of the election.
pub(crate) const WATCHES: [Watched; 3] = [Watched::Prefix("guarded/"), Watched::Prefix("key/"), Watched::Election];

/// What a watch selects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watched {
    Prefix(&'static str),
    Election,
}

impl Watched {
    fn request(self) -> Which {
        match self {
            Watched::Prefix(prefix) => Which::Range(v1::KeyRange::prefix(prefix)),
            Watched::Election => Which::Lock(v1::LockGuard { name: ELECTION.into(), fence: 0, election: true }),
        }
    }

    fn matches(self, change: &EventChange) -> bool {
        match (self, change) {
            (Watched::Prefix(prefix), change) => change.key().is_some_and(|key| key.starts_with(prefix.as_bytes())),
            (Watched::Election, EventChange::Lock(event)) => event.name == LockName::election(ELECTION),
            (Watched::Election, _) => false,
        }
    }
}

/// Received positions, by watch.
pub(crate) type Received = [Vec<EventPosition>; WATCHES.len()];

/// Receives the events of one watch from the first revision on. Never ends.
pub(crate) async fn watch(shared: Arc<Shared>, number: usize) {
    let mut random = fastrand::Rng::with_seed(shared.plan.seed.wrapping_mul(7_368_787).wrapping_add(number as u64));
    let (mut log, mut next) = (None, EventPosition::start_of(1));
    // The streams begin one after the other, so that the shared stream must change its selection.
    tokio::time::sleep(Duration::from_secs(5 * number as u64)).await;
    loop {
        let place = choose(&shared, &mut random);
        // The stream ends with its connection or its node. Another one continues.
        let _ = receive(&shared, number, place, &mut log, &mut next).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns a node without a replica, or any node: the first may be gone.
fn choose(shared: &Shared, random: &mut fastrand::Rng) -> usize {
    let nodes = 0..shared.plan.nodes();
    let outside: Vec<usize> = nodes.clone().filter(|place| is_outside(shared, *place)).collect();
    if outside.is_empty() || random.u8(0..4) == 0 {
        random.usize(nodes)
    } else {
        outside[random.usize(..outside.len())]
    }
}

fn is_outside(shared: &Shared, place: usize) -> bool {
    shared.handle(place).is_some_and(|handle| handle.log().is_err())
}

async fn receive(
    shared: &Shared,
    number: usize,
    place: usize,
    log: &mut Option<v1::LogId>,
    next: &mut EventPosition,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(format!("http://{}", client_address(&name(place))))?;
    let channel = tokio::time::timeout(SILENCE_MAX, ClientConnect.connect(&endpoint)).await??;
    let watch = v1::KeyWatch {
        id: number as u64,
        which: Some(WATCHES[number].request()),
        from: Some(v1::EventPosition { revision: next.revision, index: next.index }),
        previous: number == 0,
        ..v1::KeyWatch::default()
    };
    let request =
        v1::KeyWatchRequest { log: *log, watches: vec![watch], progress_ms: 5_000, ..v1::KeyWatchRequest::default() };
    let mut client = LogClient::new(channel);
    let mut stream = tokio::time::timeout(SILENCE_MAX, client.watch(request)).await??.into_inner();
    while let Some(response) = tokio::time::timeout(SILENCE_MAX, stream.message()).await?? {
        let recorder = &shared.recorder;
        match response.message {
            Some(Message::Started(started)) => *log = started.log,
            Some(Message::Progress(progress)) => *next = position(progress.next),
            Some(Message::Events(events)) => {
                if is_outside(shared, place) {
                    recorder.count(OUTSIDE);
                }
                recorder.lock().outside[number].extend(events.events.iter().map(|event| position(event.position)));
                *next = position(events.next);
            }
            Some(Message::Compacted(compacted)) => {
                recorder.violated(format!("history is complete: {compacted:?}"));
            }
            None => {}
        }
    }
    Ok(())
}

fn position(position: Option<v1::EventPosition>) -> EventPosition {
    let v1::EventPosition { revision, index } = position.unwrap_or_default();
    EventPosition { revision, index }
}

fn expected(machine: &Machine, watched: Watched) -> Vec<EventPosition> {
    let events = machine.history().events_from(EventPosition::start_of(1));
    events.filter(|event| watched.matches(&event.change)).map(|event| event.position).collect()
}

/// Returns whether the watches have received everything.
pub(crate) fn caught_up(record: &Record, machine: &Machine) -> bool {
    let mut all = WATCHES.iter().zip(&record.outside);
    all.all(|(watched, received)| received.last() >= expected(machine, *watched).last())
}

/// Every watch has received each of its events once, in order.
pub(crate) fn check(record: &Record, machine: &Machine) -> Result<u64, String> {
    let mut count = 0;
    for (watched, received) in WATCHES.into_iter().zip(&record.outside) {
        let expected = expected(machine, watched);
        same(received, &expected).map_err(|what| {
            format!("watches at nodes without a replica receive each change once: {watched:?}: {what}")
        })?;
        count += expected.len() as u64;
    }
    Ok(count)
}

fn same(received: &[EventPosition], expected: &[EventPosition]) -> Result<(), String> {
    let different = (0..received.len().max(expected.len())).find(|at| received.get(*at) != expected.get(*at));
    different
        .map_or(Ok(()), |at| Err(format!("event {at} is {:?} instead of {:?}", received.get(at), expected.get(at))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_a_repeated_and_an_early_event_are_noticed() {
        let [one, two, three] = [1, 2, 3].map(EventPosition::start_of);
        assert!(same(&[one, two, three], &[one, two, three]).is_ok());
        for received in [&[one, three][..], &[one, two, two, three], &[one, three, two], &[one, two]] {
            assert!(same(received, &[one, two, three]).is_err(), "{received:?}");
        }
    }
}
