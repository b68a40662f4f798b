//! Mutated inputs for tests of decoders. Tests only.
//!
//! A test passes valid inputs, the corpus, and a check. The check is called with mutations of the corpus and with random
//! bytes; it fails by a panic. Runs are reproducible: the same seed gives the same inputs.
//!
//! `CONVOKE_FUZZ_CASES` sets the number of inputs of each test, `CONVOKE_FUZZ_SEED` the seed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Inputs of one test in an ordinary test run: a fraction of a second.
const CASES: u64 = 3_000;
/// Bytes that decoders treat specially: ends of ranges, continuation bits, separators.
const SPECIAL: &[u8] = &[0, 1, 2, 0x7f, 0x80, 0xff, b'.', b':', b'"', b'(', b'%', b'-', b'_', b'='];
/// Mutations of one input.
const MUTATIONS: usize = 4;
/// Longest input, so that repeated insertions do not grow it without a limit.
const BYTES_MAX: usize = 64 * 1024;

/// Returns the number of inputs for a test that makes `default` of them in an ordinary run.
///
/// # Panics
/// If `CONVOKE_FUZZ_CASES` is not a number.
pub fn cases(default: u64) -> u64 {
    number("CONVOKE_FUZZ_CASES").unwrap_or(default)
}

/// The same as a `u32`, for proptest.
pub fn cases_u32(default: u32) -> u32 {
    u32::try_from(cases(default.into())).unwrap_or(u32::MAX)
}

/// Returns the generator of a test.
///
/// # Panics
/// If `CONVOKE_FUZZ_SEED` is not a number.
pub fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(number("CONVOKE_FUZZ_SEED").unwrap_or(1))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Calls the check with mutations of the corpus.
///
/// # Panics
/// If the check panics; the input is printed before.
pub fn bytes(corpus: &[Vec<u8>], mut check: impl FnMut(&[u8])) {
    let mut random = random();
    for case in 0..cases(CASES) {
        let input = mutated(corpus, &mut random);
        reported(case, &format!("{:?}", hex(&input)), || check(&input));
    }
}

/// The same for decoders of text.
///
/// # Panics
/// If the check panics; the input is printed before.
pub fn texts(corpus: &[&str], mut check: impl FnMut(&str)) {
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut random = random();
    for case in 0..cases(CASES) {
        let input = mutated(&corpus, &mut random);
        let input = String::from_utf8_lossy(&input);
        reported(case, &format!("{input:?}"), || check(&input));
    }
}

/// Runs a check, and prints its input if it panics.
///
/// # Panics
/// If the check panics.
pub fn reported(case: u64, input: &str, check: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
        eprintln!("case {case} failed with the input {input}");
        resume_unwind(panic);
    }
}

/// A valid input with some changes, or random bytes.
pub fn mutated(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = match random.choice(corpus) {
        Some(valid) if random.u8(..) > 8 => valid.clone(),
        _ => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
    };
    for _ in 0..random.usize(1..=MUTATIONS) {
        mutate(&mut input, corpus, random);
    }
    input.truncate(BYTES_MAX);
    input
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut fastrand::Rng) {
    let at = random.usize(..=input.len());
    let end = random.usize(at..=(at + 16).min(input.len()));
    match random.u8(..8) {
        0 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        1 if at < input.len() => input[at] = random.u8(..),
        2 if at < input.len() => input[at] = special(random),
        3 => drop(input.drain(at..end)),
        4 => {
            let repeated = input[at..end].to_vec();
            input.splice(at..at, repeated);
        }
        5 => {
            let inserted: Vec<u8> = (0..random.usize(1..9)).map(|_| special(random)).collect();
            input.splice(at..at, inserted);
        }
        6 => input.truncate(at),
        // The rest of another valid input.
        _ => {
            if let Some(other) = random.choice(corpus) {
                let from = random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn special(random: &mut fastrand::Rng) -> u8 {
    random.choice(SPECIAL).copied().unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_reproducible_and_differ() {
        let corpus = [b"one valid input".to_vec(), b"another".to_vec()];
        let inputs = || {
            let mut random = fastrand::Rng::with_seed(7);
            (0..500).map(|_| mutated(&corpus, &mut random)).collect::<Vec<_>>()
        };
        let first = inputs();
        assert_eq!(first, inputs());
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 400, "{}", distinct.len());
        // A decoder with a check in front of its body is passed often enough.
        assert!(first.iter().filter(|input| input.starts_with(b"one ")).count() > 50);
    }

    #[test]
    #[should_panic(expected = "found")]
    fn a_failing_check_fails_the_test() {
        bytes(&[vec![1, 2, 3]], |input| assert!(input.len() < 4, "found"));
    }
}
