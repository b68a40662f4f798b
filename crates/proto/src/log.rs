//! Ids of the log plane as texts.

use crate::json::RequestFate;
use crate::v1::{Epoch, Fate, RequestId, fate::Kind};
use std::fmt;
use std::str::FromStr;

/// A text that is no epoch, or names no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoId(&'static str);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.term, self.replica)
    }
}

impl FromStr for Epoch {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Epoch, NoId> {
        let (term, replica) = pair(text, '@').ok_or(NoId("an epoch is written term@replica"))?;
        Ok(Epoch { term, replica })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

impl FromStr for RequestId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<RequestId, NoId> {
        let (session, number) = pair(text, '/').ok_or(NoId("a request is written session/number"))?;
        Ok(RequestId { session, number })
    }
}

fn pair(text: &str, separator: char) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(separator)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

impl Fate {
    /// Without anything else to say.
    pub fn of(kind: Kind) -> Fate {
        Fate { kind: kind.into(), ..Fate::default() }
    }

    /// Whether no copy of the request can take effect from now on.
    pub fn is_final(&self) -> bool {
        !matches!(self.kind(), Kind::Open | Kind::Unspecified)
    }
}

impl Kind {
    /// As in JSON.
    pub fn as_word(self) -> &'static str {
        match self {
            Kind::Unspecified | Kind::Open => "open",
            Kind::Applied => "applied",
            Kind::NotApplied => "not_applied",
            Kind::Never => "never",
            Kind::TooOld => "too_old",
        }
    }
}

impl RequestFate {
    pub fn new(request: RequestId, fate: Fate) -> RequestFate {
        let kind = fate.kind();
        RequestFate {
            request,
            fate: kind.as_word().to_owned(),
            is_final: fate.is_final(),
            index: (fate.index > 0).then_some(fate.index),
            revision: (kind == Kind::Applied).then_some(fate.revision),
            reason: fate.reason.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let (epoch, request) = (Epoch { term: 3, replica: 1 }, RequestId { session: 12, number: 4 });
        assert_eq!((epoch.to_string(), request.to_string()), ("3@1".to_owned(), "12/4".to_owned()));
        assert_eq!((epoch.to_string().parse(), request.to_string().parse()), (Ok(epoch), Ok(request)));
        assert!("3/1".parse::<Epoch>().is_err() && "12/x".parse::<RequestId>().is_err());
    }
}
