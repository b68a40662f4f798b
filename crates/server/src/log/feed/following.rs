//! Where the feed of a node without a replica continues, and when its watchers must learn that it cannot (H8, H9). No I/O:
//! times are passed in, counted from any fixed moment.

use convoke_log::history::EventPosition;
use convoke_proto::{Error, ErrorCode};
use std::time::Duration;

/// Time without a stream to any replica after which the watchers learn of it.
const UNREACHABLE_MAX: Duration = Duration::from_secs(15);
/// Pauses between rounds of attempts.
const PAUSE_BASE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Following {
    /// Whether the watchers accept replicas without a leader.
    stale: bool,
    election_timeout: Duration,
    log: Option<u128>,
    /// `None`: the next stream starts with the current state of its replica.
    next: Option<EventPosition>,
    /// Start of the present stream. A stream with another selection at the same replica continues it.
    opened_at: Option<Duration>,
    /// Since when no stream has lasted.
    cut_off_since: Option<Duration>,
    /// A replica reported that it has no leader, since the last stream that lasted.
    no_quorum: Option<Error>,
    last_error: Option<Error>,
    pause: Duration,
}

/// What to do after a stream has ended.
#[derive(Debug, PartialEq)]
pub(super) enum After {
    /// Try the next replica of this round.
    Another,
    /// Try all replicas again.
    All,
    /// End the feed and all its watchers with this error.
    End(Error),
}

impl Following {
    pub(super) fn new(stale: bool, election_timeout: Duration) -> Following {
        Following {
            stale,
            election_timeout,
            log: None,
            next: None,
            opened_at: None,
            cut_off_since: None,
            no_quorum: None,
            last_error: None,
            pause: PAUSE_BASE,
        }
    }

    /// Returns the log and the position at which the next stream starts.
    pub(super) fn start(&self) -> (Option<u128>, Option<EventPosition>) {
        (self.log, self.next)
    }

    /// Records the start of a stream. Returns the position at which the feed begins, if it does not continue.
    pub(super) fn started(&mut self, now: Duration, log: u128, revision: u64) -> Option<EventPosition> {
        (self.log, self.pause) = (Some(log), PAUSE_BASE);
        self.opened_at.get_or_insert(now);
        if self.next.is_some() {
            return None;
        }
        self.next = Some(EventPosition::start_of(revision + 1));
        self.next
    }

    pub(super) fn advanced(&mut self, next: EventPosition) {
        self.next = self.next.max(Some(next));
    }

    /// Records the end of a stream, or that it could not be opened.
    pub(super) fn ended(&mut self, now: Duration, error: Error) -> After {
        let opened_at = self.opened_at.take();
        // A replica without a leader ends its streams after two election timeouts, so this one had a leader.
        let lasted = opened_at.is_some_and(|at| now.saturating_sub(at) > 3 * self.election_timeout);
        if lasted {
            (self.cut_off_since, self.no_quorum) = (None, None);
        }
        self.cut_off_since.get_or_insert(now);
        match error.code {
            // Positions of the earlier log have no meaning. Each watcher decides how to start again.
            ErrorCode::SessionGone
            | ErrorCode::FailedPrecondition
            | ErrorCode::InvalidArgument
            | ErrorCode::PermissionDenied
            | ErrorCode::Unauthenticated => return After::End(error),
            // The watchers below the new start read the missing events themselves, and learn if they are gone.
            ErrorCode::Compacted => self.next = None,
            ErrorCode::NoQuorum => self.no_quorum = Some(error.clone()),
            _ => {}
        }
        self.last_error = Some(error);
        if lasted { After::All } else { After::Another }
    }

