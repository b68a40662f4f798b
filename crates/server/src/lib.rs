//! The client port of a Convoke node: gRPC, HTTP/JSON and server-sent events on one port.
//!
//! ```
//! use convoke_node::{Config, Node};
//! use convoke_server::Server;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Bind the port first: the node advertises its address.
//! let bound = Server::bind(convoke_server::Config::default()).await?;
//! let mut config = Config::new("alpha")?;
//! config.client_address = bound.address().to_string();
//! let node = Node::start(config).await?;
//! let server = bound.serve(node.handle(), None);
//!
//! println!("clients connect to {}", server.address());
//! server.stop().await; // hands the clients over and stops the node
//! # Ok(())
//! # }
//! ```

mod access;
mod audit;
mod clocks;
mod config;
mod consul;
mod convert;
mod draining;
mod encoded;
mod error;
mod forgetting;
mod grpc;
mod http;
mod listing;
mod log;
mod metrics;
mod net;
mod rates;
mod server;
mod service;
mod surface;
mod traces;
mod watchers;

pub use access::time_of_authorisations;
pub use access::{AuthConfig, AuthError};
pub use audit::{AuditConfig, AuditError, AuditTarget};
pub use config::{Config, ServerLimits, Timeouts};
#[doc(hidden)]
pub use convoke_checks::{CheckerConfig, ScriptCheck};
pub use error::StartError;
pub use grpc::{log_service, method_permissions};
pub use http::{consul_route_permissions, route_permissions, served as routes};
pub use log::{Directory, registered_logs};
pub use rates::{RateLimits, Rates};
pub use server::{Bound, Server};
