//! The decisions of a node about HTTP sessions, without input and output (C8).
//!
//! [`Secret`] identifies a session and carries its settings.
//! [`SessionTable`] maps sessions to entries, and a [`SessionEntry`] holds the session that is attached at this node.
//! [`RequestFlow`] processes one request: each call returns the next [`Step`], and the caller reports its result.
//!
//! The caller passes time and randomness as arguments, and carries out the steps.
//! `convoke-server` does this with tokio and the node's event loop. The simulator does it in virtual time.
//! This crate must not reach a runtime, a socket, a clock or the operating system.

mod entry;
mod flow;
mod mutant;
mod secret;
mod step;
mod table;
mod token;

pub use entry::{SessionEntry, SessionOperation};
pub use flow::{ClientOrder, FlowSettings, RequestFlow};
pub use mutant::{Mutant, Mutation};
pub use secret::{Key, RANDOM_BYTES, Secret};
pub use step::{Attaching, Forwarded, SessionAnswer, SessionError, SessionReply, Step};
pub use table::{EntryRef, SessionTable};
pub use token::{DOTS_MAX, SessionToken, TOKENS_MAX};

use convoke_core::{ErrorCode, Rejection};

/// The rejection for a session of which this node knows no live member.
pub fn session_gone() -> Rejection {
    Rejection::new(ErrorCode::SessionGone, "there is no such session; create one and register its members again")
}
