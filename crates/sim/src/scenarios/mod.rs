//! Named scenarios, each a script over a [`World`]. A scenario checks its own conditions and then waits until the
//! cluster is quiescent, where all invariants are checked.

mod agentless;
mod claims;
mod collection;
mod health;
mod hostile;
mod http;
mod http_order;
mod incarnations;
mod liveness;
mod log;
mod maintenance;
mod ownership;
mod peers;
mod regions;
mod returning;
mod revocations;
mod sessions;
mod starting;
mod streams;
mod support;

use crate::drive::{RunOutcome, run_script};
use crate::invariants::Violation;
use crate::mutants::AnyMutant;
use crate::world::{Setup, World};

/// A named scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Rules of docs/protocol.md that it tests.
    pub rules: &'static str,
    pub description: &'static str,
    pub setup: fn() -> Setup,
    /// It runs with the seeds from 1 to this one; some scenarios derive variants from the seed.
    pub seeds: u64,
    pub script: fn(&mut World) -> Result<(), Violation>,
}

impl Scenario {
    /// Whether it tests this rule.
    pub fn covers_rule(&self, rule: &str) -> bool {
        self.rules.split(", ").any(|cited| cited == rule)
    }
}

macro_rules! scenarios {
    ($($theme:ident::$name:ident, $seeds:literal, $setup:expr, $rules:literal, $description:literal;)*) => {
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            rules: $rules,
            description: $description,
            setup: $setup,
            seeds: $seeds,
            script: $theme::$name,
        },)*];
    };
}

