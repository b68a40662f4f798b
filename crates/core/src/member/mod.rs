//! Members: registration data, its validation, and its storage.

mod change;
mod check;
mod checks;
mod maintenance;
mod metadata;
mod record;
mod spec;
mod update;

pub use change::ChangeKind;
pub use check::{CHECK_TEXTS_BYTES_MAX, CHECKS_MAX, Check, HttpProbe, OUTPUT_BYTES_MAX, Probe, ProbeTls};
pub(crate) use checks::health_of;
pub use checks::{CheckResult, Checks, beginning};
pub use convoke_filter::{Health, Status};
pub use maintenance::{Drain, LASTS_MAX, Maintenance, REASON_BYTES_MAX};
pub use metadata::{Metadata, Pairs};
pub use record::{ClientProcess, Deployment, Member, Origin, Owner, Record, RecordKind, Space};
pub use spec::{
    AGENTLESS_CLIENT, Liveness, MemberSpec, NODE_ID_PREFIX, NODE_SERVICE, check_client_id, check_id, check_name,
};
pub use update::{MetadataUpdate, UpdateMode};
