//! Parts that the commands of the `convoke` binary and the development tools share.
//!
//! This crate owns errors with exit codes, output on stdout, the flags that select a node, and the connection to it. It
//! must not depend on the node: client commands do not start one.

mod address;
mod args;
mod connect;
mod context;
mod error;
pub mod http;
pub mod output;
mod process;
mod signals;
mod time;

pub use address::{CLIENT_PORT, PEER_PORT, host_port, with_port};
pub use args::{ConnectArgs, Inspect, pair, timeout};
pub use connect::{AttemptError, NodeChannel, addresses, attach, call, call_until, report_connection, tls, token};
pub use context::{Context, Contexts, contexts_file, current_context, write_private};
pub use error::{CommandError, Result, exit};
pub use process::{block_on, block_on_all_cores, raise_open_files};
pub use signals::{Signal, Signals};
pub use time::{duration, show_duration};
