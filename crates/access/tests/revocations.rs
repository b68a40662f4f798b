//! Revocations: union in any order, bounded, kept as long as a token can live (AU13).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_access::*;
use proptest::prelude::*;

fn principal(id: &str, subject: &str, issued_at: u64) -> Principal {
    let details = TokenDetails { id: format!("token/{id}"), issued_at, expires_at: issued_at + 100 };
    Principal::new(format!("token/{subject}"), GrantList::everything(), Some(details))
}

#[test]
fn a_revocation_concerns_its_token_or_the_older_tokens_of_its_principal() {
    let mut set = RevocationSet::default();
    assert_eq!(set.add(&revoke_token("token/1", 500)), Ok(true));
    assert_eq!(set.add(&revoke_principal("token/bob", 50, 500)), Ok(true));
    for (principal, revoked) in [
        (principal("1", "alice", 10), true),
        (principal("2", "alice", 10), false),
        (principal("3", "bob", 50), true),
        (principal("3", "bob", 51), false),
        // A subject of another issuer with the same text is another principal.
        (Principal::new("k8s/bob", GrantList::default(), principal("3", "x", 1).token().cloned()), false),
        (Principal::node("bob"), false),
    ] {
        assert_eq!(is_revoked(&set, &principal), revoked, "{principal:?}");
    }
    assert!(!set.prune(500 + REVOCATION_MARGIN - 1, REVOCATION_MARGIN), "kept until no clock accepts the token");
    assert!(set.prune(500 + REVOCATION_MARGIN, REVOCATION_MARGIN));
    assert!(set.is_empty());
}

#[test]
fn the_set_is_bounded_and_refuses_instead_of_forgetting() {
    let mut set = RevocationSet::default();
    for n in 0..10_000 {
        set.add(&revoke_token(&format!("token/{n}"), 9)).unwrap();
    }
    assert_eq!(set.add(&revoke_token("token/10000", 9)), Err(RevocationLimit));
    assert_eq!(set.add(&revoke_token("token/5", 9)), Ok(false), "what is there already is no growth");
    assert!(set.merge(&revoke_token("token/10000", 9)), "another node may have added it at the same time");
}

proptest! {
    #[test]
    fn merges_commute_and_repeat(
        entries in prop::collection::vec((0_u8..6, 0_u64..100, 0_u64..100), 0..30),
        split in 0_usize..30,
    ) {
        let revocation = |(id, issued_until, keep_until): &(u8, u64, u64)| {
            revoke_principal(&format!("token/{id}"), *issued_until, *keep_until)
        };
        let all: Vec<_> = entries.iter().map(revocation).collect();
        let merged = |order: &mut dyn Iterator<Item = &Revocation>| {
            let mut set = RevocationSet::default();
            for entry in order {
                set.merge(entry);
            }
            set
        };
        let forward = merged(&mut all.iter());
        let (first, second) = all.split_at(split.min(all.len()));
        prop_assert_eq!(&forward, &merged(&mut all.iter().rev()));
        prop_assert_eq!(&forward, &merged(&mut second.iter().chain(first).chain(second)));
    }
}
