//! Tokens: issue, verify, and everything that must not verify (AU1 to AU7).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_access::*;

const NOW: u64 = 1_800_000_000;

fn key() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

fn authority() -> Authority {
    Authority::new("shop", KeySet::from_pems([key().public_pem().as_str()]).unwrap())
}

fn new(grants: &[String]) -> NewToken<'_> {
    NewToken { subject: "alice", audience: "shop", grants, issued_at: NOW, ttl: 3_600, id: [1; 16] }
}

fn token(change: impl Fn(&mut NewToken<'_>)) -> TokenText {
    let grants = ["read service:*".to_owned()];
    let mut token = new(&grants);
    change(&mut token);
    issue(&key(), &token).unwrap().0
}

fn verify(authority: &Authority, token: &str, now: u64) -> Result<Principal, Unauthenticated> {
    authority.authenticate(Credentials { token: Some(token), certificate: None }, now)
}

/// Signs any header and claims, as an attacker with or without a key does.
fn forged(header: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn an_issued_token_verifies_and_carries_its_grants() {
    let principal = verify(&authority(), token(|_| {}).secret(), NOW).unwrap();
    assert_eq!(principal.name(), "token/alice");
    principal.check(Verb::Read, Resource::Service("web")).unwrap();
    let denied = principal.check(Verb::Put, Resource::Key(b"a")).unwrap_err();
    assert_eq!(denied.to_string(), "principal token/alice may not put key:a; the grant `put key:a` would allow it");
    let (operator, _) = operator_token(&key(), "shop", NOW, [2; 16]);
    let operator = verify(&authority(), operator.secret(), NOW).unwrap();
    operator.check(Verb::Backup, Resource::Log).unwrap();
}

#[test]
fn every_mutated_token_is_refused() {
    let token = token(|_| {});
    let text = token.secret();
    let mut refused = 0;
    for position in 0..text.len() {
        for bit in 0..7 {
            let mut bytes = text.as_bytes().to_vec();
            bytes[position] ^= 1 << bit;
            let Ok(mutated) = String::from_utf8(bytes) else { continue };
            assert!(verify(&authority(), &mutated, NOW).is_err(), "bit {bit} of byte {position}");
            refused += 1;
        }
        assert!(verify(&authority(), &text[..position], NOW).is_err(), "cut at {position}");
    }
    assert!(refused > 1_000);
}

#[test]
fn a_token_cannot_choose_its_algorithm() {
    let kid = key().key_id();
    let (_, claims) = inspect(&token(|_| {})).unwrap();
    let claims = serde_json::to_string(&claims).unwrap();
    for algorithm in ["none", "None", "", "HS256", "RS256", "ES256", "eddsa"] {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"{kid}"}}"#);
        // The public key as the secret of an HMAC is the classic confusion; a valid signature does not help either.
        let signing = |message: &[u8]| sign(message);
        let unsigned = |_: &[u8]| Vec::new();
        let expected = Unauthenticated::Token(TokenError::Algorithm { found: algorithm.to_owned(), expected: "EdDSA" });
        assert_eq!(verify(&authority(), &forged(&header, &claims, signing), NOW).unwrap_err(), expected);
        assert_eq!(verify(&authority(), &forged(&header, &claims, unsigned), NOW).unwrap_err(), expected);
    }
}

/// Signs with the cluster's key.
fn sign(message: &[u8]) -> Vec<u8> {
    let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    pair.sign(message).as_ref().to_vec()
}

#[test]
fn a_key_id_is_looked_up_and_never_a_path() {
    let (_, claims) = inspect(&token(|_| {})).unwrap();
    let claims = serde_json::to_string(&claims).unwrap();
    for kid in ["../../etc/passwd", "signing.pub", "/dev/null", "", "a' OR 1=1"] {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#);
        let error = verify(&authority(), &forged(&header, &claims, sign), NOW).unwrap_err();
        assert!(matches!(error, Unauthenticated::Token(TokenError::Key { .. })), "{kid}: {error}");
    }
}

