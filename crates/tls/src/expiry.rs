//! When certificates expire, and how urgent their renewal is (TS10).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 3_600;
/// Remaining time at which the urgency rises.
const SOON: u64 = 30 * DAY;
const VERY_SOON: u64 = 7 * DAY;
const NOW: u64 = DAY;

/// Ends of the certificates of a node, in UNIX seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// End of the own certificate.
    pub certificate: u64,
    /// End of the trusted authority, the latest if there are several.
    pub authority: u64,
}

/// How urgent a renewal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    None,
    /// Less than 30 days.
    Soon,
    /// Less than 7 days.
    VerySoon,
    /// Less than a day.
    Now,
    Expired,
}

impl Urgency {
    fn of(end: u64, now: u64) -> Urgency {
        match end.saturating_sub(now) {
            0 => Urgency::Expired,
            left if left < NOW => Urgency::Now,
            left if left < VERY_SOON => Urgency::VerySoon,
            left if left < SOON => Urgency::Soon,
            _ => Urgency::None,
        }
    }
}

impl CertificateExpiry {
    /// The higher urgency of the two.
    pub fn urgency(self, now: SystemTime) -> Urgency {
        let now = unix_seconds(now);
        Urgency::of(self.certificate, now).max(Urgency::of(self.authority, now))
    }

    /// One sentence for operators; `None` if there is nothing to do.
    pub fn warning(self, now: SystemTime) -> Option<String> {
        let now = unix_seconds(now);
        let (what, end, remedy) = if Urgency::of(self.authority, now) >= Urgency::of(self.certificate, now)
            && Urgency::of(self.authority, now) > Urgency::None
        {
            (
                "the certificate authority of this cluster",
                self.authority,
                "rotate it as docs/guides/secure.md describes",
            )
        } else {
            ("the TLS certificate of this node", self.certificate, "renew it with `convoke tls renew`")
        };
        let at = format_time(end);
        match Urgency::of(end, now) {
            Urgency::None => None,
            Urgency::Expired => Some(format!("{what} expired at {at}: {remedy}")),
            Urgency::Now => Some(format!("{what} expires in less than a day, at {at}: {remedy}")),
            Urgency::VerySoon | Urgency::Soon => {
                Some(format!("{what} expires in {} days, at {at}: {remedy}", (end - now) / DAY))
            }
        }
    }

    /// The earlier end of the two, in UNIX seconds.
    pub fn first(self) -> u64 {
        self.certificate.min(self.authority)
    }
}

pub(crate) fn unix_seconds(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// A time in UTC: `2026-11-18 06:00 UTC`.
pub(crate) fn format_time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    match time {
        Some(at) => {
            let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
            format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", at.hour(), at.minute())
        }
        None => "a time after the year 9999".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn ts10_the_urgency_rises_at_30_7_and_1_days() {
        let expiry = CertificateExpiry { certificate: 100 * DAY, authority: 1_000 * DAY };
        for (day, urgency) in [
            (10, Urgency::None),
            (70, Urgency::None),
            (71, Urgency::Soon),
            (93, Urgency::Soon),
            (94, Urgency::VerySoon),
            (99, Urgency::VerySoon),
            (100, Urgency::Expired),
            (200, Urgency::Expired),
        ] {
            assert_eq!(expiry.urgency(at(day * DAY)), urgency, "day {day}");
            assert_eq!(expiry.warning(at(day * DAY)).is_some(), urgency > Urgency::None, "day {day}");
        }
        assert_eq!(expiry.urgency(at(99 * DAY + 1)), Urgency::Now);
        let warning = expiry.warning(at(75 * DAY)).unwrap();
        assert!(warning.contains("of this node expires in 25 days, at 1970-04-11 00:00 UTC"), "{warning}");
    }

    #[test]
    fn ts10_an_authority_that_ends_first_is_named() {
        let expiry = CertificateExpiry { certificate: 100 * DAY, authority: 20 * DAY };
        let warning = expiry.warning(at(19 * DAY + 1)).unwrap();
        assert!(
            warning.starts_with("the certificate authority of this cluster expires in less than a day"),
            "{warning}"
        );
        assert_eq!(expiry.first(), 20 * DAY);
    }
}
