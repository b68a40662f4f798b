//! Convoke's wire interface in Rust.
//!
//! [`v1`] is generated from `proto/convoke/v1/*.proto`, which is written to be read. [`Error`] and [`ErrorCode`] are the table of
//! error codes with what they mean in gRPC, HTTP and on the command line; [`json`] has the JSON forms that the HTTP interface,
//! the command line and the SDK share.
//!
//! Nothing here knows how a registry works: servers convert to and from `convoke-core`, clients need no core.

mod codec;
mod error;
pub mod json;
mod log;

pub use codec::{SparingCodec, SparingEncoder};
pub use error::{Error, ErrorCode, LogContext, grpc_code};

/// The generated types and services of package `convoke.v1`.
#[allow(clippy::all, clippy::needless_pass_by_value, missing_debug_implementations, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("convoke.v1");
}

/// The schema, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// No message is larger than this: the usual limit of gRPC libraries.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What may be larger is sent in parts of about this size.
pub const PART_BYTES: usize = 1024 * 1024;

/// Service of the members that nodes register for themselves. Their `address` is where clients connect.
pub const NODE_SERVICE: &str = "convoke";
