//! A Convoke node on the network, for embedding in any tokio program (R-48).
//!
//! This crate is the thin shell around [`convoke_core`]. One task, the event loop, owns the core. Links, clients and
//! watchers reach it through one bounded channel. Reads use a published view and never wait.
//!
//! ```
//! use convoke_node::{Config, Node};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let first = Node::start(Config::new("alpha")?).await?;
//!
//! let mut config = Config::new("beta")?;
//! config.join = vec![first.peer_address().to_owned()];
//! let second = Node::start(config).await?;
//! second.ready().await?; // from here on it holds the whole registry
//!
//! second.register("shard-7", "beta/worker-3").await?;
//! assert_eq!(second.lookup("shard-7").map(|name| name.location).as_deref(), Some("beta/worker-3"));
//!
//! second.stop().await; // graceful; dropping a node ends it like a crash
//! # Ok(())
//! # }
//! ```

mod archive;
mod changes;
mod check_feed;
mod client_queue;
mod clock;
mod config;
mod connection;
mod counters;
mod disk;
mod dispatch;
mod error;
mod event_loop;
mod events;
mod handle;
mod links;
mod node;
mod random;
mod shared;
mod view;
mod watch;

pub use changes::MemberChange;
pub use check_feed::CheckChanges;
pub use config::{Config, NetworkLimits};
pub use connection::{ClientConnection, CloseReason, Delivery};
pub use convoke_core::node::{ClientOperation, OperationResult, Registration};
pub use counters::NetworkCounters;
pub use disk::id_of_data_dir;
pub use dispatch::Inbound;
pub use error::StartError;
pub use event_loop::Executed;
pub use events::{NodeEvent, TimelineEvent};
pub use handle::{Counters, NodeHandle, NodeStatus, QueueLengths, RegistryStanding};
pub use node::{Node, PreparedNode};
pub use shared::{Ending, Phase};
pub use view::MemberPage;
pub use watch::WatchHandle;
