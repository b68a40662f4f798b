//! Selection of the members of an answer.

use crate::names::Choice;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_node::NodeHandle;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Members per page of a registry query.
const PAGE: usize = 256;
/// Maximum number of pages per answer, if the first pages contain too few routable members.
const PAGES_MAX: usize = 16;
/// Maximum number of services with more than one page whose position is stored.
const TURNS_MAX: usize = 4_096;

/// A routable member. Its address is parsed only when it is written into an answer, because most answers have room
/// for few members.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) member: Member,
    /// Whether the member is in this node's region or in the requested locality (Q2).
    pub(crate) near: bool,
}

/// Members of a service, for an answer.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) candidates: Vec<Candidate>,
    /// Whether all members of the service were considered.
    pub(crate) complete: bool,
}

/// The candidates of a service for an answer.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) candidates: Vec<Candidate>,
    choice: &'a Choice,
}

impl Found<'_> {
    /// Returns the targets of the candidates.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        self.candidates.iter().filter_map(|candidate| target(candidate, self.choice))
    }
}

/// A routable member and its address.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) id: &'a str,
    /// Whether the member's own name resolves to this host. It does not for an endpoint on another host.
    pub(crate) by_name: bool,
    pub(crate) host: Host<'a>,
    pub(crate) port: u16,
    pub(crate) weight: u16,
    /// Whether the member is in this node's region or in the requested locality (Q2).
    pub(crate) near: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Ip(IpAddr),
    Name(&'a str),
}

impl Host<'_> {
    /// Parses `host:port`.
    pub(crate) fn parse(address: &str) -> Option<(Host<'_>, u16)> {
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Some((Host::Ip(address.ip()), address.port()));
        }
        let (host, port) = address.rsplit_once(':')?;
        Some((Host::Name(host), port.parse().ok()?))
    }
}

/// Rotation of the members of a service, so that every member is first in some answers (Q3).
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    count: AtomicUsize,
    /// Cursor of the next answer, for services that have more than one page.
    pages: Mutex<HashMap<String, String>>,
}

impl Rotation {
    /// Returns the members of the first choice whose service exists, or `None` if no service exists.
    /// A service that is not shown does not exist.
    pub(crate) fn of_service<'a>(
        &self,
        node: &NodeHandle,
        choices: &'a [Choice],
        shown: impl Fn(&str) -> bool,
    ) -> Option<Found<'a>> {
        let gather = |service: &str, choice: &Choice| {
            let found = shown(service).then(|| self.gather(node, service, |member| candidate(node, member, choice)))?;
            found.map(|gathered| gathered.candidates)
        };
        choices.iter().find_map(|choice| {
            let lower = choice.service.to_ascii_lowercase();
            let found = gather(&choice.service, choice);
            let found = if found.is_none() && lower != choice.service { gather(&lower, choice) } else { found };
            found.map(|candidates| Found { candidates, choice })
        })
    }

    /// Returns the members of a service that are kept, or `None` if the service has no member.
    pub(crate) fn gather(
        &self,
        node: &NodeHandle,
        service: &str,
        keep: impl Fn(Member) -> Option<Candidate>,
    ) -> Option<Gathered> {
        // A filter would treat the star as a wildcard.
        if service.contains('*') {
            return None;
        }
        let filter = Filter::service(service);
        let start = self.pages.lock().unwrap_or_else(PoisonError::into_inner).get(service).cloned();
        let mut cursor = start.clone();
        let (mut exists, mut wrapped) = (false, start.is_none());
        let mut candidates = Vec::new();
        for _ in 0..PAGES_MAX {
            // Cursors come from this node and stay valid, so this does not fail.
            let page = node.held_members(&filter, cursor.as_deref(), PAGE).ok()?;
            exists |= !page.members.is_empty();
            candidates.extend(page.members.into_iter().filter_map(&keep));
            cursor = page.next;
            if cursor.is_none() && !wrapped {
                // Continue at the first page. The walk may pass its start, so duplicates are removed below.
                wrapped = true;
            } else if cursor.is_none() || candidates.len() >= PAGE {
                break;
            }
        }
        let complete = cursor.is_none() && wrapped;
        if start.is_some() {
            // The walk may have passed its start.
            let mut seen = HashSet::new();
            candidates.retain(|candidate: &Candidate| seen.insert(candidate.member.shared_id().clone()));
        }
        if start.is_some() || cursor.is_some() {
            self.remember(service, cursor);
        }
        if !exists {
            return None;
        }
        let turn = self.count.fetch_add(1, Ordering::Relaxed);
        let length = candidates.len().max(1);
        candidates.rotate_left(turn % length);
        Some(Gathered { candidates, complete })
    }

    fn remember(&self, service: &str, cursor: Option<String>) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        match cursor {
            Some(cursor) => {
                if pages.len() >= TURNS_MAX && !pages.contains_key(service) {
                    // All services start over. This is simpler than tracking which one was queried last.
                    pages.clear();
                }
                pages.insert(service.to_owned(), cursor);
            }
            None => drop(pages.remove(service)),
        }
    }
}

