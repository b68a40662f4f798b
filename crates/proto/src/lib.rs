//! Convoke's wire interface in Rust.
//!
//! [`v1`] is generated from `proto/convoke/v1/*.proto`, which documents every message. [`ErrorCode`] maps each error
//! code to gRPC, HTTP and the exit status; [`Error`] is an error on the wire. [`json`] contains the JSON types that
//! the HTTP interface, the command line and the SDK share.
//!
//! This crate contains no registry logic and must not depend on `convoke-core`: servers convert to and from the core's
//! types, and clients work without it.

mod codec;
mod error;
pub mod json;
mod log;

pub use codec::{LowMemoryCodec, LowMemoryEncoder};
pub use error::{Error, ErrorCode, LogContext, grpc_code};

/// The generated types and services of package `convoke.v1`.
#[allow(clippy::all, clippy::needless_pass_by_value, missing_debug_implementations, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("convoke.v1");
}

/// The schema, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Maximum size of a message: the default limit of gRPC libraries.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Approximate size of the parts into which larger contents are split.
pub const PART_BYTES: usize = 1024 * 1024;

/// Service of the members that nodes register for themselves. Clients connect to the `address` of such a member.
pub const NODE_SERVICE: &str = "convoke";