scenarios! {
    revocations::revocations_reach_every_node, 2, regions::three_regions, "P11", "credentials are revoked on both sides of a cut";
    sessions::late_attach_does_not_win, 4, three, "C1", "an attach arrives after its client attached elsewhere";
    sessions::losing_session_is_notified, 1, three, "C4", "a live session that loses a member is notified and acts on it";
    claims::old_tombstone_does_not_hide_a_new_client, 1, three, "C1", "another client's old tombstone does not hide a new registration";
    liveness::unreachable_is_down_not_absent, 1, three, "L3", "members of an unreachable node are down, never absent";
    ownership::ordinary_reconnect_never_vanishes, 3, three, "L3, D3", "a move is one event, wherever its writes arrive first";
    ownership::restart_drops_no_members, 3, three, "N2", "members of an older incarnation stay up until their clients return";
    liveness::evidence_of_one_node_is_enough, 1, five, "L2, P3", "a majority does not outvote the node with evidence of the owner";
    incarnations::same_incarnation_number_twice, 2, three, "D1, N1", "a disk is lost and the same incarnation number is used twice";
    liveness::new_node_inherits_the_silence, 1, three, "L2", "a new replica inherits how long a node has been silent";
    collection::tombstones_outlive_their_writer, 2, three, "D6, D10", "the writer of a tombstone dies before all nodes have received it";
    collection::collecting_an_inference_collects_the_record, 1, three, "L4, D8", "an inferred left is collected with the stated record";
    collection::expiry_from_a_lagging_copy, 1, three, "L4, D8, D12", "an inference about a collected record is not accepted";
    sessions::paused_node_executes_nothing_old, 5, three, "L5", "a resumed node does not execute old requests from its sockets";
    incarnations::dead_members_are_not_republished, 1, three, "D10, L7", "a node written off behind a partition publishes no dead members";
    incarnations::written_off_node_returns_unchanged, 1, three, "D10", "a written-off node returns with the same incarnation, names and claims";
    incarnations::no_gap_for_a_written_off_node, 1, three, "D10, L3", "no watcher sees a gap when a written-off node returns";
    ownership::two_inferences_agree, 1, four, "L4", "two sides make the same inference at different times: left stays left";
    liveness::mass_failure_guard_of_nodes_ends, 5, five, "L6", "a node that lost all others waits, but not for ever";
    sessions::unregister_whose_answer_was_lost, 1, three, "C3", "an unregistration whose answer, and whose node, were lost";
    sessions::unregister_whose_node_was_lost, 3, three, "C13", "an acknowledged unregistration that only a lost node had";
    sessions::close_whose_node_was_lost, 3, three, "C18", "a client closes at a node that has no link to the others and is lost";
    sessions::overtaken_requests_are_rejected, 1, three, "C5", "duplicates of requests arrive after later requests";
    sessions::rejected_request_does_not_succeed_later, 1, three, "C5", "a copy of a rejected request arrives late";
    sessions::old_answers_are_not_evidence, 1, three, "C5", "answers to old heartbeats are not fresh evidence";

    claims::three_claims_in_all_orders, 6, four, "D3, D9, D11", "three claims, one winner, in all six orders of arrival";
    claims::earlier_tombstone_meets_a_living_client, 3, three, "C9", "an old client's tombstone does not end a live client's registration";
    claims::silent_owner_meets_a_living_client, 3, three, "C9", "the record of a silent owner does not end a live client's registration";
    claims::earlier_process_meets_its_successor, 4, three, "C9", "a dead process with a higher claim does not end the registration of its successor";
    claims::takeover_by_a_client_that_dies, 2, three, "C9, D2", "a takeover stands, and ends no later registration";
    claims::takeover_while_ex_owner_updates_metadata, 1, three, "D3", "a former owner does not win by writing more";
    claims::unregister_then_reregister_elsewhere, 4, three, "D3, C3", "the client's last call wins, in any order of arrival";
    claims::two_clients_one_id_two_sides, 3, three, "D3, C4", "one wins, the other is notified, and they do not keep competing";
    claims::two_processes_with_one_client_id, 3, three, "C2", "the second supersedes the first, which stops";
    claims::clocks_an_hour_apart_and_stepping_back, 1, three, "D3", "wall clocks decide nothing";
    sessions::late_messages_of_an_old_stream_are_ignored, 1, three, "C2, C5", "late heartbeats and unregistrations of a replaced stream";
    sessions::members_not_named_keep_their_timers, 1, three, "C4, C2", "a newer session does not name a member";
    sessions::paused_client_is_down_and_up_again, 1, three, "C6", "a heartbeat after down brings members up";
    sessions::drop_and_reattach_elsewhere_in_10_s, 5, three, "C6, R-12", "no watcher ever sees down";
    sessions::registry_restores_a_client, 1, three, "C8", "a client without state is attached elsewhere with its members";
    sessions::fast_client_moves_where_a_link_is_missing, 3, three, "D5, C6", "a write arrives in time where two nodes have no link";
    regions::fast_client_moves_where_regions_have_no_link, 3, regions::three_single_nodes, "D5, P9", "a write arrives in time where two regions have no link";
    regions::fast_client_moves_in_a_split_region, 3, regions::two_regions_of_two, "D5, P9", "a write arrives in time by way of another region";
    sessions::fast_liveness, 3, three, "C6", "a lost connection means down within a second, unless the client returns";

    ownership::kill_node_only, 4, three, "L2, L3", "the clients of a killed node move, and no member is ever down";
    ownership::kill_node_and_its_client_together, 1, five, "L3, L4", "down everywhere, then left, inferred by exactly one responsible node";
    ownership::members_of_a_dead_origin_arrive_by_push, 6, four, "L2, D5", "a push brings members of an origin that died before its receiver met it";
    ownership::rolling_restart_of_three_under_load, 3, three, "N6", "no member is ever down";
    ownership::drain_survives_moving, 1, three, "C7", "drain marks of members and nodes survive moves and restarts";
    maintenance::drain_ends_on_time_whoever_owns_the_member, 2, three, "C21, C7", "a drain ends although its member moves, and the node that took the command is lost";
    maintenance::newer_drain_outlives_an_older_one, 1, three, "C21", "the end of an earlier drain does not end a later one";
    maintenance::sessions_spread_after_a_restart, 3, balanced, "N10", "sessions move to nodes that have fewer, and come to rest";
    maintenance::drained_node_hands_its_sessions_over, 1, balanced, "N10", "the sessions of a drained node move to the others";
    maintenance::client_that_cannot_move_stays, 2, balanced, "N10", "a client that returns from the node it was sent to is not asked again";
    liveness::mass_failure_guard, 1, three, "L6", "most clients silent: degraded, one further timeout, then down";
    liveness::confirmed_mass_failure_is_judged_at_once, 1, five, "L6", "most nodes gone, and another node confirms it: down without a further timeout";
    liveness::relayed_evidence_is_not_new_evidence, 1, three, "L2", "two survivors relay evidence about a dead node to each other";
    liveness::node_of_two_paused_30_s, 4, two, "L5", "one of two nodes is paused for 30 s: no mass down";
    liveness::node_paused_30_s, 4, three, "L5", "a node is paused for 30 s: no mass down";
    liveness::paused_during_a_restart, 8, four, "L2, L5", "a node is paused while another one restarts: no mass down, although links are slow";
    liveness::a_b_cut_with_c_reachable, 1, three, "L2, D6", "half an hour without a direct link changes nothing";
    liveness::latest_evidence_decides, 2, four, "L8, L4", "an inference is void when a node has later evidence of the owner";
    returning::evidence_arrives_before_the_writes, 3, collection::small_chunks, "L8", "a returning owner is admitted with all its writes, not with some";
    returning::returning_owner_is_not_relayed_as_alive, 3, collection::small_chunks, "L8", "a node relays that an owner is back once it admits it";
    returning::first_records_come_from_a_node_that_lost_the_owner, 3, collection::small_chunks, "L8", "records of an owner that their sender has lost are judged by the sender's evidence";
    returning::owner_returns_during_a_delta_of_another_node, 3, collection::small_chunks, "L8", "a delta does not show what its owner, who returned meanwhile, has unregistered";
    returning::write_arrives_before_the_evidence, 6, collection::small_chunks, "L4", "new members of a returning owner do not expire before the evidence of its return arrives";
    returning::inference_about_an_earlier_registration, 2, collection::small_chunks, "L4", "an inference about the current registration replaces one about an earlier one";
    returning::fresh_node_whose_seed_is_empty, 2, three, "N3", "a fresh node waits for its other seeds before it serves the empty registry of the first";
    returning::fresh_node_whose_seed_lags, 3, three, "N3", "a fresh node compares all serving peers before it serves";
    returning::owner_lost_again_before_its_writes_arrive, 3, collection::small_chunks, "L8, L4", "nodes with and without the last ping of an owner agree";
    liveness::one_way_link, 1, three, "P6", "both sides detect that their link is useless";
    liveness::clean_leave_during_partition, 1, three, "D4, L3", "a clean leave stays left";

    collection::delete_collect_lagging_node_returns, 1, three, "D8, D12", "a tombstone is collected while a node is away";
    collection::unregistered_after_a_move_from_a_quiet_node, 1, three, "D8", "receiving all writes of an owner is not receiving all writes";
    collection::cut_full_merge_meets_a_lagging_third_node, 1, collection::small_chunks, "D12", "a full merge is interrupted, and a third node lags as well";
    collection::collection_at_different_times, 4, three, "D8", "a tombstone collected minutes later at one node";
    collection::earlier_tombstone_expires_during_pause, 1, three, "D8, C6", "an old tombstone of another client does not replace a lost one";
    collection::lower_claim_meets_a_tombstone, 1, three, "D13", "a tombstone that only one node still holds is sent again";
    collection::lower_claim_meets_an_inference, 1, four, "D13, C9", "an inference is not collected without a message";
    collection::inference_meets_its_owner, 1, four, "C9, D13", "an inference does not end a registration of a live owner";
    collection::full_merge_meets_a_living_client, 1, three, "D12", "a full merge removes no member of the receiver's live clients";
    collection::owner_dies_as_the_sides_meet, 1, four, "D8, D10", "records that some nodes collected and others kept to the last";
    collection::names_expire_like_members, 1, three, "L7, L4", "names expire later than members, by the same inference";
    collection::collected_by_an_isolated_node, 2, four, "D10, L3", "records that one node collected are dropped everywhere after the owner died";
    collection::entry_count_never_drops_during_a_full_merge, 1, collection::small_chunks, "D12", "a full merge removes no live member";
    collection::collected_while_a_full_merge_is_sent, 1, collection::small_chunks, "D12", "a full merge leaves no record that its sender collected meanwhile";
    collection::long_pause, 2, three, "N5", "a node that was paused for 40 minutes starts a new incarnation";
    returning::resumed_node_dials_its_peers, 4, three, "P4", "a resumed node does not wait for its next dial attempt";
    returning::next_incarnation_keeps_the_peers, 2, returning::line_of_three, "N3", "a new incarnation in the same process dials the peers of the last one";
    returning::resumed_node_expires_a_dead_incarnation, 2, three, "L2", "nothing is awaited of an incarnation that has a successor";
    returning::paused_node_returns_to_one_side, 2, three, "L5, D3", "a paused node meets the side of a partition that a client has left";
    returning::resumed_node_holds_an_earlier_process, 1, three, "C1, C6", "higher claims of a process that died elsewhere last for its timeouts";
    returning::two_pauses_count_as_one, 2, three, "N5", "two pauses without contact in between count as one";
    incarnations::crash_and_restart_with_lower_counters, 1, three, "N1", "a node restarts with nothing but its id";
    incarnations::unregistered_at_a_retired_number, 1, three, "N1, D14", "others accept a retired number that proves to be alive";
    incarnations::taken_at_a_retired_number, 1, three, "D13, D14", "a member taken at a forgotten number returns to its client";
    incarnations::moved_to_a_retired_number, 2, three, "D17, D4", "a record at a retired number arrives with the writes that it replaced";
    incarnations::two_processes_with_one_id, 1, three, "N4", "the second process stops with an identity conflict";
    incarnations::rejected_process_does_not_serve, 1, three, "N4", "a process that a node rejects does not serve";
    incarnations::two_processes_with_one_id_meet, 1, three, "N4", "two established processes meet: the older one stops";
    incarnations::two_processes_with_one_id_meet_by_reports, 1, three, "N4, N9", "two processes that no node links to both meet by their node record";
    incarnations::dead_node_retired_at_different_times_never_returns, 1, three, "D14", "no record of a dead node comes back";
    incarnations::live_node_retired_behind_a_partition_returns, 1, three, "D10", "a live node returns unchanged after an hour";
    incarnations::two_nodes_return_with_lower_numbers, 2, three, "L6", "two nodes that lost their disks are there: no mass failure";
    incarnations::partitions_of_14_16_and_40_minutes, 1, three, "D10, L3", "each side keeps its own; after healing both have all";
    incarnations::name_of_an_older_incarnation_dropped_by_some, 1, three, "D10, N2", "no node keeps a name that its node cannot unregister";
    incarnations::written_off_node_is_paused_as_it_returns, 1, incarnations::watched_four, "D10", "only the paused node can restate collected records";
    agentless::agentless_member_outlives_its_owners, 2, three, "AG1, AG3", "an agentless member stays up when its owners are lost";
    agentless::agentless_member_deregistered_on_one_side, 1, three, "AG2", "a deregistration outranks what the other side of a partition writes";
    agentless::agentless_members_survive_a_total_restart, 4, three, "AG4", "disks keep agentless members, and none that was deregistered";
    agentless::agentless_members_outlive_a_collected_tombstone, 2, starting::brief, "AG4, AG5", "members older than a collected tombstone survive a total restart";
    agentless::agentless_member_known_to_one_disk, 1, starting::brief, "AG2, AG5", "a collected tombstone does not end other members";
    health::health_survives_the_owner, 2, three, "HC2, HC3", "the next owner goes on with the last results, and is the only one that checks";
    health::results_do_not_outrank_a_deregistration, 1, three, "HC1", "results of checks keep the claim of the member";
    health::critical_at_one_side_only, 1, three, "HC5", "a member that another node finds passing is not deregistered";
    health::report_at_any_node, 1, three, "HC4", "a report about a check reaches the owner from any node";
    health::mass_failure_of_checks, 1, three, "HC6", "no member is deregistered while most of its service are critical";
    incarnations::total_restart, 3, three, "N2, N8", "every node is killed and started again";

    starting::node_without_seeds_in_reach_asserts_no_absence, 2, three, "N7, N8", "a node that reaches no seed serves, and reports nothing as absent";
    starting::incarnation_beyond_the_limit_is_rejected, 2, starting::few_incarnations, "P2", "a node restarts more often than its incarnations can be tracked";
    starting::names_of_gone_nodes_leave_the_contexts, 4, starting::brief, "D15", "the name of a node that left or was lost leaves the contexts";
    starting::partition_longer_than_names_are_kept, 4, starting::brief, "D17", "two sides that removed each other's names meet again";
    peers::line_of_10_nodes, 1, peers::line_of_ten, "P8, D6, L2", "ten nodes find each other; then only neighbours are linked";
    peers::star_with_hub_restarted, 1, peers::star_of_six, "P8, D6", "the hub restarts, also as the only path";
    peers::seed_returns_to_its_address, 6, two, "P12", "a node moves to an address that is cut off, and returns to that of the seed";
    peers::one_name_for_all_nodes, 4, four, "P12", "the only seed is a name that leads to every node, itself first";
    peers::one_sided_seeding, 1, peers::one_sided_five, "P4, N8", "the seeds of each node start after it";
    peers::peer_that_accepts_and_never_reads, 1, three, "P1, P6, D5", "other nodes are not slowed down, and no queue grows";
    peers::simultaneous_dial_keeps_one_link, 5, two, "P5", "two nodes dial each other at once: one link results, and stays";
    peers::linked_nodes_do_not_dial, 3, three, "P4, P5", "linked nodes make no further connections";
    peers::open_connection_is_not_evidence, 1, three, "P1", "the node behind a connection has to send something";
    peers::isolated_nodes_rejoin, 1, five, "P4", "five isolated nodes rejoin without an operator";
    peers::timeline_of_a_failing_peer, 1, three, "P1, P3, P4, L7", "the timeline of R-46, second by second";
    regions::three_regions_converge_with_few_links, 1, regions::three_regions, "P9", "two links between regions carry everything";
    regions::fast_client_returns_at_the_deadline, 1, regions::two_regions, "C6", "the write of a fast client has to arrive before the deadline as well";
    regions::region_link_partition_heals, 1, regions::three_regions, "P9", "regions lose each other, and one is isolated";
    regions::region_links_skip_dead_nodes, 4, regions::two_large_regions, "P9", "the last nodes of two regions find each other";
    regions::last_pair_links_two_regions, 4, regions::two_large_regions, "P9", "only one pair of nodes can link two regions";
    regions::node_cut_off_from_its_region, 2, regions::two_regions_of_three, "P9", "only a node of another region can reach a node";
    regions::left_node_of_another_region_returns, 2, regions::two_regions_with_one_seed, "P9", "a region dials a node that left and does not know its address";
    hostile::hostile_lengths, 1, three, "P7", "lengths and counts that exceed the frame";
    hostile::second_connection_of_a_peer_waits, 1, three, "P5", "a second connection of a linked peer does not replace the link";
    hostile::crash_of_a_peer_with_two_connections, 1, three, "P5", "a second connection of a peer does not delay the detection of its crash";
    hostile::foreign_cluster_is_rejected, 1, three, "P2", "a node of another cluster at a known address is rejected";
    hostile::peer_that_receives_nothing_is_lost, 1, three, "P6", "a peer whose pings report that it receives nothing";
    hostile::hostile_counters, 1, three, "P7, C7", "sequences and drain counters at the limit";
    hostile::reports_of_one_node_change_no_number, 2, three, "N9, N4", "one node reports newer incarnations of another, which keeps its number and runs";
    hostile::excessive_numbers_are_rejected, 2, three, "P10, N1", "frames with numbers that no correct node sends, and an origin muted by one";
    hostile::lost_record_is_reported, 2, three, "D16", "a node that lost a record, or holds another one, is reported";
    hostile::client_id_of_another_principal, 1, three, "C14", "another principal cannot use a client id";
    hostile::hostile_claim_jumps, 1, three, "C1, P7", "claims above the limit";

    http::http_session_outlives_its_node, 4, three, "C8", "an HTTP session continues at another node and is never down";
    http::http_request_is_forwarded_to_the_owner, 2, three, "C8", "a node that lags forwards a request instead of claiming what it knows";
    http::http_secret_is_needed, 2, three, "C8", "a request with the client id and another secret changes nothing";
    http::http_requests_are_heartbeats, 1, three, "C15, C6", "a client whose requests are all rejected needs no heartbeats";
    http::http_requests_are_heartbeats_after_a_move, 2, three, "C15, C6", "requests count as heartbeats after the session moved";
    http::http_unanswered_request_is_not_rejected, 1, three, "C15", "the owner executes a request, and its answer is lost";
    http::http_full_node_does_not_reject_an_executed_request, 2, three, "C15", "a full node gets a request that its lost owner has executed";
    http::http_heartbeats_are_enough, 1, three, "C15, C6", "a client that only sends heartbeats keeps its members up";
    http::http_update_after_a_crash_is_executed, 2, three, "C8", "an update that attaches the session takes effect";
    http::http_session_without_members_is_served_anywhere, 1, three, "C8", "a session has no member yet, and its first request goes to another node";
    http_order::http_writes_at_two_nodes_with_a_cut_link, 2, three, "C10, C17", "a session uses two nodes without a link, and a third one connects them";
    http_order::http_order_of_one_client_across_a_partition, 2, three, "C10, C11", "a client writes on both sides of a partition, in its own order";
    http_order::http_writes_on_alternating_sides, 2, three, "C11", "a client alternates between two sides of a partition and can write on each";
    http_order::http_unregister_of_a_lost_registration, 2, three, "C10", "a member that only one side of a partition has is unregistered on the other";
    http_order::http_unregister_of_a_lost_contested_registration, 2, three, "C15", "the same for a member that another client had before";
    http_order::http_close_after_a_lost_registration, 2, three, "C10", "a session is closed on a side of a partition that lacks one of its members";
    http_order::http_late_registration_of_a_contested_member, 2, three, "C19", "a client registered a member that a late request of another one names";
    http_order::http_late_request_changes_nothing, 2, three, "C10", "a paused node executes a request after later ones";
    http_order::http_unregister_with_a_lower_claim, 2, three, "C16", "a member is unregistered by a later request with a lower claim";
    http_order::http_update_with_a_lower_claim, 2, three, "C16", "a member is updated by a later request with a lower claim, and that node is lost";
    http_order::http_members_of_two_nodes_are_gathered, 2, three, "C15", "two nodes without a link each register members of one session";
    http_order::http_member_lost_before_an_attach_is_named, 2, three, "C20", "another client takes a member of a session that has no connection";
    http_order::http_part_of_a_session_expires, 2, three, "C20, C15", "two nodes have parts of a session, and the client returns when one has expired";
    http_order::http_lost_writes_are_reported, 2, three, "C17", "a node dies with writes that no other node has";
    http_order::http_parallel_requests_at_one_node, 2, three, "C11", "the greater one of two tokens of parallel requests covers the other";
    http_order::http_parallel_requests_at_two_nodes, 2, three, "C11", "two nodes execute parallel requests, and the next one contains both tokens";
    http_order::http_search_does_not_outlast_the_client, 2, three, "C17", "a client waits for a shorter time than the search for a missing write takes";
    http_order::http_request_without_a_token_is_not_served_beside_its_owner, 1, three, "C17", "a node has no link to the owner of a session, and another node has one";
    http::http_expired_session_meets_a_later_one, 2, three, "C4", "the tombstone of an earlier HTTP session outranks a member of a later one";
    http::http_silent_session_meets_a_later_one, 2, three, "C4", "the record of an earlier HTTP session outranks a member of a later one";
    http::http_session_gone_starts_over, 1, three, "C8", "a session without members is gone, and its client starts over";

    streams::offline_watcher_returns_to_the_same_node, 3, three, "W3, W4", "the exact view, and nothing vanishes in between";
    streams::offline_watcher_returns_to_a_lagging_node, 2, streams::many_marks, "W4", "the node waits instead of showing old states";
    streams::offline_watcher_returns_to_a_fresh_node, 3, three, "W3", "a token means the same everywhere";
    streams::watcher_returns_to_a_node_without_the_last_change, 1, three, "W3, W4", "the versions after the token show what the node lacks";
    streams::watcher_ahead_of_a_cut_off_node_is_reset, 1, three, "W4", "the watcher is reset, and its view is right in the end";
    streams::watcher_returns_after_everything_was_collected, 2, three, "W4", "resume by versions, or with a reset";
    streams::snapshot_while_the_registry_changes, 1, three, "W2", "changes behind and ahead of the cursor";
    streams::offline_watcher_sees_an_unreachable_owner, 1, three, "W3", "a status change without a write is delivered as well";
    streams::slow_watcher_is_reset, 1, three, "W5", "no node or watcher waits for a slow watcher";
}

fn two() -> Setup {
    Setup { nodes: 2, ..Setup::default() }
}

fn three() -> Setup {
    Setup::default()
}

fn balanced() -> Setup {
    Setup { rebalance: true, ..Setup::default() }
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

/// Runs a scenario with all its seeds. The outcome is that of the first seed that fails, or of all seeds.
pub fn run(scenario: &Scenario, verbose: bool) -> RunOutcome {
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

fn run_once(scenario: &Scenario, seed: u64, verbose: bool) -> RunOutcome {
    run_mutated(scenario, seed, None, verbose)
}

/// Runs a scenario with one seed and a mutant.
pub fn run_mutated(scenario: &Scenario, seed: u64, mutant: Option<AnyMutant>, verbose: bool) -> RunOutcome {
    let setup = Setup { seed, wall_seed: seed, ..(scenario.setup)() }.with_mutant(mutant);
    run_script(World::new(setup), scenario.script, verbose)
}
