//! How far a reader of events has come: the `id` of an event. It is good for the same run of the same node only.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    run: u64,
    /// Sequence of the last event of the node's timeline.
    pub(super) happening: u64,
    /// Sequence of the last change of a member.
    pub(super) change: u64,
}

impl Place {
    pub(super) fn start(run: u64) -> Self {
        Place { run, happening: 0, change: 0 }
    }

    /// `None` if the text is not of this run, or not a place at all.
    pub(super) fn read(run: u64, text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (of, happening, change) = (parts.next()?, parts.next()?, parts.next()?);
        let of = u64::from_str_radix(of, 16).ok()?;
        let place = Place { run, happening: happening.parse().ok()?, change: change.parse().ok()? };
        (of == run && parts.next().is_none()).then_some(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}", self.run, self.happening, self.change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_good_for_its_run_only() {
        let place = Place { run: 0xabc, happening: 7, change: 12 };
        assert_eq!(place.to_string(), "abc.7.12");
        assert_eq!(Place::read(0xabc, "abc.7.12"), Some(place));
        for other in ["abd.7.12", "abc.7", "abc.7.12.1", "abc.x.12", "", "abc.-1.2"] {
            assert_eq!(Place::read(0xabc, other), None, "{other}");
        }
    }
}
