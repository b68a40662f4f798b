//! Comparison of secrets.

use std::hint::black_box;

/// Compares two secrets. The time depends on their lengths only, and not on how many bytes are equal.
///
/// Words are compared instead of bytes, because every request with a token compares it with the last one of its connection.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let ((words, rest), (other_words, other_rest)) = (one.as_chunks(), other.as_chunks());
    let word = |bytes: &[u8; 16]| u128::from_ne_bytes(*bytes);
    let of_words =
        words.iter().zip(other_words).fold(0, |sum, (one, other)| black_box(sum | (word(one) ^ word(other))));
    let of_rest = rest.iter().zip(other_rest).fold(0, |sum, (one, other)| black_box(sum | (one ^ other)));
    black_box(of_words | u128::from(of_rest)) == 0
}

#[cfg(test)]
mod tests {
    use super::same_secret;

    #[test]
    fn equal_secrets_have_all_bytes_in_common() {
        assert!(same_secret(b"", b"") && same_secret(b"abc", b"abc"));
        for other in [&b"abd"[..], b"bbc", b"ab", b"abcd", b""] {
            assert!(!same_secret(b"abc", other), "{other:?}");
        }
        // Every byte counts, in whole words and in the rest.
        for len in [15, 16, 17, 47, 48, 400] {
            let secret: Vec<u8> = (0..len).map(|number| number as u8).collect();
            assert!(same_secret(&secret, &secret.clone()));
            for at in 0..len {
                let mut other = secret.clone();
                other[at] ^= 0x80;
                assert!(!same_secret(&secret, &other), "byte {at} of {len}");
            }
        }
    }
}
