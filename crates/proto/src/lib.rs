//! Convoke's wire interface in Rust.
//!
//! [`v1`] is generated from `proto/convoke/v1/*.proto`, which documents every message. [`ErrorCode`] maps each error
//! code to gRPC, HTTP and the exit status; [`Error`] is an error on the wire. [`json`] contains the JSON types that
//! the HTTP interface, the command line and the SDK share.
//!
//! The feature `grpc` adds the gRPC stubs, their codec and the conversion of [`Error`] to a gRPC status. Without it the
//! crate contains only data, so that the pure crates and the simulator build without an async runtime.
//!
//! This crate contains no registry logic and must not depend on `convoke-core`: servers convert to and from the core's
//! types, and clients work without it.

#[cfg(feature = "grpc")]
mod codec;
#[cfg_attr(not(feature = "grpc"), allow(dead_code, reason = "only the decoder of gRPC messages counts"))]
mod elements;
mod error;
pub mod json;
mod log;
#[cfg(feature = "grpc")]
mod status;

#[cfg(feature = "grpc")]
pub use codec::{BoundedDecoder, LowMemoryCodec, LowMemoryEncoder};
pub use elements::{ELEMENTS_MAX, KEY_WATCHES_MAX, PART_ELEMENTS, UNION_MAX, of_register, of_request};
pub use error::{Error, ErrorCode, LogContext};
#[cfg(feature = "grpc")]
pub use status::grpc_code;

/// The generated types of package `convoke.v1`, and its services with the feature `grpc`.
#[allow(clippy::all, clippy::needless_pass_by_value, missing_debug_implementations, reason = "generated")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/convoke.v1.rs"));
}

/// The schema, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Maximum size of a message: the default limit of gRPC libraries.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Approximate size of the parts into which larger contents are split.
pub const PART_BYTES: usize = 1024 * 1024;

/// Header of a gRPC or HTTP request that names the log it is for.
pub const LOG_HEADER: &str = "convoke-log";

/// Service of the members that nodes register for themselves. Clients connect to the `address` of such a member.
pub const NODE_SERVICE: &str = "convoke";
