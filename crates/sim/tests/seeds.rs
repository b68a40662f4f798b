//! A hundred brief seeds without a violation and with every kind of fault; seeds that once found a defect.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_harness::seeds::run_many;
use convoke_sim::stats::Stats;
use convoke_sim::{Kind, Plan, run_plan};
use std::sync::atomic::AtomicBool;

#[test]
fn a_hundred_seeds() {
    let (mut total, mut failures) = (Stats::default(), Vec::new());
    let one = |seed| run_plan(&Plan::brief(seed), false);
    run_many(1..101, 2, &AtomicBool::new(false), one, |outcome| {
        total.add(&outcome.stats);
        if let Some(violation) = outcome.violation {
            failures.push(format!("replay --brief --seed {}: {violation}", outcome.seed));
        }
    });
    assert!(failures.is_empty(), "{failures:#?}");
    let (faults, checks) = (total.scarce_faults(Kind::Brief), total.scarce_checks(Kind::Brief));
    assert!(faults.is_empty() && checks.is_empty(), "below the minimum count: {faults:?}, {checks:?}");
}

/// Seeds that once found a defect of the core or of a check. Each comment names the rule of docs/protocol.md.
#[test]
fn seeds_that_found_something() {
    let focused = [
        275,               // W3: a token did not cover a record beyond its context
        1093,              // W3
        1179,              // W3: a record kept where the token was made and dropped where it was used
        1194,              // W3
        1439,              // D10: a starting node retired an incarnation before it received its records
        1779,              // W3
        1827,              // W3
        2715,              // W3: kept at one node, dropped at another
        3075,              // D6: both ends used one number for two deltas
        6781,              // D7: no pushes after one end rejected a full merge
        900_100_035,       // C5: a copy of a rejected request was executed later
        900_101_729,       // C2: found with the simulator's own client, before it ran the SDK's session
        900_101_963,       // L3: evidence admitted an owner before the last chunk of its exchange was applied
        900_104_210,       // W6: the removal of a member carried the version under which it was shown
        1_794_892_223_034, // a check: a session moved while its new node had no link
        1_794_911_980_169, // a check: a fast client moved between two nodes whose link was slow
        1_794_910_594_484, // L4: an inference about an earlier registration kept out one about the current registration
        1_794_982_656_584, // C8: a session was attached at two nodes, and each of them owned some of its members
        1_794_982_656_886, // a check: a client updated one member with two parallel requests
        1_794_984_293_847, // a check: a session moved while its earlier node had no link
        1_795_022_000_480, // a check: a request whose outcome a node reported as unknown was executed later
        1_795_022_001_047, // a check: the same for a registration
        1_795_034_686_268, // AG4: a node restored no member that was older than the floor on its own disk
        1_795_023_000_842, // C20: a part of a session expired at one of two nodes, and no answer named its members
        1_794_855_073_053, // D13: a node rejected the records of a number that it had retired, and kept what they replaced
    ];
    let brief = [
        245,               // D10
        318,               // D10
        769,               // N1: unregistered by an incarnation whose number others had retired
        2895,              // L3: records of a returning owner collected with an inference made before its return
        1_794_940_883_086, // C10: a registration outranked the later unregistration with a higher claim
        1_794_982_741_461, // C8: members that the node in use did not own expired
        3654,              // N6: a node stopped before a peer had its last write
    ];
    let full = [
        1_795_032_595_600, // D17: a delta omitted records of a retired number that was alive, and covered what they replaced
        1_795_032_595_219, // C20: a session without a connection lost members, and no answer named them
        1_795_032_595_618, // a check: a paused node met the side of a partition that a client had left
        1_795_011_334_426, // N4: a second process served, because one node had no link to the first one
        1_795_015_607_610, // P5: the second connection of a crashed peer delayed the detection
        1_795_015_608_044, // P5
        1_795_015_608_192, // L8: a lagging node sent what a returning origin had replaced
        192,               // W3: written off at two nodes, kept at one
        553,               // W3: an owner was returning where the token was made
        698,               // C6: a tombstone was lost with the only node that had it
        707,               // C4: a client vanished and its node kept the connection
        1_795_009_299_791, // C10: a late registration replaced the record of another client
        1_795_009_299_801, // a check: one node expired the members of two owners, another one of a third
        1_795_009_299_875, // a check: a written-off member of an owner that was silent for a moment (D10)
        1_795_015_608_075, // a check: a client ended its session on a side of a partition that lacked one of its members
        1_795_011_334_513, // C4: an earlier session of a client took a member, and no answer named it
        1_795_015_608_108, // a check: the same, and the last evidence was older than the partition
        1_795_015_607_422, // a check: a node had the address of a second process in place of the first one
        1_795_123_588_356, // a check: a session may not unregister a member of an earlier session of its client
        1_795_125_332_574, // a check: a paused node received an unregistration from a peer that lacked the next registration
        1_795_125_837_761, // a check: the sessions of a paused node do not expire
        1_795_123_588_352, // L6: nodes with lower numbers than before counted as gone
        1_795_119_754_563, // L2: a node that was paused counted the silence of a restarted node before it had the moved members
        1_795_015_607_594, // a check: an owner died whose links the model of reachability lacked
        1_795_011_334_457, // N4: a starting node that another one dialled stayed rejected for ever
        1_795_010_374_384, // D14: a node began with a number that others had retired
        1_794_994_955_770, // a check: the owner of a member registered it again, and another node had not received that yet
        1_794_986_294_686, // L8: a node showed old records of an owner that their sender had lost
        1_794_985_185_165, // D5: a push did not reach a region that had no link to its sender
        1_795_015_607_527, // D5: a push did not reach the other part of a split region
        1_794_833_130_002, // P9: a dead node hid the only live node of a region
        38,                // a check: a process stopped by a ping of a second process with its id that had just ended
        939,               // N3: a fresh node served the registry of a node that lagged
        1_794_904_583_409, // D5: a write of a fast client arrived too late where two nodes had no link
        1_794_904_583_459, // D5
        1_794_904_583_479, // D5: the same for a sibling without a link to the node that received it from another region
        1_794_904_583_504, // a check: a session was attached with one claim on two sides of a partition
        1_794_904_583_525, // a check: an earlier session of the client outranked the current one after a partition
        1_794_892_223_015, // L5: a node that was paused answered SESSION_GONE to a session whose members it showed
        1_794_892_223_157, // a check: a node learns no addresses from records that have expired
        1_794_892_223_176, // C9: a dead process of a client ended the registration of the next one
    ];
    let focused = focused.map(|seed| (Kind::Focused, seed));
    let brief = brief.map(|seed| (Kind::Brief, seed));
    let full = full.map(|seed| (Kind::Full, seed));
    for (kind, seed) in focused.into_iter().chain(brief).chain(full) {
        let violation = run_plan(&kind.plan(seed), false).violation;
        assert!(violation.is_none(), "replay{} --seed {seed}: {violation:?}", kind.option());
    }
}

/// Runs every theme a few times.
#[test]
fn themes() {
    let one = |seed| run_plan(&Plan::focused(seed), false);
    let mut failures = Vec::new();
    run_many(1..31, 2, &AtomicBool::new(false), one, |outcome| {
        if let Some(violation) = outcome.violation {
            failures.push(format!("replay --focused --seed {}: {violation}", outcome.seed));
        }
    });
    assert!(failures.is_empty(), "{failures:#?}");
}
