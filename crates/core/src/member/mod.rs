//! Members: registration data, its validation, and its storage.

mod change;
mod metadata;
mod record;
mod spec;
mod update;

pub use change::ChangeKind;
pub use convoke_filter::Status;
pub use metadata::{Metadata, Pairs};
pub use record::{ClientProcess, Deployment, Member, Origin, Owner, Record, RecordKind, Space};
pub use spec::{Liveness, MemberSpec, NODE_ID_PREFIX, NODE_SERVICE, check_client_id, check_id, check_name};
pub use update::{MetadataUpdate, UpdateMode};
