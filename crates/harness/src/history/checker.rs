//! The search for a linearization: Wing and Gong's algorithm with Lowe's memoization.
//!
//! Calls and answers of one key are in a list ordered by time. The search takes a call that precedes the first
//! remaining answer, checks whether its answer fits the state, removes both and continues. If it reaches an answer
//! instead, the operation of that answer should have been taken earlier, and the last choice is undone. A set of taken
//! operations together with the reached state is not tried twice.

use super::record::{Answer, Call, Operation, Value, Verdict};
use std::collections::BTreeSet;

type State = Option<Value>;

pub(crate) fn check<K>(operations: &[&Operation<K>], states: usize) -> Verdict {
    Search::new(operations, states).run()
}

/// A call or an answer in the list.
#[derive(Clone, Copy, Debug)]
struct Event {
    operation: usize,
    is_call: bool,
    next: usize,
    before: usize,
}

struct Search<'a, K> {
    operations: &'a [&'a Operation<K>],
    /// The list; 0 is its head and its end.
    events: Vec<Event>,
    /// Position of the answer of an operation, if it has one.
    answers: Vec<Option<usize>>,
    /// Answers left in the list.
    left: usize,
    state: State,
    taken: Vec<u64>,
    /// Calls taken, with the state before.
    order: Vec<(usize, State)>,
    tried: BTreeSet<(Vec<u64>, State)>,
    states: usize,
    deepest: (usize, Vec<usize>),
}

impl<'a, K> Search<'a, K> {
    fn new(operations: &'a [&'a Operation<K>], states: usize) -> Self {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        let observed = Observed::of(operations);
        for (at, operation) in operations.iter().enumerate() {
            match operation.answer {
                Some((answered, _)) => {
                    moments.push((operation.called, false, at));
                    // An answer before its call is invalid; treat it as immediate.
                    moments.push((answered.max(operation.called), true, at));
                }
                None if observed.matters(operation) => moments.push((operation.called, false, at)),
                None => {}
            }
        }
        // At equal times calls come first: the operations overlap.
        moments.sort_unstable();
        let mut events = vec![Event { operation: usize::MAX, is_call: false, next: 0, before: 0 }];
        let mut answers = vec![None; operations.len()];
        for (_, is_answer, operation) in moments {
            let at = events.len();
            events[at - 1].next = at;
            events.push(Event { operation, is_call: !is_answer, next: 0, before: at - 1 });
            events[0].before = at;
            if is_answer {
                answers[operation] = Some(at);
            }
        }
        let left = answers.iter().flatten().count();
        let taken = vec![0; operations.len().div_ceil(64)];
        let (order, tried, deepest) = (Vec::new(), BTreeSet::new(), (0, Vec::new()));
        Search { operations, events, answers, left, state: None, taken, order, tried, states, deepest }
    }

    fn run(mut self) -> Verdict {
        let mut at = self.events[0].next;
        // Operations with unknown outcomes need not have happened.
        while self.left > 0 {
            let event = self.events[at];
            if event.is_call {
                match self.try_next(event.operation) {
                    Some(state) => {
                        if self.tried.len() >= self.states {
                            return Verdict::Exhausted;
                        }
                        self.order.push((at, self.state));
                        self.state = state;
                        self.unlink(at);
                        at = self.events[0].next;
                    }
                    None => at = event.next,
                }
                continue;
            }
            self.remember_if_deepest();
            let Some((call, state)) = self.order.pop() else {
                return Verdict::NotLinearizable { stuck: self.deepest.1 };
            };
            self.state = state;
            self.set_taken(self.events[call].operation, false);
            self.relink(call);
            at = self.events[call].next;
        }
        Verdict::Linearizable
    }

    /// Returns the state after an operation, if it can come next and this was not tried before.
    fn try_next(&mut self, operation: usize) -> Option<State> {
        let state = step(self.state, self.operations[operation])?;
        self.set_taken(operation, true);
        if self.tried.insert((self.taken.clone(), state)) {
            return Some(state);
        }
        self.set_taken(operation, false);
        None
    }

    fn set_taken(&mut self, operation: usize, taken: bool) {
        let bit = 1 << (operation % 64);
        let word = &mut self.taken[operation / 64];
        *word = if taken { *word | bit } else { *word & !bit };
    }

    fn remember_if_deepest(&mut self) {
        if self.order.len() < self.deepest.0 || (self.order.len() == self.deepest.0 && !self.deepest.1.is_empty()) {
            return;
        }
        let mut stuck = Vec::new();
        let mut at = self.events[0].next;
        while at != 0 && self.events[at].is_call {
            stuck.push(self.events[at].operation);
            at = self.events[at].next;
        }
        self.deepest = (self.order.len(), stuck);
    }

    fn unlink(&mut self, call: usize) {
        self.remove(call);
        if let Some(answer) = self.answers[self.events[call].operation] {
            self.remove(answer);
            self.left -= 1;
        }
    }

    /// In the reverse order of `unlink`.
    fn relink(&mut self, call: usize) {
        if let Some(answer) = self.answers[self.events[call].operation] {
            self.put_back(answer);
            self.left += 1;
        }
        self.put_back(call);
    }

    fn remove(&mut self, at: usize) {
        let Event { next, before, .. } = self.events[at];
        self.events[before].next = next;
        self.events[next].before = before;
    }

    fn put_back(&mut self, at: usize) {
        let Event { next, before, .. } = self.events[at];
        self.events[before].next = at;
        self.events[next].before = at;
    }
}

/// Returns the state after an operation, if its answer fits the state before. An unknown one that would change nothing
/// is skipped.
fn step<K>(state: State, operation: &Operation<K>) -> Option<State> {
    let answer = operation.answer.map(|(_, answer)| answer);
    match (operation.call, answer) {
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
