//! Leaders of the log that are killed in turn while clients write and read.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, FateKind};
use convoke_harness::history::{Answer, Call, CallHistory};
use convoke_testkit::{eventually, measured};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::three::Three;

const CLIENTS: u64 = 6;

/// Operations and results of all clients.
struct Recorded {
    history: Mutex<CallHistory<String>>,
    start: Instant,
    /// Effective writes by key.
    applied: Mutex<BTreeMap<String, u64>>,
    /// Time of the last acknowledged write, and the longest interval between two of them.
    writes: Mutex<(Instant, Duration)>,
}

impl Recorded {
    fn new() -> Recorded {
        let start = Instant::now();
        Recorded {
            history: Mutex::new(CallHistory::new()),
            start,
            applied: Mutex::default(),
            writes: Mutex::new((start, Duration::ZERO)),
        }
    }

    fn at(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }

    fn answered(&self) -> usize {
        self.history.lock().unwrap().len()
    }

    fn acknowledged(&self) {
        let (last, longest) = &mut *self.writes.lock().unwrap();
        *longest = last.elapsed().max(*longest);
        *last = Instant::now();
    }

    /// Returns the longest time without an acknowledged write since the last call.
    fn longest_pause(&self) -> Duration {
        std::mem::take(&mut self.writes.lock().unwrap().1)
    }
}

/// with the default timers of nodes.
#[tokio::test(flavor = "multi_thread")]
async fn killed_leaders_lose_and_repeat_no_write_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    three.leader();
    let ambassador = Ambassador::start(three.addresses().split(',')).unwrap();
    let recorded = Arc::new(Recorded::new());
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(one_client(client, ambassador.clone(), recorded.clone(), stopping.clone())))
        .collect();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let before = recorded.answered();
        eventually("there is some load", async || recorded.answered() > before + 200).await;
        let leader = three.leader();
        recorded.longest_pause();
        three.kill(leader);
        let before = recorded.answered();
        eventually("writes continue", async || recorded.answered() > before + 300).await;
        let pause = recorded.longest_pause();
        measured(&format!("a leader was killed: no write acknowledged for {} ms", pause.as_millis()));
        pauses.push(pause);
        three.spawn(dir.path(), leader);
    }
    // An election that waits for the silence of the leader cannot begin earlier (M7).
    let timers = convoke_replica::LogTimers::default();
    let silence = timers.election_timeout_min + timers.election_timeout_max;
    pauses.sort();
    assert!(pauses[1] < silence, "the leader's end is noticed before its silence: {pauses:?}");
    stop.send_replace(true);
    for client in clients {
        client.await.unwrap();
    }
    let kv = ambassador.kv();
    let applied = recorded.applied.lock().unwrap().clone();
    for (key, applied) in applied {
        let record = kv.get(key.clone()).await.unwrap().unwrap();
        assert_eq!(record.version, applied, "{key}: every effective write took effect exactly once");
    }
    let history = recorded.history.lock().unwrap();
    assert_eq!(history.unknown(), 0, "all requests were resolved");
    history.check().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Writes and reads a few keys. Every seventh write is dropped and its fate is resolved.
async fn one_client(
    client: u64,
    ambassador: Ambassador,
    recorded: Arc<Recorded>,
    stopping: tokio::sync::watch::Receiver<bool>,
) {
    let kv = ambassador.kv();
    let mut random = fastrand::Rng::with_seed(client);
    let mut value = client << 32;
    while !*stopping.borrow() {
        let key = format!("k{}", random.u8(..3));
        if random.u8(..3) == 0 {
            let id = recorded.history.lock().unwrap().call(client, key.clone(), Call::Get, recorded.at());
            let got = kv.get(key).await.unwrap();
            let got = got.map(|record| u64::from_le_bytes(record.value[..].try_into().unwrap()));
            recorded.history.lock().unwrap().answer(id, recorded.at(), Answer::Got(got));
            continue;
        }
        value += 1;
        let id = recorded.history.lock().unwrap().call(client, key.clone(), Call::put(value), recorded.at());
        let mut write = kv.put(key.clone(), value.to_le_bytes().to_vec());
        if value.is_multiple_of(7) {
            // Abandoned before, while or after it is sent; the next request returns its fate.
            let timeout = Duration::from_micros(random.u64(..3_000));
            let answered = tokio::time::timeout(timeout, &mut write).await.is_ok();
            let given_up = if answered { None } else { write.abandon() };
            let fence = kv.put(format!("fence-{client}"), "").await.unwrap();
            let applied = match fence.abandoned {
                Some((request, fate)) if Some(request) == given_up => fate.kind() == FateKind::Applied,
                // A request without a number was never sent; one with a number was answered when it was abandoned.
                _ => answered || given_up.is_some(),
            };
            let mut history = recorded.history.lock().unwrap();
            if applied {
                history.answer(id, recorded.at(), Answer::written());
                *recorded.applied.lock().unwrap().entry(key).or_default() += 1;
            } else {
                history.never(id);
            }
        } else {
            write.await.unwrap();
            recorded.acknowledged();
            recorded.history.lock().unwrap().answer(id, recorded.at(), Answer::written());
            *recorded.applied.lock().unwrap().entry(key).or_default() += 1;
        }
    }
}
