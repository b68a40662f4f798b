//! Every named story passes.

#[test]
fn every_scenario_passes() {
    for scenario in convoke_sim::scenarios::ALL {
        let outcome = convoke_sim::scenarios::run(scenario, false);
        assert_eq!(outcome.violation, None, "{}: {:#?}", scenario.name, outcome.lines);
    }
}
