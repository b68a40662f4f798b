//! Randomness of the operating system, or of a seed in a simulation.

use std::cell::Cell;
use std::convert::Infallible;

thread_local! {
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Seeds all randomness of replicas on this thread: log ids, salts and election timeouts. For simulations, which run
/// all replicas on one thread; a node must never call it.
pub fn seed_thread(seed: u64) {
    SEEDED.set(Some(seed));
}

/// Returns the next number of a seeded thread (SplitMix64).
fn next_seeded() -> Option<u64> {
    let state = SEEDED.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
    SEEDED.set(Some(state));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        match next_seeded() {
            Some(number) => chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]),
            None => {
                getrandom::fill(&mut bytes)?;
                break;
            }
        }
    }
    Ok(bytes)
}

/// The engine's random number generator, used only for election timeouts.
#[derive(Debug)]
pub struct EngineRandom(rand::rngs::ThreadRng);

impl EngineRandom {
    pub(crate) fn new() -> Self {
        EngineRandom(rand::rng())
    }
}

impl rand::TryRng for EngineRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        // All bits of the upper half are of good quality.
        self.try_next_u64().map(|number| (number >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        next_seeded().map_or_else(|| self.0.try_next_u64(), Ok)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let number = self.try_next_u64()?;
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_seeded_thread_repeats_itself_and_others_do_not() {
        let drawn = |seed: Option<u64>| {
            std::thread::spawn(move || {
                if let Some(seed) = seed {
                    seed_thread(seed);
                }
                (random::<20>().unwrap(), EngineRandom::new().next_u64(), EngineRandom::new().next_u32())
            })
            .join()
            .unwrap()
        };
        assert_eq!(drawn(Some(7)), drawn(Some(7)));
        assert_ne!(drawn(Some(7)), drawn(Some(8)));
        assert_ne!(drawn(None), drawn(None));
    }
}
