//! The writer of the view, owned by the event loop.

use super::View;
use super::services::Service;
use crate::changes::Changes;
use convoke_core::member::{ChangeKind, Member, Status};
use foldhash::fast::FixedState;
use imbl::OrdMap;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Publisher {
    view: Arc<View>,
    services: HashMap<SmolStr, Arc<Service>, FixedState>,
    /// Services that appeared or disappeared in this turn.
    listed: Vec<SmolStr>,
    /// Member changes of this turn, to be recorded.
    recorded: Vec<(ChangeKind, Member)>,
}

impl Publisher {
    pub(crate) fn new(view: Arc<View>, seed: u64) -> Self {
        let services = HashMap::with_hasher(FixedState::with_seed(seed));
        Publisher { view, services, listed: Vec::new(), recorded: Vec::new() }
    }

    /// Applies and publishes the changes of one turn. Member changes are recorded if `changes` is given.
    pub(crate) fn publish(&mut self, changes: &mut Vec<Member>, kept: Option<&Changes>) {
        if changes.is_empty() {
            return;
        }
        let view = self.view.clone();
        let (members, names) = (view.members.pin(), view.names.pin());
        for change in changes.drain(..) {
            let gone = change.status() == Status::Left;
            if change.is_name() {
                if gone {
                    names.remove(change.id());
                } else {
                    names.insert(change.shared_id().clone(), change);
                }
            } else if gone {
                if let Some(old) = members.remove(change.id()) {
                    self.leave(old);
                    if kept.is_some() {
                        self.recorded.push((ChangeKind::Unregistered, old.clone()));
                    }
                }
            } else {
                let old = members.get(change.id());
                if kept.is_some() {
                    let kind = ChangeKind::between(old, Some(&change));
                    self.recorded.extend(kind.map(|kind| (kind, change.clone())));
                }
                match old {
                    Some(old) if old.service() == change.service() => self.recount(old, &change),
                    Some(old) => {
                        self.leave(old);
                        self.enter(&change);
                    }
                    None => self.enter(&change),
                }
                members.insert(change.shared_id().clone(), change);
            }
        }
        self.list_services();
        if let Some(kept) = kept {
            kept.record(&mut self.recorded);
        }
    }

    /// Clears the view, for a new incarnation of the node.
    pub(crate) fn clear(&mut self) {
        self.view.members.pin().clear();
        self.view.names.pin().clear();
        self.view.services.store(Arc::default());
        self.services.clear();
        self.listed.clear();
    }

    fn enter(&mut self, member: &Member) {
        let name = member.shared_service();
        if let Some(service) = self.services.get(name) {
            service.enter(member);
            return;
        }
        let service = Arc::<Service>::default();
        service.enter(member);
        self.services.insert(name.clone(), service);
        self.listed.push(name.clone());
    }

    fn leave(&mut self, member: &Member) {
        let name = member.shared_service();
        if self.services.get(name).is_some_and(|service| service.leave(member)) {
            self.services.remove(name);
            self.listed.push(name.clone());
        }
    }

    fn recount(&self, old: &Member, new: &Member) {
        let state = |member: &Member| (member.status(), member.drained(), member.health());
        if state(old) != state(new)
            && let Some(service) = self.services.get(new.shared_service())
        {
            service.recount(old, new);
        }
    }

    /// Publishes the services that appeared, and removes those that disappeared.
    fn list_services(&mut self) {
        if self.listed.is_empty() {
            return;
        }
        let mut services = OrdMap::clone(&self.view.services.load());
        for name in self.listed.drain(..) {
            match self.services.get(&name) {
                Some(service) => services.insert(name, service.clone()),
                None => services.remove(&name),
            };
        }
        self.view.services.store(Arc::new(services));
    }
}
