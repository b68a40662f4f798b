//! Keys that sign and verify tokens. The algorithm belongs to the key; a token cannot choose it (AU1).

use crate::KEYS_MAX;
use crate::pem;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, Ed25519KeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// PKCS #8 before the 32 bytes of an Ed25519 private key (RFC 8410).
const PRIVATE_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// SubjectPublicKeyInfo before the 32 bytes of an Ed25519 public key (RFC 8410).
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const PRIVATE_LABEL: &str = "PRIVATE KEY";
const PUBLIC_LABEL: &str = "PUBLIC KEY";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "the file contains no Ed25519 private key in PEM form; `convoke init` and `convoke token keygen` write one"
    )]
    NotPrivate,
    #[error("the file contains no Ed25519 public key in PEM form")]
    NotPublic,
    #[error("the file contains a private key; nodes need only the public key (signing.pub): remove the private key")]
    PrivateOnNode,
    #[error("the file is not a JSON Web Key Set: {0}")]
    Jwks(String),
    #[error("key {kid:?} of the JSON Web Key Set is not usable: {why}")]
    Jwk { kid: String, why: &'static str },
    #[error("{0} keys exceed the limit of {KEYS_MAX}")]
    TooMany(usize),
    #[error("two keys have the id {0:?}")]
    Twice(String),
    #[error("there is no key")]
    Empty,
}

/// Signs the tokens of a cluster. It stays with the operator and never goes to a node.
pub struct SigningKey(Ed25519KeyPair, [u8; 32]);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.key_id())
    }
}

impl SigningKey {
    /// Makes the key of 32 random bytes.
    pub fn from_seed(seed: [u8; 32]) -> SigningKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed of 32 bytes is a key");
        SigningKey(pair, seed)
    }

    pub fn from_pem(text: &str) -> Result<SigningKey, KeyError> {
        let bytes = pem::decode(text, PRIVATE_LABEL).ok_or(KeyError::NotPrivate)?;
        let seed = bytes.strip_prefix(&PRIVATE_PREFIX).and_then(|seed| seed.try_into().ok());
        Ok(SigningKey::from_seed(seed.ok_or(KeyError::NotPrivate)?))
    }

    /// The private key as PEM (PKCS #8), for `signing.key` with mode 0600.
    pub fn to_pem(&self) -> String {
        pem::encode(&[PRIVATE_PREFIX.as_slice(), &self.1].concat(), PRIVATE_LABEL)
    }

    /// The public key as PEM, for `signing.pub` and the key directory of every node.
    pub fn public_pem(&self) -> String {
        pem::encode(&[PUBLIC_PREFIX.as_slice(), self.0.public_key().as_ref()].concat(), PUBLIC_LABEL)
    }

    pub fn key_id(&self) -> String {
        thumbprint(self.0.public_key().as_ref())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

/// Returns the id of an Ed25519 key: its JWK thumbprint (RFC 7638). It depends on nothing but the key.
fn thumbprint(public: &[u8]) -> String {
    let jwk = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, URL_SAFE_NO_PAD.encode(public));
    URL_SAFE_NO_PAD.encode(digest(&SHA256, jwk.as_bytes()))
}

/// Verifies signatures of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    Ed25519(Vec<u8>),
    /// Modulus and exponent, big-endian.
    Rs256 {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Uncompressed point on P-256.
    Es256(Vec<u8>),
}

impl PublicKey {
    /// Reads an Ed25519 public key in PEM form.
    pub fn from_pem(text: &str) -> Result<PublicKey, KeyError> {
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::PrivateOnNode);
        }
        let bytes = pem::decode(text, PUBLIC_LABEL).ok_or(KeyError::NotPublic)?;
        match bytes.strip_prefix(&PUBLIC_PREFIX) {
            Some(key) if key.len() == 32 => Ok(PublicKey::Ed25519(key.to_vec())),
            _ => Err(KeyError::NotPublic),
        }
    }

    /// Name of the algorithm in the header of a token.
    pub fn algorithm(&self) -> &'static str {
        match self {
            PublicKey::Ed25519(_) => "EdDSA",
            PublicKey::Rs256 { .. } => "RS256",
            PublicKey::Es256(_) => "ES256",
        }
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            PublicKey::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            PublicKey::Es256(key) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature),
            PublicKey::Rs256 { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        }
        .is_ok()
    }
}

