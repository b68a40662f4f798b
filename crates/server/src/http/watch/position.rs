//! The position of a reader in a watch: the `id` of an event, which every node accepts as `Last-Event-ID`.
//!
//! A position consists of the token of the last mark, of the members that the reader holds, and of the versions sent
//! after the mark (W3). Marks are frequent, so these versions are few. If there are too many, the position becomes
//! "start", and a stream resumed from it begins with an explicit reset.

use super::held::Held;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use convoke_core::filter::{Filter, Status};
use convoke_core::version::Version;
use prost::encoding::{decode_varint, encode_varint};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const FORMAT: u8 = 2;
/// Largest number of versions since the last mark.
const RECENT_MAX: usize = 64;
const RECENT_BYTES: usize = 3 * 1024;
/// Usual number of bytes of a position with the mark of a small cluster.
const USUAL_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// There is nothing to resume from.
    Start,
    After(After),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct After {
    pub(super) token: Bytes,
    /// Last version sent after the mark, by member.
    pub(super) recent: BTreeMap<String, Version>,
    bytes: usize,
}

impl Position {
    /// Records that everything up to this mark was sent.
    pub(super) fn mark(&mut self, token: Bytes) {
        *self = Position::After(After { token, ..After::default() });
    }

    /// Records that this version was sent.
    pub(super) fn sent(&mut self, id: &str, version: Version) {
        let Position::After(after) = self else { return };
        if after.recent.insert(id.to_owned(), version).is_none() {
            after.bytes += id.len();
        }
        if after.recent.len() > RECENT_MAX || after.bytes > RECENT_BYTES {
            *self = Position::Start;
        }
    }
}

/// Binds positions to a filter: a position is valid only for the filter it was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope([u8; 4]);

impl Scope {
    pub(super) fn of(filter: &Filter) -> Self {
        let digest: [u8; 32] = Sha256::digest(filter.to_string().as_bytes()).into();
        Scope([digest[0], digest[1], digest[2], digest[3]])
    }

    /// A number that differs for most filters.
    pub(super) fn number(self) -> usize {
        u32::from_le_bytes(self.0) as usize
    }

    /// Appends the text of a position.
    pub(super) fn write(self, position: &Position, held: &Held, text: &mut String) {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        bytes.push(FORMAT);
        bytes.extend_from_slice(&self.0);
        if let Position::After(after) = position {
            write_bytes(&mut bytes, &after.token);
            held.write(&mut bytes);
            for (id, version) in &after.recent {
                write_bytes(&mut bytes, id.as_bytes());
                write_version(&mut bytes, version);
            }
        }
        URL_SAFE_NO_PAD.encode_string(&bytes, text);
    }

    /// Parses a position. Returns `None` if the text is not a position or belongs to another filter.
    pub(super) fn read(self, text: &str) -> Option<(Position, Held)> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let rest = bytes.strip_prefix(&[FORMAT])?.strip_prefix(&self.0)?;
        if rest.is_empty() {
            return Some((Position::Start, Held::default()));
        }
        let mut rest = rest;
        let mut position = Position::Start;
        position.mark(Bytes::copy_from_slice(read_bytes(&mut rest)?));
        let held = Held::read(&mut rest)?;
        while !rest.is_empty() {
            let id = std::str::from_utf8(read_bytes(&mut rest)?).ok()?;
            position.sent(id, read_version(&mut rest)?);
        }
        Some((position, held))
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

    fn held() -> Held {
        let mut held = Held::default();
        held.insert("a");
        held
    }

    fn text(scope: Scope, position: &Position) -> String {
        let mut text = String::new();
        scope.write(position, &held(), &mut text);
        text
    }

    #[test]
    fn positions_round_trip_for_their_filter_only() {
        let scope = Scope::of(&Filter::service("orders"));
        let mut position = Position::Start;
        assert_eq!(scope.read(&text(scope, &position)), Some((Position::Start, Held::default())));
        position.sent("a", version(1));
        assert_eq!(position, Position::Start);
        position.mark(vec![7; 40].into());
        for (seq, id) in ["a", "größe", "", "a"].iter().enumerate() {
            position.sent(id, version(seq as u64));
            assert_eq!(scope.read(&text(scope, &position)), Some((position.clone(), held())));
        }
        assert_eq!(Scope::of(&Filter::all()).read(&text(scope, &position)), None);
    }

    #[test]
    fn a_position_never_exceeds_its_size_limit() {
        let mut position = Position::Start;
        for id in 0..10_000 {
            if id % 500 == 0 {
                position.mark(vec![1, 2, 3].into());
            }
            position.sent(&"x".repeat(id % 300), version(1));
            position.sent(&id.to_string(), version(1));
            assert!(text(Scope::of(&Filter::all()), &position).len() < 6_000);
        }
    }

    #[test]
    fn garbage_is_not_parsed_as_a_position() {
        let scope = Scope::of(&Filter::all());
        let mut position = Position::Start;
        position.mark(vec![7; 40].into());
        position.sent("abc", version(1));
        let good = URL_SAFE_NO_PAD.decode(text(scope, &position)).unwrap();
        for length in 0..good.len() {
            let read = scope.read(&URL_SAFE_NO_PAD.encode(&good[..length]));
            assert!(read.is_none() || length == 5 || length == 53, "{length} {read:?}");
        }
        for bad in ["", "%", "0", "a b"] {
            assert_eq!(scope.read(bad), None);
        }
    }

    #[test]
    fn fuzz_watch_positions() {
        let scope = Scope::of(&Filter::all());
        let mut position = Position::Start;
        position.mark(vec![7; 40].into());
        position.sent("abc", version(1));
        position.sent("def", version(9));
        let good = URL_SAFE_NO_PAD.decode(text(scope, &position)).unwrap();
        convoke_fuzz::bytes(&[good], |bytes| {
            if let Some((position, held)) = scope.read(&URL_SAFE_NO_PAD.encode(bytes)) {
                let mut text = String::new();
                scope.write(&position, &held, &mut text);
                assert_eq!(scope.read(&text), Some((position, held)));
            }
        });
        convoke_fuzz::texts(&[&text(scope, &position)], |text| drop(scope.read(text)));
    }

    /// Readers resume with positions from before an upgrade.
    #[test]
    fn the_format_of_positions_is_fixed() {
        let scope = Scope::of(&Filter::service("orders"));
        let mut position = Position::Start;
        assert_eq!(text(scope, &position), "Au6kkNc");
        position.mark(vec![1, 2, 3].into());
        position.sent("a", version(1));
        position.sent("b", version(2));
        assert_eq!(text(scope, &position), "Au6kkNcDAQIDAcqXgRLKGwFhgICAgIAgAYGA_P8PAAFigICAgIAgAoGA_P8PAg");
    }
}
