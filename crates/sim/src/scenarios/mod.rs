//! Named scenarios, each a script over a [`World`]. A scenario checks what it is about, then waits until the cluster is
//! quiet, where all invariants are checked.

mod claims;
mod forgetting;
mod hostile;
mod http;
mod incarnations;
mod liveness;
mod log;
mod ownership;
mod peers;
mod regions;
mod returning;
mod sessions;
mod streams;
mod support;

use crate::drive::{Outcome, run_script};
use crate::invariants::Violation;
use crate::mutants::Bug;
use crate::world::{Setup, World};

/// One story.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Rules of docs/protocol.md it is about.
    pub rules: &'static str,
    pub story: &'static str,
    pub setup: fn() -> Setup,
    /// It is told for the seeds from 1 to this one; some take their variants from the seed.
    pub seeds: u64,
    pub script: fn(&mut World) -> Result<(), Violation>,
}

impl Scenario {
    /// Whether it is about this rule.
    pub fn tells_of(&self, rule: &str) -> bool {
        self.rules.split(", ").any(|told| told == rule)
    }
}

macro_rules! scenarios {
    ($($theme:ident::$name:ident, $seeds:literal, $setup:expr, $rules:literal, $story:literal;)*) => {
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            rules: $rules,
            story: $story,
            setup: $setup,
            seeds: $seeds,
            script: $theme::$name,
        },)*];
    };
}