    /// Records that no replica of a round continues the feed. Returns the pause before the next round.
    pub(super) fn round_failed(&mut self, now: Duration) -> Result<Duration, Error> {
        if !self.stale {
            if let Some(error) = self.no_quorum.take() {
                return Err(error);
            }
            if self.cut_off_since.is_some_and(|since| now.saturating_sub(since) >= UNREACHABLE_MAX) {
                return Err(self.unreachable());
            }
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        Ok(pause)
    }

    /// Returns why there is no stream.
    pub(super) fn unreachable(&self) -> Error {
        let cause = self.last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let message = format!("this node has no replica and cannot follow one{cause}; watch at another node");
        Error::new(ErrorCode::NotReady, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn error(code: ErrorCode) -> Error {
        Error::new(code, "because")
    }

    #[test]
    fn h9_a_feed_continues_at_its_position_at_the_next_replica() {
        let mut feed = Following::new(false, ELECTION);
        assert_eq!(feed.start(), (None, None));
        assert_eq!(feed.started(at(0), 7, 4), Some(EventPosition::start_of(5)));
        let inside = EventPosition { revision: 9, index: 3 };
        feed.advanced(inside);
        feed.advanced(EventPosition::start_of(8));
        assert_eq!(feed.ended(at(1), error(ErrorCode::NotReady)), After::Another);
        assert_eq!(feed.start(), (Some(7), Some(inside)), "an earlier position is ignored");
        assert_eq!(feed.started(at(2), 7, 20), None, "the window stays");
        assert_eq!(feed.ended(at(60), error(ErrorCode::NotReady)), After::All, "all replicas may have changed");
    }

    #[test]
    fn h9_a_stream_that_is_opened_again_with_another_selection_lasts() {
        let mut feed = Following::new(false, ELECTION);
        feed.ended(at(0), error(ErrorCode::NotReady));
        for now in 1..60 {
            feed.started(at(now), 7, 4);
        }
        assert_eq!(feed.ended(at(60), error(ErrorCode::NotReady)), After::All);
        assert_eq!(feed.round_failed(at(61)), Ok(PAUSE_BASE), "it was not cut off since the first error");
    }

    #[test]
    fn h9_no_quorum_is_passed_on_after_every_replica_was_tried() {
        let mut feed = Following::new(false, ELECTION);
        feed.started(at(0), 7, 4);
        assert_eq!(feed.ended(at(2), error(ErrorCode::NoQuorum)), After::Another);
        feed.started(at(2), 7, 4);
        assert_eq!(feed.ended(at(4), error(ErrorCode::NotReady)), After::Another);
        assert_eq!(feed.round_failed(at(4)).unwrap_err().code, ErrorCode::NoQuorum);
        // Another replica had a leader meanwhile.
        let mut feed = Following::new(false, ELECTION);
        feed.started(at(0), 7, 4);
        feed.ended(at(2), error(ErrorCode::NoQuorum));
        feed.started(at(2), 7, 4);
        assert_eq!(feed.ended(at(30), error(ErrorCode::NotReady)), After::All);
        assert_eq!(feed.round_failed(at(30)), Ok(PAUSE_BASE));
        let mut stale = Following::new(true, ELECTION);
        stale.ended(at(0), error(ErrorCode::NoQuorum));
        assert_eq!(stale.round_failed(at(100)), Ok(PAUSE_BASE), "a stale watch goes on");
    }

    #[test]
    fn h9_watchers_learn_that_no_replica_is_reached() {
        let mut feed = Following::new(false, ELECTION);
        feed.started(at(0), 7, 4);
        let mut pauses = Vec::new();
        for now in 10..25 {
            feed.ended(at(now), error(ErrorCode::Timeout));
            pauses.push(feed.round_failed(at(now)).unwrap());
        }
        assert_eq!((pauses[0], pauses[14]), (PAUSE_BASE, PAUSE_MAX));
        feed.ended(at(25), error(ErrorCode::Timeout));
        let ended = feed.round_failed(at(25)).unwrap_err();
        assert_eq!(ended.code, ErrorCode::NotReady);
        assert!(ended.message.contains("because"), "{ended}");
    }

    #[test]
    fn h9_another_log_ends_the_feed_and_a_compacted_position_starts_it_again() {
        let mut feed = Following::new(false, ELECTION);
        feed.started(at(0), 7, 4);
        feed.ended(at(1), error(ErrorCode::Compacted));
        assert_eq!(feed.start(), (Some(7), None));
        assert_eq!(feed.started(at(1), 7, 90), Some(EventPosition::start_of(91)));
        for code in [ErrorCode::SessionGone, ErrorCode::PermissionDenied, ErrorCode::FailedPrecondition] {
            assert_eq!(feed.ended(at(2), error(code)), After::End(error(code)));
        }
    }
}
