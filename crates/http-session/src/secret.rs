//! The secret that identifies an HTTP session (C8).
//!
//! A session outlives its node, so any node must be able to serve it without stored state. The secret therefore carries
//! the settings of the session and 128 random bits. A hash over both gives the nonce of the client's process. The registry
//! keeps the nonce with every member and never returns it to clients, so only a request with the secret has the nonce.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_core::member::Liveness;
use convoke_core::version::{Incarnation, NodeId, OriginId};
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

const FORMAT: u8 = 2;
/// Number of random bytes in a secret.
pub const RANDOM_BYTES: usize = 16;
/// Bytes of the hash in a generated client id.
const NAME: usize = 10;
/// Format, liveness, timeout, random bits, incarnation of the creator (number and nonce), length of the creator's node id.
/// The node id follows, and then the client id, if the client chose one.
const HEAD: usize = CREATOR + 8 + 8 + 1;
/// Where the creator begins.
const CREATOR: usize = 1 + 1 + 4 + RANDOM_BYTES;
/// Client ids are at most 256 bytes; a longer text is not a valid secret.
const CLIENT_MAX: usize = 1_024;

/// The secret of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: Vec<u8>,
    /// Key of the session in tables; it does not reveal the secret.
    pub key: Key,
    /// Hash bytes of the generated client id.
    name: [u8; NAME],
    pub nonce: u64,
    pub liveness: Liveness,
    pub timeout: Option<Duration>,
    /// The incarnation that created the session. Until it has a member, only that incarnation knows it.
    pub creator: OriginId,
}

/// The key of a session in a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 14]);

