//! A simulated registry: the registrations of members, and what each node shows of them. The views have faults of their own.
//!
//! The decision to end a lease is that of the leader (`convoke_log`, LE7); only its input is simulated.

use crate::faults::Fault;
use crate::plan::Mutant;
use crate::record::now;
use crate::world::Shared;
use convoke_log::Epoch;
use convoke_log::command::MemberBinding;
use convoke_log::leader::{MemberSeen, RegistryHealth};
use convoke_replica::LogHandle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Short, so that many leases end.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// As in `convoke-server`.
const INTERVAL: Duration = Duration::from_millis(500);
/// A reliable registry is late by less than the heartbeat timeout.
const LATE_MAX: u64 = 2_000_000;
/// A new leader may show anything for this time. It ends before the heartbeat timeout, and is noticed an interval late.
const FRESH: Duration = Duration::from_millis(2_000);

/// The state of a member since some time.
type Since = (u64, MemberSeen);

/// All registrations, and the views of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    members: BTreeMap<String, Vec<Since>>,
    views: BTreeMap<usize, View>,
}

/// What a node shows.
#[derive(Clone, Debug, Default)]
struct View {
    mode: Mode,
    /// The node shows the registrations of this time. It never goes back.
    until: u64,
    /// The node was elected a moment ago.
    fresh: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Current,
    /// Changes arrive late.
    Late,
    /// Some members are missing.
    Missing,
    /// The node is alone, not ready or degraded, and shows all members as down.
    Alone,
    NotReady,
    Degraded,
}

impl Mode {
    fn fault(self) -> Option<Fault> {
        match self {
            Mode::Current => None,
            Mode::Late => Some(Fault::RegistryLate),
            Mode::Missing => Some(Fault::RegistryIncomplete),
            Mode::Alone | Mode::NotReady | Mode::Degraded => Some(Fault::RegistryUnreliable),
        }
    }

    fn health(self) -> RegistryHealth {
        RegistryHealth {
            connected: self != Mode::Alone,
            ready: self != Mode::NotReady,
            degraded: self == Mode::Degraded,
        }
    }

    fn is_reliable(self) -> bool {
        matches!(self, Mode::Current | Mode::Late | Mode::Missing)
    }
}

impl Registry {
    /// A process registers a member, and replaces an earlier registration.
    pub(crate) fn register(&mut self, bound: &MemberBinding) {
        let (client, registration) = (bound.client.to_string(), bound.registration.to_string());
        self.change(bound, MemberSeen::Up { client, registration });
    }

    /// The registration of a member is down or has left.
    pub(crate) fn end(&mut self, bound: &MemberBinding, left: bool) {
        let (client, registration) = (bound.client.to_string(), bound.registration.to_string());
        self.change(
            bound,
            match left {
                true => MemberSeen::Left { client, registration },
                false => MemberSeen::Down { client, registration },
            },
        );
    }

    fn change(&mut self, bound: &MemberBinding, state: MemberSeen) {
        self.members.entry(bound.member.to_string()).or_default().push((now(), state));
    }

    /// Returns whether a registration was ever down or left, or was replaced.
    pub(crate) fn was_gone(&self, bound: &MemberBinding) -> bool {
        let states = self.members.get(bound.member.as_str()).map(Vec::as_slice).unwrap_or_default();
        let registered = states.iter().position(|(_, state)| is_up(state, bound));
        registered.is_some_and(|at| states[at..].iter().any(|(_, state)| !is_up(state, bound)))
    }

    /// Returns what a node shows about a member.
    fn seen(&self, place: usize, member: &str) -> MemberSeen {
        let (default, none) = (View::default(), Vec::new());
        let (view, states) = (self.views.get(&place).unwrap_or(&default), self.members.get(member).unwrap_or(&none));
        let state = states.iter().rfind(|(at, _)| *at <= view.until).map(|(_, state)| state.clone());
        match (view.mode, state) {
            (_, None) => MemberSeen::Absent,
            (Mode::Missing, Some(_)) if member.ends_with('1') => MemberSeen::Absent,
            (mode, Some(MemberSeen::Up { client, registration })) if view.fresh || !mode.is_reliable() => {
                MemberSeen::Down { client, registration }
            }
            (_, Some(state)) => state,
        }
    }

