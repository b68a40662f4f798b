//! Vector clocks with proper partial-order semantics.

use super::OriginId;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The highest write received of each origin: origin → highest n. An absent origin counts as 0.
///
/// Comparison is causal: `a < b` means b has seen all of a and more. Two clocks that each saw something the other did
/// not are incomparable (`partial_cmp` is `None`); there is no tie-break.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VectorClock(BTreeMap<OriginId, u64>);

impl VectorClock {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, origin: &OriginId) -> u64 {
        self.0.get(origin).copied().unwrap_or(0)
    }

    /// Counts one more event of `origin` and returns its number.
    pub fn increment(&mut self, origin: &OriginId) -> u64 {
        let n = self.0.entry(origin.clone()).or_insert(0);
        *n += 1;
        *n
    }

    /// Raises the entry of `origin` to at least `n`.
    pub fn raise(&mut self, origin: &OriginId, n: u64) {
        if n > self.get(origin) {
            self.0.insert(origin.clone(), n);
        }
    }

    /// Joins `other`: the least upper bound.
    pub fn merge(&mut self, other: &VectorClock) {
        for (origin, n) in &other.0 {
            self.raise(origin, *n);
        }
    }

    pub fn remove(&mut self, origin: &OriginId) {
        self.0.remove(origin);
    }

    /// Whether event `n` of `origin` is included.
    pub fn covers(&self, origin: &OriginId, n: u64) -> bool {
        self.get(origin) >= n
    }

    /// Whether everything in `other` is included.
    pub fn includes(&self, other: &VectorClock) -> bool {
        other.0.iter().all(|(origin, n)| self.covers(origin, *n))
    }

    pub fn concurrent(&self, other: &VectorClock) -> bool {
        self.partial_cmp(other).is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&OriginId, u64)> {
        self.0.iter().map(|(origin, n)| (origin, *n))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialOrd for VectorClock {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.includes(other), other.includes(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl FromIterator<(OriginId, u64)> for VectorClock {
    fn from_iter<T: IntoIterator<Item = (OriginId, u64)>>(entries: T) -> Self {
        let mut clock = VectorClock::new();
        for (origin, n) in entries {
            clock.raise(&origin, n);
        }
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Incarnation, NodeId};

    fn origin(name: &str) -> OriginId {
        OriginId { node: NodeId::new(name).unwrap(), incarnation: Incarnation { number: 1, nonce: 0 } }
    }

    #[test]
    fn orders_causally_and_only_causally() {
        let (a, b) = (origin("a"), origin("b"));
        let mut left = VectorClock::new();
        assert_eq!(left.increment(&a), 1);
        let mut right = left.clone();
        assert_eq!(left.partial_cmp(&right), Some(Ordering::Equal));
        right.increment(&b);
        assert!(left < right);
        left.increment(&a);
        assert!(left.concurrent(&right));
        let mut both = left.clone();
        both.merge(&right);
        assert!(both > left && both > right);
        assert!(both.covers(&a, 2) && !both.covers(&b, 2));
    }
}
