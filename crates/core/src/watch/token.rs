//! Resume tokens (W3): the state that a watch had shown at a mark, in a form that any node can use.
//!
//! Example: a watcher of node A holds the token `clock {A: 9, B: 4}, silent {B: 40}` and reconnects to node C, whose
//! context is `{A: 11, B: 4}` and which admits B. C sends the records of A's writes 10 and 11, and all records of B:
//! nothing was written, but they show `up` again. Had C collected a tombstone with a write above the token's clock,
//! the token would be too old, and C would compare versions or start with a new snapshot (W4).

use super::Walk;
use crate::map::{CausalMap, OriginEntry, Standing};
use crate::member::Record;
use crate::mutant::{Mutation, seam};
use crate::node::{ResetReason, WatchSelection};
use crate::version::{OriginId, VectorClock, Version};
use crate::wire::{CodecError, Reader, Writer, decode_clock, decode_origin, encode_clock, encode_origin};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The node's context.
    clock: VectorClock,
    /// Origins of which no record up to this write was shown, because others had written them off (D10).
    written_off: VectorClock,
    /// Origins that were not admitted, with the liveness counter their records were judged by.
    silent: BTreeMap<OriginId, u64>,
    /// The last writes that were shown although the clock does not cover them: part of an interrupted delta (D7).
    beyond: VectorClock,
}

const FORMAT: u8 = 3;
/// Number of records of an origin that are examined for one that is shown although others have written it off.
const KEPT_LOOK: usize = 64;
/// In place of a liveness counter: some records showed what the origin stated, others did not (L3). The records of no
/// origin look like that anywhere else.
const RETURNING: u64 = crate::wire::COUNTER_MAX;

