//! Deliberate bugs, to show that the tests would notice real ones (docs/log-protocol.md).
//!
//! A [`Mutation`] can only be made with the `mutants` feature, which only this crate's own tests turn on. Without it the
//! type is empty, every check below is the constant `false`, and nothing of a mutant is in the program.

convoke_base::mutants! {
    LogTimeFalls: "A3.1", "log time follows every stamp, back as well";
    EndedSessionsExecute: "A3.2", "a request of an ended session is executed";
    OutcomesForgotten: "A3.3", "stored outcomes are ignored";
    SupersededExecuted: "A3.4", "a number below the floor is executed";
    EpochIgnored: "A3.5", "a request of another epoch is executed";
    GapIgnored: "A3.6", "a pipelined request does not wait for the one before it";
    DeadlineIgnored: "A3.7", "a request is executed after its deadline";
    PreviousUntold: "A5", "an answer does not carry the fate of the previous request";
    FloorOnlyAtSuccess: "F1", "an outcome that is not a success does not raise the floor";
    WantedForgotten: "F2", "outcomes that the client no longer wants are kept as if it did";
    WantedDropped: "F3", "outcomes that are still wanted are dropped like others";
    HorizonForgotten: "F4", "dropping an outcome does not raise the horizon";
    WindowIgnored: "F5", "a client may want any number of outcomes";
    FenceDoesNothing: "F6", "a fence of another session's request does not raise its floor";
    TtlUnchecked: "S1", "a session is opened with any ttl and any name";
    OpenUncompared: "S2", "an open under a name ends whoever holds it";
    LastStaysOpen: "S4", "a session goes on after its last request";
    ExpiryWithoutGrace: "S6", "a new leader does not wait for its clients";
    ExpiryIgnoresEpoch: "S6", "a deposed leader's expiry counts";
    ExpiryIgnoresActivity: "S6", "a session that was active meanwhile is expired all the same";
    StallHeldAgainstClients: "S6", "a leader that slept counts its own sleep as its clients' silence";
    SessionsUncapped: "S7", "there may be any number of sessions";
    BusyEvicted: "S7", "a session makes room although its ttl has not passed";
    EndedForgotten: "S8", "a session is forgotten when it ends";
    MembershipUncompared: "M1", "a change of membership does not compare";
    ReplicaIdsReused: "M2", "a replica comes back under its old id";
    GroupUnchecked: "M3", "any configuration is recorded";
    CompareIgnored: "K3", "a put does not compare";
    PreviousUnbounded: "K4", "previous records are returned regardless of their size";
    KeyBoundsIgnored: "K5", "keys, values and the store may be of any size";
    BarrierWithoutFloor: "LR4", "a barrier read does not raise the volatile floor";
    BarrierForgetsAppended: "LR4", "a barrier read does not wait for the last index appended for the session";
    BarrierForgetsTerm: "LR4", "a barrier read does not wait for the first entry of the term";
    SnapshotWithoutOutcomes: "LH1", "a snapshot leaves out the sessions' outcomes";
}
