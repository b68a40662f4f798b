//! The trace context that one process sends to another (W3C Trace Context, `traceparent`).

use std::fmt;
use std::sync::OnceLock;

/// The identity of a span: its trace id and span id. Neither id is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: u128,
    pub span: u64,
    /// Whether the trace is recorded. The process that began the trace decides.
    pub sampled: bool,
}

/// Length of `00-`, 32 digits, `-`, 16 digits, `-` and 2 digits.
const BYTES: usize = 55;

impl SpanContext {
    /// Parses a `traceparent`. Returns `None` if it is invalid. Later versions may append further fields, which are
    /// ignored.
    pub fn parse(text: &str) -> Option<SpanContext> {
        let bytes = text.as_bytes();
        let (known, rest) = bytes.split_at_checked(BYTES)?;
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let version = u8::try_from(hex(&known[..2])?).ok()?;
        let complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let trace = hex(&known[3..35])?;
        let span = u64::try_from(hex(&known[36..52])?).ok()?;
        let flags = hex(&known[53..])?;
        let valid = dashes && complete && trace != 0 && span != 0;
        valid.then_some(SpanContext { trace, span, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Parses hexadecimal digits. The standard allows lower case only.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

static CURRENT: OnceLock<fn() -> Option<SpanContext>> = OnceLock::new();

/// Returns the current span of this thread, to be sent to another process. Returns `None` outside traced spans.
pub fn current() -> Option<SpanContext> {
    CURRENT.get().and_then(|current| current())
}

/// Sets the function behind [`current`]; the exporter calls this once. Returns false if a function is already set.
pub fn provide_current(current: fn() -> Option<SpanContext>) -> bool {
    CURRENT.set(current).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_round_trips_through_text() {
        let context = SpanContext::parse(GOOD).expect("valid");
        assert_eq!(context.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((context.span, context.sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(context.to_string(), GOOD);
        let off = SpanContext { sampled: false, ..context };
        assert_eq!(SpanContext::parse(&off.to_string()), Some(off));
    }

    #[test]
    fn later_versions_may_append_fields() {
        let later = format!("cc{}", &GOOD[2..]);
        assert!(SpanContext::parse(&later).is_some());
        assert!(SpanContext::parse(&format!("{later}-future-field")).is_some());
        assert!(SpanContext::parse(&format!("{later}.future-field")).is_none());
        assert!(SpanContext::parse(&format!("{GOOD}-more")).is_none());
    }

    #[test]
    fn fuzz_traceparents() {
        let later = format!("cc{}-future-field", &GOOD[2..]);
        convoke_fuzz::texts(&[GOOD, &GOOD.replace("-01", "-00"), &later], |text| {
            let Some(context) = SpanContext::parse(text) else { return };
            assert!(context.trace != 0 && context.span != 0);
            assert_eq!(SpanContext::parse(&context.to_string()), Some(context));
        });
    }

    #[test]
    fn invalid_contexts_are_rejected() {
        for wrong in [
            "",
            "00",
            &GOOD[..54],
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &format!("ff{}", &GOOD[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
            "00-0äf7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanContext::parse(wrong), None, "{wrong}");
        }
    }
}
