//! What a subscriber at one node was told, and what of it nobody should have been told.

use convoke_client::{Event, Member, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids of members whose clients are there and want them registered. Whoever shows one of these as down or gone is wrong
/// for that moment.
pub(crate) type Wanted = BTreeSet<String>;

/// Built from the events of one subscription alone.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    members: BTreeMap<String, Arc<Member>>,
    /// A snapshot that is being loaded.
    loading: Option<BTreeMap<String, Arc<Member>>>,
    pub(crate) counts: Counts,
}

/// Only ever more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Wanted members that were shown as down, or vanished.
    pub(crate) flaps: u64,
    /// Owners that changed.
    pub(crate) moves: u64,
    pub(crate) changes: u64,
}

impl Counts {
    pub(crate) fn since(self, before: Counts) -> Counts {
        Counts {
            flaps: self.flaps - before.flaps,
            moves: self.moves - before.moves,
            changes: self.changes - before.changes,
        }
    }
}

impl Seen {
    /// Goes on counting where another stopped.
    pub(crate) fn counting_from(counts: Counts) -> Seen {
        Seen { counts, ..Seen::default() }
    }

    pub(crate) fn apply(&mut self, event: &Event, wanted: &Wanted) {
        match event {
            Event::Reset(_) => self.loading = Some(BTreeMap::new()),
            Event::Snapshot(member) => {
                let members = self.loading.get_or_insert_default();
                members.insert(member.id.clone(), member.clone());
            }
            Event::CaughtUp => self.caught_up(wanted),
            Event::Unregistered { member, .. } => {
                self.counts.changes += 1;
                self.counts.flaps += u64::from(wanted.contains(&member.id));
                self.members.remove(&member.id);
            }
            Event::StatusChanged(member) => {
                let down = member.status == Status::Down && wanted.contains(&member.id);
                self.counts.flaps += u64::from(down);
                self.change(member);
            }
            Event::OwnerChanged(member) => {
                self.counts.moves += 1;
                self.change(member);
            }
            Event::Registered(member) | Event::Updated(member) => self.change(member),
        }
    }

    fn change(&mut self, member: &Arc<Member>) {
        self.counts.changes += 1;
        self.members.insert(member.id.clone(), member.clone());
    }

    /// What changed while the snapshot was loaded counts as well.
    fn caught_up(&mut self, wanted: &Wanted) {
        let Some(loaded) = self.loading.take() else { return };
        let was_up = |member: &&Arc<Member>| member.status == Status::Up && wanted.contains(&member.id);
        let is_up = |member: &Arc<Member>| loaded.get(&member.id).is_some_and(|now| now.status == Status::Up);
        let fell = self.members.values().filter(was_up).filter(|member| !is_up(member)).count();
        self.counts.flaps += fell as u64;
        self.members = loaded;
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Arc<Member>> {
        self.members.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Shown as up and fed by this node.
    pub(crate) fn up_at(&self, node: &str) -> BTreeSet<String> {
        let of_node = |member: &&Arc<Member>| member.status == Status::Up && member.owner.node == node;
        self.members.values().filter(of_node).map(|member| member.id.clone()).collect()
    }

    /// How many of these are shown as up, whoever feeds them.
    pub(crate) fn up_of(&self, ids: &BTreeSet<String>) -> usize {
        ids.iter().filter(|id| self.member(id).is_some_and(|member| member.status == Status::Up)).count()
    }

    /// How many of these are fed by which node.
    pub(crate) fn owners(&self, ids: &BTreeSet<String>) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for member in ids.iter().filter_map(|id| self.member(id)) {
            *owners.entry(member.owner.node.clone()).or_default() += 1;
        }
        owners
    }

    /// Up members of a service.
    pub(crate) fn up_in(&self, service: &str) -> usize {
        self.members.values().filter(|member| member.service == service && member.status == Status::Up).count()
    }

    /// The same members in the same versions.
    pub(crate) fn same(&self, other: &Seen) -> bool {
        let is_same = |(a, b): (&Arc<Member>, &Arc<Member>)| {
            a.id == b.id && a.version == b.version && a.status == b.status && a.owner.node == b.owner.node
        };
        self.loading.is_none()
            && other.loading.is_none()
            && self.members.len() == other.members.len()
            && self.members.values().zip(other.members.values()).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_client::{Owner, ResetReason};

    fn member(id: &str, status: Status, node: &str, version: &str) -> Arc<Member> {
        Arc::new(Member {
            id: id.into(),
            service: "web".into(),
            locality: String::new(),
            created: 0,
            revision: String::new(),
            address: String::new(),
            endpoints: BTreeMap::new(),
            weight: 1,
            status,
            drained: false,
            metadata: BTreeMap::new(),
            owner: Owner { node: node.into(), since: 0 },
            version: version.into(),
            client: "c".into(),
        })
    }

    fn wanted(ids: &[&str]) -> Wanted {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn seen(events: &[Event], wanted: &Wanted) -> Seen {
        let mut seen = Seen::default();
        events.iter().for_each(|event| seen.apply(event, wanted));
        seen
    }

    #[test]
    fn only_wanted_members_flap() {
        let wanted = wanted(&["a"]);
        let up = |id| Event::Snapshot(member(id, Status::Up, "n1", "1"));
        let down = |id| Event::StatusChanged(member(id, Status::Down, "n1", "2"));
        let seen = seen(&[up("a"), up("b"), Event::CaughtUp, down("a"), down("b")], &wanted);
        assert_eq!(seen.counts, Counts { flaps: 1, moves: 0, changes: 2 });
        assert_eq!((seen.up_at("n1").len(), seen.up_in("web"), seen.len()), (0, 0, 2));
    }

    #[test]
    fn vanishing_is_a_flap_moving_is_none() {
        let wanted = wanted(&["a"]);
        let at = |node| member("a", Status::Up, node, node);
        let mut seen = seen(&[Event::Snapshot(at("n1")), Event::CaughtUp, Event::OwnerChanged(at("n2"))], &wanted);
        assert_eq!(seen.counts, Counts { flaps: 0, moves: 1, changes: 1 });
        assert_eq!(seen.owners(&wanted), BTreeMap::from([("n2".to_owned(), 1)]));
        seen.apply(&Event::Unregistered { member: at("n2"), version: "3".into() }, &wanted);
        assert_eq!(seen.counts.flaps, 1);
    }

    #[test]
    fn a_new_snapshot_is_compared_with_what_was_known() {
        let wanted = wanted(&["a", "b"]);
        let up = |id| Event::Snapshot(member(id, Status::Up, "n1", "1"));
        let reset = Event::Reset(ResetReason::TooOld);
        let seen = seen(&[up("a"), up("b"), Event::CaughtUp, reset, up("b"), Event::CaughtUp], &wanted);
        assert_eq!((seen.counts.flaps, seen.len()), (1, 1));
    }

    #[test]
    fn views_are_the_same_if_versions_are() {
        let one =
            |version| seen(&[Event::Snapshot(member("a", Status::Up, "n1", version)), Event::CaughtUp], &wanted(&[]));
        assert!(one("1").same(&one("1")));
        assert!(!one("1").same(&one("2")));
        assert!(!one("1").same(&Seen::default()));
        let loading = seen(&[Event::Snapshot(member("a", Status::Up, "n1", "1"))], &wanted(&[]));
        assert!(!one("1").same(&loading));
    }
}
