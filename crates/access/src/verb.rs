//! Verbs and kinds of resources. Every pair that exists is listed in [`Verb::kinds`].

use std::fmt;
use std::str::FromStr;

macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$variant_doc])* $variant,)+ }

        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $($type::$variant => $name,)+ }
            }
        }

        impl FromStr for $type {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($name => Ok($type::$variant),)+ _ => Err(()) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names! {
    /// What a principal does with a resource.
    Verb {
        /// Read members of a service, keys, locks or elections, and watch them.
        Read = "read",
        /// Register, update and unregister members of a service.
        Register = "register",
        /// Register checks of members, which make the nodes connect to the addresses in them.
        Check = "check",
        /// Take a registration over from another client.
        Takeover = "takeover",
        /// Drain and undrain members of a service or a node.
        Drain = "drain",
        /// Forget a node.
        Forget = "forget",
        /// Write a key.
        Put = "put",
        /// Delete a key.
        Delete = "delete",
        /// Acquire and release a lock, or campaign in an election.
        Lock = "lock",
        /// Release a lock that another principal holds, or end its leadership.
        Release = "release",
        /// Open a durable session of the log under a name.
        Open = "open",
        /// Decide requests, and end log sessions and leases, of other principals.
        Resolve = "resolve",
        /// Change the replicas and the level of the log, or declare a node the first of its cluster.
        Reconfigure = "reconfigure",
        /// Download the whole state of the log.
        Backup = "backup",
        /// Read status, metrics, events, explanations and sessions of others.
        Observe = "observe",
        /// Revoke tokens.
        Revoke = "revoke",
        /// Act for another principal, as nodes do when they forward a request.
        Forward = "forward",
    }
}

names! {
    /// Kind of a resource.
    Kind {
        Service = "service",
        Client = "client",
        Node = "node",
        Key = "key",
        LockName = "lock",
        Election = "election",
        Log = "log",
        Cluster = "cluster",
    }
}

impl Kind {
    /// Whether resources of this kind have names. The log and the cluster exist once.
    pub const fn is_named(self) -> bool {
        !matches!(self, Kind::Log | Kind::Cluster)
    }
}

impl Verb {
    /// Kinds to which the verb applies. A grant of any other pair is a mistake and is refused when it is issued.
    pub const fn kinds(self) -> &'static [Kind] {
        match self {
            Verb::Read => &[Kind::Service, Kind::Key, Kind::LockName, Kind::Election],
            Verb::Register | Verb::Check | Verb::Takeover => &[Kind::Service],
            Verb::Drain => &[Kind::Service, Kind::Node],
            Verb::Forget => &[Kind::Node],
            Verb::Put | Verb::Delete => &[Kind::Key],
            Verb::Lock | Verb::Release => &[Kind::LockName, Kind::Election],
            Verb::Open => &[Kind::Client],
            Verb::Resolve | Verb::Backup => &[Kind::Log],
            Verb::Reconfigure => &[Kind::Log, Kind::Cluster],
            Verb::Observe => &[Kind::Service, Kind::Log, Kind::Cluster],
            Verb::Revoke | Verb::Forward => &[Kind::Cluster],
        }
    }
}
