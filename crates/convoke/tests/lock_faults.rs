//! Locks and elections of three nodes while leaders die and nodes restart.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Acquire, Ambassador, Compare, Kv, LeaseTerms, Op, OpResult, Relation, TxnAnswer};
use convoke_harness::history::CallId;
use convoke_harness::history::coordination::{CoordinationHistory, Reply, Request, Txn};
use convoke_testkit::{eventually, until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::patient_plan;
use support::three::Three;

/// Longer than an election on a busy machine.
const TTL: Duration = Duration::from_secs(60);
const WAITERS: usize = 100;

/// Transactions and uses of locks of all clients.
struct Recorded {
    history: Mutex<CoordinationHistory<&'static str>>,
    start: Instant,
    values: AtomicUsize,
}

impl Recorded {
    fn new() -> Recorded {
        Recorded { history: Mutex::default(), start: Instant::now(), values: AtomicUsize::new(1) }
    }

    fn at(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }

    /// Returns a value that no other write uses.
    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) as u64
    }

    fn request(&self, client: usize, request: Request<&'static str>) -> CallId {
        self.history.lock().unwrap().request(client as u64, request, self.at())
    }

    fn reply(&self, id: CallId, reply: Reply) {
        self.history.lock().unwrap().answer(id, self.at(), reply);
    }

    /// Records the answer to a transaction, and returns what it read.
    fn decided(&self, id: CallId, answer: TxnAnswer) -> (bool, Vec<Option<u64>>) {
        let read = answer.results.unwrap().iter().filter_map(value_read).collect::<Vec<_>>();
        self.reply(id, Reply::Decided { succeeded: answer.succeeded, read: read.clone() });
        (answer.succeeded, read)
    }
}

fn value_read(result: &OpResult) -> Option<Option<u64>> {
    let OpResult::Read { records, .. } = result else { return None };
    Some(records.first().map(|record| String::from_utf8_lossy(&record.value).parse().unwrap()))
}

