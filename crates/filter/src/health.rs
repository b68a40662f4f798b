//! The health of a member. It is defined here for the same reason as [`Status`](crate::Status).

use std::fmt;

/// Health of a member: the worst result of its checks, `passing` without checks (HC1). It is separate from the status,
/// which tells whether the client is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[repr(u8)]
pub enum Health {
    #[default]
    Passing,
    /// Something is wrong, but the member serves.
    Warning,
    /// The member is not routable.
    Critical,
}

impl Health {
    pub const ALL: [Health; 3] = [Health::Passing, Health::Warning, Health::Critical];

    /// Returns the name of the health.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Passing => "passing",
            Health::Warning => "warning",
            Health::Critical => "critical",
        }
    }

    /// Returns the health with this name.
    pub fn parse(name: &str) -> Option<Health> {
        Health::ALL.into_iter().find(|health| health.as_str() == name)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
