//! Exhaustive search over all orders of events within bounds: two clients, three servers, two epochs (stateright).
//!
//! One client abandons a request for another one; the other client abandons a request and performs a barrier read. Any
//! message may be lost, duplicated or delayed, and may reach either leader. The epoch check before an append may always
//! race. The real machine applies entries, and the real gate controls barrier reads.

mod state;
mod steps;

use convoke_log::{Mutant, Mutation};
use state::{State, System};
use stateright::{Checker, HasDiscoveries, Model, Property};
use steps::Step;

impl Model for System {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        self.possible(state, actions);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        self.after(last, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "R-63: an abandoned request never takes effect after the later one",
                |_, state: &State| {
                    let at = |number| state.effect(0, number);
                    !matches!((at(1), at(2)), (Some(first), Some(second)) if first > second)
                },
            ),
            Property::always("exactly once", |_, state: &State| {
                let mut effects = state.effects.clone();
                effects.sort_unstable_by_key(|effect| (effect.client, effect.number));
                effects.windows(2).all(|pair| (pair[0].client, pair[0].number) != (pair[1].client, pair[1].number))
            }),
            Property::always(
                "R-64: no abandoned request takes effect after a barrier read",
                |_, state: &State| !matches!((state.read, state.effect(1, 1)), (Some(read), Some(index)) if index > read),
            ),
            Property::always(
                "R-65: nothing takes effect in another epoch than it was meant for",
                |_, state: &State| state.effects.iter().all(|effect| effect.meant_for == effect.term),
            ),
            Property::sometimes("the second request overtakes the first", |_, state: &State| {
                state.effect(0, 2).is_some() && state.effect(0, 1).is_none() && state.superseded
            }),
            Property::sometimes("both take effect", |_, state: &State| {
                state.effect(0, 1).is_some() && state.effect(0, 2).is_some()
            }),
            Property::sometimes("a read in the second epoch", |_, state: &State| {
                state.read.is_some() && state.leader_of_second.is_some()
            }),
            Property::sometimes("a read after an abandoned request", |_, state: &State| {
                state.read.is_some() && state.effect(1, 1).is_some()
            }),
            Property::sometimes("two leaders have different entries at one index", |_, state: &State| {
                let [one, other, _] = &state.servers;
                one.leads > 0 && other.leads > 0 && one.log.iter().zip(&other.log).any(|(a, b)| a.term != b.term)
            }),
        ]
    }
}

#[test]
fn every_order_of_two_clients_three_servers_and_two_epochs() {
    let checker = System::new(Mutation::none(), state::LOG_MAX).checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    assert!(checker.unique_state_count() > 300_000, "only {} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Shows that the search can fail: without one rule, some order breaks the promise.
#[test]
fn a_missing_rule_is_found() {
    for (mutant, promise) in [
        (Mutant::SupersededExecuted, "R-63"),
        (Mutant::EpochIgnored, "R-65"),
        (Mutant::BarrierForgetsAppended, "R-64"),
        (Mutant::BarrierForgetsTerm, "R-64"),
        (Mutant::BarrierWithoutFloor, "R-64"),
    ] {
        let system = System::new(Mutation::of(mutant), state::LOG_MAX).checker().threads(2);
        let checker = system.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let broken: Vec<&str> = checker.discoveries().into_keys().filter(|name| name.contains("R-")).collect();
        assert!(broken.iter().any(|name| name.starts_with(promise)), "{}: {broken:?}", mutant.name());
    }
}
