//! Convoke's SDK: register members, watch changes, keep a local view, pick members.
//!
//! ```no_run
//! use convoke_client::{Client, MemberSpec, RoundRobin, Update};
//!
//! # async fn quick_start() -> Result<(), convoke_client::Error> {
//! let client = Client::connect(["127.0.0.1:7700"]).await?;
//!
//! // Register. The SDK keeps the member registered across lost connections and nodes.
//! let me = client.register(MemberSpec::new("orders-1", "orders").address("10.0.0.1:8080")).await?;
//! me.update(Update::merge().set("load", "0.3")).await?;
//!
//! // Find other members. Reading a view needs no network access.
//! let payments = client.view("service == \"payments\"")?;
//! payments.wait_caught_up().await?;
//! if let Some(member) = RoundRobin::new(payments).pick() {
//!     println!("the next payment goes to {}", member.address);
//! }
//!
//! // Unregister everything.
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | Task | API |
//! |---|---|
//! | Register a member | [`Client::register`], [`Registration`], [`Update`] |
//! | Receive changes | [`Client::watch`], [`Client::on_change`], [`Event`] |
//! | Look up members | [`Client::view`], [`View`], [`Client::get`], [`Client::list`] |
//! | Pick a member | [`RoundRobin`], [`LocalityPreferring`], [`WeightedRoundRobin`] |
//! | Use consistent keys | [`Client::kv`], [`Kv`](log::Kv), [`Client::log`] |
//! | Observe the connection | [`Client::states`], [`ConnectionState`], [`Registration::lost`] |
//!
//! All errors have the type [`Error`] with an [`ErrorCode`] that shows how to react; `docs/sdk.md` is the guide.
//!
//! All decisions are synchronous code that takes time and randomness as arguments. They are in `convoke-session`;
//! this crate runs it with tokio and tonic.

mod builder;
mod client;
mod connect;
mod connection;
mod driver;
mod follow;
pub mod log;
mod peer_port;
mod pick;
mod registration;
mod token;
mod view;
mod watch;

pub use builder::Builder;
pub use client::{Client, CloseOutcome};
pub use convoke_filter::{Filter, FilterError};
pub use convoke_proto::json::{
    Check, CheckStatus, GrpcProbe, Health, HttpProbe, Liveness, Maintenance, Member, MemberSpec, Owner, Status,
};
pub use convoke_proto::{Error, ErrorCode};
pub use convoke_session::{ConnectionState, Event, ResetReason, Update};
pub use convoke_tls::{ClientTls, TlsError};
pub use follow::CallbackGuard;
pub use peer_port::peer_port_answer;
pub use pick::{LocalityPreferring, RoundRobin, WeightedRoundRobin};
pub use registration::Registration;
pub use token::{AuthorizedChannel, TokenSource};
pub use view::View;
pub use watch::Watch;

use convoke_session::{backoff, seeds, session};
