//! The state of the screen. Independent of terminal and network.

use super::metrics::{self, Sample};
use convoke_client::Event;
use convoke_core::member::{ChangeKind, Health};
use convoke_proto::v1;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const EVENTS_MAX: usize = 1_000;
/// Period over which the changes of services are counted.
const BUSY: Duration = Duration::from_secs(60);
const BUSY_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    #[default]
    Nodes,
    Services,
    Events,
}

impl Panel {
    fn next(self) -> Panel {
        match self {
            Panel::Nodes => Panel::Services,
            Panel::Services => Panel::Events,
            Panel::Events => Panel::Nodes,
        }
    }
}

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    NextPanel,
    PreviousPanel,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    Pause,
}

/// All answers of one query.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) address: String,
    pub(crate) status: v1::StatusResponse,
    pub(crate) nodes: Vec<v1::Node>,
    pub(crate) services: Vec<v1::Service>,
    pub(crate) counters: Sample,
    /// `None` if the node has no log.
    pub(crate) log: Option<v1::LogStatusResponse>,
}

/// A change as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// When it was received, in UNIX milliseconds.
    pub(crate) at: u64,
    pub(crate) what: &'static str,
    pub(crate) id: String,
    pub(crate) service: String,
    pub(crate) owner: String,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) answers: Option<Answers>,
    asked: Option<Instant>,
    pub(crate) rates: Option<Vec<(&'static str, f64)>>,
    /// Why there are no newer answers.
    pub(crate) error: Option<String>,
    /// The newest first.
    pub(crate) changes: VecDeque<Change>,
    busy: VecDeque<(Instant, String)>,
    pub(crate) focus: Panel,
    pub(crate) paused: bool,
    scroll: [usize; 3],
}

/// A service and its recent number of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusyService {
    pub(crate) service: v1::Service,
    pub(crate) changes: usize,
}

/// The whole screen as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Look<'a> {
    address: &'a str,
    status: &'a v1::StatusResponse,
    nodes: &'a [v1::Node],
    services: &'a [v1::Service],
    /// `null` if another node answered before, or the node was restarted since.
    per_second: Option<BTreeMap<String, f64>>,
    /// `null` if the node has no log.
    log: Option<&'a v1::LogStatusResponse>,
}

