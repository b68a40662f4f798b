//! The causal map (D1–D11) as several replicas that exchange real encoded items.

mod claims;
mod collection;
mod deltas;
mod histories;
mod inferences;
mod merging;
mod replica;
mod retirement;
mod steps;
mod tokens;
mod world;
