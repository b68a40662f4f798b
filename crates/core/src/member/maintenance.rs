//! Why a member is drained, and for how long (C21).

use crate::error::{ErrorCode, Rejection};
use crate::time::{Clock, Duration, ReceivedAt};
use smol_str::SmolStr;
use std::hash::{Hash, Hasher};

/// Longest reason of a drain in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// Longest time after which a drain ends by itself.
pub const LASTS_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What an operator asks for with a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// After this time the member is no longer drained; `None` if an operator has to undo the drain.
    pub lasts: Option<Duration>,
    /// Free text, may be empty.
    pub reason: String,
    /// Wall-clock ms of that end; for display only.
    pub until: u64,
}

impl Drain {
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        if self.reason.len() > REASON_BYTES_MAX || self.reason.contains(char::is_control) {
            let message = format!("the reason is longer than {REASON_BYTES_MAX} bytes or has a control character");
            let rejection = Rejection::new(ErrorCode::InvalidArgument, message).field("reason");
            return Err(rejection.limit(REASON_BYTES_MAX));
        }
        let limit = LASTS_MAX.as_millis() as usize;
        match self.lasts {
            Some(lasts) if lasts.is_zero() || lasts > LASTS_MAX => {
                let message = format!("a drain lasts between 1 ms and {limit} ms");
                Err(Rejection::new(ErrorCode::InvalidArgument, message).field("for_ms").limit(limit))
            }
            _ => Ok(()),
        }
    }

    /// What the record stores; `None` for a drain without a reason and an end.
    pub(crate) fn begin(&self, clock: Clock) -> Option<Maintenance> {
        let until = if self.lasts.is_some() { self.until } else { 0 };
        let (lasts, reason) = (self.lasts, SmolStr::new(&self.reason));
        let says_nothing = lasts.is_none() && reason.is_empty();
        (!says_nothing).then(|| Maintenance { reason, lasts, until, begun: ReceivedAt::now(clock) })
    }
}

/// Reason and end of the drain of one mark.
#[derive(Clone, Debug)]
pub struct Maintenance {
    pub(crate) reason: SmolStr,
    pub(crate) lasts: Option<Duration>,
    pub(crate) until: u64,
    /// When the member was drained, on the clock of this node. It travels as an age.
    pub(crate) begun: ReceivedAt,
}

impl Maintenance {
    /// Empty if the operator gave none.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Wall-clock ms of the end, as the node computed it that took the command; for display only.
    pub fn until(&self) -> Option<u64> {
        self.lasts.map(|_| self.until)
    }

    /// The same, with its whole time ahead: what a mutant makes of it.
    pub(crate) fn again(&self, clock: Clock) -> Self {
        Maintenance { begun: ReceivedAt::now(clock), ..self.clone() }
    }

    pub(crate) fn age(&self, clock: Clock) -> Duration {
        self.begun.silence(clock)
    }

    /// How long the drain still lasts, on the clock of this node; `None` without an end.
    pub(crate) fn remaining(&self, clock: Clock) -> Option<Duration> {
        self.lasts.map(|lasts| lasts.saturating_sub(self.age(clock)))
    }
}

/// Everything but `begun`, which every node has for itself.
impl PartialEq for Maintenance {
    fn eq(&self, other: &Self) -> bool {
        (&self.reason, self.lasts, self.until) == (&other.reason, other.lasts, other.until)
    }
}

impl Eq for Maintenance {}

impl Hash for Maintenance {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.reason, self.lasts, self.until).hash(state);
    }
}
