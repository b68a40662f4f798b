//! Deliberate bugs of the SDK, to show that the simulator would find real ones (docs/mutants.md).

pub(crate) use convoke_base::seam;

convoke_base::mutants! {
    ClientKeepsClaim: "C1", "the SDK attaches again with the claim of its last attach";
    UnregistrationForgotten: "C3", "the SDK does not repeat an unregistration that was not answered";
    CloseNotRepeated: "C18", "the SDK does not repeat a close that only one node has";
    AcknowledgedIsReplicated: "C13", "the SDK does not repeat an unregistration that one node acknowledged";
    EchoCountsOnArrival: "C5", "a heartbeat answer counts from its arrival, not from the time at which its heartbeat was sent";
    SilentNodeKept: "C6", "the SDK never leaves a node that has stopped answering";
    ResumeOmitsRecent: "W3", "a resuming watcher does not send the versions that it received after the token";
    RepeatedChangeReported: "W3", "a change that the application has already seen is reported again";
}
