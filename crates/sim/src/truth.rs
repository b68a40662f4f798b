//! The ground truth about every member id, from an outside observer's point of view.

use crate::network::Micros;
use std::collections::{BTreeMap, BTreeSet};

/// One member id.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// Clients whose application currently wants it registered.
    pub wanted_by: BTreeSet<usize>,
    /// Clients whose application unregistered it and has no answer yet.
    pub releasing: BTreeSet<usize>,
    /// Clients that ever wanted it.
    pub ever: BTreeSet<usize>,
    /// Time since which a record may linger that no client wants: its client crashed or was notified of its loss, or
    /// the only node that had the unregistration died. Zero: no record lingers.
    pub silent_since: Micros,
    /// When a client last stopped wanting it; zero if none ever did.
    pub freed_at: Micros,
    /// A node process (host, boot) that holds the unregistration.
    pub known_by: Option<(usize, u64)>,
    /// The client process (client, process number) whose unregistration was acknowledged last.
    pub ended_by: Option<(usize, u64)>,
    /// When it was first wanted, or wanted again after having been gone.
    pub wanted_at: Micros,
}

impl Claimed {
    /// More than one client ever wanted this id.
    pub fn contested(&self) -> bool {
        self.ever.len() > 1
    }

    /// No client wants it.
    pub fn unwanted(&self) -> bool {
        self.wanted_by.is_empty() && self.releasing.is_empty()
    }

    /// Returns the one client that wants it, if no other did after the given time.
    pub fn sole_holder(&self, since: Micros) -> Option<usize> {
        let disputed = self.contested() && (self.freed_at >= since || !self.releasing.is_empty());
        self.wanted_by.first().copied().filter(|_| self.wanted_by.len() == 1 && !disputed)
    }
}

#[derive(Debug, Default)]
pub struct Truth {
    pub ids: BTreeMap<String, Claimed>,
}

impl Truth {
    pub fn wanted(&mut self, id: &str, client: usize, now: Micros) {
        let claimed = self.ids.entry(id.to_owned()).or_default();
        if claimed.wanted_by.is_empty() {
            claimed.wanted_at = now;
        }
        claimed.wanted_by.insert(client);
        claimed.releasing.remove(&client);
        claimed.ever.insert(client);
        claimed.known_by = None;
    }

    /// The application called unregister; the outcome is unknown.
    pub fn releasing(&mut self, id: &str, client: usize, now: Micros) {
        if let Some(claimed) = self.ids.get_mut(id) {
            claimed.freed_at = now;
            claimed.wanted_by.remove(&client);
            claimed.releasing.insert(client);
        }
    }

    /// The client received the acknowledgement of its unregistration.
    pub fn unregistered(&mut self, id: &str, client: usize, by: (usize, u64), now: Micros) {
        if let Some(claimed) = self.ids.get_mut(id) {
            claimed.freed_at = now;
            claimed.wanted_by.remove(&client);
            claimed.releasing.remove(&client);
            if claimed.silent_since > 0 {
                claimed.silent_since = now;
            }
            if claimed.wanted_by.is_empty() {
                claimed.known_by = Some(by);
            }
        }
    }

    /// The client no longer holds it, without having unregistered it.
    pub fn abandoned(&mut self, id: &str, client: usize, now: Micros) {
        if let Some(claimed) = self.ids.get_mut(id) {
            claimed.wanted_by.remove(&client);
            claimed.releasing.remove(&client);
            claimed.freed_at = now;
            claimed.silent_since = claimed.silent_since.max(now);
        }
    }

    pub fn get(&self, id: &str) -> Option<&Claimed> {
        self.ids.get(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_contested_has_a_sole_holder_again_after_a_while() {
        let mut truth = Truth::default();
        let sole = |truth: &Truth, since| truth.get("m").and_then(|claimed| claimed.sole_holder(since));
        truth.wanted("m", 1, 10);
        assert_eq!(sole(&truth, 0), Some(1), "no other client ever wanted it");
        truth.wanted("m", 2, 20);
        assert_eq!(sole(&truth, 1000), None, "two want it");
        truth.releasing("m", 2, 30);
        assert_eq!(sole(&truth, 1000), None, "it may still be the other's");
        truth.abandoned("m", 2, 40);
        assert_eq!(sole(&truth, 40), None, "something may linger");
        assert_eq!(sole(&truth, 41), Some(1));
    }
}
