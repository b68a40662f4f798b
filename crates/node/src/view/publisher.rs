//! The writer of the view, owned by the event loop.

use super::View;
use super::services::{Service, State};
use crate::changes::{ChangeKind, Changes};
use convoke_core::member::{Member, Status};
use foldhash::fast::FixedState;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Publisher {
    view: Arc<View>,
    services: HashMap<SmolStr, Working, FixedState>,
    /// Services changed since the last publication.
    changed: Vec<SmolStr>,
    /// Member changes of this turn, to be recorded.
    recorded: Vec<(ChangeKind, Member)>,
}

/// A service as the event loop changes it. Readers see the last published state.
#[derive(Debug, Default)]
struct Working {
    state: State,
    published: Arc<Service>,
    changed: bool,
}

impl Publisher {
    pub(crate) fn new(view: Arc<View>, seed: u64) -> Self {
        let services = HashMap::with_hasher(FixedState::with_seed(seed));
        Publisher { view, services, changed: Vec::new(), recorded: Vec::new() }
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
                    self.recorded.push((ChangeKind::of(old, &change), change.clone()));
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
        self.show();
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
        self.changed.clear();
    }

    fn service(&mut self, name: &SmolStr) -> &mut Working {
        let working = self.services.entry(name.clone()).or_default();
        if !working.changed {
            working.changed = true;
            self.changed.push(name.clone());
        }
        working
    }

    fn enter(&mut self, member: &Member) {
        let state = &mut self.service(member.shared_service()).state;
        state.ids.insert(member.shared_id().clone());
        *state.counts.of(member) += 1;
    }

    fn leave(&mut self, member: &Member) {
        let state = &mut self.service(member.shared_service()).state;
        state.ids.remove(member.id());
        *state.counts.of(member) -= 1;
    }

    fn recount(&mut self, old: &Member, new: &Member) {
        if old.status() != new.status() || old.drained() != new.drained() {
            let counts = &mut self.service(new.shared_service()).state.counts;
            *counts.of(old) -= 1;
            *counts.of(new) += 1;
        }
    }

    /// Publishes the services that changed.
    fn show(&mut self) {
        let mut known = None;
        for name in self.changed.drain(..) {
            let Some(working) = self.services.get_mut(&name) else { continue };
            working.changed = false;
            working.published.store(working.state.clone());
            let empty = working.state.ids.is_empty();
            let services = known.get_or_insert_with(|| self.view.services.load_full());
            if empty {
                self.services.remove(&name);
                Arc::make_mut(services).remove(&name);
            } else if !services.contains_key(&name) {
                Arc::make_mut(services).insert(name, working.published.clone());
            }
        }
        if let Some(known) = known
            && !Arc::ptr_eq(&known, &self.view.services.load())
        {
            self.view.services.store(known);
        }
    }
}
