//! Histories as long as those of real runs, from a correct register, with and without a planted wrong answer; and
//! small ones against all possible orders.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_harness::history::{Answer, Call, CallHistory};
use fastrand::Rng;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

struct Shape {
    operations: usize,
    keys: u64,
    clients: u64,
    /// Per hundred answers.
    unknown: u32,
}

/// Clients run concurrently; each operation takes effect at a moment between call and answer.
fn run(seed: u64, shape: &Shape, wrong_at: Option<usize>) -> CallHistory<u64> {
    let mut rng = Rng::with_seed(seed);
    let mut history = CallHistory::new();
    let mut store: BTreeMap<u64, u64> = BTreeMap::new();
    let mut stale: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let mut free: Vec<u64> = vec![0; shape.clients as usize];
    let mut wrong_answers = 0;
    let mut planned = Vec::new();
    for number in 0..shape.operations {
        let client = (0..free.len()).min_by_key(|client| free[*client]).unwrap();
        let called = free[client] + rng.u64(1..5);
        let effect = called + rng.u64(1..20);
        let answered = effect + rng.u64(1..20);
        free[client] = answered;
        planned.push((
            effect,
            called,
            answered,
            client as u64,
            rng.u64(..shape.keys),
            rng.u32(..100),
            number as u64 + 1,
        ));
    }
    planned.sort_unstable();
    for (at, (_, called, answered, client, key, kind, value)) in planned.into_iter().enumerate() {
        let held = store.get(&key).copied();
        let (call, mut answer) = match kind % 10 {
            0..4 => (Call::Get, Answer::Got(held)),
            4..7 => (Call::put(value), Answer::written()),
            7 => (Call::delete(), Answer::written()),
            _ => {
                let expected = if kind % 2 == 0 { held } else { Some(value / 2) };
                let answer = if expected == held { Answer::written() } else { Answer::Mismatch { found: Some(held) } };
                (Call::compare_and_set(expected, Some(value)), answer)
            }
        };
        if let (Call::Write { new, .. }, Answer::Written { .. }) = (call, answer) {
            stale.insert(key, held);
            match new {
                Some(new) => store.insert(key, new),
                None => store.remove(&key),
            };
        }
        let old = stale.get(&key).copied().flatten();
        if wrong_at.is_some_and(|lie| at >= lie)
            && wrong_answers == 0
            && call == Call::Get
            && old.is_some()
            && old != held
        {
            // Long after everything else, so that no overlap can explain it.
            answer = Answer::Got(old);
            wrong_answers += 1;
            let id = history.call(client, key, call, answered + 1_000_000);
            history.answer(id, answered + 1_000_001, answer);
            continue;
        }
        let id = history.call(client, key, call, called);
        if rng.u32(..100) >= shape.unknown {
            history.answer(id, answered, answer);
        }
    }
    assert_eq!(wrong_answers, usize::from(wrong_at.is_some()), "the wrong answer was given");
    history
}

fn quick(what: &str, check: impl FnOnce()) {
    let start = Instant::now();
    check();
    assert!(start.elapsed() < Duration::from_secs(20), "{what} took {:?}", start.elapsed());
}

#[test]
fn ten_thousand_operations_over_many_keys() {
    let shape = Shape { operations: 10_000, keys: 50, clients: 20, unknown: 3 };
    quick("many keys", || {
        for seed in 0..3 {
            if let Err(violation) = run(seed, &shape, None).check() {
                panic!("seed {seed}: {violation}");
            }
        }
    });
}

#[test]
fn ten_thousand_operations_over_three_keys() {
    let shape = Shape { operations: 10_000, keys: 3, clients: 8, unknown: 0 };
    quick("few keys", || run(1, &shape, None).check().unwrap());
}

#[test]
fn one_wrong_answer_among_ten_thousand_operations_is_found() {
    let shape = Shape { operations: 10_000, keys: 50, clients: 20, unknown: 1 };
    quick("a lie", || {
        for seed in 0..3 {
            assert!(run(seed, &shape, Some(9_000)).check().is_err(), "seed {seed}");
        }
    });
}

/// Clients on one key with mostly unknown outcomes: a realistic worst case.
#[test]
fn many_unknown_outcomes_on_one_key() {
    let shape = Shape { operations: 120, keys: 1, clients: 6, unknown: 25 };
    quick("unknown outcomes", || {
        for seed in 0..20 {
            run(seed, &shape, None).check().unwrap();
        }
    });
}

#[derive(Clone, Copy, Debug)]
struct Small {
    call: Call,
    called: u64,
    lasted: u64,
    answer: Option<Answer>,
}

/// Tries all orders one by one.
fn brute_force(operations: &[Small]) -> bool {
    fn go(operations: &[Small], taken: u32, state: Option<u64>) -> bool {
        let waiting = |at: &usize| taken & (1 << at) == 0;
        let all: Vec<usize> = (0..operations.len()).filter(waiting).collect();
        if all.iter().all(|at| operations[*at].answer.is_none()) {
            return true;
        }
        let first_answer = all
            .iter()
            .filter(|at| operations[**at].answer.is_some())
            .map(|at| operations[*at].called + operations[*at].lasted)
            .min();
        all.iter().any(|at| {
            let Small { call, called, answer, .. } = operations[*at];
            if first_answer.is_some_and(|first| called > first) {
                return false;
            }
            let next = match (call, answer) {
                (Call::Get, None) => Some(state),
                (Call::Get, Some(Answer::Got(value))) => (value == state).then_some(state),
                (Call::Write { if_value, new }, None) => {
                    Some(if if_value.is_none_or(|value| value == state) { new } else { state })
                }
                (Call::Write { if_value, new }, Some(Answer::Written { .. })) => {
                    if_value.is_none_or(|value| value == state).then_some(new)
                }
                (Call::Write { if_value: Some(value), .. }, Some(Answer::Mismatch { .. })) => {
                    (value != state).then_some(state)
                }
                _ => None,
            };
            next.is_some_and(|state| go(operations, taken | (1 << at), state))
        })
    }
    go(operations, 0, None)
}

fn small() -> impl Strategy<Value = Small> {
    let value = || prop::option::of(1..3u64);
    let call = prop_oneof![
        2 => (Just(Call::Get), value().prop_map(Answer::Got)),
        2 => (value().prop_map(|new| Call::Write { if_value: None, new }), Just(Answer::written())),
        1 => ((value(), value()).prop_map(|(expected, new)| Call::compare_and_set(expected, new)),
              prop_oneof![Just(Answer::written()), Just(Answer::mismatch())]),
    ];
    (call, 1..12u64, 0..8u64, prop::bool::weighted(0.8)).prop_map(|((call, answer), called, lasted, known)| Small {
        call,
        called,
        lasted,
        answer: known.then_some(answer),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_agrees_with_trying_all_orders(operations in prop::collection::vec(small(), 1..7)) {
        let mut history = CallHistory::new();
        for Small { call, called, lasted, answer } in &operations {
            let id = history.call(0, 0u8, *call, *called);
            if let Some(answer) = answer {
                history.answer(id, called + lasted, *answer);
            }
        }
        prop_assert_eq!(history.check().is_ok(), brute_force(&operations));
    }
}
