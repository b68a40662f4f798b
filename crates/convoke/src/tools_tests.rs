//! Values that the development tools pass to nodes, checked by the node's own configuration.

use crate::config::Loaded;
use crate::node::Plan;
use std::ffi::OsString;

#[test]
fn demo_timers_are_valid_at_every_speed() {
    for speed in [0.1, 0.7, 1.0, 3.3, 10.0] {
        let mut loaded = Loaded::default();
        let text = |text: &OsString| text.to_str().unwrap().to_owned();
        let variables = convoke_tools::demo_timers(speed).unwrap();
        loaded.environment(variables.iter().map(|(name, value)| (text(name), text(value)))).unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let plan = Plan::start(&loaded).unwrap();
        plan.parts.node.validate().unwrap();
    }
}
