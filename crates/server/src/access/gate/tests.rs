//! Tests of the gate: which credentials are believed, on which connection.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use super::*;
use convoke_access::{NewToken, SigningKey, issue};
use tempfile::TempDir;

struct Fixture {
    gate: Gate,
    key: SigningKey,
    _directory: TempDir,
}

fn fixture() -> Fixture {
    let (directory, key) = (tempfile::tempdir().unwrap(), SigningKey::from_seed([1; 32]));
    std::fs::write(directory.path().join("signing.pub"), key.public_pem()).unwrap();
    let policy = directory.path().join("policy.toml");
    std::fs::write(&policy, "[[certificate]]\nname = \"agent-*\"\ngrants = [\"register service:web\"]\n").unwrap();
    let gate = Gate::open(Some(&AuthConfig {
        cluster: "convoke".to_owned(),
        keys: directory.path().to_owned(),
        policy: Some(policy),
        anonymous: Vec::new(),
        max_token_ttl: Duration::from_secs(convoke_access::MAX_TOKEN_TTL),
        node_token: None,
        revocations: None,
    }));
    Fixture { gate: gate.unwrap(), key, _directory: directory }
}

fn connection(address: &str, tls: bool, certificate: Option<(CertificateRole, &str)>) -> ClientConnection {
    let certificate = certificate.map(|(role, name)| CertificateIdentity {
        cluster: "convoke".to_owned(),
        role,
        name: name.to_owned(),
    });
    let mut connection = ClientConnection::default();
    (connection.address, connection.tls, connection.certificate) = (Some(address.parse().unwrap()), tls, certificate);
    connection
}

fn headers(shown: &[(HeaderName, &str)]) -> HeaderMap {
    shown.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
}

impl Fixture {
    fn token(&self, subject: &str) -> String {
        let grants = ["read service:*".to_owned()];
        let new = NewToken {
            subject,
            audience: "convoke",
            grants: &grants,
            issued_at: unix_seconds(),
            ttl: 3_600,
            id: [7; 16],
        };
        issue(&self.key, &new).unwrap().0.secret().to_owned()
    }

    /// Returns the name of the caller, or the code of the rejection.
    fn caller(&self, connection: &ClientConnection, shown: &[(HeaderName, &str)]) -> Result<String, ErrorCode> {
        let caller = self.gate.authenticate(connection, &headers(shown)).map_err(|error| error.code)?;
        Ok(caller.principal().name().to_owned())
    }
}

/// AU14: the gate itself refuses the token, before it looks at it.
#[test]
fn the_gate_refuses_tokens_on_plain_connections_from_other_machines() {
    let fixture = fixture();
    let token = fixture.token("alice");
    let bearer = format!("Bearer {token}");
    let shown = [(header::AUTHORIZATION, bearer.as_str())];
    let alice = Ok("token/alice".to_owned());
    assert_eq!(fixture.caller(&connection("127.0.0.1:5000", false, None), &shown), alice);
    assert_eq!(fixture.caller(&connection("10.0.0.7:5000", true, None), &shown), alice);
    let plain = connection("10.0.0.7:5000", false, None);
    let refused = fixture.gate.authenticate(&plain, &headers(&shown)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unauthenticated);
    assert!(refused.message.contains("without TLS") && !refused.message.contains(&token), "{refused}");
    // Also after a private connection has shown that the token is valid.
    assert_eq!(fixture.caller(&plain, &shown), Err(ErrorCode::Unauthenticated));
    // A request without a token is anonymous there.
    assert_eq!(fixture.caller(&plain, &[]), Ok("anonymous".to_owned()));
}

#[test]
fn only_nodes_are_believed_about_the_callers_of_forwarded_requests() {
    let fixture = fixture();
    let with = |certificate| connection("10.0.0.7:5000", true, certificate);
    let node = with(Some((CertificateRole::Node, "n1")));
    let agent = with(Some((CertificateRole::Client, "agent-7")));
    assert_eq!(fixture.caller(&node, &[]), Ok("node/n1".to_owned()));
    assert_eq!(fixture.caller(&agent, &[]), Ok("certificate/agent-7".to_owned()));
    let behalf = [(FORWARDED, "n1"), (ON_BEHALF, "agent-1")];
    assert_eq!(fixture.caller(&node, &behalf), Ok("certificate/agent-1".to_owned()));
    // A forwarded request without credentials is not one of the node.
    assert_eq!(fixture.caller(&node, &behalf[..1]), Ok("anonymous".to_owned()));
    // A client is refused, with or without the mark of a forwarded request.
    for shown in [&behalf[..], &behalf[1..]] {
        assert_eq!(fixture.caller(&agent, shown), Err(ErrorCode::PermissionDenied));
        assert_eq!(fixture.caller(&with(None), shown), Err(ErrorCode::Unauthenticated));
    }
    // With a token, the header has no effect.
    let bearer = format!("Bearer {}", fixture.token("app"));
    let shown = [(header::AUTHORIZATION, bearer.as_str()), (ON_BEHALF, "agent-1")];
    assert_eq!(fixture.caller(&with(None), &shown), Ok("token/app".to_owned()));
    // A certificate without a rule in the policy has no rights, whoever names it.
    let unknown = [(FORWARDED, "n1"), (ON_BEHALF, "stranger")];
    let caller = fixture.gate.authenticate(&node, &headers(&unknown));
    assert!(caller.is_err() || caller.unwrap().check(Verb::Register, Resource::Service("web")).is_err());
}
