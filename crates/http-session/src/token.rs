//! The session token (C11): the last writes of a session that its client knows. A node returns it with every answer as
//! `Convoke-Session-Token`, and the client sends it with its next request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_base::codec::COUNTER_MAX;
use convoke_core::version::{Dot, Incarnation, NodeId, OriginId};

const FORMAT: u8 = 1;
/// Maximum number of writes in a token: one for each node that executed requests lately. An attach writes all members
/// again, so older entries matter only for unregistrations, which request numbers protect as well (C10).
pub const DOTS_MAX: usize = 8;
/// Maximum number of tokens in a request: one for each request that the client sent in parallel.
pub const TOKENS_MAX: usize = 8;
/// Hexadecimal digits of the order at the front of the text.
const ORDER_DIGITS: usize = 16;
/// Incarnation and number of a write, length of the node id.
const DOT_HEAD: usize = 8 + 8 + 8 + 1;

/// The last writes of a session, by the node that made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken {
    /// Rises whenever the writes change, so that tokens compare as text.
    order: u64,
    /// Oldest first.
    dots: Vec<Dot>,
}

impl SessionToken {
    /// Parses a token. Returns `None` if the text is not valid.
    pub fn parse(text: &str) -> Option<SessionToken> {
        let (order, rest) = text.split_at_checked(ORDER_DIGITS)?;
        let digits = order.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let order = digits.then(|| u64::from_str_radix(order, 16).ok())??;
        if rest.len() > 2 * DOTS_MAX * (DOT_HEAD + NodeId::MAX_BYTES) {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(rest).ok()?;
        let (&format, mut bytes) = bytes.split_first()?;
        let mut dots = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at_checked(DOT_HEAD)?;
            let (node, rest) = rest.split_at_checked(head[DOT_HEAD - 1].into())?;
            let number = |at: usize| Some(u64::from_be_bytes(head[at..at + 8].try_into().ok()?));
            // Nodes send the writes to each other, and reject greater numbers as malformed.
            let counter = |at: usize| number(at).filter(|number| *number <= COUNTER_MAX);
            let incarnation = Incarnation { number: counter(0)?, nonce: number(8)? };
            let node = NodeId::new(std::str::from_utf8(node).ok()?).ok()?;
            dots.push(Dot { origin: OriginId { node, incarnation }, n: counter(16)? });
            bytes = rest;
        }
        (format == FORMAT && dots.len() <= DOTS_MAX).then_some(SessionToken { order, dots })
    }

    /// Parses the tokens of a request, which commas separate. Returns `None` if a text is not valid.
    pub fn parse_all(text: &str) -> Option<Vec<SessionToken>> {
        let tokens = || text.split(',');
        (tokens().count() <= TOKENS_MAX).then(|| tokens().map(|token| Self::parse(token.trim())).collect())?
    }

