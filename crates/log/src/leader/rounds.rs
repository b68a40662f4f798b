//! Confirms keep-alives of leases with leadership rounds (LE2).

use crate::mutant::{Mutation, seam};

/// Keep-alives that wait for a confirmation of leadership. One round confirms all that arrived before it began.
///
/// `T` is what the caller needs to answer: usually the lease and a channel.
#[derive(Clone, Debug)]
pub struct Rounds<T> {
    mutation: Mutation,
    /// Arrived after the current round began.
    waiting: Vec<T>,
    /// Wait for the current round.
    current: Option<Vec<T>>,
}

impl<T> Rounds<T> {
    pub fn new(mutation: Mutation) -> Self {
        Rounds { mutation, waiting: Vec::new(), current: None }
    }

    /// Adds a received keep-alive. Returns whether the caller must begin a round: none is under way.
    pub fn received(&mut self, keep_alive: T) -> bool {
        let early = self.joins_current();
        match self.current.as_mut().filter(|_| early) {
            Some(current) => current.push(keep_alive),
            None => self.waiting.push(keep_alive),
        }
        self.current.is_none()
    }

    /// A keep-alive does not join a round that began before it arrived.
    fn joins_current(&self) -> bool {
        seam!(self, KeepAliveConfirmedEarly => return true);
        false
    }

    /// Begins a round for everything that has arrived. Returns false if nothing waits or a round is under way.
    pub fn begin(&mut self) -> bool {
        if self.current.is_some() || self.waiting.is_empty() {
            return false;
        }
        self.current = Some(std::mem::take(&mut self.waiting));
        true
    }

    /// Ends the round. If a majority confirmed the leadership, the returned keep-alives are confirmed; otherwise the
    /// caller rejects them, because this replica may no longer lead.
    pub fn finish(&mut self) -> Vec<T> {
        self.current.take().unwrap_or_default()
    }

    /// Returns whether keep-alives wait for the next round.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
