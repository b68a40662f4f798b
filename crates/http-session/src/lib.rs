//! Everything that a node decides about HTTP sessions, without input and output (C8).
//!
//! [`Secret`] names a session and carries its settings.
//! [`Table`] holds the places of the sessions at a node, and [`Place`] holds the session that is attached there.
//! [`Request`] leads one request through a node: each call returns the next [`Step`], and the caller reports its result.
//!
//! The caller passes time and randomness as arguments, and carries out the steps.
//! `convoke-server` does this with tokio and the node's event loop. The simulator does it in virtual time.
//! This crate must not reach a runtime, a socket, a clock or the operating system.

mod mutant;
mod place;
mod request;
mod secret;
mod table;

pub use mutant::{Mutant, Mutation};
pub use place::{Call, Place, SessionRequest};
pub use request::{Answer, Attaching, Forwarded, Reply, Request, SessionError, Settings, Step};
pub use secret::{Key, RANDOM_BYTES, Secret};
pub use table::{Found, Table};

use convoke_core::{ErrorCode, Rejection};

/// The answer to a session that nobody knows.
pub fn session_gone() -> Rejection {
    Rejection::new(ErrorCode::SessionGone, "there is no such session; create one and register its members again")
}
