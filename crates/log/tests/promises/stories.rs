//! Named scenarios: the motivating examples, and each rule.

mod abandoning;
mod apply_rule;
mod coordination;
mod fates;
mod membership;
mod sessions;