scenarios! {
    sessions::late_attach_does_not_win, 4, three, "C1", "an attach arrives after its client attached elsewhere";
    sessions::losing_session_is_notified, 1, three, "C4", "a living session that loses is told, and acts on it";
    claims::old_tombstone_hides_no_newcomer, 1, three, "C1", "another client's old tombstone does not hide a new registration";
    liveness::unreachable_is_down_not_absent, 1, three, "L3", "members of an unreachable node are down, never absent";
    ownership::ordinary_reconnect_never_vanishes, 3, three, "L3, D3", "a move is one event, wherever its news arrives first";
    ownership::restart_drops_no_members, 3, three, "N2", "members of an older run wait for their clients, up";
    liveness::one_witness_is_enough, 1, five, "L2, P3", "a majority does not outvote the node that hears the owner";
    incarnations::same_incarnation_number_twice, 2, three, "D1, N1", "a lost disk: the same incarnation number is used twice";
    liveness::fresh_node_inherits_the_silence, 1, three, "L2", "a fresh replica knows for how long a node has been silent";
    forgetting::tombstones_outlive_their_writer, 2, three, "D6, D10", "the writer of a tombstone dies before all have heard of it";
    forgetting::collecting_an_inference_collects_the_record, 1, three, "L4, D8", "an inferred left takes the stated record with it";
    forgetting::expiry_from_a_lagging_copy, 1, three, "L4, D8, D12", "an inference about what was collected is not taken in";
    sessions::paused_node_executes_nothing_old, 5, three, "L5", "a node that slept does not execute what it finds in its sockets";
    incarnations::nothing_dead_is_republished, 1, three, "D10, L7", "a node given up behind a partition tells nothing dead";
    incarnations::written_off_node_returns_as_it_was, 1, three, "D10", "and returns with the same run, names and claims";
    incarnations::no_gap_for_a_written_off_node, 1, three, "D10, L3", "and nobody sees a gap";
    ownership::two_inferences_agree, 1, four, "L4", "two sides infer the same at different times: left stays left";
    liveness::mass_failure_guard_of_nodes_ends, 5, five, "L6", "a node that lost all others doubts itself, but not for ever";
    sessions::unregister_whose_answer_was_lost, 1, three, "C3", "an unregistration whose answer, and whose node, were lost";
    sessions::overtaken_requests_are_rejected, 1, three, "C5", "requests that come again after later ones";
    sessions::rejected_request_does_not_succeed_later, 1, three, "C5", "a copy of a rejected request arrives late";
    sessions::old_answers_refresh_nothing, 1, three, "C5", "answers to old heartbeats are not fresh";

    claims::three_claims_in_all_orders, 6, four, "D3, D9, D11", "three claims, one winner, in all six orders of arrival";
    claims::earlier_tombstone_meets_a_living_client, 3, three, "C9", "an old client's tombstone does not end a living client's registration";
    claims::silent_owner_meets_a_living_client, 3, three, "C9", "nor does what a silent owner had stated";
    claims::takeover_by_a_client_that_dies, 2, three, "C9, D2", "a takeover stands, and ends nothing that came after it";
    claims::takeover_while_ex_owner_updates_metadata, 1, three, "D3", "an ex-owner does not win by writing more";
    claims::unregister_then_reregister_elsewhere, 4, three, "D3, C3", "the client's last call counts, in any order of arrival";
    claims::two_clients_one_id_two_sides, 3, three, "D3, C4", "one wins, the other is told, no blows";
    claims::two_processes_with_one_client_id, 3, three, "C2", "the second supersedes the first, which gives in";
    claims::clocks_an_hour_apart_and_stepping_back, 1, three, "D3", "wall clocks decide nothing";
    sessions::late_messages_of_an_old_stream_are_ignored, 1, three, "C2, C5", "heartbeats and unregistrations of a replaced stream";
    sessions::members_not_named_keep_their_timers, 1, three, "C4, C2", "a newer session does not name a member";
    sessions::hung_client_is_down_and_up_again, 1, three, "C6", "a heartbeat after down brings members up";
    sessions::drop_and_reattach_elsewhere_in_10_s, 5, three, "C6, R-12", "no watcher ever sees down";
    sessions::registry_remembers_a_client, 1, three, "C8", "a client without memory is attached elsewhere with its members";
    sessions::fast_liveness, 3, three, "C6", "a lost connection is down within a second, unless the client is back";

    ownership::kill_node_only, 4, three, "L2, L3", "its clients move, and no member is ever down";
    ownership::kill_node_and_its_client_together, 1, five, "L3, L4", "down everywhere, then left, by exactly one responsible node";
    ownership::rolling_restart_of_three_under_load, 3, three, "N6", "no member is ever down";
    ownership::drain_survives_moving, 1, three, "C7", "drain marks of members and nodes outlive moves and restarts";
    liveness::mass_failure_guard, 1, three, "L6", "most clients silent: degraded, one further timeout, then down";
    liveness::rumours_keep_nobody_alive, 1, three, "L2", "two survivors tell each other about a dead node";
    liveness::node_of_two_paused_30_s, 4, two, "L5", "the same with one other node";
    liveness::node_paused_30_s, 4, three, "L5", "no mass down";
    liveness::a_b_cut_with_c_reachable, 1, three, "L2, D6", "half an hour without a direct link changes nothing";
    liveness::who_saw_the_owner_last_decides, 2, four, "L8, L4", "an inference falls when it turns out that the owner lived longer";
    returning::heard_of_before_it_is_heard, 3, forgetting::small_chunks, "L8", "a returned owner is believed with all its news, not with some";
    returning::a_sign_of_life_and_no_more, 3, forgetting::small_chunks, "L8, L4", "who heard an owner once more and who never did agree";
    liveness::one_way_link, 1, three, "P6", "both sides notice that their link is useless";
    liveness::clean_leave_during_partition, 1, three, "D4, L3", "a clean leave stays left";

    forgetting::delete_collect_lagging_replica_returns, 1, three, "D8, D12", "deleted and forgotten while a replica was away";
    forgetting::unregistered_after_a_move_from_a_quiet_node, 1, three, "D8", "having seen all that an owner wrote is not having seen all";
    forgetting::cut_full_merge_meets_a_lagging_third_node, 1, forgetting::small_chunks, "D12", "the full merge is cut, and a third node lags as well";
    forgetting::collection_at_different_times, 4, three, "D8", "a tombstone collected minutes later at one node";
    forgetting::earlier_tombstone_expires_in_sleep, 1, three, "D8, C6", "an old tombstone of another client does not stand in for a lost one";
    forgetting::lower_claim_meets_a_tombstone, 1, three, "D13", "what outlived its tombstone at one node only is told again";
    forgetting::lower_claim_meets_an_inference, 1, four, "D13, C9", "nor is an inference collected in silence";
    forgetting::inferred_end_meets_its_owner, 1, four, "C9, D13", "nor does it end what its owner stands by";
    forgetting::full_merge_meets_a_living_client, 1, three, "D12", "a full merge takes nothing that its receiver stands by";
    forgetting::owner_dies_as_the_sides_meet, 1, four, "D8, D10", "what some have forgotten and others saw to the last";
    forgetting::names_expire_like_members, 1, three, "L7, L4", "names expire later than members, by the same inference";
    forgetting::forgotten_by_one_who_was_alone, 2, four, "D10, L3", "what one node forgot of an owner that died since goes everywhere";
    forgetting::entry_count_never_drops_during_a_full_merge, 1, forgetting::small_chunks, "D12", "a full merge takes no living member away";
    forgetting::collected_while_a_full_merge_is_sent, 1, forgetting::small_chunks, "D12", "a full merge leaves nothing behind that its sender forgot meanwhile";
    forgetting::long_sleep, 2, three, "N5", "a node that slept for 40 minutes starts a new run";
    returning::sleeper_looks_for_the_others, 4, three, "P4", "a node that slept does not wait for its next attempt";
    returning::next_run_knows_the_peers, 2, returning::line_of_three, "N3", "a run that follows another in one process asks whom that one knew";
    returning::sleeper_knows_a_dead_run, 2, three, "L2", "of a run that has a successor nothing is awaited";
    returning::sleeper_brings_an_earlier_process, 1, three, "C1, C6", "higher claims of a process that died elsewhere last for its timeouts";
    returning::two_sleeps_are_one, 2, three, "N5", "two sleeps with nothing heard in between are one";
    incarnations::crash_and_restart_with_lower_counters, 1, three, "N1", "a node restarts with nothing but its id";
    incarnations::unregistered_at_a_retired_number, 1, three, "N1, D14", "what a run with a forgotten number unregistered, the next says again";
    incarnations::two_processes_with_one_id, 1, three, "N4", "the second process stops with an identity conflict";
    incarnations::two_processes_with_one_id_meet, 1, three, "N4", "two established processes meet: the older stops";
    incarnations::dead_node_retired_at_different_times_never_returns, 1, three, "D14", "nothing of a dead node is handed back";
    incarnations::live_node_retired_behind_a_partition_returns, 1, three, "D10", "after an hour, as it was";
    incarnations::partitions_of_14_16_and_40_minutes, 1, three, "D10, L3", "each side keeps its own; after healing both have all";
    incarnations::name_of_an_older_run_given_up_by_some, 1, three, "D10, N2", "nobody keeps a name that its node cannot take back";
    incarnations::given_up_node_sleeps_as_it_returns, 1, incarnations::watched_four, "D10", "only the sleeper can state again what was forgotten";
    incarnations::total_restart, 3, three, "N2, N3", "every node is killed and started again";

    peers::line_of_10_nodes, 1, peers::line_of_ten, "P8, D6, L2", "ten nodes find each other; then only neighbours are linked";
    peers::star_with_hub_restarted, 1, peers::star_of_six, "P8, D6", "the hub restarts, also as the only way";
    peers::one_sided_seeding, 1, peers::one_sided_five, "P4, N3", "each was told those that start after it";
    peers::peer_that_accepts_and_never_reads, 1, three, "P1, P6, D5", "others are not slowed down, nothing piles up";
    peers::simultaneous_dial_keeps_one_link, 5, two, "P5", "two nodes dial each other at once: one link comes of it, and stays";
    peers::linked_nodes_dial_nobody, 3, three, "P4, P5", "no further connections are made";
    peers::connection_alone_is_no_proof_of_life, 1, three, "P1", "the node behind a connection has to speak";
    peers::everyone_lost_everyone_returns, 1, five, "P4", "five lone nodes re-form without an operator";
    peers::timeline_of_seed_003, 1, three, "P1, P3, P4, L7", "the example of the seed, second by second";
    regions::three_regions_converge_with_few_links, 1, regions::three_regions, "P9", "two links between regions carry everything";
    regions::fast_client_is_back_in_the_last_moment, 1, regions::two_regions, "C6", "a fast client's news have to arrive as well";
    regions::region_link_partition_heals, 1, regions::three_regions, "P9", "regions lose each other, and one is alone";
    regions::region_is_entered_where_somebody_lives, 4, regions::two_large_regions, "P9", "the last of two regions find each other";
    hostile::hostile_lengths, 1, three, "P7", "lengths and counts that nothing backs up";
    hostile::foreign_cluster_is_rejected, 1, three, "P2", "a node of another cluster at a known address is rejected";
    hostile::deaf_peer_is_lost, 1, three, "P6", "a peer that says that it hears nothing";
    hostile::hostile_counters, 1, three, "P7, C7", "sequences and drain marks at the end of all numbers";
    hostile::hostile_claim_jumps, 1, three, "C1, P7", "claims beyond all claims";

    http::http_session_outlives_its_node, 4, three, "C8", "a session over HTTP goes on at another node, never down";
    http::http_request_is_forwarded_to_the_owner, 2, three, "C8", "a node that lags forwards a request instead of claiming what it knows";
    http::http_secret_is_needed, 2, three, "C8", "whoever knows the client id only changes nothing";
    http::http_requests_are_heartbeats, 1, three, "C8, C6", "a client that updates all the time needs no heartbeats";
    http::http_unanswered_request_is_not_rejected, 1, three, "C8", "the owner executes a request, and its answer is lost";
    http::http_session_gone_starts_over, 1, three, "C8", "a session without members is gone, and its client starts over";

    streams::offline_watcher_returns_to_the_same_node, 3, three, "W3, W4", "the exact view, nothing vanishes in between";
    streams::offline_watcher_returns_to_a_lagging_node, 2, streams::many_marks, "W4", "the node waits instead of showing old things";
    streams::offline_watcher_returns_to_a_fresh_node, 3, three, "W3", "a token means the same everywhere";
    streams::watcher_ahead_of_a_cut_off_node_is_reset, 1, three, "W4", "told explicitly, and right in the end";
    streams::watcher_returns_after_everything_was_forgotten, 2, three, "W4", "by versions, or with a reset";
    streams::snapshot_while_the_registry_changes, 1, three, "W2", "changes behind and ahead of the cursor";
    streams::offline_watcher_learns_of_silence, 1, three, "W3", "what nobody wrote down is told as well";
    streams::slow_watcher_is_reset, 1, three, "W5", "nobody waits for a slow watcher";
}

