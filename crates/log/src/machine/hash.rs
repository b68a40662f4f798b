//! The state hash. Replicas at the same index have the same hash; a difference means that they diverged (LH2).

use super::Machine;
use crate::codec::{Writer, coordination_state, state};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Kind of a hashed part, so that equal bytes in different parts hash differently.
#[derive(Clone, Copy)]
enum Part {
    Head = 1,
    Session = 2,
    Ended = 3,
    Lease = 4,
    Lock = 5,
    Place = 6,
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
        sum.wrapping_add(self.history.hash()).wrapping_add(self.coordination_hash())
    }

    fn coordination_hash(&self) -> u128 {
        let (mut w, mut sum) = (Writer::default(), 0u128);
        let mut add = |kind: Part, encode: &dyn Fn(&mut Writer)| {
            w.clear();
            encode(&mut w);
            sum = sum.wrapping_add(part(&w, kind));
        };
        for lease in self.leases.iter() {
            add(Part::Lease, &|w| coordination_state::encode_lease(w, lease));
        }
        for lock in self.locks.iter() {
            add(Part::Lock, &|w| coordination_state::encode_lock(w, lock));
        }
        for place in self.locks.places() {
            add(Part::Place, &|w| coordination_state::encode_place(w, place));
        }
        sum
    }
}

fn part(w: &Writer, part: Part) -> u128 {
    xxh3_128_with_seed(w.bytes(), part as u64)
}
