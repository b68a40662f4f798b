//! Indexes derived from content (docs/consul.md, "Indexes").

use xxhash_rust::xxh3::xxh3_64;

/// Consul's clients read the index as a number that JavaScript can hold: below 2^53.
const HASH_BITS: u32 = 23;
const TIME_BITS: u32 = 30;
/// Seconds of one step of the upper bits.
const STEP: u64 = 4;

/// Returns the index of content whose newest record was written at `newest_ms` (UNIX ms). The upper bits rise with the time,
/// so that most changes raise the index; the lower bits are a hash of the content, so that equal results have equal indexes at
/// every node and other results have others.
pub fn index_of(newest_ms: u64, content: &str) -> u64 {
    index_of_bytes(newest_ms, content.as_bytes())
}

/// Like [`index_of`], for bytes.
pub fn index_of_bytes(newest_ms: u64, content: &[u8]) -> u64 {
    let time = (newest_ms / 1_000 / STEP) & ((1 << TIME_BITS) - 1);
    let hash = xxh3_64(content) & ((1 << HASH_BITS) - 1);
    // 0 would mean that the client does not wait.
    ((time << HASH_BITS) | hash).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_has_equal_indexes_and_newer_content_higher_ones() {
        assert_eq!(index_of(1_000, "a"), index_of(1_000, "a"));
        assert_ne!(index_of(1_000, "a"), index_of(1_000, "b"));
        let now = 1_795_000_000_000;
        for later in [STEP * 1_000, 60_000, 86_400_000] {
            assert!(index_of(now, "a") < index_of(now + later, "b"), "{later}");
        }
        assert!((1..1 << 53).contains(&index_of(u64::MAX, "x")));
        assert!(index_of(0, "") >= 1);
    }
}