fn candidate(node: &NodeHandle, member: Member, choice: &Choice) -> Option<Candidate> {
    if !node.may_route(&member) || !lies_in(member.locality(), &choice.locality) || address(&member, choice)?.is_empty()
    {
        return None;
    }
    let near = !choice.locality.is_empty() || lies_in(member.locality(), node.region());
    Some(Candidate { member, near })
}

/// Returns the requested address of a member, if it has one.
fn address<'a>(member: &'a Member, choice: &Choice) -> Option<&'a str> {
    let Some(wanted) = &choice.endpoint else { return Some(member.address()) };
    let named = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case(wanted);
    member.endpoints().iter().find(named).map(|(_, address)| address)
}

fn target<'a>(candidate: &'a Candidate, choice: &Choice) -> Option<Target<'a>> {
    let Candidate { member, near } = candidate;
    let (host, port) = Host::parse(address(member, choice)?)?;
    let by_name = choice.endpoint.is_none() || Host::parse(member.address()).is_some_and(|(own, _)| own == host);
    Some(Target { id: member.id(), by_name, host, port, weight: member.weight().max(1), near: *near })
}

/// Returns the member with this id, or else with the id in lower case (Q6).
pub(crate) fn of_id(node: &NodeHandle, id: &str) -> Option<Member> {
    node.member(id).or_else(|| node.member(&id.to_ascii_lowercase()))
}

/// Returns whether a locality equals `area` or lies below it. Every locality lies in the empty area.
fn lies_in(locality: &str, area: &str) -> bool {
    let bytes = (locality.as_bytes(), area.as_bytes());
    area.is_empty()
        || (bytes.0.len() >= bytes.1.len()
            && bytes.0[..bytes.1.len()].eq_ignore_ascii_case(bytes.1)
            && matches!(bytes.0.get(bytes.1.len()), None | Some(b'.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localities_are_compared_by_whole_labels() {
        for (locality, area) in [("eu", ""), ("", ""), ("eu", "eu"), ("EU.a", "eu"), ("eu.a.r1", "eu.A")] {
            assert!(lies_in(locality, area), "{locality} in {area}");
        }
        for (locality, area) in [("", "eu"), ("europe", "eu"), ("eu", "eu.a"), ("us", "eu"), ("e\u{fc}", "e\u{f6}")] {
            assert!(!lies_in(locality, area), "{locality} in {area}");
        }
    }

    #[test]
    fn hosts_are_addresses_or_names() {
        assert_eq!(Host::parse("10.0.0.1:80"), Some((Host::Ip([10, 0, 0, 1].into()), 80)));
        assert_eq!(Host::parse("[::1]:80"), Some((Host::Ip(std::net::Ipv6Addr::LOCALHOST.into()), 80)));
        assert_eq!(Host::parse("db.example:80"), Some((Host::Name("db.example"), 80)));
        assert_eq!(Host::parse(""), None);
    }
}
