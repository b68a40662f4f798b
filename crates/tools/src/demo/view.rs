//! The members as a watcher at one node sees them, and the flaps among its events.

use convoke_client::{Event, Member, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids of members whose clients are connected and keep them registered. An event that reports one of them down or removed
/// is a flap.
pub(crate) type Expected = BTreeSet<String>;

/// An expected member that a watcher saw down or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flap {
    pub(crate) id: String,
    /// The last owner that the watcher saw.
    pub(crate) owner: String,
    /// `down` or `removed`.
    pub(crate) shown: &'static str,
}

impl Flap {
    fn of(member: &Member, shown: &'static str) -> Flap {
        Flap { id: member.id.clone(), owner: member.owner.node.clone(), shown }
    }
}

/// State built from the events of one watch.
#[derive(Debug, Default)]
pub(crate) struct View {
    members: BTreeMap<String, Arc<Member>>,
    /// A snapshot that is being loaded.
    loading: Option<BTreeMap<String, Arc<Member>>>,
    pub(crate) counts: Counts,
}

/// Counters, which only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Expected members that were reported down or removed.
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

impl View {
    /// Starts with the counters of another view.
    pub(crate) fn counting_from(counts: Counts) -> View {
        View { counts, ..View::default() }
    }

    /// Applies an event and returns its flaps.
    pub(crate) fn apply(&mut self, event: &Event, expected: &Expected) -> Vec<Flap> {
        let mut flaps = Vec::new();
        match event {
            Event::Reset(_) => self.loading = Some(BTreeMap::new()),
            Event::Snapshot(member) => {
                let members = self.loading.get_or_insert_default();
                members.insert(member.id.clone(), member.clone());
            }
            Event::CaughtUp => flaps = self.caught_up(expected),
            Event::Unregistered { member, .. } => {
                self.counts.changes += 1;
                flaps.extend(expected.contains(&member.id).then(|| Flap::of(member, "removed")));
                self.members.remove(&member.id);
            }
            Event::StatusChanged(member) => {
                let down = member.status == Status::Down && expected.contains(&member.id);
                flaps.extend(down.then(|| Flap::of(member, "down")));
                self.change(member);
            }
            Event::OwnerChanged(member) => {
                self.counts.moves += 1;
                self.change(member);
            }
            Event::Registered(member) | Event::Updated(member) => self.change(member),
        }
        self.counts.flaps += flaps.len() as u64;
        flaps
    }

    fn change(&mut self, member: &Arc<Member>) {
        self.counts.changes += 1;
        self.members.insert(member.id.clone(), member.clone());
    }

    /// Changes that the snapshot contains count as well.
    fn caught_up(&mut self, expected: &Expected) -> Vec<Flap> {
        let Some(loaded) = self.loading.take() else { return Vec::new() };
        let was_up = |member: &&Arc<Member>| member.status == Status::Up && expected.contains(&member.id);
        let flap = |member: &Arc<Member>| match loaded.get(&member.id) {
            Some(now) if now.status == Status::Up => None,
            Some(now) => Some(Flap::of(now, "down")),
            None => Some(Flap::of(member, "removed")),
        };
        let flaps = self.members.values().filter(was_up).filter_map(flap).collect();
        self.members = loaded;
        flaps
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Arc<Member>> {
        self.members.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Members that are up with this owner.
    pub(crate) fn up_at(&self, node: &str) -> BTreeSet<String> {
        let of_node = |member: &&Arc<Member>| member.status == Status::Up && member.owner.node == node;
        self.members.values().filter(of_node).map(|member| member.id.clone()).collect()
    }

    /// Number of these members that are up.
    pub(crate) fn up_of(&self, ids: &BTreeSet<String>) -> usize {
        ids.iter().filter(|id| self.member(id).is_some_and(|member| member.status == Status::Up)).count()
    }

    /// Number of these members by owner.
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
    pub(crate) fn same(&self, other: &View) -> bool {
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
            maintenance: None,
            metadata: BTreeMap::new(),
            owner: Owner { node: node.into(), since: 0 },
            version: version.into(),
            client: "c".into(),
            health: Default::default(),
            checks: Vec::new(),
        })
    }

    fn expected(ids: &[&str]) -> Expected {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn view(events: &[Event], expected: &Expected) -> View {
        let mut view = View::default();
        for event in events {
            view.apply(event, expected);
        }
        view
    }

    #[test]
    fn only_wanted_members_flap() {
        let expected = expected(&["a"]);
        let up = |id| Event::Snapshot(member(id, Status::Up, "n1", "1"));
        let down = |id| Event::StatusChanged(member(id, Status::Down, "n1", "2"));
        let view = view(&[up("a"), up("b"), Event::CaughtUp, down("a"), down("b")], &expected);
        assert_eq!(view.counts, Counts { flaps: 1, moves: 0, changes: 2 });
        assert_eq!((view.up_at("n1").len(), view.up_in("web"), view.len()), (0, 0, 2));
    }

    #[test]
    fn vanishing_is_a_flap_moving_is_none() {
        let expected = expected(&["a"]);
        let at = |node| member("a", Status::Up, node, node);
        let mut view = view(&[Event::Snapshot(at("n1")), Event::CaughtUp, Event::OwnerChanged(at("n2"))], &expected);
        assert_eq!(view.counts, Counts { flaps: 0, moves: 1, changes: 1 });
        assert_eq!(view.owners(&expected), BTreeMap::from([("n2".to_owned(), 1)]));
        let flaps = view.apply(&Event::Unregistered { member: at("n2"), version: "3".into() }, &expected);
        assert_eq!(flaps, [Flap { id: "a".into(), owner: "n2".into(), shown: "removed" }]);
        assert_eq!(view.counts.flaps, 1);
    }

    #[test]
    fn a_new_snapshot_is_compared_with_what_was_known() {
        let expected = expected(&["a", "b"]);
        let up = |id| Event::Snapshot(member(id, Status::Up, "n1", "1"));
        let reset = Event::Reset(ResetReason::TooOld);
        let view = view(&[up("a"), up("b"), Event::CaughtUp, reset, up("b"), Event::CaughtUp], &expected);
        assert_eq!((view.counts.flaps, view.len()), (1, 1));
    }

    #[test]
    fn views_are_the_same_if_versions_are() {
        let one =
            |version| view(&[Event::Snapshot(member("a", Status::Up, "n1", version)), Event::CaughtUp], &expected(&[]));
        assert!(one("1").same(&one("1")));
        assert!(!one("1").same(&one("2")));
        assert!(!one("1").same(&View::default()));
        let loading = view(&[Event::Snapshot(member("a", Status::Up, "n1", "1"))], &expected(&[]));
        assert!(!one("1").same(&loading));
    }
}
