//! Metadata: a small sorted map of strings in one allocation.
//!
//! A registry of a million members is mostly metadata; a `BTreeMap<String, String>` would cost several times the
//! bytes it stores. Here a map is one packed byte string: for each pair, sorted by key, two length-prefixed strings.

use std::collections::BTreeMap;
use std::fmt;

/// Packed string pairs, sorted by key, keys unique.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Metadata(Box<[u8]>);

impl Metadata {
    pub fn from_map(map: &BTreeMap<String, String>) -> Self {
        Self::from_sorted(map.iter().map(|(k, v)| (k.as_str(), v.as_str())))
    }

    /// `pairs` must be sorted by key with no key twice.
    pub fn from_sorted<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut packed = Vec::new();
        for (key, value) in pairs {
            push(&mut packed, key);
            push(&mut packed, value);
        }
        Metadata(packed.into_boxed_slice())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    pub fn iter(&self) -> Pairs<'_> {
        Pairs(&self.0)
    }

    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// Heap bytes held.
    pub fn packed_len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Metadata {
    type Item = (&'a str, &'a str);
    type IntoIter = Pairs<'a>;
    fn into_iter(self) -> Pairs<'a> {
        self.iter()
    }
}

impl convoke_filter::MetadataLookup for Metadata {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)
    }
}

/// Iterates the pairs in key order.
#[derive(Debug, Clone)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        Some((take(&mut self.0), take(&mut self.0)))
    }
}

fn push(packed: &mut Vec<u8>, text: &str) {
    let mut len = text.len();
    while len >= 0x80 {
        packed.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    packed.push(len as u8);
    packed.extend_from_slice(text.as_bytes());
}

fn take<'a>(rest: &mut &'a [u8]) -> &'a str {
    let (mut len, mut shift) = (0usize, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (text, tail) = rest.split_at(len);
    *rest = tail;
    std::str::from_utf8(text).expect("metadata is packed from strings only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_reads_back() {
        let long = "x".repeat(300);
        let map: BTreeMap<String, String> = [("a", ""), ("version", "v1"), ("zone", long.as_str())]
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let packed = Metadata::from_map(&map);
        assert_eq!(packed.to_map(), map);
        assert_eq!(packed.get("version"), Some("v1"));
        assert_eq!(packed.get("a"), Some(""));
        assert_eq!(packed.get("b"), None);
        assert_eq!(packed.len(), 3);
        assert!(Metadata::default().is_empty());
    }
}