    /// Returns whether a node shows a registration as up.
    pub(crate) fn shows(&self, place: usize, bound: &MemberBinding) -> bool {
        is_up(&self.seen(place, &bound.member), bound)
    }
}

fn is_up(state: &MemberSeen, bound: &MemberBinding) -> bool {
    matches!(state, MemberSeen::Up { client, registration }
        if *client == bound.client && *registration == bound.registration)
}

/// Ends the leases of members that are gone, while this node leads, as `convoke-server` does. Never ends.
pub(crate) async fn follow(shared: Arc<Shared>, place: usize, handle: LogHandle) {
    let mut random = fastrand::Rng::with_seed(shared.plan.seed ^ now().wrapping_mul(31).wrapping_add(place as u64));
    let (mut mode, mut change_at) = (Mode::Current, Instant::now());
    let (mut epoch, mut fresh_until) = (None::<Epoch>, Instant::now());
    let mut counted = true;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let calm = shared.recorder.lock().closing;
        if Instant::now() >= change_at {
            mode =
                [Mode::Current, Mode::Current, Mode::Late, Mode::Missing, Mode::Alone, Mode::NotReady, Mode::Degraded]
                    [random.usize(..7)];
            change_at = Instant::now() + Duration::from_millis(random.u64(1_000..6_000));
            counted = false;
        }
        mode = if calm { Mode::Current } else { mode };
        let leads = handle.epoch().ok();
        if leads.is_some() && leads != epoch {
            fresh_until = Instant::now() + FRESH;
        }
        epoch = leads.or(epoch);
        let bound = handle.bound_members();
        if let (false, Some(fault), false) = (counted, mode.fault(), bound.is_empty()) {
            shared.recorder.fault(now(), fault, &format!("registry of n{place}: {mode:?}"));
            counted = true;
        }
        let fresh = !calm && Instant::now() < fresh_until;
        let seen: BTreeMap<String, MemberSeen> = {
            let mut registry = shared.registry();
            let view = registry.views.entry(place).or_default();
            let late = if mode == Mode::Late { LATE_MAX } else { 0 };
            (view.mode, view.fresh, view.until) = (mode, fresh, view.until.max(now().saturating_sub(late)));
            let suspects = bound.iter().filter(|bound| !registry.shows(place, bound));
            suspects.map(|bound| (bound.member.to_string(), registry.seen(place, &bound.member))).collect()
        };
        let trusted = RegistryHealth { connected: true, ready: true, degraded: false };
        let health = if shared.plan.has(Mutant::RegistryTrusted) { trusted } else { mode.health() };
        let timeout = if shared.plan.has(Mutant::NewLeaderTrusted) { Duration::ZERO } else { HEARTBEAT_TIMEOUT };
        if !seen.is_empty() {
            handle.end_leases_of_members(health, timeout, &seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_late_incomplete_or_wrong_only_as_its_mode_says() {
        let bound = MemberBinding { member: "m1".into(), client: "c".into(), registration: "1".into() };
        let mut registry = Registry::default();
        registry.register(&bound);
        assert!(registry.shows(0, &bound) && !registry.was_gone(&bound));
        registry.views.insert(0, View { mode: Mode::Missing, ..View::default() });
        assert_eq!(registry.seen(0, "m1"), MemberSeen::Absent);
        for mode in [Mode::Alone, Mode::NotReady, Mode::Degraded] {
            registry.views.insert(0, View { mode, ..View::default() });
            assert!(matches!(registry.seen(0, "m1"), MemberSeen::Down { .. }), "{mode:?}");
        }
        assert!(!registry.was_gone(&bound), "a view changes nothing");
        registry.register(&MemberBinding { registration: "2".into(), ..bound.clone() });
        assert!(registry.was_gone(&bound), "it was replaced");
        registry.register(&bound);
        assert!(registry.was_gone(&bound), "coming back changes nothing");
    }
}
