//! The core against the log's own machine, over a network that loses, repeats and delays.

mod abandoning;
mod random;
mod sessions;
mod world;
