//! Rules that a leader keeps with its volatile state: levels, keep-alives, leases of members.

use convoke_base::Time;
use convoke_log::command::{
    Acquire, Body, EndBehavior, GrantLease, GroupChange, LeaseId, LeaseTerm, LockName, MemberBinding, Open, Place,
    Raise, Release, ReplicaLocation, Request, Txn,
};
use convoke_log::leader::{
    AwaitFull, AwaitedPlaces, Gate, HeldBackBy, LEVEL_WAIT, LeaderTerm, LevelPace, LevelVerdict, MemberSeen,
    NotAppended, PlaceState, RegistryHealth, Rounds,
};
use convoke_log::{
    Command, CoordinationLimits, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine, Mutation, Position,
    ReplicaId,
};
use std::collections::BTreeMap;
use std::time::Duration;

const EPOCH: Epoch = Epoch { term: 1, leader: ReplicaId(1) };
const FIRST: Position = Position { index: 3, epoch: EPOCH };
const TTL: Duration = Duration::from_secs(10);

type Scenario = fn(Mutation) -> Result<(), String>;

/// Runs all scenarios with a deliberate bug.
pub(super) fn check(mutation: Mutation) -> Result<(), String> {
    let scenarios: [Scenario; 7] = [gated, raises, policy, rounds, grace, members, awaited];
    scenarios.into_iter().try_for_each(|scenario| scenario(mutation))
}

#[allow(clippy::needless_pass_by_value, reason = "the callers read better without references")]
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, and should be {expected:?}")) }
}

fn voters(ids: &[u64]) -> BTreeMap<ReplicaId, ReplicaLocation> {
    let location = |id: &u64| ReplicaLocation { node: format!("n{id}").into(), address: "h:1".into() };
    ids.iter().map(|id| (ReplicaId(*id), location(id))).collect()
}

fn change(replaces: u64, ids: &[u64]) -> Body {
    Body::Membership(GroupChange { replaces, voters: voters(ids), learners: BTreeMap::new() })
}

fn apply(machine: &mut Machine, command: Command) {
    let index = machine.applied().index + 1;
    machine.apply(&Entry { index, epoch: EPOCH, stamp: LogTime::from_micros(index), command }).unwrap();
}

fn request(number: u64, body: Body) -> Command {
    Command::Request(Request::new(LogSessionId(1), number, EPOCH, body))
}

/// A session and a group of three replicas, at level 1, and the first entry of the term.
fn machine(mutation: Mutation) -> Machine {
    let mut machine = Machine::new(LogLimits::default()).unwrap().with_mutation(mutation);
    apply(&mut machine, Command::Open(Open::new(EPOCH, TTL, 1)));
    apply(&mut machine, request(1, change(0, &[1, 2, 3])));
    machine.skip(FIRST).unwrap();
    machine
}

fn raise(machine: &Machine) -> Command {
    let configuration = machine.configuration().number;
    let limits = CoordinationLimits::default();
    Command::Raise(Raise { epoch: EPOCH, level: Level::COORDINATION, configuration, limits })
}

fn leadership(machine: &Machine, now: u64) -> LeaderTerm {
    LeaderTerm::elected(Time::from_secs(now), FIRST, LogTime::ZERO, machine)
}

fn admitted(gate: &mut Gate, command: &Command, machine: &Machine) -> Option<NotAppended> {
    match gate.admit(command, machine) {
        Ok(admission) => {
            gate.settle(admission, Some(machine.applied().index + 1));
            None
        }
        Err(why) => Some(why),
    }
}

fn gated(mutation: Mutation) -> Result<(), String> {
    let mut machine = machine(mutation);
    let mut gate = leadership(&machine, 0).gate;
    let txn = request(2, Body::Txn(Txn::default()));
    let rejected = NotAppended::Level { needed: Level::COORDINATION, current: Level::FIRST };
    expect("admission below the level", admitted(&mut gate, &txn, &machine), Some(rejected))?;
    let raised = raise(&machine);
    apply(&mut machine, raised);
    expect("admission at the level", admitted(&mut gate, &txn, &machine), None)
}

fn raises(mutation: Mutation) -> Result<(), String> {
    let mut machine = machine(mutation);
    let mut gate = leadership(&machine, 0).gate;
    let number = machine.configuration().number;
    let add = request(2, change(number, &[1, 2, 3, 4]));
    expect("a membership change", admitted(&mut gate, &add, &machine), None)?;
    let early = raise(&machine);
    let refused = admitted(&mut gate, &early, &machine);
    expect("a raise during a change", refused, Some(NotAppended::ChangeInProgress))?;
    expect("level for a new replica", gate.required_level(&machine), Level::FIRST)?;
    apply(&mut machine, add);
    expect("a raise after the change", admitted(&mut gate, &raise(&machine), &machine), None)?;
    expect("level for a new replica", gate.required_level(&machine), Level::COORDINATION)?;
    // The raise was decided for the configuration before the change.
    apply(&mut machine, early);
    expect("level", machine.level(), Level::FIRST)?;
    expect("level for a new replica", gate.required_level(&machine), Level::FIRST)
}

