//! Changes of metadata (R-05).

use convoke_proto::v1;
use std::collections::{BTreeMap, BTreeSet};

/// A change of a member's metadata.
///
/// ```
/// use convoke_session::Update;
///
/// let merge = Update::merge().set("load", "0.7").delete("warming-up");
/// let replace = Update::replace().set("version", "v2");
/// let careful = Update::merge().set("leader", "yes").if_version("7.1.0000abcd");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Update {
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) delete: BTreeSet<String>,
    pub(crate) replace: bool,
    pub(crate) if_version: Option<String>,
}

impl Update {
    /// Keeps the keys that are not mentioned.
    pub fn merge() -> Update {
        Update::default()
    }

    /// Deletes the keys that are not mentioned.
    pub fn replace() -> Update {
        Update { replace: true, ..Update::default() }
    }

    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Update {
        let key = key.into();
        self.delete.remove(&key);
        self.set.insert(key, value.into());
        self
    }

    pub fn delete(mut self, key: impl Into<String>) -> Update {
        let key = key.into();
        self.set.remove(&key);
        self.delete.insert(key);
        self
    }

    /// Makes the update conditional: if the member has another version, it fails with `STALE_VERSION`.
    ///
    /// Such an update is not repeated after a lost connection. Its result is then `OUTCOME_UNKNOWN`.
    pub fn if_version(mut self, version: impl Into<String>) -> Update {
        self.if_version = Some(version.into());
        self
    }

    /// Applies the change to a copy of the metadata. Does not check `if_version`.
    pub fn apply(&self, metadata: &mut BTreeMap<String, String>) {
        if self.replace {
            metadata.clear();
        }
        metadata.retain(|key, _| !self.delete.contains(key));
        metadata.extend(self.set.iter().map(|(key, value)| (key.clone(), value.clone())));
    }

    pub(crate) fn to_wire(&self, id: &str) -> v1::Update {
        v1::Update {
            id: id.to_owned(),
            set: self.set.clone(),
            delete: self.delete.iter().cloned().collect(),
            replace: self.replace,
            if_version: self.if_version.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_merge_delete_and_replace_and_the_last_change_of_a_key_counts() {
        let mut metadata: BTreeMap<String, String> = BTreeMap::new();
        Update::merge().set("a", "1").set("b", "1").apply(&mut metadata);
        Update::merge().set("b", "2").delete("a").apply(&mut metadata);
        assert_eq!(metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), [("b", "2")]);
        Update::merge().set("a", "1").delete("a").delete("c").set("c", "3").apply(&mut metadata);
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["b", "c"]);
        Update::replace().set("d", "4").apply(&mut metadata);
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["d"]);
    }
}
