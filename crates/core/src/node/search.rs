//! The search for writes that a client has seen and this node has not received (C17).
//!
//! A client names writes by their dots. If this node lacks one, it asks its serving peers whether they have it, and exchanges
//! with those that do. The caller polls: each poll ends the search, or begins another round of questions.

use super::{LinkId, Node, Output};
use crate::error::{ErrorCode, Rejection};
use crate::mutant::seam;
use crate::peer::Link;
use crate::time::{Duration, Time};
use crate::version::{Dot, NodeId};
use crate::wire::Message;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of searches at a time.
const SEARCHES_MAX: usize = 1_024;
/// A search that was not polled for this long has lost its caller.
const ABANDONED: Duration = Duration::from_secs(5);

/// Bits of a question's number that count the rounds of its search.
const ROUND_BITS: u32 = 16;

/// The searches of a node.
#[derive(Debug, Default)]
pub(super) struct Searches {
    last: u64,
    open: BTreeMap<u64, Search>,
}

#[derive(Debug)]
struct Search {
    polled: Time,
    /// Number of the questions of this round. Answers to earlier rounds are ignored.
    query: u64,
    /// Links whose answer is awaited in this round.
    awaited: BTreeSet<LinkId>,
    /// An answer of this round gives reason to wait.
    found: bool,
}

/// The state of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// This node has the writes.
    Covered,
    /// Peers have not answered yet.
    Searching(u64),
    /// A peer has the writes, or a node has a link to their origin. They are expected here.
    Expected(u64),
    /// All serving peers have answered. None has the writes or a link to their origin.
    Missing,
}

impl Node {
    /// Looks for writes. Pass the number of the search, if one has begun. Also returns, for each origin of which this node
    /// lacks a write, the last write up to which it has all.
    pub fn search(
        &mut self,
        now: Time,
        dots: &[Dot],
        search: Option<u64>,
        out: &mut Output,
    ) -> Result<(Coverage, Vec<Dot>), Rejection> {
        self.observe_client(now, out)?;
        let missing: Vec<Dot> = dots.iter().filter(|dot| !self.covers_dot(dot)).cloned().collect();
        let coverage = self.look_for(&missing, search, out)?;
        let seen = |dot: Dot| {
            let index = self.map.origins.index_of(&dot.origin);
            Dot { n: index.map_or(0, |index| self.map.origins.entry(index).seen), ..dot }
        };
        Ok((coverage, missing.into_iter().map(seen).collect()))
    }

    fn look_for(&mut self, missing: &[Dot], search: Option<u64>, out: &mut Output) -> Result<Coverage, Rejection> {
        let begun = search.and_then(|id| Some((id, self.searches.open.remove(&id)?)));
        if missing.is_empty() {
            return Ok(Coverage::Covered);
        }
        seam!(self, PeersNotSearched => return Ok(Coverage::Missing));
        let now = self.clock.now;
        let Some((id, mut search)) = begun else {
            self.searches.open.retain(|_, search| now.since(search.polled) < ABANDONED);
            if self.searches.open.len() >= SEARCHES_MAX {
                let message = "this node searches for the writes of too many sessions; try again";
                return Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(SEARCHES_MAX));
            }
            self.searches.last += 1;
            let (id, query) = (self.searches.last, self.searches.last << ROUND_BITS);
            return Ok(self.ask_round(id, query, missing, Coverage::Searching, out));
        };
        search.polled = now;
        search.awaited.retain(|link| self.peers.links.get(link).is_some_and(Link::is_up));
        if !search.awaited.is_empty() {
            self.searches.open.insert(id, search);
            return Ok(Coverage::Searching(id));
        }
        if !search.found && !missing.iter().any(|dot| self.is_linked(dot)) {
            return Ok(Coverage::Missing);
        }
        Ok(self.ask_round(id, search.query + 1, missing, Coverage::Expected, out))
    }

    /// Asks all serving peers.
    fn ask_round(
        &mut self,
        id: u64,
        query: u64,
        missing: &[Dot],
        state: impl FnOnce(u64) -> Coverage,
        out: &mut Output,
    ) -> Coverage {
        let serving = |node: &NodeId| self.peers.peers.get(node).is_some_and(|peer| peer.serving);
        let awaited: BTreeSet<LinkId> =
            self.peers.up().filter(|(node, _)| serving(node)).map(|(_, link)| link.id).collect();
        if awaited.is_empty() {
            return Coverage::Missing;
        }
        for link in &awaited {
            self.send(*link, &Message::Search { query, dots: missing.to_vec() }, out);
        }
        self.searches.open.insert(id, Search { polled: self.clock.now, query, awaited, found: false });
        state(id)
    }

    /// Answers a peer's question.
    pub(super) fn answer_search(&mut self, link: LinkId, query: u64, dots: &[Dot], out: &mut Output) {
        let covered = dots.iter().all(|dot| self.holds_dot(dot));
        let linked = dots.iter().any(|dot| self.is_linked(dot));
        self.send(link, &Message::SearchReport { query, covered, linked }, out);
    }

    pub(super) fn handle_search_report(
        &mut self,
        link: LinkId,
        query: u64,
        covered: bool,
        linked: bool,
        out: &mut Output,
    ) {
        let Some(search) = self.searches.open.get_mut(&(query >> ROUND_BITS)) else { return };
        if search.query != query || !search.awaited.remove(&link) {
            return;
        }
        search.found |= covered || linked;
        if covered && !self.want(link, out) {
            self.to_ask.insert(link);
        }
    }

    /// Whether this node has received the write. Writes of retired origins were received and collected everywhere (D14).
    pub fn covers_dot(&self, dot: &Dot) -> bool {
        self.holds_dot(dot) || self.map.origins.is_retired(&dot.origin)
    }

    /// Whether an exchange with this node brings the write. A retired origin is not in its context.
    fn holds_dot(&self, dot: &Dot) -> bool {
        let known = self.map.origins.index_of(&dot.origin);
        known.is_some_and(|index| self.map.origins.covers(index, dot.n))
    }

    /// Whether this node has a link to the origin of the write.
    fn is_linked(&self, dot: &Dot) -> bool {
        self.peers.link_to(&dot.origin.node).is_some_and(|link| link.origin.as_ref() == Some(&dot.origin))
    }
}
