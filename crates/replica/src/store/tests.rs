//! Tests of the storage: the engine's own suite, crashes at every step, damage of every bit.

mod conformance;
mod crash;
mod fake_disk;
mod flips;