    /// Returns the text of the token.
    pub fn text(&self) -> String {
        let mut bytes = vec![FORMAT];
        for Dot { origin, n } in &self.dots {
            bytes.extend(origin.incarnation.number.to_be_bytes());
            bytes.extend(origin.incarnation.nonce.to_be_bytes());
            bytes.extend(n.to_be_bytes());
            bytes.push(u8::try_from(origin.node.as_str().len()).unwrap_or_default());
            bytes.extend(origin.node.as_str().as_bytes());
        }
        format!("{:016x}{}", self.order, URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The writes that a node must have received.
    pub fn dots(&self) -> &[Dot] {
        &self.dots
    }

    /// Whether a node that has received the writes of `self` has received those of `other`.
    pub fn covers(&self, other: &SessionToken) -> bool {
        let covered = |dot: &Dot| self.dots.iter().any(|own| own.origin == dot.origin && own.n >= dot.n);
        other.dots.iter().all(covered)
    }

    /// Adds the writes of another token. If neither token covers the other, the result is greater than both.
    pub fn join(&mut self, other: &SessionToken) {
        let (mut newer, older) = match other.order > self.order {
            true => (other.clone(), &*self),
            false => (self.clone(), other),
        };
        if !newer.covers(older) {
            older.dots.iter().rev().for_each(|dot| newer.add_older(dot));
            newer.advance(None);
        }
        *self = newer;
    }

    /// Returns a token that covers all of these.
    pub fn join_all(tokens: &[SessionToken]) -> SessionToken {
        let mut joined = SessionToken::default();
        tokens.iter().for_each(|token| joined.join(token));
        joined
    }

    /// Adds a write that a request with this number made.
    pub fn write(&mut self, dot: Dot, request: Option<u64>) {
        self.add(dot);
        self.advance(request);
    }

    /// Makes the token greater than before. The number of a request counts, so that of two tokens of parallel requests
    /// the one of the later request is usually the greater one.
    pub fn advance(&mut self, request: Option<u64>) {
        self.order = self.order.saturating_add(1).max(request.unwrap_or(0));
    }

    /// Forgets the writes of these origins after the given ones, because they were lost.
    pub fn forget_after(&mut self, kept: &[Dot]) {
        for dot in &mut self.dots {
            let kept = kept.iter().find(|kept| kept.origin == dot.origin);
            dot.n = kept.map_or(dot.n, |kept| kept.n.min(dot.n));
        }
        self.dots.retain(|dot| dot.n > 0);
    }

    /// Adds a write of the session.
    pub fn add(&mut self, dot: Dot) {
        let held = self.dots.iter().position(|held| held.origin == dot.origin);
        let n = held.map(|at| self.dots.remove(at).n).unwrap_or(0).max(dot.n);
        self.dots.push(Dot { n, ..dot });
        self.drop_oldest();
    }

    /// Adds a write of an older token.
    fn add_older(&mut self, dot: &Dot) {
        match self.dots.iter_mut().find(|held| held.origin == dot.origin) {
            Some(held) => held.n = held.n.max(dot.n),
            None => self.dots.insert(0, dot.clone()),
        }
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        if self.dots.len() > DOTS_MAX {
            self.dots.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn dot(node: &str, n: u64) -> Dot {
        let origin = OriginId { node: NodeId::new(node).unwrap(), incarnation: Incarnation { number: 3, nonce: 4 } };
        Dot { origin, n }
    }

    #[test]
    fn tokens_round_trip_and_rise_as_text() {
        let mut token = SessionToken::default();
        let mut last = token.text();
        for (request, node, n) in [(Some(1), "n1", 9), (None, "n1", 10), (Some(2), "n2", 1), (Some(300), "n1", 11)] {
            token.advance(request);
            token.add(dot(node, n));
            let text = token.text();
            assert!(text > last);
            assert_eq!(SessionToken::parse(&text).unwrap(), token);
            last = text;
        }
        assert_eq!(token.dots(), [dot("n2", 1), dot("n1", 11)]);
    }

    #[test]
    fn numbers_that_no_node_reaches_are_rejected() {
        for (number, n) in [(COUNTER_MAX + 1, 1), (1, COUNTER_MAX + 1), (u64::MAX, u64::MAX)] {
            let mut token = SessionToken::default();
            let incarnation = Incarnation { number, nonce: 1 };
            token.add(Dot { origin: OriginId { node: NodeId::new("n1").unwrap(), incarnation }, n });
            assert_eq!(SessionToken::parse(&token.text()), None, "{number} {n}");
        }
    }

    #[test]
    fn fuzz_tokens() {
        let check = |text: &str| {
            let Some(token) = SessionToken::parse(text) else { return };
            assert!(token.dots().len() <= DOTS_MAX);
            let largest = token.dots().iter().map(|dot| dot.n.max(dot.origin.incarnation.number)).max();
            assert!(largest.unwrap_or(0) <= COUNTER_MAX, "peers would reject {token:?}");
            assert_eq!(SessionToken::parse(&token.text()), Some(token));
        };
        let mut token = SessionToken::default();
        let empty = token.text();
        token.advance(Some(7));
        ["n1", "n2", "a-longer-name"].iter().for_each(|node| token.add(dot(node, 9)));
        let text = token.text();
        convoke_fuzz::texts(&[&empty, &text], check);
        let (order, encoded) = text.split_at(ORDER_DIGITS);
        let bytes = URL_SAFE_NO_PAD.decode(encoded).unwrap();
        convoke_fuzz::bytes(&[bytes, vec![FORMAT]], |bytes| {
            check(&format!("{order}{}", URL_SAFE_NO_PAD.encode(bytes)));
        });
    }

    #[test]
    fn the_oldest_of_too_many_writes_is_dropped() {
        let mut token = SessionToken::default();
        (0..20).for_each(|n| token.add(dot(&format!("n{n}"), 1)));
        assert_eq!((token.dots().len(), &token.dots()[0]), (DOTS_MAX, &dot("n12", 1)));
        let mut joined = SessionToken::default();
        joined.join(&token);
        assert!(joined.covers(&token) && !SessionToken::default().covers(&token));
    }

    #[test]
    fn a_joined_position_is_greater_than_positions_that_do_not_cover_it() {
        let token = |order, dots: &[(&str, u64)]| {
            let dots = dots.iter().map(|(node, n)| dot(node, *n)).collect();
            SessionToken { order, dots }
        };
        let joined = |one: &SessionToken, other: &SessionToken| {
            let mut joined = one.clone();
            joined.join(other);
            assert!(joined.covers(one) && joined.covers(other));
            joined
        };
        let (one, other) = (token(5, &[("n1", 4)]), token(7, &[("n1", 3), ("n2", 1)]));
        for joined in [joined(&one, &other), joined(&other, &one)] {
            assert_eq!(joined, token(8, &[("n1", 4), ("n2", 1)]));
        }
        let old = token(3, &[("n2", 1)]);
        for joined in [joined(&old, &other), joined(&other, &old)] {
            assert_eq!(joined, other, "it covers the other one");
        }
        let same = token(5, &[("n2", 2)]);
        assert_eq!(joined(&one, &same), token(6, &[("n2", 2), ("n1", 4)]));
    }

    #[test]
    fn a_request_has_a_limited_number_of_tokens() {
        let mut token = SessionToken::default();
        token.write(dot("n1", 1), Some(1));
        let list = |count| vec![token.text(); count].join(", ");
        assert_eq!(SessionToken::parse_all(&list(TOKENS_MAX)), Some(vec![token.clone(); TOKENS_MAX]));
        for invalid in [list(TOKENS_MAX + 1), String::new(), format!("{},", list(1)), format!("{}, x", list(1))] {
            assert_eq!(SessionToken::parse_all(&invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn lost_writes_are_forgotten_and_earlier_ones_of_their_node_kept() {
        let mut token = SessionToken::default();
        for (node, n) in [("n1", 9), ("n2", 5), ("n3", 7)] {
            token.add(dot(node, n));
        }
        token.forget_after(&[dot("n1", 4), dot("n3", 0), dot("n4", 2)]);
        assert_eq!(token.dots(), [dot("n1", 4), dot("n2", 5)]);
    }

    #[test]
    fn invalid_tokens_are_rejected() {
        let mut token = SessionToken::default();
        token.advance(Some(0xab));
        token.add(dot("n1", 1));
        let good = token.text();
        let upper = good.replacen("ab", "AB", 1);
        for bad in ["", "x", &good[1..], &good[..good.len() - 1], "0000000000000001", "000000000000000gAQ", &upper, "é"]
        {
            assert!(SessionToken::parse(bad).is_none(), "{bad}");
        }
    }
}
