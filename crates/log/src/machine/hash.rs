//! The state hash: equal on replicas at the same index, or something is badly wrong (LH2).

use super::Machine;
use crate::codec::{Writer, state};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What a part of the state is, so that equal bytes in different places do not look alike.
#[derive(Clone, Copy)]
enum Part {
    Head = 1,
    Session = 2,
    Ended = 3,
}

impl Machine {
    /// A hash of everything that is replicated. The part of the keys is at hand; the rest is computed.
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
