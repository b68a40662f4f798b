//! Resume tokens (S3): what a stream had shown at a mark, in a form that any node understands.

use super::Walk;
use crate::map::{CausalMap, OriginEntry};
use crate::member::Space;
use crate::mutant::{Mutant, Mutation};
use crate::node::{Interest, ResetReason};
use crate::version::{OriginId, VectorClock, Version};
use crate::wire::{CodecError, Reader, Writer, decode_clock, decode_origin, encode_clock, encode_origin};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    clock: VectorClock,
    /// What may have been lacking without a write where the token was made (D10).
    lacking: VectorClock,
    /// Origins that were not admitted, with the highest life number known of them.
    silent: BTreeMap<OriginId, u64>,
    /// The last writes that were shown although the clock does not tell of them: part of a delta that was cut (D7).
    beyond: VectorClock,
    /// Of whom some of what was lacking elsewhere was held and shown: this node knew better (D8).
    kept: VectorClock,
}

/// With nothing beyond the clock and nothing kept, which is nearly always, a token is what earlier releases understand.
const FORMAT: u8 = 1;
const FORMAT_UNUSUAL: u8 = 2;
/// So many records of an origin are looked at to see whether any of them was kept.
const KEPT_LOOK: usize = 64;
const LIFE_MAX: u64 = crate::wire::COUNTER_MAX;
/// In place of a life number: some of it was shown as stated, some as silent (L3). No origin looks like that anywhere else.
const RETURNING: u64 = LIFE_MAX;

impl Token {
    /// The token of everything in this space that `map` shows now.
    pub(crate) fn of(map: &CausalMap, space: Space) -> Self {
        let silent = map
            .origins
            .iter()
            .filter(|(_, entry)| !entry.admitted)
            .map(|(_, entry)| (entry.origin.id.clone(), entry.silent_life().unwrap_or(RETURNING)))
            .collect();
        Token {
            clock: map.origins.context().clock,
            lacking: map.origins.lacking(space),
            silent,
            beyond: map.origins.beyond(),
            kept: kept(map, space),
        }
    }

    fn is_usual(&self) -> bool {
        self.beyond.is_empty() && self.kept.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(if self.is_usual() { FORMAT } else { FORMAT_UNUSUAL });
        encode_clock(&mut w, &self.clock);
        encode_clock(&mut w, &self.lacking);
        w.count(self.silent.len());
        for (origin, life) in &self.silent {
            encode_origin(&mut w, origin);
            w.varint(*life);
        }
        if !self.is_usual() {
            encode_clock(&mut w, &self.beyond);
            encode_clock(&mut w, &self.kept);
        }
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let format = r.byte("token format")?;
        if ![FORMAT, FORMAT_UNUSUAL].contains(&format) {
            return Err(CodecError::Invalid("token format"));
        }
        let clock = decode_clock(r)?;
        let lacking = decode_clock(r)?;
        let silent = (0..r.count("silent", 11, u64::MAX)?)
            .map(|_| Ok((decode_origin(r)?, r.bounded("life", LIFE_MAX)?)))
            .collect::<Result<_, CodecError>>()?;
        let (beyond, kept) = match format {
            FORMAT_UNUSUAL => (decode_clock(r)?, decode_clock(r)?),
            _ => (VectorClock::new(), VectorClock::new()),
        };
        reader.end()?;
        Ok(Token { clock, lacking, silent, beyond, kept })
    }

    /// Whether this node has taken in everything the token has, and everything that was shown beyond that.
    pub(crate) fn reached(&self, map: &CausalMap) -> bool {
        let covers = |(origin, n)| match map.origins.index_of(origin) {
            Some(index) => map.origins.covers(index, n),
            None => map.origins.is_retired(origin),
        };
        // The rest of what a silent one wrote may never come. What there is of it, all nodes share (D7).
        let shares = |origin, n| {
            let entry = map.origins.index_of(origin).map(|index| map.origins.entry(index));
            entry.is_some_and(|entry| !entry.admitted && entry.last() >= n)
        };
        self.clock.iter().all(covers) && self.beyond.iter().all(|(origin, n)| covers((origin, n)) || shares(origin, n))
    }

    /// Whether something the token knew may have been forgotten here without a trace.
    fn too_old(&self, map: &CausalMap, space: Space) -> bool {
        let collected = map.origins.floor().iter().any(|(origin, n)| !self.clock.covers(origin, n));
        let mut named = self.clock.iter().chain(self.beyond.iter());
        let retired = named.any(|(origin, _)| map.origins.is_retired(origin));
        let lacking = map.origins.lacking(space);
        let lost = self.kept.iter().any(|(origin, _)| lacking.get(origin) > 0);
        collected || retired || lost || !self.lacking.includes(&lacking)
    }

