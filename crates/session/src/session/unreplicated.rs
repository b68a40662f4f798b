//! Acknowledged unregistrations that only one node may have (C13).

use std::collections::{BTreeMap, BTreeSet};

/// Largest number of ids. Beyond it, the oldest unregistrations are no longer repeated.
const IDS_MAX: usize = 16_384;

/// Unregistered ids by the number of the node's write. The numbers are those of the node that the session is attached
/// to: each attach names all ids, and so gives them new numbers.
#[derive(Debug, Default)]
pub(super) struct Unreplicated {
    numbers: BTreeMap<String, u64>,
    by_number: BTreeSet<(u64, String)>,
}

impl Unreplicated {
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.numbers.keys()
    }

    /// A node acknowledged the unregistration. Its writes up to this number include it.
    pub(super) fn insert(&mut self, id: String, number: u64) {
        self.remove(&id);
        self.by_number.insert((number, id.clone()));
        self.numbers.insert(id, number);
        if self.numbers.len() > IDS_MAX
            && let Some((_, oldest)) = self.by_number.pop_first()
        {
            self.numbers.remove(&oldest);
        }
    }

    /// The id was registered again.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some((id, number)) = self.numbers.remove_entry(id) {
            self.by_number.remove(&(number, id));
        }
    }

    /// Another node has the writes up to this number.
    pub(super) fn replicated(&mut self, number: u64) {
        while let Some((first, _)) = self.by_number.first()
            && *first <= number
            && let Some((_, id)) = self.by_number.pop_first()
        {
            self.numbers.remove(&id);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Unreplicated::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kept_until_their_number_is_replicated() {
        let mut held = Unreplicated::default();
        for (id, number) in [("a", 1), ("b", 2), ("c", 2), ("d", 5)] {
            held.insert(id.to_owned(), number);
        }
        held.insert("a".to_owned(), 6);
        held.remove("b");
        held.replicated(1);
        assert_eq!(held.ids().collect::<Vec<_>>(), ["a", "c", "d"]);
        held.replicated(5);
        assert_eq!(held.ids().collect::<Vec<_>>(), ["a"]);
        held.clear();
        assert_eq!(held.ids().count(), 0);
    }

    #[test]
    fn the_oldest_are_dropped_beyond_the_limit() {
        let mut held = Unreplicated::default();
        for number in 0..=IDS_MAX {
            held.insert(format!("m{number}"), number as u64);
        }
        assert_eq!((held.ids().count(), held.by_number.len()), (IDS_MAX, IDS_MAX));
        assert!(!held.numbers.contains_key("m0") && held.numbers.contains_key("m1"));
    }
}
