//! The causal map (D1–D11) as several copies of the map that exchange real encoded items.

mod claims;
mod collection;
mod deltas;
mod histories;
mod inferences;
mod map_copy;
mod merging;
mod retirement;
mod steps;
mod tokens;
mod world;
