//! The time that access control adds to a request.

use super::{AuthConfig, AuthError, Gate, permission};
use crate::service::ClientConnection;
use ::http::{HeaderMap, HeaderValue, header};
use convoke_access::{Resource, Verb};
use std::time::{Duration, Instant};

/// Authorises the same write of one key `rounds` times on one connection, and returns the time without the first one. For
/// `cargo bench -p convoke-server --bench authorise`.
#[doc(hidden)]
pub fn time_of_authorisations(
    config: &AuthConfig,
    token: &str,
    key: &[u8],
    rounds: u32,
) -> Result<Duration, AuthError> {
    let gate = Gate::open(Some(config))?;
    let connection = ClientConnection::default();
    let mut headers = HeaderMap::new();
    let bearer = HeaderValue::try_from(format!("Bearer {token}")).expect("a token is a header value");
    headers.insert(header::AUTHORIZATION, bearer);
    let authorise = || {
        let caller = gate.authenticate(&connection, &headers).expect("the token is valid");
        permission!(Put Key).check(&caller).expect("the route is allowed");
        caller.check(Verb::Put, Resource::Key(std::hint::black_box(key))).expect("the key is allowed");
    };
    authorise();
    let start = Instant::now();
    for _ in 0..rounds {
        authorise();
    }
    Ok(start.elapsed())
}
