//! Pickers choose the member of a view for the next request. They choose routable members only: up and not
//! drained.

use crate::{Member, Status, View};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Picks the members in turn.
#[derive(Debug)]
pub struct RoundRobin {
    members: Latest<Vec<Arc<Member>>>,
    turn: AtomicUsize,
}

impl RoundRobin {
    pub fn new(view: View) -> RoundRobin {
        RoundRobin { members: Latest::new(view), turn: start() }
    }

    /// Returns `None` if no member is routable.
    pub fn pick(&self) -> Option<Arc<Member>> {
        self.members.with(routable, |members| turn(members, &self.turn))
    }
}

/// Picks in turn among the nearest members: those that share the most labels of a locality, from the left. If no member
/// of a zone is routable, it uses the whole region, and so on up to any member.
#[derive(Debug)]
pub struct LocalityPreferring {
    locality: String,
    members: Latest<Vec<Arc<Member>>>,
    turn: AtomicUsize,
}

impl LocalityPreferring {
    /// `locality` is the locality of the caller, for example `aws.us-east-1.a`.
    pub fn new(view: View, locality: impl Into<String>) -> LocalityPreferring {
        LocalityPreferring { locality: locality.into(), members: Latest::new(view), turn: start() }
    }

    /// Returns `None` if no member is routable.
    pub fn pick(&self) -> Option<Arc<Member>> {
        let nearest = |members| nearest(routable(members), &self.locality);
        self.members.with(nearest, |members| turn(members, &self.turn))
    }
}

/// Picks members in turn, in proportion to their weights and evenly spread.
#[derive(Debug)]
pub struct WeightedRoundRobin {
    members: Latest<Weighted>,
}

impl WeightedRoundRobin {
    pub fn new(view: View) -> WeightedRoundRobin {
        WeightedRoundRobin { members: Latest::new(view) }
    }

    /// Returns `None` if no member is routable.
    pub fn pick(&self) -> Option<Arc<Member>> {
        self.members.with(|members| Weighted::new(routable(members)), Weighted::pick)
    }
}

/// A value derived from a view and recomputed when the view has changed.
#[derive(Debug)]
struct Latest<T> {
    view: View,
    made: Mutex<Option<(u64, T)>>,
}

impl<T> Latest<T> {
    fn new(view: View) -> Latest<T> {
        Latest { view, made: Mutex::new(None) }
    }

    fn with<R>(&self, make: impl FnOnce(Vec<Arc<Member>>) -> T, use_it: impl FnOnce(&mut T) -> R) -> R {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the members: a change in between is then seen the next time.
        let changes = self.view.changes();
        if made.as_ref().is_none_or(|(at, _)| *at != changes) {
            *made = None;
        }
        let (_, value) = made.get_or_insert_with(|| (changes, make(self.view.list())));
        use_it(value)
    }
}

/// A random start, so that clients do not all pick the first member.
fn start() -> AtomicUsize {
    AtomicUsize::new(fastrand::usize(..))
}

fn turn(members: &[Arc<Member>], turn: &AtomicUsize) -> Option<Arc<Member>> {
    let turn = turn.fetch_add(1, Ordering::Relaxed);
    members.get(turn % members.len().max(1)).cloned()
}

/// Members of a service from which on a mass failure is possible.
const PANIC_MEMBERS_MIN: usize = 3;

fn routable(mut members: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
    let up = |member: &Arc<Member>| member.status == Status::Up && !member.drained;
    if members.iter().all(|member| member.routable() == up(member)) {
        members.retain(up);
        return members;
    }
    // With so few that are not critical, the checks are wrong or the others would be overloaded (HC6).
    let mut services: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for member in members.iter().filter(|member| up(member)) {
        let (total, good) = services.entry(member.service.clone()).or_default();
        *total += 1;
        *good += usize::from(member.routable());
    }
    let panics = |service: &str| {
        services.get(service).is_some_and(|(total, good)| *total >= PANIC_MEMBERS_MIN && good * 2 < *total)
    };
    members.retain(|member| member.routable() || up(member) && panics(&member.service));
    members
}

fn nearest(mut members: Vec<Arc<Member>>, locality: &str) -> Vec<Arc<Member>> {
    let common = |member: &Arc<Member>| {
        let labels = member.locality.split('.').zip(locality.split('.'));
        labels.take_while(|(theirs, ours)| theirs == ours && !ours.is_empty()).count()
    };
    let best = members.iter().map(common).max().unwrap_or(0);
    members.retain(|member| common(member) == best);
    members
}

