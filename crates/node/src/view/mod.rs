//! The published view, which readers use without waiting for the event loop.
//!
//! The event loop applies every change in the turn in which it happened and before anything of that turn is
//! acknowledged, so a writer reads its own writes. Ids are looked up in a concurrent hash map. The order comes from one
//! persistent ordered set of ids per service, kept together with the counts of that service.

mod cursor;
mod publisher;
mod services;
#[cfg(test)]
mod tests;

pub(crate) use publisher::Publisher;

use arc_swap::ArcSwap;
use convoke_core::Rejection;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_core::node::{NameView, ServiceView};
use cursor::Cursor;
use foldhash::fast::FixedState;
use imbl::OrdMap;
use services::Service;
use smol_str::SmolStr;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;

/// Largest number of members examined for one page, so that a filter with few matches does not block its caller.
const EXAMINED_MAX: usize = 65_536;

/// A range of ids or services.
type Ids<'a> = (Bound<&'a str>, Bound<&'a str>);
type ById = papaya::HashMap<SmolStr, Member, FixedState>;

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberPage {
    pub members: Vec<Member>,
    /// Cursor of the next page; `None` after the last one. A page may be short, even empty, without being the last.
    pub next: Option<String>,
}

#[derive(Debug)]
pub(crate) struct View {
    members: ById,
    names: ById,
    services: ArcSwap<OrdMap<SmolStr, Arc<Service>>>,
}

impl View {
    pub(crate) fn new(seed: u64) -> Self {
        let map = || papaya::HashMap::builder().hasher(FixedState::with_seed(seed)).build();
        View { members: map(), names: map(), services: ArcSwap::default() }
    }

    pub(crate) fn member(&self, id: &str) -> Option<Member> {
        self.members.pin().get(id).cloned()
    }

    pub(crate) fn name(&self, name: &str) -> Option<NameView> {
        let names = self.names.pin();
        let record = names.get(name)?;
        Some(NameView {
            name: record.id().to_owned(),
            location: record.address().to_owned(),
            node: record.origin().node.clone(),
            version: record.version(),
        })
    }

    /// Whether so many members of a service are critical that all are routable (HC6).
    pub(crate) fn panics(&self, service: &str, panic_share: f64) -> bool {
        self.services.load().get(service).is_some_and(|service| service.counts().panics(panic_share))
    }

    /// Returns the services that have members, by name, with their counts.
    pub(crate) fn services(&self, panic_share: f64) -> Vec<ServiceView> {
        let services = self.services.load();
        let views = services.iter().map(|(name, service)| {
            let counts = service.counts();
            ServiceView {
                service: name.to_string(),
                up: counts.up,
                down: counts.down,
                drained: counts.drained,
                critical: counts.critical,
                panic: counts.panics(panic_share),
            }
        });
        views.filter(|view| view.up + view.down + view.drained > 0).collect()
    }

    /// Returns matching members after `cursor`, ordered by service and id, at most `limit`.
    pub(crate) fn list(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Result<MemberPage, Rejection> {
        let after = cursor.map(Cursor::parse).transpose()?;
        let limit = limit.max(1);
        let services = self.services.load();
        let mut walk = Walk { view: self, filter, limit, examined: 0, page: MemberPage::default() };
        if let Some(service) = filter.service_literal() {
            let id = match &after {
                Some(after) if after.service > service => return Ok(walk.page),
                Some(after) if after.service == service => Some(after.id),
                _ => None,
            };
            if let Some((name, service)) =
                services.get_key_value(service).filter(|(name, _)| filter.admits_service(name))
            {
                walk.service(name, service, id);
            }
            return Ok(walk.page);
        }
        let start = after.as_ref().map_or("", |after| after.service);
        for (name, service) in services.range::<Ids<'_>, str>((Included(start), Unbounded)) {
            if !filter.admits_service(name) {
                continue;
            }
            let id = after.as_ref().filter(|after| after.service == name.as_str()).map(|after| after.id);
            if !walk.service(name, service, id) {
                break;
            }
        }
        Ok(walk.page)
    }
}

struct Walk<'a> {
    view: &'a View,
    filter: &'a Filter,
    limit: usize,
    examined: usize,
    page: MemberPage,
}

impl Walk<'_> {
    /// Appends members of one service after an id. Returns false if the page is complete.
    fn service(&mut self, name: &SmolStr, service: &Service, after: Option<&str>) -> bool {
        let state = service.load();
        let members = self.view.members.pin();
        let from = after.map_or(Unbounded, Excluded);
        let mut last: Option<&SmolStr> = None;
        for id in state.ids.range::<Ids<'_>, str>((from, Unbounded)) {
            if self.page.members.len() == self.limit || self.examined == EXAMINED_MAX {
                let last = last.map_or(after.unwrap_or_default(), SmolStr::as_str);
                self.page.next = Some(Cursor { service: name, id: last }.to_string());
                return false;
            }
            self.examined += 1;
            last = Some(id);
            // The member may have moved to another service a moment ago; the list of that service then contains it.
            let member = members.get(id.as_str()).filter(|member| member.service() == name.as_str());
            self.page.members.extend(member.filter(|member| self.filter.matches(&member.subject())).cloned());
        }
        true
    }
}
