//! Deliberate bugs, to show that the tests would find real ones (docs/log-protocol.md).
//!
//! A [`Mutation`] can only be made with the `mutants` feature, which only tests and simulators turn on.

pub(crate) use convoke_base::seam;

convoke_base::mutants! {
    EvidenceIgnored: "M6", "a replica whose disk went back in time votes and acknowledges";
    LossUnconfirmed: "M7", "a voter starts an election without confirmation, and the others vote without evidence";
    OwnerUnchecked: "LS9", "a request is executed without the secret of its session";
    LogUnchecked: "LS10", "a request that names another log is executed";
    StateDiffers: "LH2", "a replica computes another state than the others";
    RestoredAsIs: "LO8", "a restored log keeps its revisions, leases and locks";
    LogsIgnored: "FD5", "a node creates a log although another node holds one";
}
