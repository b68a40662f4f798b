//! Code that the registry plane and the log plane share.
//!
//! [`Time`] as a value, times as text, the [`codec`] of peer messages and log entries, the [`framing`] of both planes' connections,
//! the [`ErrorCode`]s of the public interface, and the macros [`mutants!`] and [`seam!`] for deliberate bugs. This crate owns no
//! state, reads no clock and opens no socket. The two planes depend on it and not on each other.

pub mod codec;
mod date_time;
mod error;
pub mod framing;
mod mutants;
mod revocations;
mod secret;
mod time;

pub use date_time::{date_time, timestamp};
pub use error::{ErrorCode, GrpcStatus};
pub use revocations::{
    REVOCATION_KEY_BYTES_MAX, REVOCATIONS_ADDED_MAX, REVOCATIONS_MAX, Revocation, RevocationLimit, RevocationSet,
};
pub use secret::same_secret;
pub use time::{Duration, Time};
