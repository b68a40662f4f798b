//! Wall clocks decide nothing: the same seed with other clocks gives the same results, apart from displayed
//! times.

use super::Violation;
use crate::trace::Fold;

/// Compares the decisions and results of two runs of one seed with different wall clocks.
pub fn compare(one: Fold, other: Fold) -> Option<Violation> {
    (one != other).then(|| {
        let message =
            format!("the same seed with other wall clocks decides {:016x} instead of {:016x}", other.0, one.0);
        Violation::new(super::CLOCKS_IRRELEVANT, 0, message)
    })
}
