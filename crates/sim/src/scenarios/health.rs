//! Checks of members: who runs them, and what becomes of their results (HC1 to HC6).

use super::support::ScenarioResult;
use crate::agentless::CHECK;
use crate::network::{MINUTE, SECOND};
use crate::world::{Crash, World};
use convoke_core::member::Health;
use convoke_core::node::{CheckReport, ReportDelivery, StreamEvent};
use std::cell::RefCell;
use std::rc::Rc;

/// The host that checks the member, if it is exactly one.
fn checker(world: &World, id: &str) -> Option<usize> {
    let mut hosts = world.running_hosts().into_iter().filter(|host| world.hosts[*host].checks.contains_key(id));
    let first = hosts.next()?;
    hosts.next().is_none().then_some(first)
}

fn is_everywhere(world: &World, id: &str, health: Health) -> bool {
    world.running_hosts().into_iter().all(|at| {
        world.hosts[at].serving().and_then(|node| node.member(id)).is_some_and(|member| member.health() == health)
    })
}

fn absent(world: &World, id: &str) -> bool {
    world.running_hosts().into_iter().all(|at| world.node(at).member(id).is_none())
}

/// Registers a member with a check, and waits until one node checks it.
fn checked(world: &mut World, id: &str) -> Result<usize, crate::invariants::Violation> {
    world.register_agentless(0, id, "v");
    world.up(&[id])?;
    world.pass(10 * SECOND)?;
    world.run_until(|w| checker(w, id).is_some(), 30 * SECOND)?;
    Ok(checker(world, id).expect("there is one"))
}

/// Records every health that a watcher was shown.
#[derive(Clone, Debug, Default)]
struct Shown(Rc<RefCell<Vec<Health>>>);

impl crate::invariants::Invariant for Shown {
    fn name(&self) -> &'static str {
        "shown_health"
    }
    fn checks(&self) -> u64 {
        1
    }
    fn stream_event(&mut self, _: &World, _: usize, event: &StreamEvent, _: &mut crate::invariants::Found) {
        if let StreamEvent::Updated(member) | StreamEvent::OwnerChanged(member) | StreamEvent::Snapshot(member) = event
            && member.is_agentless()
        {
            self.0.borrow_mut().push(member.health());
        }
    }
}

/// The owner is lost: the next one goes on with its last results, and only one node checks the member.
pub(super) fn health_survives_the_owner(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let owner = checked(world, "a2")?;
    world.report_health(owner, "a2", Health::Passing);
    world.run_until(|w| is_everywhere(w, "a2", Health::Passing), 10 * SECOND)?;
    let shown = Shown::default();
    world.invariants.push(Box::new(shown.clone()));
    world.crash(owner, if world.even_seed() { Crash::Silent } else { Crash::Process });
    world.run_until(|w| checker(w, "a2").is_some_and(|next| next != owner), MINUTE)?;
    world.require(is_everywhere(world, "a2", Health::Passing), "the results were lost with the owner")?;
    let next = checker(world, "a2").expect("there is one");
    world.report_health(next, "a2", Health::Warning);
    world.run_until(|w| is_everywhere(w, "a2", Health::Warning), 10 * SECOND)?;
    world.start(owner);
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.settle()?;
    world.require(!shown.0.borrow().contains(&Health::Critical), "the member was shown as critical")?;
    world.pass(10 * SECOND)?;
    world.require(checker(world, "a2").is_some(), "not exactly one node checks the member")
}

/// A deregistration at one side of a partition outranks all results of the other side.
pub(super) fn results_do_not_outrank_a_deregistration(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let owner = checked(world, "a2")?;
    let others: Vec<usize> = (0..3).filter(|host| *host != owner).collect();
    let cuts = world.partition(&[owner], &others);
    world.deregister_agentless(others[0], "a2");
    for status in [Health::Passing, Health::Critical, Health::Passing, Health::Warning] {
        world.report_health(owner, "a2", status);
        world.pass(SECOND)?;
    }
    world.rejoin(cuts);
    world.run_until(|w| absent(w, "a2"), 20 * SECOND)?;
    world.settle()
}

/// One side of a partition finds the member critical and deregisters it, the other side finds it passing: it stays.
pub(super) fn critical_at_one_side_only(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let owner = checked(world, "a2")?;
    world.report_health(owner, "a2", Health::Passing);
    world.run_until(|w| is_everywhere(w, "a2", Health::Passing), 10 * SECOND)?;
    let others: Vec<usize> = (0..3).filter(|host| *host != owner).collect();
    let cuts = world.partition(&[owner], &others);
    let adopted = |w: &World| others.iter().copied().find(|host| w.hosts[*host].checks.contains_key("a2"));
    world.run_until(|w| adopted(w).is_some(), MINUTE)?;
    let other = adopted(world).expect("another node has adopted the member");
    world.report_health(other, "a2", Health::Critical);
    // While it is degraded, the node waits.
    for _ in 0..60 {
        if world.deregister_critical(other, "a2") {
            break;
        }
        world.pass(SECOND)?;
    }
    world.require(world.node(other).member("a2").is_none(), "the side that finds it critical still has it")?;
    world.rejoin(cuts);
    world.run_until(|w| is_everywhere(w, "a2", Health::Passing), 20 * SECOND)?;
    world.settle()?;
    world.require(is_everywhere(world, "a2", Health::Passing), "the member that was passing is gone")
}

/// Any node takes a report and passes it to the owner.
pub(super) fn report_at_any_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let owner = checked(world, "a2")?;
    for host in 0..3 {
        let (id, check) = ("a2".into(), CHECK.into());
        let report = CheckReport { id, check, status: Health::Passing, output: format!("from n{host}") };
        let result = world.with_node(host, |node, time, out| Some(node.report_check(time, report, out)));
        let expected = if host == owner { ReportDelivery::Here } else { ReportDelivery::Sent };
        world.require(result == Some(Ok(expected)), "the report was not taken")?;
    }
    world.run_until(|w| w.hosts[owner].reports.len() == 3, 5 * SECOND)?;
    let (id, check) = ("a2".into(), "other".into());
    let unknown = CheckReport { id, check, status: Health::Passing, output: String::new() };
    let result = world.with_node(owner, |node, time, out| Some(node.report_check(time, unknown, out)));
    world.require(matches!(result, Some(Err(_))), "an unknown check was reported")
}

/// All members of a service become critical: none is deregistered. A single one is.
pub(super) fn mass_failure_of_checks(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ["a0", "a2", "a4", "a6"];
    for id in ids {
        let owner = checked(world, id)?;
        world.report_health(owner, id, Health::Critical);
    }
    world.run_until(|w| ids.iter().all(|id| is_everywhere(w, id, Health::Critical)), 10 * SECOND)?;
    for id in ids {
        let owner = checker(world, id).expect("one node checks it");
        let deregistered = world.deregister_critical(owner, id);
        world.require(!deregistered, "a member was deregistered in a mass failure")?;
    }
    for id in &ids[..3] {
        let owner = checker(world, id).expect("one node checks it");
        world.report_health(owner, id, Health::Passing);
    }
    world.run_until(|w| ids[..3].iter().all(|id| is_everywhere(w, id, Health::Passing)), 10 * SECOND)?;
    let owner = checker(world, "a6").expect("one node checks it");
    let deregistered = world.deregister_critical(owner, "a6");
    world.require(deregistered, "a single critical member was not deregistered")?;
    // No operator did this, and no other node finds the member passing.
    world.agentless.expected.get_mut("a6").expect("it was registered").value = None;
    world.run_until(|w| absent(w, "a6"), 10 * SECOND)?;
    world.settle()
}
