//! Revocations of credentials spread over all links (P11). The node carries them and does not know their meaning.

use super::{LinkId, Node, Output};
use crate::error::{ErrorCode, Rejection};
use crate::mutant::seam;
use crate::peer::LinkPhase;
use crate::time::Time;
use crate::wire::{Message, REVOCATIONS_PER_FRAME};
use convoke_base::{REVOCATION_KEY_BYTES_MAX, REVOCATIONS_ADDED_MAX, Revocation, RevocationSet};

impl Node {
    /// Adds a revocation and sends it to all peers. Returns whether it was news.
    pub fn revoke(&mut self, now: Time, revocation: Revocation, out: &mut Output) -> Result<bool, Rejection> {
        self.observe(now, out);
        let bytes = revocation.key.len() as u64;
        if bytes == 0 || bytes > REVOCATION_KEY_BYTES_MAX {
            let message = format!("a revocation names up to {REVOCATION_KEY_BYTES_MAX} bytes");
            return Err(Rejection::new(ErrorCode::InvalidArgument, message));
        }
        let news = self.revocations.add(&revocation).map_err(|limit| {
            Rejection::new(ErrorCode::ResourceExhausted, limit.to_string()).limit(REVOCATIONS_ADDED_MAX)
        })?;
        if news {
            self.spread(&[revocation], None, out);
        }
        Ok(news)
    }

    pub fn revocations(&self) -> &RevocationSet {
        &self.revocations
    }

    /// Takes over the revocations of an earlier run, before any link exists.
    pub fn restore_revocations(&mut self, revocations: RevocationSet) {
        self.revocations = revocations;
    }

    /// Removes what is no longer needed. `unix_seconds` is the wall clock.
    pub fn prune_revocations(&mut self, unix_seconds: u64, margin: u64, out: &mut Output) {
        out.revocations_changed |= self.revocations.prune(unix_seconds, margin);
    }

    pub(super) fn handle_revocations(&mut self, link: LinkId, received: Vec<Revocation>, out: &mut Output) {
        let mut news = received;
        news.retain(|revocation| self.revocations.merge(revocation));
        if !news.is_empty() {
            self.spread(&news, Some(link), out);
        }
    }

    /// Sends everything over a new link: the peer may have been cut off.
    pub(super) fn send_revocations(&mut self, link: LinkId, out: &mut Output) {
        seam!(self, RevocationsNotExchanged => return);
        let all: Vec<Revocation> = self.revocations.iter().collect();
        for part in all.chunks(REVOCATIONS_PER_FRAME) {
            self.send(link, &Message::Revoke(part.to_vec()), out);
        }
    }

    /// News go over all other links. Every node sends each revocation once, so this ends.
    fn spread(&mut self, news: &[Revocation], from: Option<LinkId>, out: &mut Output) {
        out.revocations_changed = true;
        seam!(self, RevocationsNotRelayed => if from.is_some() { return });
        let up = |(id, link): (&LinkId, &crate::peer::Link)| {
            (link.phase == LinkPhase::Up && Some(*id) != from).then_some(*id)
        };
        let links: Vec<LinkId> = self.peers.links.iter().filter_map(up).collect();
        for link in links {
            self.send(link, &Message::Revoke(news.to_vec()), out);
        }
    }
}
