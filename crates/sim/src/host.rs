//! The machine a node runs on: its clocks, its disk, its inbox and the faults that affect it.

use crate::client::FromClient;
use crate::http::SendResult;
use crate::invariants::Published;
use crate::network::{Micros, SECOND};
use bytes::Bytes;
use convoke_core::member::Checks;
use convoke_core::node::{Archive, CheckReport};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// After this time without a fault, a node has no excuse.
pub const CALM: Micros = 15 * SECOND;

/// An input of a node, in the order of arrival.
#[derive(Clone, Debug)]
pub enum Input {
    Wake,
    Accepted {
        conn: u64,
        side: usize,
    },
    Dialled {
        dial: u64,
        conn: u64,
        side: usize,
    },
    DialFailed {
        dial: u64,
    },
    Frame {
        conn: u64,
        side: usize,
        frame: Bytes,
    },
    Closed {
        conn: u64,
        side: usize,
    },
    Client {
        conn: u64,
        message: Box<FromClient>,
    },
    ClientGone {
        conn: u64,
    },
    /// An HTTP request arrived.
    Http {
        exchange: u64,
    },
    /// A kept connection of an HTTP client ended.
    HttpHangUp {
        connection: u64,
    },
    /// The node continues an HTTP request.
    HttpStep {
        task: u64,
    },
    /// The result of a request that was forwarded over HTTP.
    HttpReply {
        task: u64,
        result: Box<SendResult>,
    },
    /// SIGTERM.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    Running,
    /// Not running; it will be started again.
    Down,
    /// Permanently lost.
    Gone,
}

/// A period in which faults affect a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPeriod {
    active: u32,
    since: Micros,
    until: Micros,
}

impl FaultPeriod {
    pub fn begin(&mut self, now: Micros) {
        if self.active == 0 && now.saturating_sub(self.until) > CALM {
            self.since = now;
        }
        self.active += 1;
        self.until = now;
    }

    pub fn end(&mut self, now: Micros) {
        self.active = self.active.saturating_sub(1);
        self.until = now;
    }

    /// Records an instantaneous fault.
    pub fn touch(&mut self, now: Micros) {
        self.begin(now);
        self.end(now);
    }

    /// Returns how long the current fault period has lasted; zero without one.
    pub fn lasting(&self, now: Micros) -> Micros {
        if self.active > 0 || now.saturating_sub(self.until) <= CALM { now.saturating_sub(self.since) } else { 0 }
    }

    /// Returns the time since the last fault.
    pub fn calm_for(&self, now: Micros) -> Micros {
        if self.active > 0 { 0 } else { now.saturating_sub(self.until) }
    }
}

/// Time after a pause until all links are certainly established again.
const RECOVERY: Micros = 10 * SECOND;

#[derive(Debug)]
pub struct Host {
    pub config: Config,
    pub id: NodeId,
    pub region: usize,
    pub state: HostState,
    pub node: Option<Node>,
    /// Number of starts. Events of an earlier process are ignored.
    pub boot: u64,
    /// New incarnations within the current process because the incarnation number was already in use.
    pub collisions: u32,
    /// Reading of the node's monotonic clock at virtual time 0.
    pub clock_base: Micros,
    /// Error of the wall clock in milliseconds.
    pub wall_offset: i64,
    pub persisted: u64,
    /// Agentless members on its disk.
    pub archive: Archive,
    /// The checks that this node runs (HC3).
    pub checks: BTreeMap<String, (u64, Arc<Checks>)>,
    /// Reports about checks that it received as the owner.
    pub reports: Vec<CheckReport>,
    pub has_disk: bool,
    pub inbox: VecDeque<Input>,
    pub paused_until: Option<Micros>,
    pub paused_since: Micros,
    /// Time each input costs while the host is slow.
    pub slow: Micros,
    pub busy_until: Micros,
    /// The wake-up that is scheduled on the event heap.
    pub wake_at: Option<Micros>,
    pub wake_missed: bool,
    /// Dials in progress, with the connection once there is one.
    pub dials: BTreeMap<u64, Option<u64>>,
    /// Connections whose other end detects a power cut only when this host is back.
    pub silenced: Vec<(u64, usize)>,
    /// Names that the embedding application registers, again after each restart.
    pub names: BTreeMap<String, String>,
    /// The published changes: every member and name the node shows.
    pub published: Published,
    /// The checker's own watcher.
    pub observer: Option<usize>,
    pub started_at: Micros,
    /// Time since which it serves. If it started alone, the time since which it has peers.
    pub serving_at: Option<Micros>,
    /// It serves without ever having had a peer.
    pub alone: bool,
    /// Its process has had a link to another node (N7).
    pub met: bool,
    pub stopped_at: Option<Micros>,
    /// Time of the last full merge, which may drop slots whose tombstones the node never had (D8).
    pub full_merge_at: Option<Micros>,
    /// When it last held everything that some other node held.
    pub exchanged_at: Micros,
    /// Partitions, crashes, slowness, spikes.
    pub fault_period: FaultPeriod,
    /// End of the last pause, and its length. Pauses in quick succession count as one.
    pub last_pause: (Micros, Micros),
    /// Number of active faults that delay its messages for so long that its links may break.
    pub long_delays: u32,
    /// Faults that slow it down or delay its messages at all.
    pub delays: FaultPeriod,
    /// The host is slow, and its inbox fills up.
    pub overloaded: bool,
    /// When its process last ended.
    pub last_stop: Micros,
    /// When it last lost a link.
    pub link_lost_at: Micros,
    /// The host that runs a second process with this id.
    pub duplicate: Option<usize>,
    /// When such a process ended.
    pub duplicate_ended_at: Option<Micros>,
    /// This is the second process of such a pair; clients do not have its address.
    pub is_second: bool,
    pub stopping: bool,
    /// The power is off: connection attempts get no answer, not even a rejection.
    pub dark: bool,
}