#[test]
fn headers_with_critical_extensions_are_refused() {
    let (_, claims) = inspect(&token(|_| {})).unwrap();
    let header = format!(r#"{{"alg":"EdDSA","kid":"{}","crit":["b64"],"b64":false}}"#, key().key_id());
    let forged = forged(&header, &serde_json::to_string(&claims).unwrap(), sign);
    assert!(matches!(
        verify(&authority(), &forged, NOW).unwrap_err(),
        Unauthenticated::Token(TokenError::Malformed(_))
    ));
}

#[test]
fn times_have_a_leeway_of_a_minute() {
    let token = token(|_| {});
    let accepted = |now| verify(&authority(), token.secret(), now).map(drop);
    accepted(NOW - LEEWAY).unwrap();
    assert_eq!(accepted(NOW - LEEWAY - 1), Err(Unauthenticated::Token(TokenError::NotYet(LEEWAY + 1))));
    accepted(NOW + 3_600 + LEEWAY - 1).unwrap();
    assert_eq!(accepted(NOW + 3_600 + LEEWAY), Err(Unauthenticated::Token(TokenError::Expired(LEEWAY))));
}

#[test]
fn lifetime_audience_and_issuer_are_checked() {
    let long = token(|token| token.ttl = MAX_TOKEN_TTL + 1);
    assert!(matches!(
        verify(&authority(), long.secret(), NOW).unwrap_err(),
        Unauthenticated::Token(TokenError::Ttl { .. })
    ));
    let other = token(|token| token.audience = "bank");
    assert!(matches!(
        verify(&authority(), other.secret(), NOW).unwrap_err(),
        Unauthenticated::Token(TokenError::Audience { .. })
    ));
    let header = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, key().key_id());
    let claims = format!(r#"{{"iss":"evil","sub":"a","aud":"shop","iat":{NOW},"exp":{},"jti":"x"}}"#, NOW + 60);
    assert_eq!(
        verify(&authority(), &forged(&header, &claims, sign), NOW).unwrap_err(),
        Unauthenticated::Token(TokenError::Issuer("evil".to_owned()))
    );
    let claims = format!(r#"{{"iss":"convoke","sub":"a","aud":"shop","iat":{NOW},"exp":{}}}"#, NOW + 60);
    assert_eq!(
        verify(&authority(), &forged(&header, &claims, sign), NOW).unwrap_err(),
        Unauthenticated::Token(TokenError::Claim("jti"))
    );
}

#[test]
fn overlapping_keys_rotate_without_a_gap() {
    let (old, next) = (key(), SigningKey::from_seed([9; 32]));
    let grants = ["read service:*".to_owned()];
    let of = |key: &SigningKey| issue(key, &new(&grants)).unwrap().0;
    let keys = |keys: &[&SigningKey]| {
        let pems: Vec<_> = keys.iter().map(|key| key.public_pem()).collect();
        Authority::new("shop", KeySet::from_pems(pems.iter().map(String::as_str)).unwrap())
    };
    let (first, both, last) = (keys(&[&old]), keys(&[&old, &next]), keys(&[&next]));
    for (authority, by_old, by_next) in [(&first, true, false), (&both, true, true), (&last, false, true)] {
        assert_eq!(verify(authority, of(&old).secret(), NOW).is_ok(), by_old);
        assert_eq!(verify(authority, of(&next).secret(), NOW).is_ok(), by_next);
    }
}

#[test]
fn keys_survive_their_files_and_show_no_secret() {
    let key = key();
    let read = SigningKey::from_pem(&key.to_pem()).unwrap();
    assert_eq!(read.key_id(), key.key_id());
    let (token, secret) = (token(|_| {}), key.to_pem());
    let (shown, secret) = (format!("{key:?} {token:?}"), secret.lines().nth(1).unwrap());
    assert!(!shown.contains(&token.secret()[..20]) && !shown.contains(&secret[24..40]), "{shown}");
    assert_eq!(PublicKey::from_pem(&key.to_pem()), Err(KeyError::PrivateOnNode));
    assert_eq!(SigningKey::from_pem(&key.public_pem()).unwrap_err(), KeyError::NotPrivate);
    assert_eq!(KeySet::from_pems([]).unwrap_err(), KeyError::Empty);
}

#[test]
fn invalid_credentials_are_never_anonymous() {
    let mut authority = authority();
    authority.anonymous = GrantList::parse(&["read service:*"]).unwrap();
    for text in ["", "x", "a.b.c", "..", "Bearer"] {
        assert!(verify(&authority, text, NOW).is_err(), "{text:?}");
    }
    let nobody = authority.authenticate(Credentials::default(), NOW).unwrap();
    assert!(nobody.is_anonymous());
    nobody.check(Verb::Read, Resource::Service("a")).unwrap();
    let denied = nobody.check(Verb::Put, Resource::Key(b"a")).unwrap_err();
    assert!(denied.is_anonymous());
}

#[test]
fn certificates_are_principals() {
    let mut authority = authority();
    let policy = "[[certificate]]\nname = \"agent-*\"\ngrants = [\"register service:web\"]\n";
    authority.policy = Policy::parse(policy, |_| unreachable!()).unwrap();
    let shown = |cluster: &str, role, name: &str| {
        let certificate = CertificateIdentity { cluster: cluster.to_owned(), role, name: name.to_owned() };
        authority.authenticate(Credentials { token: None, certificate: Some(&certificate) }, NOW)
    };
    let agent = shown("shop", CertificateRole::Client, "agent-1").unwrap();
    assert_eq!(agent.name(), "certificate/agent-1");
    agent.check(Verb::Register, Resource::Service("web")).unwrap();
    let other = shown("shop", CertificateRole::Client, "n1").unwrap();
    assert!(other.check(Verb::Register, Resource::Service("web")).is_err());
    assert!(other.check(Verb::Forward, Resource::Cluster).is_err(), "a client named like a node is no node");
    shown("shop", CertificateRole::Node, "n1").unwrap().check(Verb::Forward, Resource::Cluster).unwrap();
    assert!(shown("bank", CertificateRole::Node, "n1").is_err());
}

proptest::proptest! {
    /// No input panics, and none verifies.
    #[test]
    fn arbitrary_text_is_refused(text in ".{0,300}", parts in "[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{0,80}") {
        proptest::prop_assert!(verify(&authority(), &text, NOW).is_err());
        proptest::prop_assert!(verify(&authority(), &parts, NOW).is_err());
    }
}

/// Everybody can send a token. Whatever it contains, it is refused or it is the one that was issued.
#[test]
fn fuzz_a_changed_token_is_refused() {
    let (token, authority) = (token(|_| {}), authority());
    convoke_fuzz::texts(&[token.secret(), "a.b.c", "..", "eyJhbGciOiJub25lIn0.e30."], |text| {
        if verify(&authority, text, NOW).is_ok() {
            assert_eq!(text, token.secret());
        }
        let _ = inspect(&TokenText::new(text));
    });
}

/// Whoever has a signing key of any issuer can sign any header and any claims.
#[test]
fn fuzz_signed_claims_never_leave_their_cluster_and_their_time() {
    let (authority, kid) = (authority(), key().key_id());
    let (_, valid) = inspect(&token(|_| {})).unwrap();
    let (valid, header) = (serde_json::to_string(&valid).unwrap(), format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#));
    let check = |header: &str, claims: &str| {
        let token = forged(header, claims, sign);
        let Ok(principal) = verify(&authority, &token, NOW) else { return };
        assert!(principal.name().starts_with("token/"), "{claims}");
        assert!(principal.token().is_some_and(|token| token.expires_at > NOW), "{claims}");
        let read: serde_json::Value = serde_json::from_str(claims).unwrap();
        assert!(read["aud"].to_string().contains("\"shop\""), "the audience is the cluster: {claims}");
    };
    check(&header, &valid);
    assert!(verify(&authority, &forged(&header, &valid, sign), NOW).is_ok(), "the corpus is valid");
    convoke_fuzz::texts(&[&valid, "{}", r#"{"aud":["shop"],"exp":1e300,"iat":-1,"sub":"\u0000"}"#], |claims| {
        check(&header, claims);
    });
    convoke_fuzz::texts(&[&header, r#"{"alg":["EdDSA"]}"#, "{}"], |header| check(header, &valid));
}

/// Grants inside a token are text of its issuer.
#[test]
fn fuzz_grants_allow_nothing_that_they_do_not_name() {
    convoke_fuzz::texts(&["read service:a*", "put key:config/", "lock lock:*", "observe log", "* *"], |text| {
        let grants = GrantList::parse_known(&[text]);
        if grants.allows(Verb::Revoke, Resource::Cluster) {
            assert!(text.contains("revoke") || text.contains('*'), "{text}");
        }
        let _ = Resource::parse(text);
    });
}
