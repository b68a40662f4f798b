//! Convoke's SDK: register, watch, keep a local view, pick members.
//!
//! ```no_run
//! use convoke_client::{Client, MemberSpec, RoundRobin, Update};
//!
//! # async fn quick_start() -> Result<(), convoke_client::Error> {
//! let client = Client::connect(["127.0.0.1:7700"]).await?;
//!
//! // Be found. The SDK keeps this registered across lost connections and nodes.
//! let me = client.register(MemberSpec::new("orders-1", "orders").address("10.0.0.1:8080")).await?;
//! me.update(Update::merge().set("load", "0.3")).await?;
//!
//! // Find others. Reading a view needs no network.
//! let payments = client.view("service == \"payments\"")?;
//! payments.wait_caught_up().await?;
//! if let Some(member) = RoundRobin::new(payments).pick() {
//!     println!("the next payment goes to {}", member.address);
//! }
//!
//! // Leave: unregisters at once.
//! client.close().await
//! # }
//! ```
//!
//! | For | there is |
//! |---|---|
//! | being found | [`Client::register`], [`Registration`], [`Update`] |
//! | hearing of changes | [`Client::watch`], [`Client::on_change`], [`Event`] |
//! | looking things up | [`Client::view`], [`View`], [`Client::get`], [`Client::list`] |
//! | choosing | [`RoundRobin`], [`LocalityPreferring`], [`WeightedRoundRobin`] |
//! | keys that are consistent | [`Client::kv`], [`Kv`](log::Kv), [`Client::log`] |
//! | knowing where one stands | [`Client::states`], [`ConnectionState`], [`Registration::lost`] |
//!
//! Errors are one type, [`Error`], with a [`ErrorCode`] that says what to do; `docs/sdk.md` has the guide.
//!
//! Everything that decides is synchronous and takes time and randomness as arguments. It is in `convoke-session`;
//! this crate runs it with tokio and tonic.

mod builder;
mod client;
mod connect;
mod connection;
mod driver;
mod follow;
pub mod log;
mod pick;
mod registration;
mod view;
mod watch;

pub use builder::Builder;
pub use client::Client;
pub use convoke_filter::{Filter, FilterError};
pub use convoke_proto::json::{Liveness, Member, MemberSpec, Owner, Status};
pub use convoke_proto::{Error, ErrorCode};
pub use convoke_session::{ConnectionState, Event, ResetReason, Update};
pub use follow::CallbackGuard;
pub use pick::{LocalityPreferring, RoundRobin, WeightedRoundRobin};
pub use registration::Registration;
pub use view::View;
pub use watch::Watch;

use convoke_session::{backoff, seeds, session};
