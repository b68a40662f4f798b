//! Deliberate bugs, to show that the simulator would notice real ones (docs/mutants.md).
//!
//! A [`Mutation`] can only be made with the `mutants` feature, which only the simulator turns on. Without it the type is
//! empty, every check below is the constant `false`, and nothing of a mutant is in the program.

convoke_base::mutants! {
    LastArrivalWins: "D3", "the record that arrives last wins, whatever its rank";
    SeqBeforeClaim: "D3", "an ex-owner wins back a member by refreshing it";
    TiesKeepHeld: "D3", "two claims with one number: each node keeps the one it holds";
    CoveredRecordsAccepted: "D4", "records that were collected here are taken in again";
    PushGapClaimed: "D5", "a push that skips writes is claimed as complete";
    PushOmitsSuperseding: "D5", "a push leaves out writes that another origin superseded";
    DeltaSendsOwnOnly: "D6", "no relay: a node passes on only what it wrote itself";
    PartialDeltaClaimed: "D6", "the context is joined with the first chunk of a delta";
    NoExchange: "D7", "differing context hashes are ignored";
    FloorNotRaised: "D8", "collection does not force lagging peers into a full merge";
    FullMergeKeepsAbsent: "D8", "a full merge drops nothing";
    FullMergeTakesOwn: "D8", "a full merge drops what its receiver itself stands by";
    TombstonesCollectedEarly: "D8", "tombstones are kept for a tenth of their time";
    TombstoneNotRepeated: "D8", "a tombstone that meets news of an older claim stays silent";
    InferenceNotSaid: "D8", "an inferred end that meets news of an older claim stays silent";
    NamesNotDropped: "D10", "the names of a dead node stay for ever";
    WrittenOffNotRestated: "D10", "a node that others gave up does not state its records again";
    WrittenOffKept: "D10", "what others gave up of a node that died since is waited for once more";
    ClaimsStartOver: "D8", "claims of a key start over once its tombstone was collected";
    NodeRaisesClaim: "C1", "the node raises an old claim instead of refusing it";
    UnacknowledgedUnregisterIgnored: "C3", "an attach does not repeat unregistrations";
    EarlierTombstoneWins: "C4", "the tombstone of somebody's earlier registration ends that of a living client";
    SilentOwnerWins: "C4", "what a silent owner stated, or others inferred of it, ends the registration of a living client";
    LosingIsNotTold: "C4", "a session that lost its members keeps them and is not told";
    OldRequestsExecuted: "C5", "a request that was overtaken is executed";
    RejectedRequestsRunLater: "C5", "a copy of a rejected request is executed when it arrives later";
    OldSessionHeartbeats: "C2", "a heartbeat of a superseded session counts";
    OwnerChangeReleasesFirst: "L3", "an owner that loses a session unregisters its members";
    SilentOwnerHidesMember: "L3", "members of a silent node vanish instead of going down";
    ReturnedBelievedAtOnce: "L3", "what a returned owner had stated shows before its news are in";
    EvidenceByAgeAlone: "L2", "relayed evidence counts without a higher life number";
    NoRelayedEvidence: "L2", "only direct evidence counts";
    InferredWithoutBasisKept: "L4", "an inferred record of something collected is kept";
    InferredCollectedAlone: "L4", "collecting an inferred record leaves the stated one";
    InferredIgnoresLife: "L4", "an inferred `left` applies again when its owner is lost a second time";
    EveryoneTakesOver: "L4", "no single node is responsible for a silent owner's members";
    LatenessNotForgiven: "L5", "a node holds its own sleep against others";
    SleeperReadsBufferedMessages: "L5", "a node that slept executes what its clients sent before";
    LongSleepForgiven: "N5", "a node that slept for longer than any horizon goes on as before";
    ReadyBeforeExchange: "N3", "a starting node serves before it has the registry";
    StopWithoutHandover: "N6", "a stopping node unregisters its sessions' members";
    ConnectIsProof: "P1", "a TCP connection counts as proof of life";
    NoEchoCheck: "P6", "a link that works one way only counts as up";
    SubscriberSkipsBehindCursor: "S2", "changes behind the snapshot's cursor are not sent";
    ResumeIgnoresAdmission: "S3", "a resumed subscriber is told stated changes only";
    ResumeIgnoresFloor: "S4", "a token that is too old is accepted";
    SlowSubscriberDropsSilently: "S5", "a full queue drops changes without a reset";
    HeartbeatDoesNotRevive: "C6", "a heartbeat after `down` does not bring members up";
    DownNeverLeaves: "C6", "members that are down are never unregistered";
}