fn policy(mutation: Mutation) -> Result<(), String> {
    let machine = machine(mutation);
    let mut policy = leadership(&machine, 0).level;
    let limits = CoordinationLimits::default();
    let verdict = |policy: &convoke_log::leader::LevelPolicy, seconds, pace| {
        policy.verdict(Time::from_secs(seconds), &machine, pace, &limits)
    };
    let level = Level::COORDINATION;
    for replica in [1, 2] {
        policy.report(Time::from_secs(5), ReplicaId(replica), level);
    }
    policy.report(Time::from_secs(5), ReplicaId(3), Level::FIRST);
    let by = vec![HeldBackBy { replica: ReplicaId(3), supported: Some(Level::FIRST) }];
    let held_back = LevelVerdict::HeldBack { level, by };
    expect("verdict", verdict(&policy, 5_000, LevelPace::Automatic), held_back.clone())?;
    expect("verdict at once", verdict(&policy, 5_000, LevelPace::AtOnce), held_back)?;
    policy.report(Time::from_secs(100), ReplicaId(3), level);
    let until = Time::from_secs(100) + LEVEL_WAIT;
    expect("verdict", verdict(&policy, 101, LevelPace::Automatic), LevelVerdict::Waiting { level, until })?;
    expect("verdict", verdict(&policy, 5_000, LevelPace::Hold), LevelVerdict::Held { level })?;
    let Command::Raise(wanted) = raise(&machine) else { unreachable!() };
    let propose = LevelVerdict::Propose(wanted);
    expect("verdict", verdict(&policy, 100 + LEVEL_WAIT.as_secs(), LevelPace::Automatic), propose.clone())?;
    expect("verdict", verdict(&policy, 101, LevelPace::AtOnce), propose)?;
    // The replica went back to its old version: the wait starts again.
    policy.report(Time::from_secs(200), ReplicaId(3), Level::FIRST);
    policy.report(Time::from_secs(300), ReplicaId(3), level);
    let until = Time::from_secs(300) + LEVEL_WAIT;
    expect("verdict", verdict(&policy, 301, LevelPace::Automatic), LevelVerdict::Waiting { level, until })
}

fn rounds(mutation: Mutation) -> Result<(), String> {
    let mut rounds = Rounds::new(mutation);
    expect("a round is needed", rounds.received(1), true)?;
    expect("begin", rounds.begin(), true)?;
    expect("a round is needed", rounds.received(2), false)?;
    expect("begin during a round", rounds.begin(), false)?;
    expect("confirmed", rounds.finish(), vec![1])?;
    expect("begin", rounds.begin(), true)?;
    expect("confirmed", rounds.finish(), vec![2])
}

/// A machine at level 2 with two leases: with a ttl, and bound to a member.
fn with_leases(mutation: Mutation) -> (Machine, LeaseId, LeaseId) {
    let mut machine = machine(mutation);
    let raised = raise(&machine);
    apply(&mut machine, raised);
    let grant = |term| Body::Grant(GrantLease { term, end: EndBehavior::Delete });
    apply(&mut machine, request(2, grant(LeaseTerm::Ttl(TTL))));
    let timed = LeaseId(machine.applied().index);
    let bound = MemberBinding { member: "m".into(), client: "c".into(), registration: "r1".into() };
    apply(&mut machine, request(3, grant(LeaseTerm::Member(bound))));
    let bound = LeaseId(machine.applied().index);
    (machine, timed, bound)
}

fn ended(commands: &[Command]) -> Vec<LeaseId> {
    let lease = |command: &Command| match command {
        Command::EndLease(end) => Some(end.lease),
        _ => None,
    };
    commands.iter().filter_map(lease).collect()
}

fn grace(mutation: Mutation) -> Result<(), String> {
    let (machine, timed, bound) = with_leases(mutation);
    let mut leadership = leadership(&machine, 100);
    let mut attend = |from: u64, until: u64, renew: Option<u64>| {
        let mut found = Vec::new();
        for half in from * 2..=until * 2 {
            let now = Time::from_micros(half * 500_000);
            if renew == Some(half / 2) {
                leadership.expiry.renew(now, timed);
            }
            found.extend(ended(&leadership.due(now, &machine)));
        }
        found
    };
    expect("ended within a ttl of the election", attend(100, 109, Some(109)), vec![])?;
    expect("ended within a ttl of a keep-alive", attend(110, 118, None), vec![])?;
    // At most a ttl and a tick after the last keep-alive.
    expect("ended after a ttl of silence", attend(119, 120, None), vec![timed])?;
    expect("time left of a lease of a member", leadership.expiry.left(bound), None)
}

