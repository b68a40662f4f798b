//! Deliberate bugs, to show that the simulator would notice real ones (docs/mutants.md).

pub(crate) use convoke_base::seam;

convoke_base::mutants! {
    OwnerNotAsked: "C8", "a node attaches a session that a connected node holds instead of forwarding the request";
    UnansweredIsRejected: "C15", "a rejection is returned for a request that a lost owner may have executed";
    FailedStepIsRejected: "C15", "a full node rejects a request that a lost owner may have executed";
    SilentOwnerMeansGone: "C8", "a session whose owner is lost is gone, although the registry has its members";
    AnySecretFits: "C8", "the nonce is derived from the client id, so that every secret with that id fits";
    RequestIsNoHeartbeat: "C15", "requests are submitted without a heartbeat, so that a rejected one does not count as activity";
    HeartbeatNotExecuted: "C15", "a heartbeat is acknowledged without a call of the core";
    TokenIgnored: "C17", "a node executes a request although it lacks writes that the client knows";
    SearchOutlastsClient: "C17", "a request waits for missing writes for longer than its client or a forwarding node waits for the answer";
    HolderNotSearched: "C17", "a node attaches a session without a token although another node has a link to its owner";
    AttachIsWrite: "C11", "a token names attaches that changed no claim, so that each side of a partition lacks them";
    WriteNotKept: "C11", "the token of a session rises with a write that only the answer to the write names";
    OnlyGreatestToken: "C11", "of several tokens of a request, a node uses only the greatest one";
    AttachIsEnough: "C8", "a request that attaches the session is acknowledged without being executed";
}