/// Omits the secret, so that it does not appear in logs.
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
    /// Returns a new secret. Without a client id, one is generated.
    pub fn new(
        client: Option<&str>,
        liveness: Liveness,
        timeout_ms: u32,
        creator: &OriginId,
        random: [u8; RANDOM_BYTES],
    ) -> Secret {
        let node = creator.node.as_str().as_bytes();
        let mut bytes = Vec::with_capacity(HEAD + node.len());
        bytes.extend([FORMAT, u8::from(liveness == Liveness::Fast)]);
        bytes.extend(timeout_ms.to_be_bytes());
        bytes.extend(random);
        bytes.extend(creator.incarnation.number.to_be_bytes());
        bytes.extend(creator.incarnation.nonce.to_be_bytes());
        bytes.push(u8::try_from(node.len()).unwrap_or_default());
        bytes.extend(node);
        bytes.extend_from_slice(client.unwrap_or_default().as_bytes());
        Secret::of(bytes, liveness, timeout_ms, creator.clone())
    }

    /// Parses a secret. Returns `None` if the text is not a valid secret.
    pub fn parse(text: &str) -> Option<Secret> {
        if text.len() > 2 * (HEAD + NodeId::MAX_BYTES + CLIENT_MAX) {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (node, client) = rest.split_at_checked(head[HEAD - 1].into())?;
        let liveness = match (head[0], head[1]) {
            (FORMAT, 0) => Liveness::Normal,
            (FORMAT, 1) => Liveness::Fast,
            _ => return None,
        };
        let timeout_ms = u32::from_be_bytes(head[2..6].try_into().ok()?);
        std::str::from_utf8(client).ok()?;
        let number = |from: usize| Some(u64::from_be_bytes(head[from..from + 8].try_into().ok()?));
        let incarnation = Incarnation { number: number(CREATOR)?, nonce: number(CREATOR + 8)? };
        let creator = OriginId { node: NodeId::new(std::str::from_utf8(node).ok()?).ok()?, incarnation };
        Some(Secret::of(bytes, liveness, timeout_ms, creator))
    }

    fn of(bytes: Vec<u8>, liveness: Liveness, timeout_ms: u32, creator: OriginId) -> Secret {
        let digest: [u8; 32] = Sha256::new_with_prefix(b"convoke session\0").chain_update(&bytes).finalize().into();
        let [nonce, name, key] = [&digest[..8], &digest[8..8 + NAME], &digest[8 + NAME..]];
        Secret {
            key: Key(key.try_into().unwrap_or_default()),
            name: name.try_into().unwrap_or_default(),
            nonce: nonce.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            liveness,
            timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())),
            creator,
            bytes,
        }
    }

    /// Returns the client id: the chosen one, or one generated from the hash. It is computed on demand, because only an
    /// attach needs it.
    pub fn client(&self) -> String {
        match std::str::from_utf8(&self.bytes[HEAD + self.creator.node.as_str().len()..]) {
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

    /// Returns the secret as text. Only the client and the node that serves its request may have it.
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn creator() -> OriginId {
        OriginId { node: NodeId::new("n1").unwrap(), incarnation: Incarnation { number: 3, nonce: 4 } }
    }

    #[test]
    fn every_node_parses_the_same_values() {
        for (client, liveness, timeout) in
            [(None, Liveness::Normal, 0), (Some("shop"), Liveness::Fast, 7_000), (Some("größe"), Liveness::Normal, 1)]
        {
            let secret = Secret::new(client, liveness, timeout, &creator(), [7; 16]);
            let read = Secret::parse(&secret.reveal()).unwrap();
            assert_eq!((&read, &read.creator), (&secret, &creator()));
            assert_eq!((read.liveness, read.timeout.is_some()), (liveness, timeout > 0));
            match client {
                Some(client) => assert_eq!(read.client(), client),
                None => assert_eq!(read.client().len(), "http-".len() + 20),
            }
        }
    }

    #[test]
    fn random_bytes_change_the_secret_and_debug_output_omits_it() {
        let (one, two) = (
            Secret::new(None, Liveness::Normal, 0, &creator(), [1; 16]),
            Secret::new(None, Liveness::Normal, 0, &creator(), [2; 16]),
        );
        assert!(one.key != two.key && one.nonce != two.nonce && one.client() != two.client());
        let text = one.reveal();
        assert!(!format!("{one:?} {:?} {}", one.key, one.client()).contains(&text));
    }

    #[test]
    fn changed_settings_change_the_key_and_the_nonce() {
        let secret = Secret::new(Some("shop"), Liveness::Normal, 5_000, &creator(), [1; 16]);
        for position in 1..6 {
            let mut bytes = secret.bytes.clone();
            bytes[position] ^= 1;
            let other = Secret::parse(&URL_SAFE_NO_PAD.encode(&bytes)).unwrap();
            assert!(other.nonce != secret.nonce && other.key != secret.key);
        }
    }

    #[test]
    fn invalid_text_is_rejected() {
        let good = Secret::new(None, Liveness::Normal, 0, &creator(), [1; 16]).reveal();
        let long = "A".repeat(5_000);
        for bad in ["", "x", "not base64!", &good[..good.len() - 4], "AAAA", &long] {
            assert!(Secret::parse(bad).is_none(), "{bad}");
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(&good).unwrap();
        bytes.push(0xff);
        assert!(Secret::parse(&URL_SAFE_NO_PAD.encode(&bytes)).is_none());
    }

    /// Sessions must survive an upgrade of all nodes.
    #[test]
    fn secrets_are_fixed_byte_for_byte() {
        let random = std::array::from_fn(|index| index as u8);
        let secret = Secret::new(Some("shop"), Liveness::Fast, 7_000, &creator(), random);
        assert_eq!(secret.reveal(), "AgEAABtYAAECAwQFBgcICQoLDA0ODwAAAAAAAAADAAAAAAAAAAQCbjFzaG9w");
        assert_eq!(secret.nonce, 15_597_741_522_634_301_878);
        let nameless = Secret::new(None, Liveness::Normal, 0, &creator(), random);
        assert_eq!(
            (nameless.client().as_str(), nameless.nonce),
            ("http-fd380c87932a0ec031cb", 15_180_798_601_766_952_844)
        );
    }

    #[test]
    fn fuzz_secrets() {
        let creator = OriginId { node: NodeId::new("n1").unwrap(), incarnation: Incarnation { number: 3, nonce: 9 } };
        let texts: Vec<String> = [None, Some("shop"), Some("größe")]
            .into_iter()
            .map(|client| Secret::new(client, Liveness::Fast, 20_000, &creator, [7; RANDOM_BYTES]).reveal())
            .collect();
        let corpus: Vec<Vec<u8>> = texts.iter().map(|text| URL_SAFE_NO_PAD.decode(text).unwrap()).collect();
        let check = |text: &str| {
            if let Some(secret) = Secret::parse(text) {
                assert_eq!(Secret::parse(&secret.reveal()).map(|again| again.client()), Some(secret.client()));
            }
        };
        convoke_fuzz::bytes(&corpus, |bytes| check(&URL_SAFE_NO_PAD.encode(bytes)));
        convoke_fuzz::texts(&texts.iter().map(String::as_str).collect::<Vec<_>>(), check);
    }
}
