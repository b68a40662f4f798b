//! Tokens of other issuers: key sets, policy rules and the algorithms RS256 and ES256 (AU1, AU6).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_access::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

const NOW: u64 = 1_800_000_000;

struct Issuer {
    pair: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> Issuer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Issuer { pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap() }
    }

    fn jwks(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k1","use":"sig","alg":"ES256","x":"{x}","y":"{y}"}}]}}"#)
    }

    fn token(&self, subject: &str, audience: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"k1"}"#);
        let claims = format!(
            r#"{{"iss":"https://k8s","sub":"{subject}","aud":["{audience}"],"iat":{NOW},"exp":{},"grants":["* *"],"kubernetes.io":{{}}}}"#,
            NOW + 600
        );
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

const POLICY: &str = r#"
[[issuer]]
name = "k8s"
issuer = "https://k8s"
audience = "convoke"
jwks = "keys.json"

[[issuer.subject]]
name = "system:serviceaccount:shop:*"
grants = ["register service:orders*"]
"#;

fn authority(issuer: &Issuer) -> Authority {
    let own = SigningKey::from_seed([1; 32]);
    let mut authority = Authority::new("shop", KeySet::from_pems([own.public_pem().as_str()]).unwrap());
    authority.policy = Policy::parse(POLICY, |file| {
        assert_eq!(file, "keys.json");
        Ok(issuer.jwks())
    })
    .unwrap();
    authority
}

fn verify(authority: &Authority, token: &str) -> Result<Principal, Unauthenticated> {
    authority.authenticate(Credentials { token: Some(token), certificate: None }, NOW)
}

#[test]
fn the_policy_maps_subjects_to_grants() {
    let issuer = Issuer::new();
    let authority = authority(&issuer);
    let orders = verify(&authority, &issuer.token("system:serviceaccount:shop:orders", "convoke")).unwrap();
    assert_eq!(orders.name(), "k8s/system:serviceaccount:shop:orders");
    orders.check(Verb::Register, Resource::Service("orders-eu")).unwrap();
    // Grants inside of such a token mean nothing.
    assert!(orders.check(Verb::Read, Resource::Service("orders")).is_err());
    let other = verify(&authority, &issuer.token("system:serviceaccount:bank:x", "convoke")).unwrap_err();
    assert!(matches!(other, Unauthenticated::Token(TokenError::NoRule(_))), "{other}");
    let audience = verify(&authority, &issuer.token("system:serviceaccount:shop:x", "https://k8s")).unwrap_err();
    assert!(matches!(audience, Unauthenticated::Token(TokenError::Audience { .. })), "{audience}");
    let stranger = verify(&authority, &Issuer::new().token("system:serviceaccount:shop:x", "convoke")).unwrap_err();
    assert_eq!(stranger, Unauthenticated::Token(TokenError::Signature));
}

#[test]
fn wrong_key_sets_and_policies_are_refused_with_what_is_wrong() {
    for (jwks, words) in [
        ("{}", "not a JSON Web Key Set"),
        (r#"{"keys":[]}"#, "there is no key"),
        (r#"{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}"#, "only RSA, EC with P-256"),
        (r#"{"keys":[{"kty":"RSA","kid":"a","n":"AAAA","e":"AQAB"}]}"#, "at least 2048 bits"),
        (
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","alg":"HS256","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
            "its algorithm",
        ),
    ] {
        let error = KeySet::from_jwks(jwks).unwrap_err().to_string();
        assert!(error.contains(words), "{jwks}: {error}");
    }
    let issuer = Issuer::new();
    for (from, to, words) in [
        ("\"k8s\"", "\"token\"", "issuer name \"token\" is not usable"),
        ("\"k8s\"", "\"K8s\"", "issuer name \"K8s\" is not usable"),
        ("https://k8s", "convoke", "this cluster's own tokens"),
        ("register service:orders*", "register key:a", "`register` does not apply to `key`"),
        ("shop:*", "*:*", "may have `*` only at its end"),
        ("audience", "audiense", "unknown field"),
    ] {
        let error = Policy::parse(&POLICY.replacen(from, to, 1), |_| Ok(issuer.jwks())).unwrap_err().to_string();
        assert!(error.contains(words), "{to}: {error}");
    }
    let missing = Policy::parse(POLICY, |_| Err("no such file".to_owned())).unwrap_err().to_string();
    assert!(missing.contains("issuer k8s: cannot read the key file keys.json: no such file"), "{missing}");
}
