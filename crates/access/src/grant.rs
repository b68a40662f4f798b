//! Grants: `VERB RESOURCE-PATTERN`. They only allow; the absence of a grant denies (AU7).

use crate::GRANTS_MAX;
use crate::resource::Resource;
use crate::verb::{Kind, Verb};
use std::fmt;
use std::str::FromStr;

/// Longest name in a grant.
const NAME_BYTES_MAX: usize = 1_024;

/// Permission to do one thing with the resources that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// `None` is every verb, written `*`.
    verb: Option<Verb>,
    /// `None` is every resource, written `*`.
    target: Option<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    kind: Kind,
    pattern: Pattern,
}

/// Why a grant does not allow something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Verb,
    Kind,
    Name,
}

/// Names that a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// One name.
    Exact(Box<str>),
    /// All names that begin with this text, written with `*` at the end; for keys also with `/` at the end.
    Prefix(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("grant {0:?} is not `VERB RESOURCE`, for example `read service:*` or `put key:config/`")]
    Form(String),
    #[error("grant {grant:?} has the unknown verb {verb:?}: use one of {}", list(Verb::ALL.iter()))]
    Verb { grant: String, verb: String },
    #[error("grant {grant:?} has the unknown resource {kind:?}: use one of {}", list(Kind::ALL.iter()))]
    Kind { grant: String, kind: String },
    #[error("grant {grant:?}: `{verb}` does not apply to `{kind}`; it applies to {}", list(verb.kinds().iter()))]
    Pair { grant: String, verb: Verb, kind: Kind },
    #[error("grant {grant:?}: `{kind}` has no names; write `{kind}` alone")]
    Unnamed { grant: String, kind: Kind },
    #[error("grant {grant:?}: `{kind}` needs a name or `*`, for example `{kind}:*`")]
    Nameless { grant: String, kind: Kind },
    #[error("grant {0:?}: `*` is allowed only at the end of a name")]
    Star(String),
    #[error("grant {0:?}: the name is longer than {NAME_BYTES_MAX} bytes")]
    Long(String),
    #[error("{0} grants exceed the limit of {GRANTS_MAX}")]
    TooMany(usize),
}

fn list<T: fmt::Display>(names: impl Iterator<Item = T>) -> String {
    names.map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Grant, GrantError> {
        let grant = || text.chars().take(NAME_BYTES_MAX).collect::<String>();
        let (verb, resource) = text.split_once(' ').ok_or_else(|| GrantError::Form(grant()))?;
        if resource.is_empty() || resource.starts_with(' ') || text.chars().any(char::is_control) {
            return Err(GrantError::Form(grant()));
        }
        let verb = match verb {
            "*" => None,
            verb => match verb.parse() {
                Ok(verb) => Some(verb),
                Err(()) => return Err(GrantError::Verb { grant: grant(), verb: verb.to_owned() }),
            },
        };
        if resource == "*" {
            return Ok(Grant { verb, target: None });
        }
        let (kind, name) = match resource.split_once(':') {
            Some((kind, name)) => (kind, Some(name)),
            None => (resource, None),
        };
        let Ok(kind) = kind.parse::<Kind>() else {
            return Err(GrantError::Kind { grant: grant(), kind: kind.to_owned() });
        };
        if let Some(verb) = verb
            && !verb.kinds().contains(&kind)
        {
            return Err(GrantError::Pair { grant: grant(), verb, kind });
        }
        let pattern = match name {
            None if kind.is_named() => return Err(GrantError::Nameless { grant: grant(), kind }),
            Some(_) if !kind.is_named() => return Err(GrantError::Unnamed { grant: grant(), kind }),
            Some("") => return Err(GrantError::Nameless { grant: grant(), kind }),
            Some(name) if name.len() > NAME_BYTES_MAX => return Err(GrantError::Long(grant())),
            None => Pattern::Exact(Box::default()),
            Some(name) => match name.strip_suffix('*') {
                Some(rest) if rest.contains('*') => return Err(GrantError::Star(grant())),
                Some(prefix) => Pattern::Prefix(prefix.into()),
                None if name.contains('*') => return Err(GrantError::Star(grant())),
                None if kind == Kind::Key && name.ends_with('/') => Pattern::Prefix(name.into()),
                None => Pattern::Exact(name.into()),
            },
        };
        Ok(Grant { verb, target: Some(Target { kind, pattern }) })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verb {
            Some(verb) => write!(f, "{verb} ")?,
            None => f.write_str("* ")?,
        }
        let Some(Target { kind, pattern }) = &self.target else { return f.write_str("*") };
        match pattern {
            _ if !kind.is_named() => write!(f, "{kind}"),
            Pattern::Exact(name) => write!(f, "{kind}:{name}"),
            Pattern::Prefix(prefix) if *kind == Kind::Key && prefix.ends_with('/') => write!(f, "{kind}:{prefix}"),
            Pattern::Prefix(prefix) => write!(f, "{kind}:{prefix}*"),
        }
    }
}

