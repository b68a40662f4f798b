//! Every invariant can fail: for each of them, a deliberate bug that violates it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::Mutant;
use convoke_http_session::Mutant as HttpMutant;
use convoke_session::Mutant as SdkMutant;
use convoke_sim::drive::run_script;
use convoke_sim::mutants::AnyMutant;
use convoke_sim::{Kind, Setup, World, invariants, run_plan, run_with_two_clocks, scenarios};
use std::collections::BTreeSet;

/// Where a mutant is caught.
#[derive(Clone, Copy, Debug)]
enum By {
    Scenario(&'static str),
    Seed(Kind, u64),
    /// A seed that is run with two different wall clocks.
    Clocks(Kind, u64),
}

/// Invariant, a mutant that violates it, and where.
const SHOWN: &[(&str, Mutant, By)] = &[
    ("answers", Mutant::SilentOwnerWins, By::Scenario("silent_owner_meets_a_living_client")),
    ("clocks_irrelevant", Mutant::TiesByClock, By::Clocks(Kind::Focused, 3)),
    // A false alarm, and a real one.
    ("contents_agree", Mutant::WrittenOffCompared, By::Scenario("owner_dies_as_the_sides_meet")),
    ("contents_agree", Mutant::PushGapClaimed, By::Scenario("inference_meets_its_owner")),
    ("context_truthful", Mutant::PartialDeltaClaimed, By::Seed(Kind::Focused, 3)),
    ("converges_in_time", Mutant::WrittenOffKept, By::Scenario("owner_dies_as_the_sides_meet")),
    ("down_and_left_arrive", Mutant::NoRelayedEvidence, By::Seed(Kind::Focused, 2)),
    ("inferences_have_a_basis", Mutant::InferredWithoutBasisKept, By::Scenario("expiry_from_a_lagging_copy")),
    (
        "alone_asserts_nothing",
        Mutant::AloneAssertsAbsence,
        By::Scenario("node_without_seeds_in_reach_asserts_no_absence"),
    ),
    ("crashes_detected", Mutant::EndIgnored, By::Seed(Kind::Focused, 4)),
    ("never_vanishes", Mutant::SilentOwnerHidesMember, By::Scenario("unreachable_is_down_not_absent")),
    ("returned_owners_current", Mutant::ReturningAdmittedAtOnce, By::Scenario("no_gap_for_a_written_off_node")),
    // During a split that a third node bridges, at a handover, and if a node has to find others again: there `no_false_down`
    // could not fail while a mark excused every node that a fault had touched.
    ("no_false_down", Mutant::NoRelayedEvidence, By::Seed(Kind::Brief, 5)),
    ("no_false_down", Mutant::StopWithoutHandover, By::Seed(Kind::Brief, 1)),
    ("no_false_down", Mutant::PeersNotLearned, By::Seed(Kind::Brief, 1)),
    ("no_lost_registration", Mutant::FullMergeTakesOwn, By::Seed(Kind::Focused, 18)),
    ("no_resurrection", Mutant::FloorNotRaised, By::Seed(Kind::Focused, 26)),
    ("one_owner", Mutant::EveryNodeExpires, By::Scenario("kill_node_and_its_client_together")),
    ("up_peers_active", Mutant::ConnectionIsEvidence, By::Scenario("peer_that_accepts_and_never_reads")),
    ("published_is_shown", Mutant::StatusNotPublished, By::Seed(Kind::Focused, 1)),
    ("queues_bounded", Mutant::WatcherQueueUnbounded, By::Seed(Kind::Focused, 30)),
    ("streams", Mutant::LastArrivalWins, By::Seed(Kind::Focused, 3)),
];

/// The same for HTTP sessions.
const SHOWN_OVER_HTTP: &[(&str, HttpMutant, By)] = &[
    ("http_answers", HttpMutant::AnySecretFits, By::Scenario("http_secret_is_needed")),
    ("http_answers", HttpMutant::SilentOwnerMeansGone, By::Scenario("http_session_outlives_its_node")),
    ("http_answers", HttpMutant::UnansweredIsRejected, By::Scenario("http_unanswered_request_is_not_rejected")),
    (
        "http_answers",
        HttpMutant::FailedStepIsRejected,
        By::Scenario("http_full_node_does_not_reject_an_executed_request"),
    ),
    ("http_answers", HttpMutant::AttachIsEnough, By::Scenario("http_update_after_a_crash_is_executed")),
    ("http_sessions_converge", HttpMutant::HeartbeatNotExecuted, By::Scenario("http_heartbeats_are_enough")),
    ("http_no_false_down", HttpMutant::RequestIsNoHeartbeat, By::Scenario("http_requests_are_heartbeats")),
    ("http_no_false_down", HttpMutant::RequestIsNoHeartbeat, By::Scenario("http_requests_are_heartbeats_after_a_move")),
];

/// The same for the SDK.
const SHOWN_IN_THE_SDK: &[(&str, SdkMutant, By)] = &[
    // After the power of a node was cut: its client could have attached elsewhere, and is idle.
    ("no_false_down", SdkMutant::SilentNodeKept, By::Seed(Kind::Full, 4)),
    ("no_lost_registration", SdkMutant::ClientKeepsClaim, By::Seed(Kind::Focused, 1)),
    ("no_resurrection", SdkMutant::UnregistrationForgotten, By::Seed(Kind::Focused, 18)),
    ("streams", SdkMutant::RepeatedChangeReported, By::Seed(Kind::Focused, 4)),
];

fn all_shown() -> impl Iterator<Item = (&'static str, AnyMutant, By)> {
    let core = SHOWN.iter().map(|(invariant, mutant, by)| (*invariant, AnyMutant::Core(*mutant), *by));
    let http = SHOWN_OVER_HTTP.iter().map(|(invariant, mutant, by)| (*invariant, AnyMutant::Http(*mutant), *by));
    let sdk = SHOWN_IN_THE_SDK.iter().map(|(invariant, mutant, by)| (*invariant, AnyMutant::Sdk(*mutant), *by));
    core.chain(http).chain(sdk)
}

#[test]
fn a_mutant_violates_each_invariant() {
    let mut wrong = Vec::new();
    for (invariant, mutant, by) in all_shown() {
        let violation = match by {
            By::Seed(kind, seed) => run_plan(&kind.plan(seed).with_mutant(Some(mutant)), false).violation,
            By::Clocks(kind, seed) => run_with_two_clocks(kind.plan(seed).with_mutant(Some(mutant))).violation,
            By::Scenario(name) => {
                let scenario = scenarios::find(name).unwrap();
                let run = |seed| scenarios::run_mutated(scenario, seed, Some(mutant), false).violation;
                (1..=scenario.seeds).find_map(run)
            }
        };
        if violation.as_ref().is_none_or(|violation| violation.invariant != invariant) {
            wrong.push(format!("{invariant}: {} by {by:?} leads to {violation:?}", mutant.name()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_panic_is_a_violation() {
    let world = World::new(Setup::default());
    let outcome = run_script(world, |_| panic!("on purpose"), false);
    let violation = outcome.violation.unwrap();
    assert_eq!(violation.invariant, invariants::NO_PANIC);
    assert!(violation.message.contains("on purpose"), "{violation}");
}

#[test]
fn the_table_names_every_invariant() {
    let mut shown: BTreeSet<&str> = all_shown().map(|(invariant, ..)| invariant).collect();
    // No mutant panics: a run that panics is reported by `a_panic_is_a_violation`.
    shown.insert(invariants::NO_PANIC);
    assert_eq!(invariants::names(), shown);
}
