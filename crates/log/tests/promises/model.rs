//! Compares the machine with a simple model, step by step, starting from any snapshot.
//!
//! The model has no floors and horizons. It keeps every outcome for ever and derives the answers from the whole
//! history. Where the machine keeps a number, the model keeps the facts behind it.

mod reference;
mod sessions;
mod steps;

use convoke_log::{CoordinationLimits, LogLimits, LogSessionId, Machine, Mutant, Mutation, RequestId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use reference::{Model, ModelFate};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::time::Duration;
use steps::{Step, Translator};

/// Limits so small that each one is reached.
fn tight() -> LogLimits {
    LogLimits {
        sessions: 4,
        reserved_sessions: 1,
        sessions_per_client: 2,
        ended_sessions: 2,
        outcomes: 2,
        window: 3,
        outcome_bytes: 600,
        response_bytes: 200,
        ttl_min: Duration::from_micros(10),
        ttl_max: Duration::from_micros(60),
        client_name_bytes: 3,
        key_bytes: 3,
        value_bytes: 6,
        range_keys: 2,
        store_bytes: 460,
        replicas: 3,
        address_bytes: 4,
        coordination: CoordinationLimits::default(),
    }
}

/// A difference between machine and model.
pub(crate) type Difference = String;

fn same<T: PartialEq + Debug>(what: impl Display, machine: &T, model: &T) -> Result<(), Difference> {
    if machine == model { Ok(()) } else { Err(format!("{what}: {machine:?}, and should be {model:?}")) }
}

/// Compares everything that is observable.
fn look(machine: &Machine, model: &Model) -> Result<(), Difference> {
    let keys: Vec<_> = machine.keys().records(&convoke_log::keys::KeyRange::all()).map(|r| steps::parts(r)).collect();
    same("keys", &keys, &model.keys.records())?;
    same("revision", &machine.keys().revision(), &model.keys.revision)?;
    same("log time", &machine.log_time().as_micros(), &model.log_time)?;
    let open: Vec<u64> = machine.sessions().map(|session| session.id.0).collect();
    same("open sessions", &open, &model.open_sessions())?;
    same("configuration", machine.configuration(), &model.configuration)?;
    for session in 0..=machine.applied().index + 1 {
        for number in 1..20 {
            let fate = ModelFate::of(&machine.peek(RequestId::new(LogSessionId(session), number)));
            same(format_args!("fate of {session}/{number}"), &fate, &model.fate(session, number))?;
        }
    }
    Ok(())
}

/// Runs one sequence of steps on both sides; the machine may have a deliberate bug.
fn run(steps: &[Step], mutation: Mutation, seen: &mut BTreeMap<String, u64>) -> Result<(), Difference> {
    let mut machine = Machine::new(tight()).unwrap().with_mutation(mutation);
    let mut model = Model::new(tight());
    let mut translator = Translator::default();
    for step in steps {
        if let Step::Restore = step {
            let restored = Machine::from_snapshot(&machine.snapshot().to_bytes());
            let restored = restored.map_err(|error| format!("a snapshot that cannot be restored: {error}"))?;
            same("state hash", &restored.state_hash(), &machine.state_hash())?;
            machine = restored.with_mutation(mutation);
            continue;
        }
        let entry = translator.entry(step, machine.applied().index + 1);
        let applied = machine.apply(&entry).unwrap();
        translator.learn(&applied);
        for name in steps::names(&applied) {
            *seen.entry(name).or_default() += 1;
        }
        same(format_args!("answer to {entry:?}"), &steps::reply(&applied), &model.apply(&entry))?;
        look(&machine, &model)?;
    }
    Ok(())
}

/// Returns the first fixed case in which a machine with a deliberate bug differs from the model.
pub(crate) fn notices(mutant: Mutant) -> Option<(usize, Difference)> {
    let run = |steps: &Vec<Step>| run(steps, Mutation::of(mutant), &mut BTreeMap::new()).err();
    samples(SAMPLES).iter().enumerate().find_map(|(number, steps)| Some((number, run(steps)?)))
}

fn sequences() -> impl Strategy<Value = Vec<Step>> {
    (steps::open(), prop::collection::vec(steps::step(), 1..60)).prop_map(|(first, rest)| [vec![first], rest].concat())
}

/// All possible answers of an entry.
const ANSWERS: &[&str] = &[
    "Applied.Changed",
    "Applied.Configured",
    "Applied.Ended",
    "Applied.Fenced",
    "Ended.Expired",
    "Ended.Replaced",
    "Ended.Requested",
    "Fate.Done",
    "Fate.Never",
    "Fate.Open",
    "Fate.TooOld",
    "NotApplied.Expired",
    "NotApplied.Invalid",
    "NotApplied.NoSession",
    "NotApplied.Precondition",
    "NotApplied.Replaced",
    "NotApplied.ReplicaIdUsed",
    "NotApplied.TooLarge",
    "NotApplied.TooMany",
    "NotExpired.Active",
    "NotExpired.NotOpen",
    "NotExpired.StaleEpoch",
    "NotExpired.TooEarly",
    "Opened",
    "Rejected.Gap",
    "Rejected.NameHeld",
    "Rejected.OutOfRange",
    "Rejected.QuotaReached",
    "Rejected.SessionEnded",
    "Rejected.SessionUnknown",
    "Rejected.SessionsFull",
    "Rejected.StaleEpoch",
    "Rejected.Superseded",
    "Rejected.TooOld",
    "Rejected.WindowFull",
];

#[test]
fn the_machine_equals_the_model_and_every_answer_occurs() {
    let mut seen = BTreeMap::new();
    for steps in samples(SAMPLES) {
        run(&steps, Mutation::none(), &mut seen).unwrap();
    }
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ANSWERS, "{seen:?}");
}

/// Number of fixed cases, enough for every answer to occur.
const SAMPLES: u32 = 400;

/// Returns the same cases in every run.
fn samples(count: u32) -> Vec<Vec<Step>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    (0..count).map(|_| sequences().new_tree(&mut runner).unwrap().current()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random cases, minimized when they fail.
    #[test]
    fn the_machine_equals_the_model(steps in sequences()) {
        prop_assert_eq!(run(&steps, Mutation::none(), &mut BTreeMap::new()), Ok(()));
    }
}
