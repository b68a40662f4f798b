//! The state hash. Replicas at the same index have the same hash; a difference means that they diverged (LH2).

use super::Machine;
use crate::codec::{Writer, state};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Kind of a hashed part, so that equal bytes in different parts hash differently.
#[derive(Clone, Copy)]
enum Part {
    Head = 1,
    Session = 2,
    Ended = 3,
}

impl Machine {
    /// Returns a hash of the whole replicated state. The hash of the keys is maintained; the rest is computed here.
    pub fn state_hash(&self) -> u128 {
        let mut w = Writer::default();
        state::encode_head(&mut w, self);
        let mut sum = part(&w, Part::Head).wrapping_add(self.keys.hash());
        for session in self.sessions.open.iter() {
            w.clear();
            state::encode_session(&mut w, session);
            sum = sum.wrapping_add(part(&w, Part::Session));
        }
        for ended in self.sessions.ended_in_order() {
            w.clear();
            state::encode_ended(&mut w, ended);
            sum = sum.wrapping_add(part(&w, Part::Ended));
        }
        sum
    }
}

fn part(w: &Writer, part: Part) -> u128 {
    xxh3_128_with_seed(w.bytes(), part as u64)
}
