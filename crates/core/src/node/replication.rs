//! Which writes of this node another serving node has received (C12, C13).

use super::{LinkId, Node, Output, PeerState};
use crate::mutant::seam;
use crate::peer::Link;
use crate::time::Time;
use crate::version::Dot;
use crate::wire::Message;
use std::collections::VecDeque;

/// How far the writes of this node are replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicated {
    /// No serving peer is connected.
    Alone,
    /// A serving peer has received all writes up to this one.
    UpTo(u64),
}

impl Replicated {
    /// The number up to which another serving node has the writes; 0 if there is none.
    pub fn number(self) -> u64 {
        match self {
            Replicated::Alone => 0,
            Replicated::UpTo(n) => n,
        }
    }
}

/// Answers that wait until a write is replicated, in the order of the writes. `T` is what the caller answers with.
#[derive(Debug)]
pub struct Unreplicated<T> {
    waiting: VecDeque<(u64, Time, T)>,
}

impl<T> Default for Unreplicated<T> {
    fn default() -> Self {
        Unreplicated { waiting: VecDeque::new() }
    }
}

impl<T> Unreplicated<T> {
    /// Adds an answer for the writes up to `n`. It also waits for the answers before it, whose deadlines are not later.
    pub fn push(&mut self, n: u64, deadline: Time, answer: T) {
        self.waiting.push_back((n, deadline, answer));
    }

    /// Takes the next answer that need not wait any longer, and whether its writes are replicated.
    pub fn next(&mut self, now: Time, replicated: Replicated) -> Option<(T, bool)> {
        let (n, deadline, _) = self.waiting.front()?;
        let done = match replicated {
            Replicated::Alone => Some(*n == 0),
            Replicated::UpTo(received) if *n <= received => Some(true),
            Replicated::UpTo(_) => (now >= *deadline).then_some(false),
        };
        let done = done?;
        self.waiting.pop_front().map(|(.., answer)| (answer, done))
    }

    /// When the first answer stops waiting.
    pub fn deadline(&self) -> Option<Time> {
        self.waiting.front().map(|(_, deadline, _)| *deadline)
    }
}

impl Node {
    /// The last write of this node.
    pub fn last_dot(&self) -> Dot {
        Dot { origin: self.me.clone(), n: self.written() }
    }

    pub fn replicated(&self) -> Replicated {
        let serving = self.peers.up().filter(|(node, _)| self.peers.peers.get(*node).is_some_and(|peer| peer.serving));
        let mut received: fn(&Link) -> u64 = |link| link.received_writes;
        seam!(self, SentIsReplicated => received = |link| link.sent.unwrap_or(0));
        serving.map(|(_, link)| received(link)).max().map_or(Replicated::Alone, Replicated::UpTo)
    }

    /// The number of the last unregistration that this node wrote; 0 if there is none.
    pub fn last_unregistration(&self) -> u64 {
        self.last_unregistration
    }

    /// Whether there are nodes that can outlive this one.
    pub fn has_other_nodes(&self) -> bool {
        self.peers.peers.values().any(|peer| peer.state != PeerState::Left)
    }

    /// An unregistration was written. Its client asks when another node has it (C13).
    pub(super) fn note_unregistration(&mut self) {
        self.last_unregistration = self.written();
        self.want_receipt();
    }

    /// Requests a receipt with the next push. Call it if an answer waits for its write. Unregistrations request one
    /// themselves (C13).
    pub fn want_receipt(&mut self) {
        self.receipt_wanted = true;
    }

    /// A peer has received writes of this node.
    pub(super) fn handle_received(&mut self, link: LinkId, n: u64) {
        let written = self.written();
        if let Some(link) = self.peers.links.get_mut(&link) {
            link.received_writes = link.received_writes.max(n.min(written));
        }
    }

    /// Sends one receipt per link for everything that was received since the last call.
    pub(super) fn send_receipts(&mut self, out: &mut Output) {
        let owed: Vec<LinkId> =
            self.peers.up().filter(|(_, link)| link.receipt_owed).map(|(_, link)| link.id).collect();
        for id in owed {
            let Some(link) = self.peers.links.get_mut(&id) else { continue };
            link.receipt_owed = false;
            let index = link.origin.as_ref().and_then(|origin| self.map.origins.index_of(origin));
            if let Some(index) = index {
                let n = self.map.origins.entry(index).seen;
                self.send(id, &Message::Received { n }, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn answers_wait_for_a_receipt_a_deadline_or_the_last_peer() {
        let (start, wait) = (Time::ZERO, Duration::from_millis(100));
        let mut answers = Unreplicated::default();
        for n in [3, 5, 9] {
            answers.push(n, start + wait, n);
        }
        assert_eq!(answers.next(start, Replicated::UpTo(2)), None);
        assert_eq!(answers.next(start, Replicated::UpTo(5)), Some((3, true)));
        assert_eq!(answers.next(start, Replicated::UpTo(5)), Some((5, true)));
        assert_eq!(answers.next(start, Replicated::UpTo(5)), None);
        assert_eq!(answers.next(start + wait, Replicated::UpTo(5)), Some((9, false)));
        answers.push(0, start + wait, 0);
        assert_eq!(answers.next(start, Replicated::Alone), Some((0, true)), "nothing was written");
        answers.push(10, start + wait, 10);
        assert_eq!(answers.next(start, Replicated::Alone), Some((10, false)));
        assert_eq!((answers.next(start, Replicated::Alone), answers.deadline()), (None, None));
    }
}
