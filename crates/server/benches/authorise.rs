//! The time that access control adds to a request after the first one of its connection.
//!
//! `cargo bench -p convoke-server --bench authorise` prints the time per request. The goal is 1 µs.

#![allow(clippy::unwrap_used, reason = "a panic shows where a benchmark failed")]

use convoke_access::{NewToken, SigningKey, issue};
use convoke_server::AuthConfig;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ROUNDS: u32 = 1_000_000;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::from_seed([1; 32]);
    std::fs::write(directory.path().join("signing.pub"), key.public_pem()).unwrap();
    let config = AuthConfig {
        cluster: "convoke".to_owned(),
        keys: directory.path().to_owned(),
        policy: None,
        anonymous: Vec::new(),
        max_token_ttl: Duration::from_secs(convoke_access::MAX_TOKEN_TTL),
        node_token: None,
        revocations: None,
    };
    let issued_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for count in [1, 10] {
        // The last grant is the one that allows the request.
        let others = (1..count).map(|number| format!("put key:other-{number}/"));
        let grants: Vec<String> = others.chain(["put key:orders/".to_owned()]).collect();
        let new = NewToken { subject: "app", audience: "convoke", grants: &grants, issued_at, ttl: 3_600, id: [7; 16] };
        let token = issue(&key, &new).unwrap().0;
        let best = (0..5)
            .map(|_| convoke_server::time_of_authorisations(&config, token.secret(), b"orders/limit", ROUNDS).unwrap());
        let nanos = best.min().unwrap().as_nanos() / u128::from(ROUNDS);
        println!("{count:>3} grants: {nanos} ns per request (goal 1000)");
    }
}
