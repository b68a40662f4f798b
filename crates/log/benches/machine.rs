//! Benchmarks of apply, copies and snapshots: `cargo bench -p convoke-log`.

#![allow(clippy::unwrap_used, reason = "in a bench a panic is the message")]

use convoke_log::command::{Body, Open, Request};
use convoke_log::{Command, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine};
use divan::Bencher;
use std::time::Duration;

const SIZES: &[u64] = &[1_000, 100_000, 1_000_000];
const EPOCH: Epoch = Epoch { term: 1, leader: convoke_log::ReplicaId(1) };

fn main() {
    divan::main();
}

fn entry(index: u64, command: Command) -> Entry {
    Entry { index, epoch: EPOCH, stamp: LogTime::from_micros(index), command }
}

/// Returns keys in a scattered order.
fn key(number: u64) -> String {
    format!("service/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn put(number: u64, key: String) -> Command {
    Command::Request(Request::new(LogSessionId(1), number, EPOCH, Body::put(key, vec![7; 64])))
}

/// Returns a machine with one session and `keys` keys with values of 64 bytes.
fn machine(keys: u64) -> Machine {
    machine_at(Level::FIRST, keys)
}

fn machine_at(level: Level, keys: u64) -> Machine {
    let mut machine = Machine::created(LogLimits::default(), level).unwrap();
    let open = Open::new(EPOCH, Duration::from_secs(60), 1);
    machine.apply(&entry(1, Command::Open(open))).unwrap();
    for number in 1..=keys {
        machine.apply(&entry(number + 1, put(number, key(number)))).unwrap();
    }
    machine
}

#[divan::bench(args = SIZES)]
fn apply_put_over_existing_keys(bencher: Bencher<'_, '_>, keys: u64) {
    let mut machine = machine(keys);
    let mut number = keys;
    bencher.bench_local(|| {
        number += 1;
        machine.apply(&entry(number + 1, put(number, key(number % keys + 1)))).unwrap()
    });
}

/// From level 2 on, every change is also in the history, which is full after some time.
#[divan::bench(args = SIZES)]
fn apply_put_with_history(bencher: Bencher<'_, '_>, keys: u64) {
    let mut machine = machine_at(Level::COORDINATION, keys);
    let mut number = keys;
    while machine.history().oldest() <= 1 && number < keys + 2_000_000 {
        number += 1;
        machine.apply(&entry(number + 1, put(number, key(number % keys + 1)))).unwrap();
    }
    bencher.bench_local(|| {
        number += 1;
        machine.apply(&entry(number + 1, put(number, key(number % keys + 1)))).unwrap()
    });
}

/// While a copy exists, the first change of a key copies the path to it.
#[divan::bench(args = SIZES)]
fn apply_put_after_a_snapshot_each(bencher: Bencher<'_, '_>, keys: u64) {
    let mut machine = machine(keys);
    let mut number = keys;
    bencher.bench_local(|| {
        let copy = machine.snapshot();
        number += 1;
        machine.apply(&entry(number + 1, put(number, key(number % keys + 1)))).unwrap();
        copy
    });
}

#[divan::bench(args = SIZES)]
fn get(bencher: Bencher<'_, '_>, keys: u64) {
    let machine = machine(keys);
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        machine.keys().get(key(number % keys + 1).as_bytes()).cloned()
    });
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn write_snapshot(bencher: Bencher<'_, '_>, keys: u64) {
    let machine = machine(keys);
    bencher.bench_local(|| machine.snapshot().frames().map(|frame| frame.len()).sum::<usize>());
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn restore_snapshot(bencher: Bencher<'_, '_>, keys: u64) {
    let bytes = machine(keys).snapshot().to_bytes();
    bencher.bench_local(|| Machine::from_snapshot(&bytes).unwrap());
}