/// Changes two keys together if one of them is as expected, until it is to stop.
async fn transact(client: usize, kv: Kv, recorded: Arc<Recorded>, stop: Arc<AtomicBool>) {
    let mut expected = None;
    while !stop.load(Ordering::Relaxed) {
        let value = recorded.value();
        let txn = Txn::default().if_value("x", expected).put("x", value).put("y", value).get("turn").else_get("x");
        let id = recorded.request(client, Request::Txn(txn));
        let compare = match expected {
            None => Compare::missing("x"),
            Some(expected) => Compare::value("x", Relation::Equal, expected.to_string()),
        };
        let text = value.to_string();
        let txn = kv.txn().compare(compare).then(Op::put("x", text.clone())).then(Op::put("y", text));
        let answer = txn.then(Op::get("turn")).otherwise(Op::get("x")).commit().await.unwrap();
        let (succeeded, read) = recorded.decided(id, answer);
        expected = if succeeded { Some(value) } else { read[0] };
        // A load that the checker can examine.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_a_hundred_waiters_holds_the_lock_once_although_leaders_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    three.leader();
    // Several processes would need several ambassadors.
    let ambassadors: Vec<Ambassador> =
        (0..5).map(|_| Ambassador::start(three.addresses().split(',')).unwrap()).collect();
    let (inside, fences) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (recorded, stop) = (Arc::new(Recorded::new()), Arc::new(AtomicBool::new(false)));
    let blocker = ambassadors[0].kv().locks().with_terms(LeaseTerms::ttl(TTL));
    let blocked = blocker.lock("jobs").await.unwrap();
    let handles: Vec<_> =
        ambassadors.iter().map(|ambassador| ambassador.kv().locks().with_terms(LeaseTerms::ttl(TTL))).collect();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|waiter| {
            let (locks, kv) = (handles[waiter % handles.len()].clone(), ambassadors[waiter % handles.len()].kv());
            let (inside, fences, recorded) = (inside.clone(), fences.clone(), recorded.clone());
            tokio::spawn(async move {
                let acquire = recorded.request(waiter, Request::acquire("jobs"));
                let guard = locks.lock("jobs").await.unwrap();
                let fence = guard.fence();
                recorded.reply(acquire, Reply::Granted { fence });
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at a time");
                fences.lock().unwrap().push(fence);
                let value = recorded.value();
                let txn = Txn::guarded("jobs", fence).get("turn").put("turn", value).get("x").get("y");
                let id = recorded.request(waiter, Request::Txn(txn));
                let txn = kv.txn().compare(Compare::lock("jobs", fence)).then(Op::get("turn"));
                let txn = txn.then(Op::put("turn", value.to_string())).then(Op::get("x")).then(Op::get("y"));
                let (succeeded, read) = recorded.decided(id, txn.commit().await.unwrap());
                assert!(succeeded, "the holder writes");
                assert_eq!(read[1], read[2], "both keys change together");
                inside.fetch_sub(1, Ordering::SeqCst);
                recorded.request(waiter, Request::Release { lock: "jobs", fence });
                guard.release().await.unwrap();
            })
        })
        .collect();
    let transacting: Vec<_> = (0..3)
        .map(|client| {
            let kv = ambassadors[client].kv();
            tokio::spawn(transact(WAITERS + client, kv, recorded.clone(), stop.clone()))
        })
        .collect();
    let served = || fences.lock().unwrap().len();
    let show = async || blocker.show("jobs", convoke_client::log::Consistency::Linearizable).await.unwrap().unwrap();
    eventually("all wait", async || show().await.waiting as usize == WAITERS).await;
    blocked.release().await.unwrap();
    for part in [20, 60] {
        eventually("the lock is handed over", async || served() >= part).await;
        let leader = three.leader();
        three.kill(leader);
        three.spawn(dir.path(), leader);
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for client in transacting {
        client.await.unwrap();
    }
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), WAITERS);
    assert!(fences.is_sorted_by(|a, b| a < b), "every holder has a higher fence than the one before: {fences:?}");
    let history = recorded.history.lock().unwrap();
    history.check().unwrap_or_else(|violation| panic!("{violation}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_changes_only_with_its_holder_during_a_rolling_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    let addresses = cluster.all_clients();
    let candidate = || {
        let ambassador = Ambassador::start(addresses.split(',')).unwrap();
        ambassador.kv().elections().with_terms(LeaseTerms::ttl(TTL))
    };
    let (first, second) = (candidate(), candidate());
    let mut observer = candidate().observe("workers");
    assert_eq!(observer.next().await.unwrap().unwrap().leader, None);
    let leadership = first.campaign("workers", "one").await.unwrap();
    let fence = leadership.fence();
    let change = observer.next().await.unwrap().unwrap();
    assert_eq!((change.leader.map(|leader| leader.fence), change.reset), (Some(fence), false));
    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.campaign("workers", "two").await.unwrap() }
    });
    for index in 0..3 {
        // Every second one is killed without a warning.
        if index == 1 {
            cluster.kill(index);
        } else {
            cluster.stop(index);
        }
        cluster.restart(index).unwrap();
        for node in 0..3 {
            until("the node has caught up with a leader", || {
                let status = cluster.ask(node, &["log", "status"]).unwrap_or_default();
                status["available"] == true && status["voters"].as_array().map(Vec::len) == Some(3)
            });
        }
        let leader = first.leader("workers").await.unwrap().unwrap();
        assert_eq!(leader.fence, fence);
    }
    assert!(leadership.is_leader());
    assert!(!waiting.is_finished());
    leadership.proclaim("still one").await.unwrap();
    let change = observer.next().await.unwrap().unwrap();
    let leader = change.leader.unwrap();
    assert_eq!(
        (leader.fence, &leader.value[..], change.reset),
        (fence, &b"still one"[..], false),
        "nothing in between"
    );
    leadership.resign().await.unwrap();
    let successor = waiting.await.unwrap();
    let change = observer.next().await.unwrap().unwrap();
    assert_eq!(change.leader.map(|leader| leader.fence), Some(successor.fence()));
    assert!(successor.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_waiter_never_holds_the_lock_and_others_pass_it() {
    let dir = tempfile::tempdir().unwrap();
    let three = Three::start(dir.path());
    three.leader();
    let ambassador = Ambassador::start(three.addresses().split(',')).unwrap();
    let locks = ambassador.kv().locks().with_terms(LeaseTerms::ttl(TTL));
    let other = ambassador.kv().locks().with_terms(LeaseTerms::ttl(TTL));
    for round in 0..30 {
        let guard = locks.lock("jobs").await.unwrap();
        // Dropped before, while or after the grant crosses it.
        let waiting = tokio::time::timeout(Duration::from_millis(round % 7), other.lock("jobs"));
        let released = tokio::spawn(guard.release());
        let granted = waiting.await;
        released.await.unwrap().unwrap();
        drop(granted);
        let next = locks.acquire(Acquire::new("jobs").wait(TTL)).await.unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
    }
}