fn two() -> Setup {
    Setup { nodes: 2, ..Setup::default() }
}

fn three() -> Setup {
    Setup::default()
}

fn four() -> Setup {
    Setup { nodes: 4, ..Setup::default() }
}

fn five() -> Setup {
    Setup { nodes: 5, ..Setup::default() }
}

pub fn all() -> &'static [Scenario] {
    ALL
}

pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// Tells a story for all its seeds; the outcome is that of the first seed that fails, or of all.
pub fn run(scenario: &Scenario, verbose: bool) -> Outcome {
    let mut outcome = run_once(scenario, 1, verbose);
    for seed in 2..=scenario.seeds {
        if outcome.violation.is_some() {
            break;
        }
        let next = run_once(scenario, seed, verbose);
        let before = std::mem::replace(&mut outcome, next);
        outcome.stats.add(&before.stats);
    }
    outcome
}

fn run_once(scenario: &Scenario, seed: u64, verbose: bool) -> Outcome {
    run_mutated(scenario, seed, None, verbose)
}

/// Tells a story for one seed, with a deliberate bug.
pub fn run_mutated(scenario: &Scenario, seed: u64, bug: Option<Bug>, verbose: bool) -> Outcome {
    let setup = Setup { seed, wall_seed: seed, ..(scenario.setup)() }.with_bug(bug);
    run_script(World::new(setup), scenario.script, verbose)
}
