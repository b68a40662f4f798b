//! Every invariant can fail: for each of them, a deliberate bug that violates it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::Mutant;
use convoke_http_session::Mutant as HttpMutant;
use convoke_session::Mutant as SdkMutant;
use convoke_sim::drive::run_script;
use convoke_sim::invariants::Violation;
use convoke_sim::mutants::AnyMutant;
use convoke_sim::{Kind, Setup, World, invariants, run_plan, run_with_two_clocks, scenarios};
use std::collections::BTreeSet;

/// Where a mutant is caught.
#[derive(Clone, Copy, Debug)]
enum By {
    Scenario(&'static str),
    /// One of the first seeds.
    Seeds(Kind),
    /// The same, run with two different wall clocks.
    Clocks(Kind),
}

/// Seeds that are tried. Most mutants need fewer than ten; which ones changes with every change of the simulation.
const SEEDS_MAX: u64 = 60;

/// Invariant, a mutant that violates it, and where.
const SHOWN: &[(&str, Mutant, By)] = &[
    ("answers", Mutant::SilentOwnerWins, By::Scenario("silent_owner_meets_a_living_client")),
    ("agentless_kept", Mutant::ArchiveIgnored, By::Scenario("agentless_members_survive_a_total_restart")),
    ("clocks_irrelevant", Mutant::TiesByClock, By::Clocks(Kind::Focused)),
    // A false alarm, and a real one.
    ("contents_agree", Mutant::WrittenOffCompared, By::Scenario("owner_dies_as_the_sides_meet")),
    ("contents_agree", Mutant::PushGapCovered, By::Scenario("inference_meets_its_owner")),
    ("context_truthful", Mutant::PartialDeltaCovered, By::Seeds(Kind::Focused)),
    ("converges_in_time", Mutant::WrittenOffKept, By::Scenario("owner_dies_as_the_sides_meet")),
    ("down_and_left_arrive", Mutant::NoRelayedEvidence, By::Seeds(Kind::Focused)),
    ("inferences_have_a_basis", Mutant::InferredWithoutBasisKept, By::Scenario("expiry_from_a_lagging_copy")),
    (
        "alone_asserts_nothing",
        Mutant::AloneAssertsAbsence,
        By::Scenario("node_without_seeds_in_reach_asserts_no_absence"),
    ),
    ("crashes_detected", Mutant::EndIgnored, By::Seeds(Kind::Focused)),
    ("never_vanishes", Mutant::SilentOwnerHidesMember, By::Scenario("unreachable_is_down_not_absent")),
    ("returned_owners_current", Mutant::ReturningAdmittedAtOnce, By::Scenario("no_gap_for_a_written_off_node")),
    // During a split that a third node bridges, at a handover, and if a node has to find others again: there `no_false_down`
    // could not fail while a mark excused every node that a fault had touched.
    ("no_false_down", Mutant::NoRelayedEvidence, By::Seeds(Kind::Brief)),
    ("no_false_down", Mutant::StopWithoutHandover, By::Seeds(Kind::Brief)),
    ("no_false_down", Mutant::PeersNotLearned, By::Seeds(Kind::Brief)),
    ("no_lost_registration", Mutant::FullMergeTakesOwn, By::Seeds(Kind::Focused)),
    ("no_resurrection", Mutant::FloorNotRaised, By::Seeds(Kind::Focused)),
    ("one_checker", Mutant::ChecksNotHandedOver, By::Scenario("health_survives_the_owner")),
    ("one_owner", Mutant::EveryNodeExpires, By::Seeds(Kind::Focused)),
    ("up_peers_active", Mutant::ConnectionIsEvidence, By::Scenario("peer_that_accepts_and_never_reads")),
    ("published_is_shown", Mutant::StatusNotPublished, By::Seeds(Kind::Focused)),
    ("queues_bounded", Mutant::WatcherQueueUnbounded, By::Seeds(Kind::Focused)),
    ("streams", Mutant::LastArrivalWins, By::Seeds(Kind::Focused)),
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
    ("no_false_down", SdkMutant::SilentNodeKept, By::Seeds(Kind::Full)),
    ("no_lost_registration", SdkMutant::ClientKeepsClaim, By::Seeds(Kind::Focused)),
    ("no_resurrection", SdkMutant::UnregistrationForgotten, By::Seeds(Kind::Focused)),
    ("streams", SdkMutant::RepeatedChangeReported, By::Seeds(Kind::Focused)),
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
        let violated =
            |violation: Option<Violation>| violation.is_some_and(|violation| violation.invariant == invariant);
        let plan = |kind: Kind, seed| kind.plan(seed).with_mutant(Some(mutant));
        let shown = match by {
            By::Seeds(kind) => (1..=SEEDS_MAX).any(|seed| violated(run_plan(&plan(kind, seed), false).violation)),
            By::Clocks(kind) => (1..=SEEDS_MAX).any(|seed| violated(run_with_two_clocks(plan(kind, seed)).violation)),
            By::Scenario(name) => {
                let scenario = scenarios::find(name).unwrap();
                let run = |seed| scenarios::run_mutated(scenario, seed, Some(mutant), false).violation;
                (1..=scenario.seeds).any(|seed| violated(run(seed)))
            }
        };
        if !shown {
            wrong.push(format!("{invariant}: {} by {by:?}", mutant.name()));
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
