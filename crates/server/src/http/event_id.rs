//! Ids of events of the log: the log, and numbers that name a position in it.

use super::sse::last_event_id;
use crate::error::invalid;
use ::http::HeaderMap;
use convoke_proto::{Error, v1};
use std::fmt::Write;

/// The text is `LOG-NUMBER-…`, with the log as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId<const N: usize> {
    pub(super) log: u128,
    pub(super) numbers: [u64; N],
}

impl<const N: usize> EventId<N> {
    /// Returns the id in `Last-Event-ID`, if the client resumes a stream.
    pub(super) fn resumed(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let Some(id) = last_event_id(headers) else { return Ok(None) };
        let message = "invalid Last-Event-ID; pass the id of the last event unchanged";
        Ok(Some(id.and_then(Self::parse).ok_or_else(|| invalid("Last-Event-ID", message))?))
    }

    pub(super) fn write(self, text: &mut String) {
        let _ = write!(text, "{:032x}", self.log);
        for number in self.numbers {
            let _ = write!(text, "-{number}");
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let log = parts.next()?.parse::<v1::LogId>().ok()?.into();
        let mut numbers = [0; N];
        for number in &mut numbers {
            let digits = parts.next().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
            *number = digits.parse().ok()?;
        }
        parts.next().is_none().then_some(EventId { log, numbers })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn ids_round_trip_and_garbage_is_rejected() {
        let id = EventId { log: 0xab, numbers: [12, 3] };
        let mut text = String::new();
        id.write(&mut text);
        assert_eq!(text, "000000000000000000000000000000ab-12-3");
        assert_eq!(EventId::parse(&text), Some(id));
        assert_eq!(EventId::<3>::parse(&text), None, "a number is missing");
        for garbage in [
            "",
            "12-3",
            "000000000000000000000000000000ab-12",
            "000000000000000000000000000000ab-12-",
            "000000000000000000000000000000ab-+1-0",
            "000000000000000000000000000000ab-1-2-3",
            "000000000000000000000000000000ab-99999999999999999999-0",
        ] {
            assert_eq!(EventId::<2>::parse(garbage), None, "{garbage}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(EventId::<2>::resumed(&headers), Ok(None));
        headers.insert("last-event-id", text.parse().unwrap());
        assert_eq!(EventId::resumed(&headers), Ok(Some(id)));
        headers.insert("last-event-id", "12".parse().unwrap());
        assert_eq!(EventId::<2>::resumed(&headers).unwrap_err().field.as_deref(), Some("Last-Event-ID"));
    }
    #[test]
    fn fuzz_ids() {
        let corpus =
            ["000000000000000000000000000000ab-12-3", "ffffffffffffffffffffffffffffffff-1-18446744073709551615"];
        convoke_fuzz::texts(&corpus, |text| {
            let Some(id) = EventId::<2>::parse(text) else { return };
            let mut printed = String::new();
            id.write(&mut printed);
            assert_eq!(EventId::parse(&printed), Some(id));
        });
    }
}
