//! Exhaustive searches (stateright): the queue of a lock, and the life of a lease across two leaders.

mod leases;
mod queue;

use convoke_log::{Mutant, Mutation};
use stateright::{Checker, HasDiscoveries, Model};

/// Searches all states and returns their number.
fn holds<M>(model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::fmt::Debug + std::hash::Hash + Send + Sync,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
    checker.unique_state_count()
}

/// Returns the broken properties.
fn broken<M>(model: M) -> Vec<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::fmt::Debug + std::hash::Hash + Send + Sync,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync,
{
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    checker.discoveries().into_keys().collect()
}

#[test]
fn every_order_of_three_clients_of_a_lock() {
    let states = holds(queue::System::new(Mutation::none(), 1));
    assert!(states > 300, "only {states} states");
    let states = holds(queue::System::new(Mutation::none(), 2));
    assert!(states > 300, "only {states} states");
}

#[test]
fn every_order_of_keep_alives_and_leaders() {
    let states = holds(leases::System::new(Mutation::none()));
    assert!(states > 1_000, "only {states} states");
}

/// Shows that the searches can fail: without one rule, some order breaks the promise.
#[test]
fn a_missing_rule_is_found() {
    for (mutant, promise) in [
        (Mutant::PermitsIgnored, "permits"),
        (Mutant::QueueReversed, "fair"),
        (Mutant::QueueJumped, "fair"),
        (Mutant::LeasePlacesStay, "alive"),
        (Mutant::GuardIgnored, "guarded"),
        (Mutant::DelayIgnored, "delay"),
    ] {
        let broken = broken(queue::System::new(Mutation::of(mutant), 1));
        assert!(broken.contains(&promise), "{}: {broken:?}", mutant.name());
    }
    for mutant in [Mutant::KeepAliveConfirmedEarly, Mutant::LeaseWithoutGrace, Mutant::LeaseEndIgnoresEpoch] {
        let broken = broken(leases::System::new(Mutation::of(mutant)));
        assert!(broken.contains(&"confirmed"), "{}: {broken:?}", mutant.name());
    }
}
