//! Where in a stream of events a reader is: the `id` of an event, and what any node makes of it as `Last-Event-ID`.
//!
//! A place is the token of the last mark and what was told after it (W3). Marks are frequent, so that this is little; if it is not, the
//! place says "start over", and the stream that resumes from it begins with an explicit reset.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_core::filter::{Filter, Status};
use convoke_core::version::Version;
use prost::encoding::{decode_varint, encode_varint};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const FORMAT: u8 = 1;
/// What may have been told since the mark before a place becomes too large.
const RECENT_MAX: usize = 64;
const RECENT_BYTES: usize = 3 * 1024;
/// Bytes of a place with the mark of a small cluster, most often.
const PLACE: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing to resume from.
    Start,
    After(After),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct After {
    pub(super) token: Vec<u8>,
    /// Last version of each member told after the mark.
    pub(super) recent: BTreeMap<String, Version>,
    bytes: usize,
}

impl Place {
    /// Everything up to this mark has been told.
    pub(super) fn mark(&mut self, token: Vec<u8>) {
        *self = Place::After(After { token, ..After::default() });
    }

    /// This was told.
    pub(super) fn told(&mut self, id: &str, version: Version) {
        let Place::After(after) = self else { return };
        if after.recent.insert(id.to_owned(), version).is_none() {
            after.bytes += id.len();
        }
        if after.recent.len() > RECENT_MAX || after.bytes > RECENT_BYTES {
            *self = Place::Start;
        }
    }
}

/// What a place is good for: the same filter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope([u8; 4]);

impl Scope {
    pub(super) fn of(filter: &Filter) -> Self {
        let digest: [u8; 32] = Sha256::digest(filter.to_string().as_bytes()).into();
        Scope([digest[0], digest[1], digest[2], digest[3]])
    }

    /// The text of a place.
    pub(super) fn write(self, place: &Place, text: &mut String) {
        let mut bytes = Vec::with_capacity(PLACE);
        bytes.push(FORMAT);
        bytes.extend_from_slice(&self.0);
        if let Place::After(after) = place {
            write_bytes(&mut bytes, &after.token);
            for (id, version) in &after.recent {
                write_bytes(&mut bytes, id.as_bytes());
                write_version(&mut bytes, version);
            }
        }
        URL_SAFE_NO_PAD.encode_string(&bytes, text);
    }

    /// The place of a text; `None` if it is not one of ours, or of another filter.
    pub(super) fn read(self, text: &str) -> Option<Place> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let rest = bytes.strip_prefix(&[FORMAT])?.strip_prefix(&self.0)?;
        if rest.is_empty() {
            return Some(Place::Start);
        }
        let mut rest = rest;
        let mut place = Place::Start;
        place.mark(read_bytes(&mut rest)?.to_vec());
        while !rest.is_empty() {
            let id = std::str::from_utf8(read_bytes(&mut rest)?).ok()?;
            place.told(id, read_version(&mut rest)?);
        }
        Some(place)
    }
}

fn write_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    encode_varint(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

fn read_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(from).ok()?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

fn write_version(into: &mut Vec<u8>, version: &Version) {
    encode_varint(version.claim, into);
    encode_varint(version.seq, into);
    encode_varint(version.tag.into(), into);
    into.push(match version.inferred {
        None => 0,
        Some(Status::Up) => 1,
        Some(Status::Down) => 2,
        Some(Status::Left) => 3,
    });
}

fn read_version(from: &mut &[u8]) -> Option<Version> {
    let (claim, seq) = (decode_varint(from).ok()?, decode_varint(from).ok()?);
    let tag = u32::try_from(decode_varint(from).ok()?).ok()?;
    let (inferred, rest) = from.split_first()?;
    *from = rest;
    let inferred = match inferred {
        0 => None,
        1 => Some(Status::Up),
        2 => Some(Status::Down),
        3 => Some(Status::Left),
        _ => return None,
    };
    Some(Version { claim, seq, tag, inferred })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn version(seq: u64) -> Version {
        Version { claim: 1 << 40, seq, tag: 0xffff_0001, inferred: seq.is_multiple_of(2).then_some(Status::Down) }
    }

    fn text(scope: Scope, place: &Place) -> String {
        let mut text = String::new();
        scope.write(place, &mut text);
        text
    }

    #[test]
    fn places_round_trip_for_their_filter_only() {
        let scope = Scope::of(&Filter::service("orders"));
        let mut place = Place::Start;
        assert_eq!(scope.read(&text(scope, &place)), Some(Place::Start));
        place.told("a", version(1));
        assert_eq!(place, Place::Start);
        place.mark(vec![7; 40]);
        for (seq, id) in ["a", "größe", "", "a"].iter().enumerate() {
            place.told(id, version(seq as u64));
            assert_eq!(scope.read(&text(scope, &place)), Some(place.clone()));
        }
        assert_eq!(Scope::of(&Filter::all()).read(&text(scope, &place)), None);
    }

    #[test]
    fn a_place_never_grows_beyond_its_bound() {
        let mut place = Place::Start;
        for id in 0..10_000 {
            if id % 500 == 0 {
                place.mark(vec![1, 2, 3]);
            }
            place.told(&"x".repeat(id % 300), version(1));
            place.told(&id.to_string(), version(1));
            assert!(text(Scope::of(&Filter::all()), &place).len() < 6_000);
        }
    }

    #[test]
    fn garbage_is_no_place() {
        let scope = Scope::of(&Filter::all());
        let mut place = Place::Start;
        place.mark(vec![7; 40]);
        place.told("abc", version(1));
        let good = URL_SAFE_NO_PAD.decode(text(scope, &place)).unwrap();
        for length in 0..good.len() {
            let read = scope.read(&URL_SAFE_NO_PAD.encode(&good[..length]));
            assert!(read.is_none() || length == 5 || length == 46, "{length} {read:?}");
        }
        for bad in ["", "%", "0", "a b"] {
            assert_eq!(scope.read(bad), None);
        }
    }

    /// Readers come back with places from before an upgrade.
    #[test]
    fn places_are_fixed_byte_for_byte() {
        let scope = Scope::of(&Filter::service("orders"));
        let mut place = Place::Start;
        assert_eq!(text(scope, &place), "Ae6kkNc");
        place.mark(vec![1, 2, 3]);
        place.told("a", version(1));
        place.told("b", version(2));
        assert_eq!(text(scope, &place), "Ae6kkNcDAQIDAWGAgICAgCABgYD8_w8AAWKAgICAgCACgYD8_w8C");
    }
}
