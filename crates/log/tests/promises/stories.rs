//! Stories with names: what went wrong in the seed's telling, and rule by rule.

mod abandoning;
mod apply_rule;
mod fates;
mod membership;
mod sessions;
