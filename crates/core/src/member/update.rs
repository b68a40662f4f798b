//! Metadata updates: merge, delete keys, or replace.

use super::{Metadata, spec};
use crate::config::Limits;
use crate::error::Rejection;
use std::collections::BTreeMap;

/// Whether keys that the update does not mention stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateMode {
    #[default]
    Merge,
    Replace,
}

/// A change of metadata: key → new value, or `None` to delete the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataUpdate {
    pub mode: UpdateMode,
    pub changes: BTreeMap<String, Option<String>>,
}

impl MetadataUpdate {
    pub fn set(key: impl Into<String>, value: impl Into<String>) -> Self {
        let mut update = MetadataUpdate::default();
        update.changes.insert(key.into(), Some(value.into()));
        update
    }

    /// The metadata after this update, checked as a whole.
    pub fn apply(&self, current: &Metadata, limits: &Limits) -> Result<Metadata, Rejection> {
        let mut map = match self.mode {
            UpdateMode::Merge => current.to_map(),
            UpdateMode::Replace => BTreeMap::new(),
        };
        for (key, value) in &self.changes {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        spec::check_metadata(&map, limits)?;
        Ok(Metadata::from_map(&map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_deletes_and_replaces() {
        let limits = Limits::default();
        let start = MetadataUpdate::set("a", "1").apply(&Metadata::default(), &limits).unwrap();
        let mut update = MetadataUpdate::set("b", "2");
        let merged = update.apply(&start, &limits).unwrap();
        assert_eq!(merged.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        update.changes.insert("a".into(), None);
        assert_eq!(update.apply(&merged, &limits).unwrap().iter().collect::<Vec<_>>(), [("b", "2")]);
        let replace = MetadataUpdate { mode: UpdateMode::Replace, ..MetadataUpdate::set("c", "3") };
        assert_eq!(replace.apply(&merged, &limits).unwrap().iter().collect::<Vec<_>>(), [("c", "3")]);
    }

    #[test]
    fn an_update_that_would_exceed_a_limit_is_rejected() {
        let limits = Limits { metadata_pairs: 1, ..Limits::default() };
        let start = MetadataUpdate::set("a", "1").apply(&Metadata::default(), &limits).unwrap();
        let rejection = MetadataUpdate::set("b", "2").apply(&start, &limits).unwrap_err();
        assert_eq!((rejection.field, rejection.limit), (Some("metadata"), Some(1)));
    }
}