fn members(mutation: Mutation) -> Result<(), String> {
    let (machine, _, bound) = with_leases(mutation);
    let healthy = RegistryHealth { connected: true, ready: true, degraded: false };
    let timeout = Duration::from_secs(20);
    let text = |text: &str| text.to_owned();
    let due = |seconds, health, seen: MemberSeen| {
        let mut leadership = leadership(&machine, 100);
        ended(&leadership.members.due(Time::from_secs(seconds), &machine, health, timeout, |_| seen.clone()))
    };
    let down = MemberSeen::Down { client: text("c"), registration: text("r1") };
    let up = |registration| MemberSeen::Up { client: text("c"), registration: text(registration) };
    expect("absent", due(200, healthy, MemberSeen::Absent), vec![])?;
    expect("up", due(200, healthy, up("r1")), vec![])?;
    expect("down", due(200, healthy, down.clone()), vec![bound])?;
    let left = MemberSeen::Left { client: text("c"), registration: text("r1") };
    expect("left", due(200, healthy, left), vec![bound])?;
    expect("replaced", due(200, healthy, up("r2")), vec![bound])?;
    expect("soon after the election", due(119, healthy, down.clone()), vec![])?;
    for health in [
        RegistryHealth { connected: false, ..healthy },
        RegistryHealth { ready: false, ..healthy },
        RegistryHealth { degraded: true, ..healthy },
    ] {
        expect("an unreliable registry", due(200, health, down.clone()), vec![])?;
    }
    Ok(())
}

/// Applies a request and returns the clients that are told about their places.
fn told(machine: &mut Machine, places: &mut AwaitedPlaces<u64>, number: u64, body: Body) -> Vec<(u64, PlaceState)> {
    let index = machine.applied().index + 1;
    let entry = Entry { index, epoch: EPOCH, stamp: LogTime::from_micros(index), command: request(number, body) };
    let applied = machine.apply(&entry).unwrap();
    places.applied(&applied, machine)
}

fn awaited(mutation: Mutation) -> Result<(), String> {
    let (mut machine, holder, waiter) = with_leases(mutation);
    let name = LockName::lock("l");
    let mut places = AwaitedPlaces::new(mutation);
    let acquire = |lease| Body::Acquire(Acquire::new(LockName::lock("l"), lease));
    expect("nobody waits", told(&mut machine, &mut places, 4, acquire(holder)), vec![])?;
    expect("nobody waits", told(&mut machine, &mut places, 5, acquire(waiter)), vec![])?;
    let fence = machine.keys().revision();
    expect("place", PlaceState::of(&machine, &(name.clone(), holder)), PlaceState::Held { fence })?;
    expect("place", PlaceState::of(&machine, &(name.clone(), waiter)), PlaceState::Waiting)?;
    places.add((name.clone(), holder), 1, 3).unwrap();
    places.add((name.clone(), waiter), 2, 3).unwrap();
    let gone = places.add((name.clone(), waiter), 3, 3).unwrap();
    expect("beyond the limit", places.add((name.clone(), waiter), 4, 3), Err(AwaitFull))?;
    places.cancel(&gone);
    places.cancel(&gone);
    expect("count", places.len(), 2)?;
    let other = Body::put("k", "v");
    expect("another change", told(&mut machine, &mut places, 6, other), vec![])?;
    let release = Body::Release(Release { name: name.clone(), place: Place::Fence(fence) });
    let mut woken = told(&mut machine, &mut places, 7, release);
    woken.sort_by_key(|(client, _)| *client);
    let granted = PlaceState::Held { fence: machine.keys().revision() };
    expect("a hand-over", woken, vec![(1, PlaceState::None), (2, granted)])?;
    expect("count", places.len(), 0)?;
    places.add((name.clone(), waiter), 5, 3).unwrap();
    let lost = told(&mut machine, &mut places, 8, Body::Revoke(waiter));
    expect("the end of a lease", lost, vec![(5, PlaceState::None)])
}

#[test]
fn v1_commands_of_a_higher_level_are_not_appended() {
    gated(Mutation::none()).unwrap();
}

#[test]
fn v2_a_raise_waits_for_membership_changes_and_compares_the_configuration() {
    raises(Mutation::none()).unwrap();
}

#[test]
fn v3_a_level_is_raised_after_all_replicas_supported_it_for_a_while() {
    policy(Mutation::none()).unwrap();
}

#[test]
fn le2_a_keep_alive_is_confirmed_by_a_round_that_began_later() {
    rounds(Mutation::none()).unwrap();
}

#[test]
fn le3_a_lease_lives_for_a_ttl_after_an_election_and_after_a_keep_alive() {
    grace(Mutation::none()).unwrap();
}

#[test]
fn lo9_a_hand_over_is_told_to_the_loser_and_to_one_waiter() {
    awaited(Mutation::none()).unwrap();
}

#[test]
fn le7_a_lease_of_a_member_ends_only_on_evidence_of_a_reliable_registry() {
    members(Mutation::none()).unwrap();
}
