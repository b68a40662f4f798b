//! The audit log (AU18, AU19): one JSON line for every change and every denial.
//!
//! [`record`] formats lines and decides which strangers' denials are written, [`file`] plans rotations: both are pure.
//! [`call`] collects what one call was allowed or denied. [`writer`] is the only part that does I/O; it runs in a thread
//! behind a bounded queue, so that no request waits for a disk.

mod call;
mod config;
mod file;
mod record;
mod writer;

pub(crate) use call::{Call, Recorded, Recording};
pub use config::{AuditConfig, AuditError, AuditTarget};
pub(crate) use writer::{Audit, Prepared};
