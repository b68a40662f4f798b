//! One key: its value is the state.

use super::checker::{self, Sequential};
use super::record::{Answer, Call, Operation, Value, Verdict};
use std::collections::BTreeSet;

type State = Option<Value>;

/// Checks the operations on one key.
pub(super) fn check<K>(operations: &[&Operation<K>], states: usize) -> Verdict {
    let observed = Observed::of(operations);
    checker::check(operations, |operation| observed.matters(operation), states)
}

impl<K> Sequential for Operation<K> {
    type State = State;

    fn called(&self) -> u64 {
        self.called
    }

    fn answered(&self) -> Option<u64> {
        self.answer.map(|(at, _)| at)
    }

    fn step(&self, state: &State) -> Option<State> {
        let (state, answer) = (*state, self.answer.map(|(_, answer)| answer));
        match (self.call, answer) {
            (Call::Get, Some(Answer::Got(value))) => (value == state).then_some(state),
            (Call::Write { if_value, new }, Some(Answer::Written { previous })) => {
                let fits = if_value.is_none_or(|value| value == state) && previous.is_none_or(|value| value == state);
                fits.then_some(new)
            }
            (Call::Write { if_value: Some(value), .. }, Some(Answer::Mismatch { found })) => {
                (value != state && found.is_none_or(|found| found == state)).then_some(state)
            }
            (Call::Write { if_value, new }, None) => {
                (if_value.is_none_or(|value| value == state) && new != state).then_some(new)
            }
            // An answer of the wrong kind never fits.
            _ => None,
        }
    }

    fn same_effect(&self, other: &Self) -> bool {
        self.call == other.call
    }
}

/// Values observed for a key.
struct Observed {
    values: BTreeSet<State>,
    /// An answer shows that another value was there, but not which one.
    anything: bool,
}

impl Observed {
    fn of<K>(operations: &[&Operation<K>]) -> Self {
        let mut observed = Observed { values: BTreeSet::new(), anything: false };
        for operation in operations {
            if let Call::Write { if_value: Some(value), .. } = operation.call {
                observed.values.insert(value);
            }
            match operation.answer {
                Some((_, Answer::Got(value))) => {
                    observed.values.insert(value);
                }
                Some((_, Answer::Written { previous: Some(value) } | Answer::Mismatch { found: Some(value) })) => {
                    observed.values.insert(value);
                }
                Some((_, Answer::Mismatch { found: None })) => observed.anything = true,
                _ => {}
            }
        }
        observed
    }

    /// Whether it matters if an unknown operation happened. A value that was never observed was overwritten before any
    /// read, so it need not have been written.
    fn matters<K>(&self, unknown: &Operation<K>) -> bool {
        match unknown.call {
            Call::Get => false,
            Call::Write { new, .. } => self.anything || self.values.contains(&new),
        }
    }
}