/// The keys of one issuer, by key id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(BTreeMap<String, PublicKey>);

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

impl KeySet {
    /// Collects the public keys of the cluster, each from the text of one PEM file. The id of a key is its thumbprint, not the
    /// name of its file.
    pub fn from_pems<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<KeySet, KeyError> {
        let mut keys = KeySet::default();
        for text in texts {
            let key = PublicKey::from_pem(text)?;
            let PublicKey::Ed25519(bytes) = &key else { return Err(KeyError::NotPublic) };
            // The same key in two files is one key.
            keys.0.insert(thumbprint(bytes), key);
        }
        keys.bounded()
    }

    /// Reads a JSON Web Key Set (RFC 7517). Keys for encryption are skipped.
    pub fn from_jwks(text: &str) -> Result<KeySet, KeyError> {
        let jwks: Jwks = serde_json::from_str(text).map_err(|error| KeyError::Jwks(error.to_string()))?;
        let mut keys = KeySet::default();
        for jwk in jwks.keys.into_iter().filter(|jwk| jwk.usage.as_deref().is_none_or(|usage| usage == "sig")) {
            let key = public_key(&jwk).map_err(|why| KeyError::Jwk { kid: jwk.kid.clone(), why })?;
            if keys.0.insert(jwk.kid.clone(), key).is_some() {
                return Err(KeyError::Twice(jwk.kid));
            }
        }
        keys.bounded()
    }

    fn bounded(self) -> Result<KeySet, KeyError> {
        match self.0.len() {
            0 => Err(KeyError::Empty),
            count if count > KEYS_MAX => Err(KeyError::TooMany(count)),
            _ => Ok(self),
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the key with an id. The id is looked up in a map and is never part of a path (AU2).
    pub(crate) fn find(&self, id: &str) -> Option<&PublicKey> {
        self.0.get(id)
    }
}

fn public_key(jwk: &Jwk) -> Result<PublicKey, &'static str> {
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| "a number is not base64url");
    let key = match (jwk.kty.as_str(), jwk.crv.as_str()) {
        ("RSA", _) => {
            let (n, e) = (bytes(&jwk.n)?, bytes(&jwk.e)?);
            if n.len() < 256 {
                return Err("RSA keys need at least 2048 bits");
            }
            PublicKey::Rs256 { n, e }
        }
        ("EC", "P-256") => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            if x.len() != 32 || y.len() != 32 {
                return Err("the point is not on P-256");
            }
            PublicKey::Es256([&[4], x.as_slice(), &y].concat())
        }
        ("OKP", "Ed25519") => {
            let x = bytes(&jwk.x)?;
            if x.len() != 32 {
                return Err("the point is not on Ed25519");
            }
            PublicKey::Ed25519(x)
        }
        _ => return Err("only RSA, EC with P-256 and OKP with Ed25519 are supported"),
    };
    match &jwk.alg {
        Some(algorithm) if algorithm != key.algorithm() => Err("its algorithm is not RS256, ES256 or EdDSA"),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    /// RFC 7515, appendix A.2.
    const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const SIGNED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    #[test]
    fn the_rs256_example_of_the_standard_verifies() {
        let jwks = format!(r#"{{"keys":[{{"kty":"RSA","kid":"a","n":"{MODULUS}","e":"AQAB"}}]}}"#);
        let keys = KeySet::from_jwks(&jwks).unwrap();
        let key = keys.find("a").unwrap();
        let signature = URL_SAFE_NO_PAD.decode(SIGNATURE).unwrap();
        assert_eq!(key.algorithm(), "RS256");
        assert!(key.verifies(SIGNED.as_bytes(), &signature));
        assert!(!key.verifies(&SIGNED.as_bytes()[1..], &signature));
    }
}