    /// The slots of everything that may look different now. Only once the token is reached; `None` if it is too old.
    pub(crate) fn changed(&self, map: &CausalMap, space: Space, mutation: Mutation) -> Option<Vec<u32>> {
        if self.too_old(map, space) && !mutation.is(Mutant::ResumeIgnoresFloor) {
            return None;
        }
        let mut slots = Vec::new();
        for (_, entry) in map.origins.iter() {
            let id = &entry.origin.id;
            let from = match (self.silent.get(id), entry.admitted) {
                // Shown as stated then and now, or silent then and ever since: only writes count.
                (None, true) => self.clock.get(id) + 1,
                (Some(life), false) if Some(*life) == entry.silent_life() => self.clock.get(id) + 1,
                _ if mutation.is(Mutant::ResumeIgnoresAdmission) => self.clock.get(id) + 1,
                _ => 0,
            };
            slots.extend(entry.stated.range(from..).map(|(_, slot)| *slot));
            // Given up where the token was made, but not here. That as much was written off here says nothing: what is known better is kept (D8).
            let given_up = entry.stated.range(0..).take_while(|(n, _)| *n <= self.lacking.get(id));
            slots.extend(given_up.map(|(_, slot)| *slot));
            let inferred = entry.inferred.range(self.clock.get(id) + 1..);
            slots.extend(inferred.filter_map(|(_, id)| map.slot_of(Space::Member, id)));
        }
        Some(slots)
    }
}

/// Of whom this node holds some of what it would lack if it did not know better. When in doubt, it does.
fn kept(map: &CausalMap, space: Space) -> VectorClock {
    let shown = |slot: u32| map.at(slot).space == space && map.at(slot).is_live();
    let keeps = |entry: &OriginEntry| {
        let given_up = entry.stated.range(0..).take_while(|(n, _)| *n <= entry.lacking(space));
        given_up.enumerate().any(|(looked, (_, slot))| looked >= KEPT_LOOK || shown(*slot))
    };
    let of_whom = map.origins.iter().filter(|(_, entry)| entry.lacking(space) > 0 && keeps(entry));
    of_whom.map(|(_, entry)| (entry.origin.id.clone(), entry.lacking(space))).collect()
}

/// All that a returning subscriber says (S3, S4).
#[derive(Clone, Debug)]
pub(crate) struct Resumption {
    /// Of the last mark; `None` if the subscriber only says what it knows.
    pub(crate) token: Option<Token>,
    /// Versions received after the token.
    pub(crate) recent: BTreeMap<String, Version>,
    /// Versions of the whole view.
    pub(crate) known: Option<BTreeMap<String, Version>>,
}

impl Resumption {
    /// Whether this node knows at least what the subscriber has seen.
    pub(crate) fn reached(&self, space: Space, map: &CausalMap) -> bool {
        let seen = |(id, version): (&String, &Version)| match map.record(space, id) {
            Some(record) => (record.claim, record.seq) >= (version.claim, version.seq),
            // Collected here, or never heard of?
            None => version.claim <= map.claim_floor(),
        };
        let known = self.known.iter().flatten();
        self.token.as_ref().is_none_or(|token| token.reached(map)) && self.recent.iter().chain(known).all(seen)
    }

    pub(crate) fn walk(self, interest: &Interest, map: &CausalMap, mutation: Mutation) -> (Walk, Option<ResetReason>) {
        let Some(token) = self.token else { return Walk::instead(interest, self.known, ResetReason::TooOld) };
        let Some(mut slots) = token.changed(map, interest.space, mutation) else {
            return Walk::instead(interest, self.known, ResetReason::TooOld);
        };
        let differs = |(id, version): (&String, &Version)| {
            let record = map.record(interest.space, id)?;
            (map.member(record).version() != *version).then_some(record.slot)
        };
        slots.extend(self.recent.iter().filter_map(differs));
        slots.sort_unstable();
        slots.dedup();
        (Walk::changed(slots, self.recent), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Incarnation, NodeId};

    #[test]
    fn tokens_round_trip_and_refuse_garbage() {
        let origin = OriginId { node: NodeId::new("a").unwrap(), incarnation: Incarnation { number: 3, nonce: 9 } };
        let mut clock = VectorClock::new();
        clock.raise(&origin, 700);
        let none = VectorClock::new();
        for (beyond, kept) in [(&none, &none), (&clock, &none), (&none, &clock)] {
            let token = Token {
                clock: clock.clone(),
                lacking: clock.clone(),
                silent: [(origin.clone(), 12)].into(),
                beyond: beyond.clone(),
                kept: kept.clone(),
            };
            let bytes = token.encode();
            assert_eq!(Token::decode(&bytes), Ok(token));
            for len in 0..bytes.len() {
                assert!(Token::decode(&bytes[..len]).is_err(), "{len}");
            }
            assert!(Token::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    /// Watchers resume with tokens from before an upgrade.
    #[test]
    fn tokens_are_fixed_byte_for_byte() {
        let origin = OriginId { node: NodeId::new("a").unwrap(), incarnation: Incarnation { number: 3, nonce: 9 } };
        let clock: VectorClock = [(origin.clone(), 700)].into_iter().collect();
        let token = Token {
            clock: clock.clone(),
            lacking: VectorClock::new(),
            silent: [(origin, 12)].into(),
            beyond: VectorClock::new(),
            kept: VectorClock::new(),
        };
        let hex = |token: &Token| token.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // Clock, what was lacking, silent runs.
        let told = ["01016103", "0900000000000000", "bc05", "00", "01016103", "0900000000000000", "0c"].concat();
        assert_eq!(hex(&token), format!("01{told}"));
        let beyond = Token { beyond: clock, ..token };
        assert_eq!(hex(&beyond), format!("02{told}01016103{}bc0500", "0900000000000000"));
    }
}
