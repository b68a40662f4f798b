//! Ranges of keys.

use bytes::Bytes;

/// A half-open range of keys in byte order (K6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub from: Bytes,
    /// The end of the range, exclusive. `None` means no upper bound.
    pub until: Option<Bytes>,
}

impl KeyRange {
    pub fn all() -> Self {
        KeyRange { from: Bytes::new(), until: None }
    }

    pub fn new(from: impl Into<Bytes>, until: impl Into<Bytes>) -> Self {
        KeyRange { from: from.into(), until: Some(until.into()) }
    }

    /// Returns the range of all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let from = prefix.into();
        // The first key after the prefix: raise the last byte that can be raised, and drop the bytes after it.
        let until = from.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
            let mut until = from[..=last].to_vec();
            until[last] += 1;
            until.into()
        });
        KeyRange { from, until }
    }

    /// Returns the rest of the range after `key`, where the next page begins.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let next = [key, &[0]].concat();
        let from = if *next > *self.from { next.into() } else { self.from.clone() };
        KeyRange { from, until: self.until.clone() }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &*self.from && self.is_before_end(key)
    }

    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        self.until.as_ref().is_none_or(|until| key < &**until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_what_begins_with_it_and_nothing_else() {
        let all: Vec<Vec<u8>> =
            [&b""[..], b"\0", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"a\xff\xffz", b"b", b"\xff", b"\xff\xff\x01"]
                .map(<[u8]>::to_vec)
                .into();
        for prefix in &all {
            let range = KeyRange::prefix(prefix.clone());
            for key in &all {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }

    #[test]
    fn the_next_page_begins_right_behind_the_last_key() {
        let range = KeyRange::new("b", "d");
        assert_eq!(range.after(b"bb"), KeyRange::new("bb\0", "d"));
        assert_eq!(range.after(b"a"), range, "never before the beginning");
    }
}
