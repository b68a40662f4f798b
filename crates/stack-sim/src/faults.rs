//! Kinds of faults.

macro_rules! faults {
    ($($name:ident: $text:literal;)*) => {
        /// A fault, or an action of an operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $(#[doc = $text] $name,)* }

        impl Fault {
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    Isolate: "a node is cut off";
    IsolateLeader: "the leader is cut off";
    Split: "the nodes are split in two";
    CutPair: "two nodes cannot reach each other";
    OneWayOut: "messages from a node are lost";
    OneWayIn: "messages to a node are lost";
    Hold: "messages of a node are delayed, then delivered at once";
    Slow: "a slow network around a node";
    Crash: "a node crashes";
    CrashLeader: "the leader crashes";
    CrashAll: "all nodes crash";
    LongOutage: "a node is down for a long time";
    UnsyncedLost: "a crash loses unsynced data";
    SyncFails: "an fsync fails";
    DiskFull: "a disk is full";
    DiskSlow: "a disk is slow";
    Rollback: "a disk goes back in time";
    Restore: "all disks are lost, and a backup is restored";
    ClockJumps: "a node's clock jumps ahead";
    ClientCut: "clients are cut off from a node";
    ClientLate: "messages of clients are delayed, then delivered at once";
    Transfer: "leadership is transferred";
    Replace: "a node is replaced";
    Grow: "a node is added";
    Shrink: "a node is removed";
    SnapshotInstalled: "a node needs a snapshot";
    Abandoned: "a client abandons a request";
    OutcomeUnknown: "a client is left without an answer";
    ClientRestarts: "a client's process is replaced";
    WaiterLeaves: "a client abandons its place in the queue of a lock";
    LockLost: "a client loses a lock that it holds";
    MemberGone: "a registry member with a lease is gone";
    RegistryLate: "the registry of the leader is late";
    RegistryIncomplete: "the registry of the leader lacks members";
    RegistryUnreliable: "the leader is alone, not ready or degraded";
}
