//! Deliberate bugs, to show that the tests would find real ones (docs/log-protocol.md).
//!
//! A [`Mutation`] can only be made with the `mutants` feature, which only this crate's own tests turn on. Without it
//! the type is empty, every check below is the constant `false`, and the program contains no mutant code.

pub(crate) use convoke_base::seam;

convoke_base::mutants! {
    LogTimeFalls: "A3.1", "log time follows every stamp, back as well";
    EndedSessionsExecute: "A3.2", "a request of an ended session is executed";
    OutcomesForgotten: "A3.3", "stored outcomes are ignored";
    SupersededExecuted: "A3.4", "a number below the floor is executed";
    EpochIgnored: "A3.5", "a request of another epoch is executed";
    GapIgnored: "A3.6", "a pipelined request does not wait for the one before it";
    DeadlineIgnored: "A3.7", "a request is executed after its deadline";
    PreviousFateOmitted: "A5", "an answer does not carry the fate of the previous request";
    FloorOnlyAtSuccess: "F1", "an outcome that is not a success does not raise the floor";
    WantedForgotten: "F2", "outcomes that the client no longer wants are kept as if it did";
    WantedDropped: "F3", "outcomes that are still wanted are dropped like others";
    HorizonForgotten: "F4", "dropping an outcome does not raise the horizon";
    WindowIgnored: "F5", "a client may want any number of outcomes";
    FenceDoesNothing: "F6", "a fence of another session's request does not raise its floor";
    TtlUnchecked: "LS1", "a session is opened with any ttl and any name";
    LastStaysOpen: "LS4", "a session continues after its last request";
    OpenUncompared: "LS2", "an open under a name ends the holder's session without a compare";
    ExpiryWithoutGrace: "LS6", "a new leader does not give clients a ttl before it expires sessions";
    ExpiryIgnoresEpoch: "LS6", "an expiry proposed by a deposed leader is applied";
    ExpiryIgnoresActivity: "LS6", "a session that was active in the meantime is expired anyway";
    PauseCountedAsSilence: "LS6", "a leader counts its own pause as silence of its clients";
    SessionsUncapped: "LS7", "the number of sessions has no limit";
    ReserveIgnored: "LS7", "clients take the places that are reserved for nodes and operators";
    QuotaIgnored: "LS7", "one client may open any number of sessions";
    EndedForgotten: "LS8", "a session is dropped when it ends";
    MembershipUncompared: "M1", "a membership change does not compare the configuration it replaces";
    ReplicaIdsReused: "M2", "a removed replica is added under its old id";
    GroupUnchecked: "M3", "any configuration is recorded";
    CompareIgnored: "K3", "a put does not compare";
    PreviousUnbounded: "K4", "previous records are returned regardless of their size";
    KeyBoundsIgnored: "K5", "keys, values and the store may be of any size";
    LevelIgnored: "V1", "a request of a higher level is executed";
    LevelNotGated: "V1", "a leader appends commands of a higher level";
    RaiseUncompared: "V2", "a raise does not compare the configuration it was decided for";
    RaiseDuringChange: "V2", "a raise is appended while a membership change is in progress";
    LevelWithoutAll: "V3", "a level is raised although a replica does not support it";
    LevelWithoutWait: "V3", "a level is raised without the wait";
    TxnFormUnchecked: "T1", "a transaction may have any number of operations";
    ComparesIgnored: "T2", "a transaction does not compare";
    PrefixCompareFirst: "T3", "a compare of a range tests its first key only";
    TxnAppliedInPart: "T5", "a transaction that fails leaves its first changes behind";
    ResultsAfterChanges: "T8", "a copy of a transaction reads the state after all of its changes";
    HistoryAgeIgnored: "H2", "history is kept at any age";
    HistoryBytesIgnored: "H2", "history is kept at any size";
    RevisionDroppedInPart: "H2", "history drops some events of a revision and keeps others";
    CompactedIgnored: "H3", "a watch starts below the oldest event without an error";
    PastReadsCurrent: "H4", "a read at an older revision returns current records";
    ResumeAtRevision: "H5", "a watch continues at the next revision instead of the next event";
    GrantUnchecked: "LE1", "a lease is granted with any ttl and beyond the limit";
    KeepAliveConfirmedEarly: "LE2", "a keep-alive is confirmed by a leadership round that began before it arrived";
    LeaseEndIgnoresEpoch: "LE3", "the end of a lease proposed by a deposed leader is applied";
    LeaseAgeUnchecked: "LE3", "a lease ends before its ttl has passed in log time";
    LeaseWithoutGrace: "LE3", "a new leader does not give clients a ttl before it ends leases";
    LeaseKeysStay: "LE4", "the keys of an ended lease stay";
    PutKeepsLease: "LE5", "a put without a lease leaves the key attached";
    RegistrationIgnored: "LE6", "the end of another registration ends the lease";
    AbsenceEndsLease: "LE7", "a leader ends the lease of a member that its registry does not show";
    AcquireTwice: "LO1", "asking again takes a second place";
    AcquireUnchecked: "LO1", "a lock is granted to a lease that does not exist";
    PermitsIgnored: "LO2", "a lock is granted to one holder too many";
    QueueJumped: "LO2", "a new acquire overtakes the queue";
    QueueReversed: "LO2", "the last waiter is granted first";
    FenceIsOrder: "LO3", "the fence is the index of the acquire instead of the revision of the grant";
    LeasePlacesStay: "LO4", "the end of a lease does not release its locks";
    GuardIgnored: "LO6", "a guarded write does not check the fence";
    DelayIgnored: "LO7", "a lock is handed over without its delay";
    LossNotReported: "LO9", "a client is not told that it lost its place in a lock";
    SecondLeaseIgnored: "LO10", "the end of the second lease of a waiter does not remove it from the queue";
    LockEventsMissing: "EL1", "changes of a leader are not in history";
    PlacesUnlimited: "Q1", "a lock may have any number of waiters";
    BarrierWithoutFloor: "LR4", "a barrier read does not raise the volatile floor";
    BarrierForgetsAppended: "LR4", "a barrier read does not wait for the last index appended for the session";
    BarrierForgetsTerm: "LR4", "a barrier read does not wait for the first entry of the term";
    SnapshotWithoutOutcomes: "LH1", "a snapshot leaves out the sessions' outcomes";
}
