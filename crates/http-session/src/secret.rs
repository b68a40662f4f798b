//! The secret that names a session over HTTP, and all that any node of the cluster learns from it (C8).
//!
//! A session outlives its node, so no node's memory may be needed to serve it: the secret carries the settings of the
//! session beside 128 random bits. A hash over all of it gives the nonce of the client's process, which the registry keeps with every
//! member and shows to nobody: whoever has the secret, and nobody else, has the nonce.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_core::member::Liveness;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

const FORMAT: u8 = 1;
/// Random bytes that a new secret takes.
pub const RANDOM_BYTES: usize = 16;
/// Bytes of the hash in the id of a client that chose none.
const NAME: usize = 10;
/// Format, liveness, timeout, random bits; the client id follows, if the client chose one.
const HEAD: usize = 1 + 1 + 4 + RANDOM_BYTES;
/// Client ids are at most 256 bytes; anything longer is no secret of ours.
const CLIENT_MAX: usize = 1_024;

/// The secret of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: Vec<u8>,
    /// Finds the session in tables without telling the secret.
    pub key: Key,
    /// Names the client, unless it chose its own id.
    name: [u8; NAME],
    pub nonce: u64,
    pub liveness: Liveness,
    pub timeout: Option<Duration>,
}

/// Finds a session in a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 14]);

/// Not even in a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("client", &self.client()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Secret {
    /// A new one. Without a chosen client id it gives itself one.
    pub fn new(client: Option<&str>, liveness: Liveness, timeout_ms: u32, random: [u8; RANDOM_BYTES]) -> Secret {
        let mut bytes = vec![0; HEAD];
        bytes[0] = FORMAT;
        bytes[1] = u8::from(liveness == Liveness::Fast);
        bytes[2..6].copy_from_slice(&timeout_ms.to_be_bytes());
        bytes[6..HEAD].copy_from_slice(&random);
        bytes.extend_from_slice(client.unwrap_or_default().as_bytes());
        Secret::of(bytes, liveness, timeout_ms)
    }

    /// Reads one; `None` if it cannot be ours.
    pub fn parse(text: &str) -> Option<Secret> {
        if text.len() > 2 * (HEAD + CLIENT_MAX) {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (head, client) = bytes.split_at_checked(HEAD)?;
        let liveness = match (head[0], head[1]) {
            (FORMAT, 0) => Liveness::Normal,
            (FORMAT, 1) => Liveness::Fast,
            _ => return None,
        };
        let timeout_ms = u32::from_be_bytes(head[2..6].try_into().ok()?);
        std::str::from_utf8(client).ok()?;
        Some(Secret::of(bytes, liveness, timeout_ms))
    }

    fn of(bytes: Vec<u8>, liveness: Liveness, timeout_ms: u32) -> Secret {
        let digest: [u8; 32] = Sha256::new_with_prefix(b"convoke session\0").chain_update(&bytes).finalize().into();
        let [nonce, name, key] = [&digest[..8], &digest[8..8 + NAME], &digest[8 + NAME..]];
        Secret {
            key: Key(key.try_into().unwrap_or_default()),
            name: name.try_into().unwrap_or_default(),
            nonce: nonce.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            liveness,
            timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())),
            bytes,
        }
    }

    /// The client's id: the one it chose, or one made of the hash. Made when it is needed, which is when the session is attached.
    pub fn client(&self) -> String {
        match std::str::from_utf8(&self.bytes[HEAD..]) {
            Ok(chosen) if !chosen.is_empty() => chosen.to_owned(),
            _ => {
                let mut id = String::with_capacity("http-".len() + 2 * NAME);
                id.push_str("http-");
                for byte in self.name {
                    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
                    id.extend([digit(byte >> 4), digit(byte & 0xf)]);
                }
                id
            }
        }
    }

    /// For the client, and for nobody else.
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn any_node_reads_the_same_from_it() {
        for (client, liveness, timeout) in
            [(None, Liveness::Normal, 0), (Some("shop"), Liveness::Fast, 7_000), (Some("größe"), Liveness::Normal, 1)]
        {
            let secret = Secret::new(client, liveness, timeout, [7; 16]);
            let read = Secret::parse(&secret.reveal()).unwrap();
            assert_eq!(read, secret);
            assert_eq!((read.liveness, read.timeout.is_some()), (liveness, timeout > 0));
            match client {
                Some(client) => assert_eq!(read.client(), client),
                None => assert_eq!(read.client().len(), "http-".len() + 20),
            }
        }
    }

    #[test]
    fn other_random_bytes_make_another_and_nothing_shown_tells_them() {
        let (one, two) =
            (Secret::new(None, Liveness::Normal, 0, [1; 16]), Secret::new(None, Liveness::Normal, 0, [2; 16]));
        assert!(one.key != two.key && one.nonce != two.nonce && one.client() != two.client());
        let text = one.reveal();
        assert!(!format!("{one:?} {:?} {}", one.key, one.client()).contains(&text));
    }

    #[test]
    fn changed_settings_make_it_another_one() {
        let secret = Secret::new(Some("shop"), Liveness::Normal, 5_000, [1; 16]);
        for place in 1..6 {
            let mut bytes = secret.bytes.clone();
            bytes[place] ^= 1;
            let other = Secret::parse(&URL_SAFE_NO_PAD.encode(&bytes)).unwrap();
            assert!(other.nonce != secret.nonce && other.key != secret.key);
        }
    }

    #[test]
    fn garbage_is_none() {
        let good = Secret::new(None, Liveness::Normal, 0, [1; 16]).reveal();
        let long = "A".repeat(5_000);
        for bad in ["", "x", "not base64!", &good[..good.len() - 4], "AAAA", &long] {
            assert!(Secret::parse(bad).is_none(), "{bad}");
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(&good).unwrap();
        bytes.push(0xff);
        assert!(Secret::parse(&URL_SAFE_NO_PAD.encode(&bytes)).is_none());
    }

    /// Sessions outlive an upgrade of all nodes.
    #[test]
    fn secrets_are_fixed_byte_for_byte() {
        let secret = Secret::parse("AQEAABtYAAECAwQFBgcICQoLDA0OD3Nob3A").unwrap();
        assert_eq!((secret.client().as_str(), secret.liveness), ("shop", Liveness::Fast));
        assert_eq!((secret.timeout, secret.nonce), (Some(Duration::from_secs(7)), 17_347_107_241_043_718_639));
        let nameless = Secret::parse("AQAAAAAAAAECAwQFBgcICQoLDA0ODw").unwrap();
        assert_eq!(
            (nameless.client().as_str(), nameless.nonce),
            ("http-14f1ceb259b6d7fee120", 5_165_942_350_500_468_470)
        );
    }
}
