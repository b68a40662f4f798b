//! The core against the real state machine, over a network that loses, duplicates and delays messages.

mod abandoning;
mod coordination;
mod hostile;
mod random;
mod sessions;
mod world;
