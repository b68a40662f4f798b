//! Revocations: union in any order, bounded, kept as long as a token can live (AU10, AU11).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_access::*;
use proptest::prelude::*;

fn of_token(id: u8, keep_until: u64) -> Revocation {
    Revocation { key: RevocationKey::Token(format!("token/{id}")), issued_until: 0, keep_until }
}

fn principal(id: &str, subject: &str, issued_at: u64) -> Principal {
    let details = TokenDetails { id: format!("token/{id}"), issued_at, expires_at: issued_at + 100 };
    Principal::new(format!("token/{subject}"), GrantList::everything(), Some(details))
}

#[test]
fn a_revocation_concerns_its_token_or_the_older_tokens_of_its_principal() {
    let mut set = RevocationSet::default();
    set.add(of_token(1, 500)).unwrap();
    set.add(Revocation { key: RevocationKey::Principal("token/bob".into()), issued_until: 50, keep_until: 500 })
        .unwrap();
    for (principal, revoked) in [
        (principal("1", "alice", 10), true),
        (principal("2", "alice", 10), false),
        (principal("3", "bob", 50), true),
        (principal("3", "bob", 51), false),
        // A subject of another issuer with the same text is another principal.
        (Principal::new("k8s/bob", GrantList::default(), principal("3", "x", 1).token().cloned()), false),
        (Principal::node("bob"), false),
    ] {
        assert_eq!(set.revokes(&principal), revoked, "{principal:?}");
    }
    set.prune(500 + 2 * LEEWAY - 1);
    assert_eq!(set.len(), 2, "kept until no clock accepts the token");
    set.prune(500 + 2 * LEEWAY);
    assert!(set.is_empty());
}

#[test]
fn the_set_is_bounded_and_refuses_instead_of_forgetting() {
    let mut set = RevocationSet::default();
    let nth = |n: usize| Revocation { key: RevocationKey::Token(format!("token/{n}")), issued_until: 0, keep_until: 9 };
    for n in 0..10_000 {
        set.add(nth(n)).unwrap();
    }
    assert_eq!(set.add(nth(10_000)), Err(RevocationLimit));
    assert_eq!(set.add(nth(5)), Ok(false), "what is there already is no growth");
    assert!(set.merge(nth(10_000)), "another node may have added it at the same time");
}

proptest! {
    #[test]
    fn merges_commute_and_repeat(entries in prop::collection::vec((0_u8..6, 0_u64..100, 0_u64..100), 0..30), split in 0_usize..30) {
        let all: Vec<_> = entries.iter().map(|(id, issued_until, keep_until)| Revocation {
            key: RevocationKey::Principal(format!("token/{id}")), issued_until: *issued_until, keep_until: *keep_until,
        }).collect();
        let merged = |order: &mut dyn Iterator<Item = &Revocation>| {
            let mut set = RevocationSet::default();
            for entry in order { set.merge(entry.clone()); }
            set
        };
        let forward = merged(&mut all.iter());
        let (first, second) = all.split_at(split.min(all.len()));
        prop_assert_eq!(&forward, &merged(&mut all.iter().rev()));
        prop_assert_eq!(&forward, &merged(&mut second.iter().chain(first).chain(second)));
    }
}