impl Model {
    pub(crate) fn look(&self) -> Option<Look<'_>> {
        let Answers { address, status, nodes, services, log, .. } = self.answers.as_ref()?;
        let named = |(name, rate): &(&str, f64)| (name.to_lowercase().replace(' ', "_"), *rate);
        let per_second = self.rates.as_ref().map(|rates| rates.iter().map(named).collect());
        Some(Look { address, status, nodes, services, per_second, log: log.as_ref() })
    }

    pub(crate) fn answered(&mut self, now: Instant, answers: Answers) {
        self.rates = match (&self.answers, self.asked) {
            (Some(before), Some(asked)) if before.status.id == answers.status.id => {
                metrics::rates(&before.counters, &answers.counters, now.duration_since(asked))
            }
            _ => None,
        };
        (self.answers, self.asked, self.error) = (Some(answers), Some(now), None);
    }

    pub(crate) fn failed(&mut self, why: String) {
        self.error = Some(why);
        self.rates = None;
    }

    /// Age of the shown answers.
    pub(crate) fn age(&self, now: Instant) -> Option<Duration> {
        self.asked.map(|asked| now.duration_since(asked))
    }

    /// `at` is the time of day in UNIX milliseconds.
    pub(crate) fn happened(&mut self, now: Instant, at: u64, event: &Event) {
        let (what, member) = match event {
            Event::Registered(member) => (ChangeKind::Registered.as_str(), member),
            Event::Updated(member) if member.health == Health::Critical => (member.health.as_str(), member),
            Event::Updated(member) => (ChangeKind::Updated.as_str(), member),
            Event::StatusChanged(member) => (member.status.as_str(), member),
            Event::OwnerChanged(member) => (ChangeKind::OwnerChanged.as_str(), member),
            Event::Unregistered { member, .. } => (ChangeKind::Unregistered.as_str(), member),
            // The other panels show existing members.
            Event::Snapshot(_) | Event::CaughtUp | Event::Reset(_) => return,
        };
        self.busy.push_back((now, member.service.clone()));
        while self.busy.len() > BUSY_MAX || self.busy.front().is_some_and(|(at, _)| now.duration_since(*at) > BUSY) {
            self.busy.pop_front();
        }
        if self.paused {
            return;
        }
        let (id, service, owner) = (member.id.clone(), member.service.clone(), member.owner.node.clone());
        self.changes.push_front(Change { at, what, id, service, owner });
        self.changes.truncate(EVENTS_MAX);
    }

    /// Services with the most recent changes first, then those with the most members.
    pub(crate) fn services(&self, now: Instant) -> Vec<BusyService> {
        let mut changes: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, service) in self.busy.iter().filter(|(at, _)| now.duration_since(*at) <= BUSY) {
            *changes.entry(service).or_default() += 1;
        }
        let services = self.answers.iter().flat_map(|answers| &answers.services);
        let mut busy: Vec<BusyService> = services
            .map(|service| BusyService {
                service: service.clone(),
                changes: changes.get(service.service.as_str()).copied().unwrap_or(0),
            })
            .collect();
        let size = |busy: &BusyService| busy.service.up + busy.service.down + busy.service.drained;
        busy.sort_by(|a, b| {
            b.changes.cmp(&a.changes).then(size(b).cmp(&size(a))).then(a.service.service.cmp(&b.service.service))
        });
        busy
    }

    /// Handles a key; returns whether to continue.
    pub(crate) fn press(&mut self, key: Key) -> bool {
        const PAGE: usize = 10;
        let scroll = &mut self.scroll[self.focus as usize];
        match key {
            Key::Quit => return false,
            Key::NextPanel => self.focus = self.focus.next(),
            Key::PreviousPanel => self.focus = self.focus.next().next(),
            Key::Up => *scroll = scroll.saturating_sub(1),
            Key::Down => *scroll = scroll.saturating_add(1),
            Key::PageUp => *scroll = scroll.saturating_sub(PAGE),
            Key::PageDown => *scroll = scroll.saturating_add(PAGE),
            Key::Home => *scroll = 0,
            Key::Pause => self.paused = !self.paused,
        }
        true
    }

    /// The first row to show, so that a panel of this height is filled.
    pub(crate) fn first_row(&mut self, panel: Panel, rows: usize, height: usize) -> usize {
        let scroll = &mut self.scroll[panel as usize];
        *scroll = (*scroll).min(rows.saturating_sub(height));
        *scroll
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use convoke_client::{Member, Owner, Status};
    use std::sync::Arc;

    pub(crate) fn answers(writes: f64) -> Answers {
        let node = |id: &str, state: v1::NodeState, self_| v1::Node {
            id: id.into(),
            state: state.into(),
            region: "eu".into(),
            address: format!("{id}.example:7700"),
            ready: true,
            self_,
            incarnation: 1,
            ..v1::Node::default()
        };
        let service = |name: &str, up, down| v1::Service {
            service: name.into(),
            up,
            down,
            critical: down,
            ..v1::Service::default()
        };
        Answers {
            address: "127.0.0.1:7700".into(),
            status: v1::StatusResponse {
                id: "n1".into(),
                cluster: "shop".into(),
                version: "0.1.0".into(),
                uptime_ms: 90_000,
                ready: true,
                incarnation: 1,
                counts: Some(v1::status_response::Counts { members: 6, sessions: 3, ..Default::default() }),
                ..Default::default()
            },
            nodes: vec![node("n1", v1::NodeState::Up, true), node("n2", v1::NodeState::Lost, false)],
            services: vec![service("web", 3, 0), service("orders", 2, 1)],
            counters: Sample::from([("convoke_registry_local_writes_total".to_owned(), writes)]),
            log: None,
        }
    }

    pub(crate) fn event(id: &str, service: &str) -> Event {
        Event::Registered(Arc::new(Member {
            id: id.into(),
            service: service.into(),
            locality: String::new(),
            created: 0,
            revision: String::new(),
            address: String::new(),
            endpoints: BTreeMap::new(),
            weight: 1,
            status: Status::Up,
            drained: false,
            maintenance: None,
            metadata: BTreeMap::new(),
            owner: Owner { node: "n1".into(), since: 0 },
            version: "1".into(),
            client: "c".into(),
            health: Default::default(),
            checks: Vec::new(),
        }))
    }

    #[test]
    fn rates_need_two_answers_of_the_same_node() {
        let (mut model, begin) = (Model::default(), Instant::now());
        model.answered(begin, answers(10.0));
        assert_eq!(model.rates, None);
        model.answered(begin + Duration::from_secs(2), answers(14.0));
        assert_eq!(model.rates.as_ref().unwrap()[0], ("writes", 2.0));
        let mut other = answers(99.0);
        other.status.id = "n2".into();
        model.answered(begin + Duration::from_secs(3), other);
        assert_eq!(model.rates, None);
    }

    #[test]
    fn the_busiest_service_is_first_and_calms_down() {
        let (mut model, begin) = (Model::default(), Instant::now());
        model.answered(begin, answers(0.0));
        let names =
            |model: &Model, now| model.services(now).iter().map(|s| s.service.service.clone()).collect::<Vec<_>>();
        assert_eq!(names(&model, begin), ["orders", "web"]);
        model.happened(begin, 0, &event("web-1", "web"));
        assert_eq!(names(&model, begin), ["web", "orders"]);
        assert_eq!(names(&model, begin + BUSY * 2), ["orders", "web"]);
    }

    #[test]
    fn events_are_bounded_newest_first_and_stand_still_when_paused() {
        let (mut model, now) = (Model::default(), Instant::now());
        for number in 0..EVENTS_MAX + 5 {
            model.happened(now, 0, &event(&format!("m{number}"), "web"));
        }
        assert_eq!(model.changes.len(), EVENTS_MAX);
        assert_eq!(model.changes[0].id, format!("m{}", EVENTS_MAX + 4));
        model.press(Key::Pause);
        model.happened(now, 0, &event("late", "web"));
        assert_ne!(model.changes[0].id, "late");
    }

    #[test]
    fn scrolling_stays_within_what_there_is() {
        let mut model = Model::default();
        for _ in 0..50 {
            assert!(model.press(Key::Down));
        }
        assert_eq!(model.first_row(Panel::Nodes, 8, 5), 3);
        assert_eq!(model.first_row(Panel::Nodes, 4, 5), 0);
        model.press(Key::NextPanel);
        assert_eq!(model.focus, Panel::Services);
        model.press(Key::PreviousPanel);
        assert_eq!(model.focus, Panel::Nodes);
        assert!(!model.press(Key::Quit));
    }
}
