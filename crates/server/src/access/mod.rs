//! Access control of the client port (docs/access-control.md): who calls, and whether the call is allowed. The decisions
//! are those of `convoke-access`; this module reads its files, keeps what it has verified, and ends streams in time.

mod caller;
mod config;
mod files;
mod gate;
mod measure;
mod owners;
mod requests;
mod revocations_file;
mod stream_end;

pub(crate) use caller::Caller;
pub use config::AuthConfig;
pub use files::AuthError;
pub(crate) use gate::{FORWARDED, Gate, KnownCaller, ON_BEHALF, Permission, permission};
#[doc(hidden)]
pub use measure::time_of_authorisations;
pub(crate) use owners::Use;
pub(crate) use requests::{
    LEASES, authorize_guard, authorize_lease, authorize_query, authorize_read, authorize_release, authorize_request,
    authorize_revoke, authorize_txn, authorize_watch, authorize_write, lock as authorize_lock,
};
pub(crate) use stream_end::StreamEnd;
