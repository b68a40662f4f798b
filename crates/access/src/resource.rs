//! What a request touches.

use crate::grant::prefix_end;
use crate::verb::Kind;
use std::fmt;

/// A resource that a request names. Ranges of keys are one resource: a grant covers all of it or nothing (AU9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Service(&'a str),
    Client(&'a str),
    Node(&'a str),
    Key(&'a [u8]),
    /// All keys with this prefix.
    KeyPrefix(&'a [u8]),
    /// All keys from `from` and before `until`; to the end of the store if `until` is `None`.
    KeyRange {
        from: &'a [u8],
        until: Option<&'a [u8]>,
    },
    Lock(&'a [u8]),
    Election(&'a [u8]),
    Log,
    Cluster,
}

impl<'a> Resource<'a> {
    pub fn kind(self) -> Kind {
        match self {
            Resource::Service(_) => Kind::Service,
            Resource::Client(_) => Kind::Client,
            Resource::Node(_) => Kind::Node,
            Resource::Key(_) | Resource::KeyPrefix(_) | Resource::KeyRange { .. } => Kind::Key,
            Resource::Lock(_) => Kind::LockName,
            Resource::Election(_) => Kind::Election,
            Resource::Log => Kind::Log,
            Resource::Cluster => Kind::Cluster,
        }
    }

    /// Returns the resource of a kind with this name, for callers that take both as text.
    pub fn named(kind: Kind, name: &'a str) -> Resource<'a> {
        match kind {
            Kind::Service => Resource::Service(name),
            Kind::Client => Resource::Client(name),
            Kind::Node => Resource::Node(name),
            Kind::Key => Resource::Key(name.as_bytes()),
            Kind::LockName => Resource::Lock(name.as_bytes()),
            Kind::Election => Resource::Election(name.as_bytes()),
            Kind::Log => Resource::Log,
            Kind::Cluster => Resource::Cluster,
        }
    }

    /// Parses `KIND` or `KIND:NAME`. A key that ends with `*` is all keys with that prefix.
    pub fn parse(text: &'a str) -> Option<Resource<'a>> {
        let (kind, name) = match text.split_once(':') {
            Some((kind, name)) => (kind.parse::<Kind>().ok()?, name),
            None => (text.parse::<Kind>().ok()?, ""),
        };
        if kind.is_named() != text.contains(':') {
            return None;
        }
        match (kind, name.strip_suffix('*')) {
            (Kind::Key, Some(prefix)) => Some(Resource::KeyPrefix(prefix.as_bytes())),
            _ => Some(Resource::named(kind, name)),
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Resource::Log | Resource::Cluster => write!(f, "{kind}"),
            Resource::Service(name) | Resource::Client(name) | Resource::Node(name) => write!(f, "{kind}:{name}"),
            Resource::Key(key) | Resource::Lock(key) | Resource::Election(key) => {
                write!(f, "{kind}:{}", key.escape_ascii())
            }
            Resource::KeyPrefix(prefix) => write!(f, "{kind}:{}*", prefix.escape_ascii()),
            Resource::KeyRange { from, until: Some(until) } if until.split_last() == Some((&0, from)) => {
                write!(f, "{kind}:{}", from.escape_ascii())
            }
            Resource::KeyRange { from, until } => {
                // The narrowest grant that covers the range: the longest prefix of its start whose keys reach its end.
                let covers = |length: &usize| match (prefix_end(&from[..*length]), until) {
                    (None, _) => true,
                    (Some(end), Some(until)) => **until <= *end,
                    (Some(_), None) => false,
                };
                let length = (0..=from.len()).rev().find(covers).unwrap_or(0);
                write!(f, "{kind}:{}*", from[..length].escape_ascii())
            }
        }
    }
}
