//! The search for a linearization: Wing and Gong's algorithm with Lowe's memoization.
//!
//! Calls and answers of one key, or of objects that are used together, are in a list ordered by time. The search takes a call that precedes the first
//! remaining answer, checks whether its answer fits the state, removes both and continues. If it reaches an answer
//! instead, the operation of that answer should have been taken earlier, and the last choice is undone. A set of taken
//! operations together with the reached state is not tried twice.

use super::record::Verdict;
use std::collections::BTreeSet;

/// An operation on objects of one kind, and what it does to them.
pub(crate) trait Sequential {
    /// The state of the objects. The default is the state before the first operation.
    type State: Clone + Default + Ord;

    fn called(&self) -> u64;

    /// `None`: unknown.
    fn answered(&self) -> Option<u64>;

    /// Returns the state after the operation, if its answer fits the state before. An unknown one that would change
    /// nothing is skipped: it returns `None`.
    fn step(&self, state: &Self::State) -> Option<Self::State>;

    /// Whether two operations with unknown outcomes have the same effect on every state.
    fn same_effect(&self, other: &Self) -> bool;
}

/// Searches for an order. `matters` tells whether it can make a difference that an unknown operation happened.
pub(crate) fn check<O: Sequential>(operations: &[&O], matters: impl Fn(&O) -> bool, states: usize) -> Verdict {
    Search::new(operations, matters, states).run()
}

/// A call or an answer in the list.
#[derive(Clone, Copy, Debug)]
struct Event {
    operation: usize,
    is_call: bool,
    next: usize,
    before: usize,
}

struct Search<'a, O: Sequential> {
    operations: &'a [&'a O],
    /// The list; 0 is its head and its end.
    events: Vec<Event>,
    /// Position of the answer of an operation, if it has one.
    answers: Vec<Option<usize>>,
    /// An unknown operation with the same effect and an earlier call. If one of the two happened, it may have been the
    /// earlier one, so only that order is tried.
    twins: Vec<Option<usize>>,
    /// Answers left in the list.
    left: usize,
    state: O::State,
    taken: Vec<u64>,
    /// Calls taken, with the state before.
    order: Vec<(usize, O::State)>,
    tried: BTreeSet<(Vec<u64>, O::State)>,
    states: usize,
    deepest: (usize, Vec<usize>),
}

impl<'a, O: Sequential> Search<'a, O> {
    fn new(operations: &'a [&'a O], matters: impl Fn(&O) -> bool, states: usize) -> Self {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            let called = operation.called();
            match operation.answered() {
                Some(answered) => {
                    moments.push((called, false, at));
                    // An answer before its call is invalid; treat it as immediate.
                    moments.push((answered.max(called), true, at));
                }
                None if matters(operation) => moments.push((called, false, at)),
                None => {}
            }
        }
        // At equal times calls come first: the operations overlap.
        moments.sort_unstable();
        let twins = twins(operations, &moments);
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
        let state = O::State::default();
        Search { operations, events, answers, twins, left, state, taken, order, tried, states, deepest }
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
                        let before = std::mem::replace(&mut self.state, state);
                        self.order.push((at, before));
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
    fn try_next(&mut self, operation: usize) -> Option<O::State> {
        if self.twins[operation].is_some_and(|twin| !self.is_taken(twin)) {
            return None;
        }
        let state = self.operations[operation].step(&self.state)?;
        self.set_taken(operation, true);
        if self.tried.insert((self.taken.clone(), state.clone())) {
            return Some(state);
        }
        self.set_taken(operation, false);
        None
    }

    fn is_taken(&self, operation: usize) -> bool {
        self.taken[operation / 64] & (1 << (operation % 64)) != 0
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

/// Returns the closest earlier twin of every unknown operation.
fn twins<O: Sequential>(operations: &[&O], moments: &[(u64, bool, usize)]) -> Vec<Option<usize>> {
    let mut twins = vec![None; operations.len()];
    let unknown: Vec<usize> =
        moments.iter().map(|(.., at)| *at).filter(|at| operations[*at].answered().is_none()).collect();
    for (place, at) in unknown.iter().enumerate() {
        let earlier = unknown[..place].iter().rev();
        twins[*at] = earlier.copied().find(|other| operations[*other].same_effect(operations[*at]));
    }
    twins
}