impl Pattern {
    fn covers(&self, resource: Resource<'_>) -> bool {
        match (self, resource) {
            (_, Resource::Log | Resource::Cluster) => true,
            (Pattern::Exact(own), Resource::Service(name) | Resource::Client(name) | Resource::Node(name)) => {
                **own == *name
            }
            (Pattern::Prefix(own), Resource::Service(name) | Resource::Client(name) | Resource::Node(name)) => {
                name.starts_with(&**own)
            }
            (Pattern::Exact(own), Resource::Key(name) | Resource::Lock(name) | Resource::Election(name)) => {
                own.as_bytes() == name
            }
            (Pattern::Prefix(own), Resource::Lock(name) | Resource::Election(name)) => name.starts_with(own.as_bytes()),
            (Pattern::Prefix(own), Resource::Key(key) | Resource::KeyPrefix(key)) => key.starts_with(own.as_bytes()),
            // The range of one key contains it and nothing else.
            (Pattern::Exact(own), Resource::KeyRange { from, until: Some(until) }) => {
                from == own.as_bytes() && until.split_last() == Some((&0, own.as_bytes()))
            }
            (Pattern::Exact(_), Resource::KeyPrefix(_) | Resource::KeyRange { until: None, .. }) => false,
            (Pattern::Prefix(own), Resource::KeyRange { from, until }) => {
                let end = prefix_end(own.as_bytes());
                from >= own.as_bytes()
                    && match (end, until) {
                        // No key follows the last one with this prefix.
                        (None, _) => true,
                        (Some(end), Some(until)) => *until <= *end,
                        (Some(_), None) => false,
                    }
            }
        }
    }
}

/// Returns the first key after all keys with a prefix, or `None` if there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

impl Grant {
    /// Every verb on every resource, for operators and nodes.
    pub fn everything() -> Grant {
        Grant { verb: None, target: None }
    }

    pub fn allows(&self, verb: Verb, resource: Resource<'_>) -> bool {
        self.concerns(verb, resource.kind())
            && self.target.as_ref().is_none_or(|target| target.pattern.covers(resource))
    }

    /// Returns why the grant does not allow this, for explanations. `None` if it does.
    pub fn mismatch(&self, verb: Verb, resource: Resource<'_>) -> Option<Mismatch> {
        if self.allows(verb, resource) {
            None
        } else if self.verb.is_some_and(|own| own != verb) {
            Some(Mismatch::Verb)
        } else if self.target.as_ref().is_some_and(|target| target.kind != resource.kind()) {
            Some(Mismatch::Kind)
        } else {
            Some(Mismatch::Name)
        }
    }

    /// Whether the grant allows the verb for any resource of the kind.
    fn concerns(&self, verb: Verb, kind: Kind) -> bool {
        self.verb.is_none_or(|own| own == verb)
            && self.target.as_ref().is_none_or(|target| target.kind == kind)
            && verb.kinds().contains(&kind)
    }
}

/// The grants of a principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantList(Vec<Grant>);

impl GrantList {
    pub fn everything() -> GrantList {
        GrantList(vec![Grant::everything()])
    }

    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<GrantList, GrantError> {
        if texts.len() > GRANTS_MAX {
            return Err(GrantError::TooMany(texts.len()));
        }
        texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>().map(GrantList)
    }

    /// Parses the grants of a verified token. A grant that this version does not know is skipped, so that the principal may do
    /// less, never more (AU7).
    pub fn parse_known<T: AsRef<str>>(texts: &[T]) -> GrantList {
        GrantList(texts.iter().take(GRANTS_MAX).filter_map(|text| text.as_ref().parse().ok()).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn allows(&self, verb: Verb, resource: Resource<'_>) -> bool {
        self.0.iter().any(|grant| grant.allows(verb, resource))
    }

    /// Whether any grant allows the verb for any resource of the kind.
    pub fn concerns(&self, verb: Verb, kind: Kind) -> bool {
        self.0.iter().any(|grant| grant.concerns(verb, kind))
    }

    /// Returns the patterns that the verb is granted for, or `None` if every name is.
    pub fn patterns(&self, verb: Verb, kind: Kind) -> Option<Vec<&Pattern>> {
        let mut patterns = Vec::new();
        for grant in self.0.iter().filter(|grant| grant.concerns(verb, kind)) {
            match grant.target.as_ref().map(|target| &target.pattern) {
                None => return None,
                Some(Pattern::Prefix(prefix)) if prefix.is_empty() => return None,
                Some(pattern) => patterns.push(pattern),
            }
        }
        Some(patterns)
    }
}

#[cfg(test)]
mod tests;
