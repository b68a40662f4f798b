//! Deliberate bugs, to show that the simulator would find real ones (docs/mutants.md).
//!
//! A [`Mutation`] can only be made with the `mutants` feature, which only the simulator turns on. Without it the type
//! is empty, every check below is the constant `false`, and the program contains no mutant code.

use crate::member::Record;

pub(crate) use convoke_base::seam;

impl Mutation {
    /// Whether `new` replaces `held` (D3).
    pub(crate) fn ranks_above(self, new: &Record, held: &Record) -> bool {
        #[cfg(feature = "mutants")]
        match self.0 {
            Some(Mutant::LastArrivalWins) => return true,
            Some(Mutant::SeqBeforeClaim) => {
                return (new.seq, new.claim, &new.origin.id, new.n) > (held.seq, held.claim, &held.origin.id, held.n);
            }
            Some(Mutant::TiesByClock) if (new.claim, new.seq) == (held.claim, held.seq) => {
                return (new.since, new.rank()) > (held.since, held.rank());
            }
            Some(Mutant::TiesKeepHeld) if (new.claim, new.seq) == (held.claim, held.seq) => return false,
            _ => {}
        }
        new.rank() > held.rank()
    }
}

convoke_base::mutants! {
    NonceIgnored: "D1", "two incarnations with one number are the same origin";
    PredecessorNotKept: "D2", "an update drops the predecessor of the registration";
    LastArrivalWins: "D3", "the record that arrives last wins, whatever its rank";
    SeqBeforeClaim: "D3", "a former owner wins a member back by updating it";
    TiesByClock: "D3", "of two records with one claim and sequence, the one with the later wall-clock time wins";
    CoveredRecordsAccepted: "D4", "records that were collected here are accepted again";
    PushGapCovered: "D5", "a push that skips writes raises the context";
    PushOmitsSuperseding: "D5", "a push leaves out writes that another origin superseded";
    PushNotRelayed: "D5", "a push is not forwarded to a node without a link to its sender";
    RegionsNotBridged: "D5", "a push from another region is not forwarded to a third region that has no link to its sender";
    SplitRegionNotBridged: "D5", "a push is not forwarded back into the region of its author, where a link is missing";
    DeltaSendsOwnOnly: "D6", "a delta contains only records of its sender";
    PartialDeltaCovered: "D6", "the context is joined with the first chunk of a delta";
    NoExchange: "D7", "different context hashes are ignored";
    FloorNotRaised: "D8", "collection does not force lagging peers into a full merge";
    TombstonesCollectedEarly: "D8", "tombstones are kept for a tenth of their time";
    ClaimsStartOver: "D8", "claims of a key start over once its tombstone was collected";
    ConflictsNotReported: "D9", "concurrent writes are resolved without an event";
    WrittenOffNotRestated: "D10", "a node that was written off does not write its records again";
    WrittenOffKept: "D10", "records that others wrote off are kept although their origin died";
    TiesKeepHeld: "D11", "two claims with one number: each node keeps the one it holds";
    FullMergeKeepsAbsent: "D12", "a full merge drops nothing";
    FullMergeTakesOwn: "D12", "a full merge drops live records of its receiver";
    TombstoneNotRepeated: "D13", "a tombstone that meets a lower claim is not repeated";
    InferenceNotRepeated: "D13", "an inference that meets a lower claim is not repeated";
    RetiredNotRepeated: "D13", "the tombstone of a record whose origin a peer has retired is not repeated";
    RetiredNotExpired: "D13", "records of an origin that a peer has retired wait for the responsible node";
    NeverRetired: "D14", "old incarnations are never retired";
    GoneNamesKept: "D15", "the name of a node that is gone stays in all contexts";
    MuteReturned: "D17", "a node that returns after its name was removed is ignored";
    RetiredOmitted: "D17", "a delta omits the records of a living origin that its receiver has retired";
    ContentsNotCompared: "D16", "contents of nodes with equal contexts are not compared";
    WrittenOffCompared: "D16", "records that were written off are compared";
    NodeRaisesClaim: "C1", "the node raises an old claim instead of rejecting it";
    OldSessionHeartbeats: "C2", "a heartbeat of a superseded session counts";
    UnacknowledgedUnregisterIgnored: "C3", "an attach does not repeat unregistrations";
    LossNotNotified: "C4", "a session that lost its members keeps them and is not notified";
    EarlierSessionSupersedes: "C4", "a record of an earlier HTTP session of the client ends the later session";
    EarlierSessionNotNamed: "C4", "a node attaches an HTTP session and does not name members that an earlier one took from it";
    OldRequestsExecuted: "C5", "a request that arrives after a later one is executed";
    RejectedRequestsRunLater: "C5", "a copy of a rejected request is executed when it arrives later";
    HeartbeatDoesNotRevive: "C6", "a heartbeat after `down` does not bring members up";
    DownNeverLeaves: "C6", "members that are down are never unregistered";
    MoveClearsDrain: "C7", "a member that moves loses its drain mark";
    DrainNeverEnds: "C21", "a drain whose time is over stays";
    MoveRestartsDrain: "C21", "the time of a drain begins again with every new owner";
    DrainAgeIgnored: "C21", "the time of a drain begins again at a node that learns of it later";
    ReattachForgetsMembers: "C8", "a client without state of its own is attached without its members";
    MembersNotGathered: "C15", "a node leaves members of an attached session to another node, which does not have the session";
    UnregisteredGathered: "C15", "a session takes a member that it unregistered before the registration arrived";
    CreatorIgnored: "C8", "a session without members exists only at the node that created it";
    EarlierTombstoneWins: "C9", "the tombstone of another client's earlier registration ends that of a connected client";
    EarlierProcessWins: "C9", "a record of an earlier process of the client ends the registration of the connected process";
    SilentOwnerWins: "C9", "a record of a silent owner ends the registration of a connected client";
    LateRegistrationContested: "C19", "a late registration replaces the record of another client";
    LostMembersForgotten: "C20", "a node attaches an HTTP session again and does not name members that it lost before";
    ExpiredElsewhereNotNamed: "C20", "members of an HTTP session that expired at another node are not named";
    RequestNumbersIgnored: "C10", "a request is executed although a later request wrote the member";
    UnknownNotEnded: "C10", "a numbered unregistration of a member that the node lacks writes nothing";
    AttachOutranksWrites: "C10", "an attach raises the claims of members whose client numbers its requests";
    EarlierRequestReturns: "C16", "the tombstone of a later request gives way to a registration with a higher claim";
    LaterRequestNotRestored: "C16", "an update gives way to an earlier request with a higher claim once its owner is lost";
    PeersNotSearched: "C17", "a node reports writes as lost without asking its peers";
    SentIsReplicated: "C12", "a write counts as replicated once it was sent to a peer";
    PrincipalIgnored: "C14", "a principal attaches the client id of another principal";
    AgentlessClockIgnored: "AG5", "the claims of agentless members rise separately for each id";
    DeregistrationKeepsClaim: "AG2", "a deregistration does not outrank what other nodes write about the member";
    NobodyAdopts: "AG1", "no node takes over the agentless members of a lost owner";
    EveryNodeAdopts: "AG3", "every node takes over all agentless members";
    ArchiveIgnored: "AG4", "agentless members are lost with all nodes";
    OwnFloorEndsRecords: "AG4", "a node restores no record below the floor on its own disk";
    ArchiveOutranks: "AG4", "a node restores what was deregistered while it was down";
    HealthRaisesClaim: "HC1", "a result of a check raises the claim of the member";
    ChecksNotHandedOver: "HC3", "a node goes on checking members that it does not own any more";
    ReportNotDelivered: "HC4", "a report about a check is not passed to the owner";
    MoveForgetsHealth: "HC2", "a member that moves begins with the initial results of its checks";
    CriticalEndIsFinal: "HC5", "the end of a critical member stands although another node found it passing";
    MassFailureOfChecksIgnored: "HC6", "members are deregistered although most of their service are critical";
    IncarnationNotRaised: "N1", "a node keeps an incarnation number that others know from before";
    ReportsRenumberNodes: "N9", "the report of one node gives a running node a new number";
    ReportsStopNodes: "N9", "the report of one node stops another";
    StaleNamesKept: "N2", "a restarted node keeps names that it did not register again";
    ServingBeforeExchange: "N8", "a starting node serves before it has the registry";
    SeedsNotAwaited: "N3", "a starting node serves although its dials to other seeds have not ended";
    ServingAfterOnePeer: "N3", "a starting node serves the registry of one peer, which may lag behind others";
    DuplicateIdTolerated: "N4", "two processes with one node id both continue";
    OneAcceptanceIsEnough: "N4", "a starting process serves if one node accepts it, although others reject it";
    LongPauseTolerated: "N5", "a node that was paused longer than any timeout continues";
    StopWithoutHandover: "N6", "a stopping node unregisters its sessions' members";
    SpreadIgnored: "N10", "a node hands sessions over without regard of its share";
    ReturnedAskedAgain: "N10", "a client that returned from the node it was sent to is asked again";
    AloneAssertsAbsence: "N7", "a node that has reached none of its seeds reports members as absent";
    ExpiryStatesLeft: "L1", "the responsible node states `left` for a silent owner's members instead of inferring it";
    EvidenceByAgeAlone: "L2", "relayed evidence counts without a higher liveness counter";
    NoRelayedEvidence: "L2", "only direct evidence counts";
    SilenceBeforeRecords: "L2", "the silence of an earlier incarnation counts before the records that were written since have arrived";
    PushOmitsEvidence: "L2", "a push carries records of other origins without their evidence";
    OwnerChangeReleasesFirst: "L3", "an owner that loses a session unregisters its members";
    SilentOwnerHidesMember: "L3", "members of a silent node vanish instead of becoming `down`";
    StatusNotPublished: "L3", "readers outside the core do not receive changes of the shown status";
    InferredWithoutBasisKept: "L4", "an inference about a collected record is kept";
    OutdatedInferenceKept: "L4", "an inference about an earlier registration keeps out one about the current registration";
    InferredCollectedAlone: "L4", "collecting an inference leaves the stated record";
    InferredIgnoresCounter: "L4", "an inference applies again when its owner is silent a second time";
    EveryNodeExpires: "L4", "every node expires a silent owner's members";
    LaterWritesExpired: "L4", "a write that arrives before the evidence of a returning origin expires at once";
    PauseNotSubtracted: "L5", "a node judges others by its own pause";
    RelayedAgeNotForgiven: "L5", "the age of relayed evidence counts for a node that was paused before it has the records";
    PausedNodeReadsBufferedMessages: "L5", "a resumed node executes requests that its clients sent before";
    NoMassFailureGuard: "L6", "a mass failure is judged at once";
    LinkedNodeCountsAsGone: "L6", "a node counts as gone if its earlier incarnation is silent, although there is a link to it";
    ConfirmationIgnored: "L6", "a mass failure of nodes that peers confirm is not judged at once";
    NamesNeverExpire: "L7", "the names of a silent node never expire";
    ReturningAdmittedAtOnce: "L8", "a returning origin is admitted before its writes were received";
    ReturningNeedsNoExchange: "L8", "a returning origin is admitted once its own writes were received";
    OutdatedRecordsShown: "L8", "the first records of an origin show as up although their sender had not heard of it for long";
    RecordsBeforeReturnShown: "L8", "records that arrive after the return of an origin show what it stated before its return";
    ReturningRelayedAsAlive: "L8", "evidence of a returning origin is relayed as that of an admitted one";
    RevocationsNotExchanged: "P11", "a new link carries only later revocations";
    RevocationsNotRelayed: "P11", "a node does not forward the revocations of others";
    ConnectionIsEvidence: "P1", "a TCP connection counts as evidence";
    EndIgnored: "P1", "a peer whose connection ended counts as up until its pings are missing";
    AnyClusterAccepted: "P2", "a node of another cluster is accepted";
    FullTableAccepts: "P2", "an incarnation is accepted although its records cannot be stored";
    OneVoteIsEnough: "P3", "a peer is failed although others reach it";
    SeedShadowed: "P12", "a seed is not dialled while its node is dialled at another address";
    OneselfIsFinal: "P12", "a name that led to this node itself is not dialled again";
    NameIsOneNode: "P12", "a name is not dialled while the node last found there is linked";
    NoRetries: "P4", "a lost peer is not dialled again";
    EveryDialReplaces: "P5", "each new connection of a peer replaces the one in use";
    PromotionIsEvidence: "P5", "a connection that waited counts as heard from when it becomes the link";
    NoEchoCheck: "P6", "a one-way link counts as up";
    CountersUnbounded: "P7", "a record may use up all sequence numbers";
    PeersNotLearned: "P8", "a node knows only its seeds";
    LostRegionsIgnored: "P9", "no node looks for another path to nodes of another region";
    LostRegionsSoughtSlowly: "P9", "one node of another region is dialled per retry interval, in the order of ids";
    LeftNodesNotSought: "P9", "nodes of another region that have left are not dialled";
    SplitRegionIgnored: "P9", "a link to a node that its own region cannot reach is closed";
    FrameNumbersUnbounded: "P10", "a frame may name writes of this node that it never made";
    LeavingTheFilterIgnored: "W1", "a member that stops matching stays in the view";
    WatcherSkipsBehindCursor: "W2", "changes behind the snapshot's cursor are not sent";
    ResumeIgnoresAdmission: "W3", "a resumed watch gets stated changes only";
    ResumeIgnoresFloor: "W4", "a token that is too old is accepted";
    SlowWatcherDropsSilently: "W5", "a full queue drops changes without a reset";
    WatcherQueueUnbounded: "W5", "the queue of a slow watcher grows without a limit";
    VersionsIgnoreStatus: "W6", "two versions are equal although the shown status differs";
}