impl Token {
    /// The token of everything that `map` shows now.
    pub(crate) fn of(map: &CausalMap) -> Self {
        let origins = || map.origins.iter().map(|(_, entry)| entry);
        let silent =
            origins().filter_map(|entry| Some((entry.origin.id.clone(), silent_liveness_counter(entry.standing)?)));
        let dropped = origins().filter(|entry| entry.written_off > 0 && !keeps_written_off(map, entry));
        Token {
            clock: map.origins.context().clock,
            written_off: dropped.map(|entry| (entry.origin.id.clone(), entry.written_off)).collect(),
            silent: silent.collect(),
            beyond: map.origins.beyond(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(FORMAT);
        encode_clock(&mut w, &self.clock);
        encode_clock(&mut w, &self.written_off);
        w.count(self.silent.len());
        for (origin, liveness_counter) in &self.silent {
            encode_origin(&mut w, origin);
            w.varint(*liveness_counter);
        }
        encode_clock(&mut w, &self.beyond);
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        if r.byte("token format")? != FORMAT {
            return Err(CodecError::Invalid("token format"));
        }
        let clock = decode_clock(r)?;
        let written_off = decode_clock(r)?;
        let silent = (0..r.count("silent", 11, u64::MAX)?)
            .map(|_| Ok((decode_origin(r)?, r.bounded("liveness counter", crate::wire::COUNTER_MAX)?)))
            .collect::<Result<_, CodecError>>()?;
        let beyond = decode_clock(r)?;
        reader.end()?;
        Ok(Token { clock, written_off, silent, beyond })
    }

    /// Whether this node has received everything that the token covers, and everything that was shown beyond that.
    pub(crate) fn reached(&self, map: &CausalMap) -> bool {
        let covers = |(origin, n)| match map.origins.index_of(origin) {
            Some(index) => map.origins.covers(index, n),
            None => map.origins.is_retired(origin),
        };
        // The missing writes of a silent origin may never arrive. All nodes share the ones there are (D7).
        let shares = |origin, n| {
            let entry = map.origins.index_of(origin).map(|index| map.origins.entry(index));
            entry.is_some_and(|entry| !entry.standing.is_admitted() && entry.last() >= n)
        };
        self.clock.iter().all(covers) && self.beyond.iter().all(|(origin, n)| covers((origin, n)) || shares(origin, n))
    }

    /// Whether a record that was shown where the token was made may have been dropped here without a trace: collected,
    /// retired, or written off. Writing off counts although this node may still hold the records.
    fn too_old(&self, map: &CausalMap, mutation: Mutation) -> bool {
        seam!(in mutation, ResumeIgnoresFloor => return false);
        let collected = !self.clock.includes(&map.origins.floor());
        let retired = self.clock.iter().chain(self.beyond.iter()).any(|(origin, _)| map.origins.is_retired(origin));
        collected || retired || !self.written_off.includes(&map.origins.written_off())
    }

    /// The slots of all members that may be shown differently now. Only once the token is reached; `None` if it is too
    /// old.
    pub(crate) fn changed(&self, map: &CausalMap, mutation: Mutation) -> Option<Vec<u32>> {
        if self.too_old(map, mutation) {
            return None;
        }
        let mut slots = Vec::new();
        for (_, entry) in map.origins.iter() {
            let id = &entry.origin.id;
            let now = silent_liveness_counter(entry.standing);
            let mut from = match self.silent.get(id).copied() {
                // Shown as stated then and now, or silent since then: only writes count.
                then if then == now && now != Some(RETURNING) => self.clock.get(id) + 1,
                _ => 0,
            };
            seam!(in mutation, ResumeIgnoresAdmission => from = self.clock.get(id) + 1);
            slots.extend(entry.stated.range(from..).map(|(_, slot)| *slot));
            // Dropped where the token was made, and kept here.
            let dropped = entry.stated.range(0..).take_while(|(n, _)| *n <= self.written_off.get(id));
            slots.extend(dropped.map(|(_, slot)| *slot));
            let inferred = entry.inferred.range(self.clock.get(id) + 1..);
            slots.extend(inferred.filter_map(|(_, (space, id))| map.slot_of(*space, id)));
        }
        Some(slots)
    }
}

/// The liveness counter by which all records of an origin are judged; `None` if they show what it stated.
fn silent_liveness_counter(standing: Standing) -> Option<u64> {
    match standing {
        Standing::Admitted => None,
        Standing::Silent { liveness_counter } => Some(liveness_counter),
        Standing::Returning { .. } => Some(RETURNING),
    }
}

/// Whether this node still shows a record of an origin that others have written off. When in doubt, it does: then the
/// token is too old at every node that has received the written-off number.
fn keeps_written_off(map: &CausalMap, entry: &OriginEntry) -> bool {
    let written_off = entry.stated.range(0..).take_while(|(n, _)| *n <= entry.written_off);
    written_off.enumerate().any(|(looked, (_, slot))| looked >= KEPT_LOOK || map.at(*slot).is_live())
}

/// All that a returning watcher sends (W3, W4).
#[derive(Clone, Debug)]
pub(crate) struct Resumption {
    /// The token of the last mark; `None` if the watcher only sends versions.
    pub(crate) token: Option<Token>,
    /// Versions received after the token.
    pub(crate) recent: BTreeMap<String, Version>,
    /// Versions of the whole view.
    pub(crate) known: Option<BTreeMap<String, Version>>,
}

impl Resumption {
    /// Whether this node has at least everything that the watcher has seen.
    pub(crate) fn reached(&self, selection: &WatchSelection, map: &CausalMap) -> bool {
        let may_know = |record: &&Arc<Record>| selection.may_know(&map.member(record));
        let seen = |(id, version): (&String, &Version)| match map.record(selection.space, id).filter(may_know) {
            Some(record) => (record.claim, record.seq) >= (version.claim, version.seq),
            // Collected here, or never received?
            None => version.claim <= map.claim_floor(),
        };
        let known = self.known.iter().flatten();
        self.token.as_ref().is_none_or(|token| token.reached(map)) && self.recent.iter().chain(known).all(seen)
    }

    pub(crate) fn walk(
        self,
        selection: &WatchSelection,
        map: &CausalMap,
        mutation: Mutation,
    ) -> (Walk, Option<ResetReason>) {
        // The changes since a token name members that may have matched before, of every service (AU10).
        let token = self.token.filter(|_| selection.readable.is_none());
        let Some(token) = token else { return Walk::instead(selection, self.known, ResetReason::TooOld) };
        let Some(mut slots) = token.changed(map, mutation) else {
            return Walk::instead(selection, self.known, ResetReason::TooOld);
        };
        let differs = |(id, version): (&String, &Version)| {
            let record = map.record(selection.space, id)?;
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

    fn token(beyond: bool) -> Token {
        let origin = OriginId { node: NodeId::new("a").unwrap(), incarnation: Incarnation { number: 3, nonce: 9 } };
        let clock: VectorClock = [(origin.clone(), 700)].into_iter().collect();
        let beyond = if beyond { clock.clone() } else { VectorClock::new() };
        Token { clock, written_off: VectorClock::new(), silent: [(origin, 12)].into(), beyond }
    }

    #[test]
    fn tokens_round_trip_and_reject_garbage() {
        for token in [token(false), token(true), Token { written_off: token(true).clock, ..token(true) }] {
            let bytes = token.encode();
            assert_eq!(Token::decode(&bytes), Ok(token));
            for len in 0..bytes.len() {
                assert!(Token::decode(&bytes[..len]).is_err(), "{len}");
            }
            assert!(Token::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn fuzz_tokens() {
        let corpus = [
            token(false).encode(),
            token(true).encode(),
            Token { written_off: token(true).clock, ..token(true) }.encode(),
        ];
        convoke_fuzz::bytes(&corpus, |bytes| {
            if let Ok(token) = Token::decode(bytes) {
                assert_eq!(Token::decode(&token.encode()), Ok(token));
            }
        });
    }

    /// Watchers resume with tokens from before an upgrade.
    #[test]
    fn tokens_are_fixed_byte_for_byte() {
        let hex = |token: &Token| token.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // Clock, written off, silent origins.
        let common =
            ["03", "01016103", "0900000000000000", "bc05", "00", "01016103", "0900000000000000", "0c"].concat();
        assert_eq!(hex(&token(false)), format!("{common}00"));
        assert_eq!(hex(&token(true)), format!("{common}01016103{}bc05", "0900000000000000"));
    }
}