impl Host {
    pub fn new(config: Config, region: usize) -> Self {
        Host {
            id: config.node.clone(),
            config,
            region,
            state: HostState::Down,
            node: None,
            boot: 0,
            collisions: 0,
            clock_base: 0,
            wall_offset: 0,
            persisted: 0,
            archive: Archive::default(),
            checks: BTreeMap::new(),
            reports: Vec::new(),
            has_disk: true,
            inbox: VecDeque::new(),
            paused_until: None,
            paused_since: 0,
            slow: 0,
            busy_until: 0,
            wake_at: None,
            wake_missed: false,
            dials: BTreeMap::new(),
            silenced: Vec::new(),
            names: BTreeMap::new(),
            published: Published::default(),
            observer: None,
            started_at: 0,
            serving_at: None,
            alone: false,
            met: false,
            stopped_at: None,
            full_merge_at: None,
            exchanged_at: 0,
            fault_period: FaultPeriod::default(),
            last_pause: (0, 0),
            long_delays: 0,
            delays: FaultPeriod::default(),
            overloaded: false,
            last_stop: 0,
            link_lost_at: 0,
            duplicate: None,
            duplicate_ended_at: None,
            is_second: false,
            stopping: false,
            dark: false,
        }
    }

    pub fn running(&self) -> bool {
        self.state == HostState::Running
    }

    /// Returns the node if it is serving; invariants compare only these.
    pub fn serving(&self) -> Option<&Node> {
        self.node.as_ref().filter(|node| self.state == HostState::Running && node.is_serving())
    }

    pub fn time(&self, now: Micros) -> Time {
        Time::from_micros(now + self.clock_base)
    }

    /// Virtual time of a point on the node's clock.
    pub fn virtual_time(&self, time: Time) -> Micros {
        time.as_micros().saturating_sub(self.clock_base)
    }

    pub fn wall_ms(&self, now: Micros) -> u64 {
        const EPOCH_MS: i64 = 1_800_000_000_000;
        (EPOCH_MS + (now / 1000) as i64 + self.wall_offset).max(0) as u64
    }

    pub fn paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Ends a pause, if there is one.
    pub fn end_pause(&mut self, now: Micros) -> bool {
        let paused = self.paused_until.take().is_some();
        if paused {
            self.last_pause = (now, self.pause_length(now));
        }
        paused
    }

    /// Length of the current pause, including earlier ones from which the host has hardly recovered.
    fn pause_length(&self, now: Micros) -> Micros {
        let (ended, length) = self.last_pause;
        let earlier = if self.paused_since.saturating_sub(ended) < RECOVERY { length } else { 0 };
        now - self.paused_since + earlier
    }

    /// Returns how long the current fault period has lasted. A pause since then gave the host no time to recover.
    pub fn faulty_for(&self, now: Micros) -> Micros {
        let (ended, length) = self.last_pause;
        let since = if self.paused() {
            now - self.pause_length(now).min(now)
        } else if length > 0 && now - ended <= CALM {
            ended.saturating_sub(length)
        } else {
            now
        };
        self.fault_period.lasting(since)
    }

    /// How long ago the last pause longer than `length` ended.
    pub fn calm_after_pause(&self, now: Micros, length: Micros) -> Micros {
        if self.paused() && self.pause_length(now) > length {
            return 0;
        }
        if self.last_pause.1 > length { now.saturating_sub(self.last_pause.0) } else { Micros::MAX }
    }
}
