//! Locks and elections of three nodes while leaders die and nodes restart.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Acquire, Ambassador, LeaseTerms, Write};
use convoke_testkit::{eventually, until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::patient_plan;
use support::three::Three;

/// Longer than an election on a busy machine.
const TTL: Duration = Duration::from_secs(60);
const WAITERS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn each_of_a_hundred_waiters_holds_the_lock_once_although_leaders_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    three.leader();
    // Several processes would need several ambassadors.
    let ambassadors: Vec<Ambassador> =
        (0..5).map(|_| Ambassador::start(three.addresses().split(',')).unwrap()).collect();
    let (inside, fences) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let blocker = ambassadors[0].kv().locks().with_terms(LeaseTerms::ttl(TTL));
    let blocked = blocker.lock("jobs").await.unwrap();
    let handles: Vec<_> =
        ambassadors.iter().map(|ambassador| ambassador.kv().locks().with_terms(LeaseTerms::ttl(TTL))).collect();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|waiter| {
            let (locks, kv) = (handles[waiter % handles.len()].clone(), ambassadors[waiter % handles.len()].kv());
            let (inside, fences) = (inside.clone(), fences.clone());
            tokio::spawn(async move {
                let guard = locks.lock("jobs").await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at a time");
                fences.lock().unwrap().push(guard.fence());
                kv.write(guard.guard(Write::put("turn", waiter.to_string()))).await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
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
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), WAITERS);
    assert!(fences.is_sorted_by(|a, b| a < b), "every holder has a higher fence than the one before: {fences:?}");
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
