//! All decisions of Convoke's SDK, without input and output.
//!
//! [`session::Session`] keeps registrations attached across connections and nodes.
//! [`watch_state::WatchState`] is the local copy of a watch and decides how the watch resumes.
//! [`backoff::Backoff`] and [`seeds::Seeds`] decide when and where to connect.
//!
//! All of them are synchronous: calls take the time as an argument, and effects come out as data.
//! `convoke-client` runs them with tokio and tonic. The simulator runs the same code in virtual time.
//! This crate uses the message types of `convoke-proto` and must not use a runtime, a socket, a clock or the core.

pub mod backoff;
mod connection_state;
mod event;
mod mutant;
pub mod seeds;
pub mod session;
mod update;
pub mod watch_state;

pub use connection_state::ConnectionState;
pub use convoke_proto::json::{Liveness, Member, MemberSpec, Owner, Status};
pub use convoke_proto::{Error, ErrorCode};
pub use event::{Event, ResetReason};
pub use mutant::{Mutant, Mutation};
pub use update::Update;
