//! Text forms of the log plane's ids.

use crate::json::RequestFate;
use crate::v1::{Epoch, Fate, RequestId, fate::Kind};
use std::fmt;
use std::str::FromStr;

/// The error of parsing an epoch or a request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseIdError(&'static str);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.term, self.replica)
    }
}

impl FromStr for Epoch {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Epoch, ParseIdError> {
        let (term, replica) =
            pair(text, '@').ok_or(ParseIdError("invalid epoch: expected TERM@REPLICA, for example 3@1"))?;
        Ok(Epoch { term, replica })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

impl FromStr for RequestId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<RequestId, ParseIdError> {
        let (session, number) =
            pair(text, '/').ok_or(ParseIdError("invalid request id: expected SESSION/NUMBER, for example 12/4"))?;
        Ok(RequestId { session, number })
    }
}

fn pair(text: &str, separator: char) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(separator)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

impl Fate {
    /// Creates a fate of this kind; all other fields are empty.
    pub fn of(kind: Kind) -> Fate {
        Fate { kind: kind.into(), ..Fate::default() }
    }

    /// Returns whether the fate is final: no copy of the request can take effect later.
    pub fn is_final(&self) -> bool {
        !matches!(self.kind(), Kind::Open | Kind::Unspecified)
    }
}

impl Kind {
    /// Returns the name of the kind in JSON.
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
    fn ids_round_trip_through_text() {
        let (epoch, request) = (Epoch { term: 3, replica: 1 }, RequestId { session: 12, number: 4 });
        assert_eq!((epoch.to_string(), request.to_string()), ("3@1".to_owned(), "12/4".to_owned()));
        assert_eq!((epoch.to_string().parse(), request.to_string().parse()), (Ok(epoch), Ok(request)));
        assert!("3/1".parse::<Epoch>().is_err() && "12/x".parse::<RequestId>().is_err());
    }
}
