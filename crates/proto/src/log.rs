//! Text forms of the log plane's ids.

use crate::json::RequestFate;
use crate::v1::{Epoch, Fate, KeyRange, LogId, RequestId, Txn, fate::Kind, txn_operation};
use prost::bytes::Bytes;
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
        write!(f, "{}/{}", self.session, self.number)?;
        self.log.map_or(Ok(()), |log| write!(f, "@{log}"))
    }
}

impl FromStr for RequestId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<RequestId, ParseIdError> {
        let invalid =
            ParseIdError("invalid request id: expected SESSION/NUMBER or SESSION/NUMBER@LOG, for example 12/4");
        let (id, log) = match text.split_once('@') {
            Some((id, log)) => (id, Some(log.parse()?)),
            None => (text, None),
        };
        let (session, number) = pair(id, '/').ok_or(invalid)?;
        Ok(RequestId { session, number, log })
    }
}

impl From<u128> for LogId {
    fn from(id: u128) -> LogId {
        LogId { high: (id >> 64) as u64, low: id as u64 }
    }
}

impl From<LogId> for u128 {
    fn from(id: LogId) -> u128 {
        u128::from(id.high) << 64 | u128::from(id.low)
    }
}

impl KeyRange {
    /// Returns the range of all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let from = prefix.into();
        // The first key after the prefix: raise the last byte that can be raised, and drop the bytes after it.
        let until = from.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
            let mut until = from[..=last].to_vec();
            until[last] += 1;
            until.into()
        });
        KeyRange { from, until }
    }

    /// Returns the rest of the range after a key.
    #[must_use]
    pub fn after(self, key: &[u8]) -> KeyRange {
        let next = [key, &[0]].concat();
        if *next > *self.from { KeyRange { from: next.into(), ..self } } else { self }
    }
}

impl Txn {
    /// Returns whether neither branch changes a key. Such a transaction is a read and needs no log entry.
    pub fn is_read_only(&self) -> bool {
        let mut operations = self.then.iter().chain(&self.otherwise);
        operations.all(|operation| matches!(operation.operation, Some(txn_operation::Operation::Read(_))))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from(*self))
    }
}

impl FromStr for LogId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<LogId, ParseIdError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(LogId::from).ok_or(ParseIdError("invalid log id: expected 32 hexadecimal digits"))
    }
}

/// The id of a log as text in JSON.
pub(crate) mod log_id_text {
    use super::LogId;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    pub(crate) fn serialize<S: Serializer>(id: &Option<LogId>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LogId>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

fn pair(text: &str, separator: char) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(separator)?;
    Some((number(first)?, number(second)?))
}

/// Parses decimal digits, without the sign that the standard library accepts.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
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
        let (epoch, request) = (Epoch { term: 3, replica: 1 }, RequestId { session: 12, number: 4, log: None });
        let named = RequestId { log: Some(LogId { high: 1, low: 2 }), ..request };
        assert_eq!(named.to_string(), "12/4@00000000000000010000000000000002");
        assert_eq!(named.to_string().parse(), Ok(named));
        assert!("12/4@12".parse::<RequestId>().is_err());
        assert_eq!((epoch.to_string(), request.to_string()), ("3@1".to_owned(), "12/4".to_owned()));
        assert_eq!((epoch.to_string().parse(), request.to_string().parse()), (Ok(epoch), Ok(request)));
        assert!("3/1".parse::<Epoch>().is_err() && "12/x".parse::<RequestId>().is_err());
    }

    #[test]
    fn a_prefix_is_a_range_and_pages_begin_behind_a_key() {
        let range = KeyRange::prefix(Bytes::from_static(b"a\xff"));
        assert_eq!(range.until.as_deref(), Some(&b"b"[..]));
        assert_eq!(KeyRange::prefix(Bytes::from_static(b"\xff")).until, None);
        assert_eq!(KeyRange::prefix(Bytes::new()).until, None);
        let next = range.clone().after(b"a\xff1");
        assert_eq!((&next.from[..], &next.until), (&b"a\xff1\0"[..], &range.until));
        assert_eq!(range.clone().after(b"a"), range, "never before its beginning");
    }

    #[test]
    fn fuzz_ids() {
        fn check<T: FromStr + fmt::Display + PartialEq + fmt::Debug>(text: &str) {
            let Ok(id) = text.parse::<T>() else { return };
            let printed = id.to_string();
            assert_eq!(printed.parse().ok(), Some(id));
            // Leading zeros and upper case are other forms of the same id. There are no more.
            let digits = |text: &str| text.replace('0', "").to_ascii_lowercase();
            assert_eq!(digits(&printed), digits(text));
        }
        let log = "0123456789abcdef00000000000000ff";
        let corpus = ["3@1", "12/4", "18446744073709551615/0", log, &format!("12/4@{log}")];
        convoke_fuzz::texts(&corpus, |text| {
            check::<Epoch>(text);
            check::<RequestId>(text);
            check::<LogId>(text);
        });
    }
}
