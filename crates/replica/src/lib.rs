//! A replica of Convoke's log.
//!
//! The state machine of [`convoke_log`] keeps the promises; this crate runs it. openraft agrees on entries, a segmented
//! log and snapshot files store them, and replicas use their own connections. [`LogHandle`] is the interface for the
//! rest of a node. Only one module names openraft, and the public interface does not expose it.

mod acknowledgements;
pub mod check;
mod codec;
mod config;
mod counters;
mod engine;
mod entropy;
mod evidence;
mod group;
mod handle;
mod housekeeping;
mod keep_alives;
mod mutant;
mod net;
pub mod offline;
mod plane;
mod raft;
mod rejection;
mod replica;
mod runtime;
mod state;
mod state_hashes;
mod status;
mod store;
mod term_watch;
mod traces;

pub use config::{Config, ConfigError, Founding, LogTimers, ReplicaLimits};
pub use counters::Counters;
pub use entropy::seed_thread;
pub use handle::{Answered, Backup, Consistency, Edit, LeaseKept, LogHandle, OpenAnswered};
pub use mutant::{Mutant, Mutation};
pub use net::{Dial, DialWithLookup, Duplex, LOG_PREAMBLE, NodeLog, NodeLookup, TcpDial, TlsDial};
pub use rejection::{ChangeError, LogRejection, SubmitError};
pub use replica::{Replica, StartError};
pub use status::{Group, GroupReplica, LogConflict, ReplicaStatus, Role};
pub use store::StoreError;
pub use store::disk::{Disk, DiskFile};