/// Smooth weighted round robin: each turn adds its weight to every member, picks the one with the highest value and
/// subtracts the sum of all weights from it.
#[derive(Debug)]
struct Weighted {
    members: Vec<(i64, Arc<Member>)>,
}

impl Weighted {
    fn new(members: Vec<Arc<Member>>) -> Weighted {
        Weighted { members: members.into_iter().map(|member| (0, member)).collect() }
    }

    fn pick(&mut self) -> Option<Arc<Member>> {
        let mut total = 0;
        for (credit, member) in &mut self.members {
            *credit += i64::from(member.weight);
            total += i64::from(member.weight);
        }
        let (credit, member) = self.members.iter_mut().max_by_key(|(credit, _)| *credit)?;
        *credit -= total;
        Some(member.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, locality: &str, weight: u16) -> Arc<Member> {
        Arc::new(Member {
            id: id.into(),
            service: "s".into(),
            locality: locality.into(),
            created: 0,
            revision: String::new(),
            address: String::new(),
            endpoints: BTreeMap::new(),
            weight,
            status: Status::Up,
            drained: false,
            maintenance: None,
            metadata: BTreeMap::new(),
            owner: crate::Owner::default(),
            version: "1".into(),
            client: "c".into(),
            health: Default::default(),
            checks: Vec::new(),
        })
    }

    fn ids(members: &[Arc<Member>]) -> Vec<&str> {
        members.iter().map(|member| member.id.as_str()).collect()
    }

    #[test]
    fn down_and_drained_members_are_not_picked() {
        let down = Member { status: Status::Down, ..Member::clone(&member("down", "", 1)) };
        let drained = Member { drained: true, ..Member::clone(&member("drained", "", 1)) };
        let members = vec![Arc::new(down), member("up", "", 1), Arc::new(drained)];
        assert_eq!(ids(&routable(members)), ["up"]);
    }

    #[test]
    fn critical_members_are_not_picked_unless_too_many_are() {
        let critical = |id: &str| {
            let health = crate::Health::Critical;
            Arc::new(Member { health, ..Member::clone(&member(id, "", 1)) })
        };
        let half = vec![member("a", "", 1), critical("b"), member("c", "", 1), critical("d")];
        assert_eq!(ids(&routable(half)), ["a", "c"]);
        let most = vec![member("a", "", 1), critical("b"), critical("c")];
        assert_eq!(ids(&routable(most)), ["a", "b", "c"], "the checks are wrong, or the others are overloaded");
        assert_eq!(ids(&routable(vec![critical("a"), member("b", "", 1)])), ["b"], "two are too few to tell");
    }

    #[test]
    fn all_members_are_picked_in_turn() {
        let members = vec![member("a", "", 1), member("b", "", 1), member("c", "", 1)];
        let at = AtomicUsize::new(usize::MAX);
        let picked: Vec<String> = (0..4).map(|_| turn(&members, &at).unwrap().id.clone()).collect();
        assert_eq!(picked[1..], ["a", "b", "c"]);
        assert_eq!(turn(&[], &at), None);
    }

    #[test]
    fn the_nearest_members_are_preferred_and_distant_ones_are_a_fallback() {
        let all = || {
            vec![member("a", "aws.us.a", 1), member("b", "aws.us.b", 1), member("c", "aws.eu.a", 1), member("d", "", 1)]
        };
        assert_eq!(ids(&nearest(all(), "aws.us.a")), ["a"]);
        assert_eq!(ids(&nearest(all(), "aws.us.z")), ["a", "b"]);
        assert_eq!(ids(&nearest(all(), "aws.ap.a")), ["a", "b", "c"]);
        assert_eq!(ids(&nearest(all(), "gcp.us.a")).len(), 4);
        assert_eq!(ids(&nearest(all(), "")).len(), 4);
        // Whole labels are compared: us-east-1 is not near us-east-10.
        let members = vec![member("a", "us-east-10.a", 1), member("b", "us-west.a", 1)];
        assert_eq!(ids(&nearest(members, "us-east-1.a")).len(), 2);
    }

    #[test]
    fn weights_are_kept_exactly_and_spread_evenly() {
        let mut weighted = Weighted::new(vec![member("a", "", 5), member("b", "", 1), member("c", "", 1)]);
        let picked: Vec<String> = (0..14).map(|_| weighted.pick().unwrap().id.clone()).collect();
        let count = |id: &str| picked.iter().filter(|picked| *picked == id).count();
        assert_eq!((count("a"), count("b"), count("c")), (10, 2, 2));
        let longest = picked.split(|id| id != "a").map(<[String]>::len).max().unwrap();
        assert!(longest <= 5, "{picked:?}");
        assert_eq!(Weighted::new(Vec::new()).pick(), None);
    }
}
