//! Agentless members in the simulation: operators that register, replace and deregister them at any node (AG1 to AG5), and
//! what everybody must show afterwards.

use crate::faults::{Action, Fault};
use crate::host::HostState;
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::ErrorCode;
use convoke_core::member::{Check, CheckResult, Checks, Health, MemberSpec, Probe};
use std::collections::BTreeMap;

/// Seeds below this number were searched before there were agentless members, and keep their runs.
const FIRST_SEED: u64 = 1_795_020_000_000;
/// One in this many later seeds has agentless members.
const SHARE: u64 = 2;
const IDS: u64 = 8;
const INTERVAL: Micros = 4 * SECOND;

/// The last operation on one id.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The highest claim that an operation wrote.
    pub claim: u64,
    /// The value that was registered last; `None` if the member was deregistered.
    pub value: Option<String>,
    /// The result is open. The node that executed the last operation did not know the one before, for example during a
    /// partition. Or every node that knew the last one was lost with its disk.
    pub open: bool,
}

#[derive(Debug)]
pub struct Agentless {
    pub active: bool,
    rng: fastrand::Rng,
    pub expected: BTreeMap<String, Expected>,
}

impl Agentless {
    pub fn new(seed: u64) -> Self {
        let active = seed >= FIRST_SEED && seed.is_multiple_of(SHARE);
        Agentless { active, rng: fastrand::Rng::with_seed(seed ^ 0xa6e7_71e5), expected: BTreeMap::new() }
    }
}

/// The check of members that have one.
pub const CHECK: &str = "alive";

/// Members with an even last digit.
fn has_check(id: &str) -> bool {
    id.bytes().last().is_some_and(|last| last.is_ascii_digit() && last % 2 == 0)
}

impl World {
    /// The checker of a host writes a result. Returns whether it changed the member.
    pub fn report_health(&mut self, host: usize, id: &str, status: Health) -> bool {
        let Some((claim, checks)) = self.hosts[host].checks.get(id).cloned() else { return false };
        let results = checks.results().iter().map(|_| CheckResult::new(status, status.as_str(), 0)).collect();
        let Some(checks) = Checks::new(checks.definitions().clone(), results) else { return false };
        let written = self.with_node(host, |node, time, out| Some(node.report_health(time, id, (claim, &checks), out)));
        self.note(format!("n{host} finds {id} {status}: {written:?}"));
        written == Some(true)
    }

    /// The checker of a host found a member critical for too long. Returns whether it was deregistered.
    pub fn deregister_critical(&mut self, host: usize, id: &str) -> bool {
        let Some((claim, _)) = self.hosts[host].checks.get(id).cloned() else { return false };
        let done = self.with_node(host, |node, time, out| Some(node.deregister_critical(time, id, claim, out)));
        self.note(format!("n{host} deregisters critical {id}: {done:?}"));
        done == Some(true)
    }

    pub(crate) fn begin_agentless(&mut self) {
        if self.agentless.active {
            self.schedule_action(SECOND, Action::NextAgentless);
        }
    }

    pub(crate) fn next_agentless(&mut self) {
        if !self.faults.active {
            return;
        }
        let delay = self.agentless.rng.u64(..2 * INTERVAL);
        self.schedule_action(delay, Action::NextAgentless);
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(|host| self.is_able(*host)).collect();
        let Some(host) = self.agentless.rng.choice(hosts) else { return };
        let id = format!("a{}", self.agentless.rng.u64(..IDS));
        if self.agentless.rng.u32(..3) == 0 {
            self.deregister_agentless(host, &id);
        } else {
            let value = format!("{:04x}", self.agentless.rng.u16(..));
            self.register_agentless(host, &id, &value);
        }
        // Its checkers find something, whoever owns the member.
        let status = Health::ALL[self.agentless.rng.usize(..Health::ALL.len())];
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(|host| self.is_able(*host)).collect();
        for host in hosts {
            self.report_health(host, &id, status);
        }
    }

    fn is_able(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        host.serving().is_some() && !host.paused() && !host.is_second && !host.stopping
    }

    pub fn register_agentless(&mut self, host: usize, id: &str, value: &str) {
        let mut spec = MemberSpec::new(id, "agentless");
        spec.metadata.insert("value".to_owned(), value.to_owned());
        if has_check(id) {
            spec.checks.push(Check::new(CHECK, Probe::Ttl { ttl_ms: 10_000 }));
        }
        let known = self.known_claim(host, id);
        let result = self.with_node(host, |node, time, out| Some(node.register_agentless(time, &spec, "", out)));
        self.note(format!("n{host} registers agentless {id} {value}: {result:?}"));
        if let Some(Ok(_)) = result {
            self.executed(host, id, Some(value.to_owned()), known);
        }
    }

    pub fn deregister_agentless(&mut self, host: usize, id: &str) {
        let known = self.known_claim(host, id);
        let result = self.with_node(host, |node, time, out| Some(node.deregister_agentless(time, id, out)));
        self.note(format!("n{host} deregisters agentless {id}: {result:?}"));
        match result {
            Some(Ok(())) => self.executed(host, id, None, known),
            Some(Err(rejection)) => {
                let allowed = [ErrorCode::NotRegistered, ErrorCode::NotReady];
                assert!(allowed.contains(&rejection.code), "{rejection:?}");
            }
            None => {}
        }
    }

    fn known_claim(&self, host: usize, id: &str) -> u64 {
        let slot = self.hosts[host].node.as_ref().and_then(|node| node.slot(id));
        slot.map_or(0, |slot| slot.claim)
    }

    fn executed(&mut self, host: usize, id: &str, value: Option<String>, known: u64) {
        self.faults.count(Fault::AgentlessOperation);
        let claim = self.known_claim(host, id);
        let expected = self.agentless.expected.entry(id.to_owned()).or_default();
        expected.open = known < expected.claim;
        (expected.claim, expected.value) = (expected.claim.max(claim), value);
    }

    /// A host lost its memory, or its disk as well.
    pub(crate) fn agentless_lost(&mut self) {
        let mut expected = std::mem::take(&mut self.agentless.expected);
        for (id, last) in &mut expected {
            last.open |= last.claim > 0 && !(0..self.hosts.len()).any(|host| self.has_agentless(host, id, last.claim));
        }
        self.agentless.expected = expected;
    }

    /// Whether a host has the last operation on an id, in memory or on a disk with which it may start again.
    fn has_agentless(&self, host: usize, id: &str, claim: u64) -> bool {
        let held = &self.hosts[host];
        let stored = held.has_disk && held.state != HostState::Gone && !held.is_second;
        self.known_claim(host, id) >= claim || stored && held.archive.claim(id).is_some_and(|known| known >= claim)
    }
}
