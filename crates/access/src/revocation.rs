//! Which tokens a revocation concerns (AU13). Nodes exchange the set; its content has a meaning only here.

use crate::LEEWAY;
use crate::principal::{Principal, TokenDetails};
pub use convoke_base::{Revocation, RevocationLimit, RevocationSet};

/// A revocation is kept this long after the last token that it concerns has expired, in seconds: the leeway of the issuer's
/// clock and of the node's clock.
pub const REVOCATION_MARGIN: u64 = 2 * LEEWAY;

/// Revokes one token. `id` is `ISSUER/JTI`.
pub fn revoke_token(id: &str, keep_until: u64) -> Revocation {
    Revocation { key: format!("token {id}"), issued_until: u64::MAX, keep_until }
}

/// Revokes all tokens of a principal that were issued at this time or before.
pub fn revoke_principal(name: &str, issued_until: u64, keep_until: u64) -> Revocation {
    Revocation { key: format!("principal {name}"), issued_until, keep_until }
}

pub fn is_revoked(set: &RevocationSet, principal: &Principal) -> bool {
    let Some(TokenDetails { id, issued_at, .. }) = principal.token() else { return false };
    let up_to = |key: String| set.issued_until(&key).is_some_and(|issued_until| *issued_at <= issued_until);
    !set.is_empty() && (up_to(format!("token {id}")) || up_to(format!("principal {}", principal.name())))
}
