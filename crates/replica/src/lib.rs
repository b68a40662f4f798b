//! A replica of Convoke's log on the network.
//!
//! The promises are kept by the pure machine of [`convoke_log`]; this crate carries it: openraft agrees on entries, a
//! segmented log and snapshot files keep them, replicas talk over a connection of their own. [`LogHandle`] is what the
//! rest of a node sees. openraft is named in one module and nowhere in the interface.

mod codec;
mod config;
mod counters;
mod engine;
mod entropy;
mod group;
mod handle;
mod housekeeping;
mod net;
pub mod offline;
mod plane;
mod raft;
mod refusal;
mod replica;
mod runtime;
mod state;
mod status;
mod store;
mod term_watch;
mod traces;

pub use config::{Config, ConfigError, ReplicaLimits, Timers};
pub use convoke_log as log;
pub use counters::Counters;
pub use entropy::seed_thread;
pub use handle::{Answered, Backup, Consistency, Edit, LogHandle, OpenAnswered};
pub use net::{Dial, Duplex, Guided, PREAMBLE, Tcp};
pub use refusal::{ChangeError, Refusal, SubmitError};
pub use replica::{Replica, StartError};
pub use status::{Group, Member, Role, Status};
pub use store::StoreError;
pub use store::disk::{Disk, DiskFile};
