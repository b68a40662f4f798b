//! Fault kinds, their weights and counts, and how each fault ends.

use crate::client::FromClient;
use crate::congestion::Congestion;
use crate::host::HostState;
use crate::network::{self, MINUTE, Micros, SECOND, Site, Spike};
use crate::plan::Kind;
use crate::replaced_process::ReplacedProcess;
use crate::serving::UnreplicatedClose;
use crate::world::{Crash, World, micros};
use std::collections::BTreeMap;

/// Longest pause of a starved host.
pub(crate) const STARVED_MAX: Micros = 4 * SECOND / 5;

macro_rules! faults {
    ($($name:ident: $weight:literal, $text:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($name,)* }

        impl Fault {
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }

            /// Relative weight in random selection; 0 if the fault only occurs together with another event.
            fn weight(self) -> u32 {
                match self { $(Fault::$name => $weight,)* }
            }
        }
    };
}

faults! {
    Crash: 8, "crash";
    PowerCut: 5, "power cut";
    Restart: 0, "restart, same id";
    PermanentLoss: 1, "permanent loss";
    Replacement: 0, "replacement";
    TotalRestart: 1, "total restart";
    GracefulStop: 4, "graceful stop";
    RollingRestart: 1, "rolling restart";
    SecondProcess: 1, "two processes, one id";
    Pause: 10, "pause";
    LongPause: 1, "long pause";
    Starvation: 4, "starvation";
    SlowNode: 4, "slow node";
    FullPartition: 8, "full partition";
    PartialPartition: 7, "partial partition";
    OneWayPartition: 7, "one-way partition";
    LongPartition: 1, "long partition";
    ConnectionReset: 8, "connection reset";
    DelaySpike: 5, "delay spike";
    ClockStep: 4, "clock step";
    ClientCrash: 8, "client crash";
    ClientRestart: 0, "client restart";
    ClientMove: 8, "client move";
    ClientPause: 4, "client pause";
    ClientLateMessage: 0, "client late message";
    ClientPartition: 4, "client cut off";
    LostAnswer: 6, "lost answer";
    DuplicateRequest: 0, "duplicate request";
    DuplicateId: 0, "duplicate member id";
    DuplicateClient: 2, "two processes, one client id";
    SlowWatcher: 3, "slow watcher";
    WatcherReconnect: 6, "watcher reconnect";
    ReplacedProcess: 5, "replaced process sends heartbeats";
    Congestion: 5, "growing delay in one direction";
    AgentlessOperation: 0, "agentless registration";
    HttpLostAnswer: 0, "HTTP: lost answer";
    HttpLateRequest: 0, "HTTP: late request";
    HttpClientCrash: 0, "HTTP: client crash";
    HttpClientPause: 0, "HTTP: client pause";
    HttpContestedId: 0, "HTTP: contested member id";
    HttpConnectionLost: 0, "HTTP: lost kept connection";
    HttpForgedSecret: 0, "HTTP: forged secret";
    HttpNodeBusy: 0, "HTTP: full queue of a node";
    HttpTableFull: 0, "HTTP: full session table";
    HttpWritesLost: 0, "HTTP: lost writes reported";
    HttpParallelRequest: 0, "HTTP: parallel request";
}

impl Fault {
    /// Minimum count in a hundred seeds. A run with fewer occurrences proves little about the fault.
    pub fn least(self) -> u64 {
        match self {
            // It follows every second permanent loss, and those are rare.
            Fault::Replacement => 1,
            Fault::HttpContestedId | Fault::HttpTableFull | Fault::HttpWritesLost => 10,
            _ if self.is_http() => 50,
            _ if self.weight() >= 4 => 50,
            _ => 5,
        }
    }

    /// Faults that any plan may use. The others are limited to themes: adding them here would change the runs of old
    /// seeds.
    pub fn everyday() -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(|fault| !fault.is_thematic() && !fault.is_http())
    }

    fn is_thematic(self) -> bool {
        matches!(self, Fault::ReplacedProcess | Fault::Congestion)
    }

    /// Whether runs of this kind must reach the minimum count. A theme uses the faults that belong together, so that
    /// focused runs need not have all everyday faults.
    pub fn is_required(self, kind: Kind) -> bool {
        // Only some new seeds have agentless members.
        if self == Fault::AgentlessOperation {
            return false;
        }
        match kind {
            Kind::Focused => self.is_thematic(),
            Kind::Full | Kind::Brief => !self.is_thematic(),
        }
    }

    /// Whether the HTTP clients and the nodes that serve them generate the fault (`crates/sim/src/http`).
    fn is_http(self) -> bool {
        matches!(
            self,
            Fault::HttpLostAnswer
                | Fault::HttpLateRequest
                | Fault::HttpClientCrash
                | Fault::HttpClientPause
                | Fault::HttpContestedId
                | Fault::HttpConnectionLost
                | Fault::HttpForgedSecret
                | Fault::HttpNodeBusy
                | Fault::HttpTableFull
                | Fault::HttpWritesLost
                | Fault::HttpParallelRequest
        )
    }
}

/// A scheduled action.
#[derive(Clone, Debug)]
pub enum Action {
    NextFault,
    NextOperation,
    NextAgentless,
    /// A node began to serve: its application registers its names.
    Serving {
        host: usize,
        boot: u64,
    },
    Start {
        host: usize,
    },
    Heal {
        cut: u64,
    },
    EndSpike {
        spike: u64,
    },
    EndSlow {
        host: usize,
        boot: u64,
    },
    Starve {
        host: usize,
        left: u32,
    },
    Roll {
        hosts: Vec<usize>,
    },
    EndSecondProcess {
        host: usize,
    },
    StartClient {
        client: usize,
    },
    StopClient {
        client: usize,
    },
    /// A paused client resumes.
    ClientResume {
        client: usize,
        process: u64,
    },
    Reconnect {
        watcher: usize,
    },
    Pace {
        watcher: usize,
        pace: Micros,
    },
    Reset {
        conn: u64,
    },
    /// A close may be answered by now.
    Replicated {
        close: Box<UnreplicatedClose>,
    },
    Duplicate {
        conn: u64,
        message: Box<FromClient>,
    },
    /// The delay of one direction of a connection grows.
    FallBehind {
        congestion: Congestion,
    },
    /// By now these hosts (host and process number) must have detected a crash.
    ExpectDetected {
        host: usize,
        stopped: Micros,
        observers: Vec<(usize, u64)>,
    },
    /// A replaced process sends a heartbeat.
    ReplacedProcessHeartbeat {
        process: ReplacedProcess,
    },
}

/// Fault selection and fault counts.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub counts: BTreeMap<Fault, u64>,
    /// Faults that this seed may use.
    pub enabled: Vec<Fault>,
    /// Whether faults and operations are still generated.
    pub active: bool,
    pub fault_interval: Micros,
    pub operation_interval: Micros,
    pub late_messages: bool,
    /// One in this many attaches is delayed.
    pub late_one_in: u32,
    pub duplicates: bool,
    /// Some clients register the same ids.
    pub contested_ids: bool,
    /// Number of shared ids, and one in how many registrations uses one of them.
    pub shared_ids: u64,
    pub shared_one_in: u32,
    pub next_id: u64,
    pub lost_for_good: usize,
}

impl Faults {
    pub fn count(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }
}

impl World {
    /// Starts the fault and operation processes.
    pub fn begin_chaos(&mut self) {
        self.faults.active = true;
        self.schedule_action(0, Action::NextFault);
        self.schedule_action(0, Action::NextOperation);
        self.begin_agentless();
    }

    pub(crate) fn inject(&mut self) {
        let total: u32 = self.faults.enabled.iter().map(|fault| fault.weight()).sum();
        if total == 0 {
            return;
        }
        let mut dice = self.rng.u32(..total);
        let enabled = self.faults.enabled.clone();
        for fault in enabled {
            if dice < fault.weight() {
                if self.apply_fault(fault) {
                    self.note(format!("fault: {}", fault.name()));
                    self.faults.count(fault);
                }
                return;
            }
            dice -= fault.weight();
        }
    }

    fn apply_fault(&mut self, fault: Fault) -> bool {
        let short = micros(self.setup.timers.heartbeat_timeout);
        let Some(host) = self.random_running_host() else { return false };
        match fault {
            Fault::Crash | Fault::PowerCut => {
                self.crash(host, if fault == Fault::Crash { Crash::Process } else { Crash::Silent });
                let down = self.duration(SECOND / 5, 4 * short);
                self.schedule_action(down, Action::Start { host });
                true
            }
            Fault::PermanentLoss => self.lose_for_good(host),
            Fault::TotalRestart => {
                for host in self.running_hosts() {
                    self.crash(host, Crash::Process);
                    let down = self.duration(SECOND / 5, 10 * SECOND);
                    self.schedule_action(down, Action::Start { host });
                }
                true
            }
            Fault::GracefulStop => {
                self.stop(host);
                let back = micros(self.setup.timers.handover_timeout) + self.duration(SECOND, 2 * short);
                self.schedule_action(back, Action::Start { host });
                true
            }
            Fault::RollingRestart => {
                let hosts = self.running_hosts();
                self.schedule_action(0, Action::Roll { hosts });
                true
            }
            Fault::SecondProcess => self.run_second_process(host),
            Fault::Pause => {
                let long = self.rng.u32(..4) == 0;
                let pause = if long { self.duration(short, 3 * short) } else { self.duration(SECOND / 10, short) };
                self.pause(host, pause);
                true
            }
            Fault::LongPause => {
                let dead = micros(self.setup.timers.dead_peer_timeout);
                let pause = self.duration(dead + SECOND, dead + dead / 2);
                self.pause(host, pause);
                true
            }
            Fault::Starvation => {
                let left = self.rng.u32(5..40);
                let strains = self.breaks_links(STARVED_MAX);
                self.hosts[host].delays.begin(self.now);
                if strains {
                    self.strain(host);
                }
                self.schedule_action(0, Action::Starve { host, left });
                true
            }
            Fault::SlowNode => {
                if self.hosts[host].slow > 0 {
                    return false;
                }
                let slow = self.rng.u64(1_000..30_000);
                let (now, boot) = (self.now, self.hosts[host].boot);
                self.hosts[host].slow = slow;
                self.hosts[host].fault_period.begin(now);
                self.hosts[host].delays.begin(now);
                let length = self.duration(SECOND, short);
                self.schedule_action(length, Action::EndSlow { host, boot });
                true
            }
            Fault::FullPartition | Fault::LongPartition | Fault::PartialPartition | Fault::OneWayPartition => {
                self.cut_apart(fault, host)
            }
            Fault::ConnectionReset => self.reset_some(network::Kind::Peer),
            Fault::LostAnswer => self.reset_some(network::Kind::Client),
            Fault::DelaySpike => self.spike(host),
            Fault::Congestion => self.congest(),
            Fault::ClockStep => {
                let step = self.wall_rng.i64(-7_200_000..7_200_000);
                self.hosts[host].wall_offset += step;
                true
            }
            Fault::ClientCrash
            | Fault::ClientMove
            | Fault::ClientPause
            | Fault::ClientPartition
            | Fault::DuplicateClient
            | Fault::ReplacedProcess => self.client_fault(fault),
            Fault::SlowWatcher | Fault::WatcherReconnect => self.watcher_fault(fault),
            Fault::AgentlessOperation
            | Fault::Restart
            | Fault::Replacement
            | Fault::ClientRestart
            | Fault::ClientLateMessage
            | Fault::DuplicateRequest
            | Fault::DuplicateId
            | Fault::HttpLostAnswer
            | Fault::HttpLateRequest
            | Fault::HttpClientCrash
            | Fault::HttpClientPause
            | Fault::HttpContestedId
            | Fault::HttpConnectionLost
            | Fault::HttpForgedSecret
            | Fault::HttpNodeBusy
            | Fault::HttpTableFull
            | Fault::HttpWritesLost
            | Fault::HttpParallelRequest => false,
        }
    }

    /// Returns a duration with a uniform logarithm: many short ones, few long ones.
    pub(crate) fn duration(&mut self, from: Micros, to: Micros) -> Micros {
        let (from, to) = (from.max(1) as f64, to.max(2) as f64);
        (from * (to / from).powf(self.rng.f64())) as Micros
    }

    pub(crate) fn running_hosts(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|host| self.hosts[*host].running()).collect()
    }

    fn random_running_host(&mut self) -> Option<usize> {
        let running: Vec<usize> =
            self.running_hosts().into_iter().filter(|host| !self.hosts[*host].is_second).collect();
        self.rng.choice(running)
    }

    pub(crate) fn lose_for_good(&mut self, host: usize) -> bool {
        let left = self.hosts.iter().filter(|h| h.state != HostState::Gone && !h.is_second).count();
        // The first host is the only seed in a star, the next one is in a line. Without it the other hosts cannot find
        // each other.
        let line = self.setup.topology == crate::world::Topology::Line;
        if line || left <= 2 || self.faults.lost_for_good * 3 >= self.setup.nodes || host == 0 || self.hosts.len() >= 60
        {
            return false;
        }
        self.crash(host, Crash::Silent);
        self.hosts[host].state = HostState::Gone;
        self.agentless_lost();
        self.faults.lost_for_good += 1;
        if self.rng.bool() {
            let seeds = vec!["h0:7000".to_owned()];
            let name = format!("n{}", self.hosts.len());
            let index = self.add_host(&name, seeds);
            self.faults.count(Fault::Replacement);
            self.start(index);
        }
        true
    }

    /// Adds a second process with the id of a host.
    pub(crate) fn add_second_process(&mut self, host: usize) -> usize {
        let name = self.hosts[host].id.as_str().to_owned();
        let seeds = (0..self.setup.nodes).filter(|i| *i != host).map(|i| format!("h{i}:7000")).collect();
        let second = self.add_host(&name, seeds);
        self.hosts[second].is_second = true;
        self.hosts[second].duplicate = Some(host);
        self.hosts[host].duplicate = Some(second);
        second
    }

    /// Starts a second process with a node's id on another machine.
    fn run_second_process(&mut self, host: usize) -> bool {
        if self.hosts[host].duplicate.is_some() || self.hosts.len() >= 60 {
            return false;
        }
        let second = self.add_second_process(host);
        self.reach.second_process_changed(self.now);
        self.start(second);
        let length = self.duration(10 * SECOND, 3 * MINUTE);
        self.schedule_action(length, Action::EndSecondProcess { host: second });
        self.schedule_action(length + SECOND, Action::Start { host });
        true
    }

    pub(crate) fn roll(&mut self, mut hosts: Vec<usize>) {
        let Some(host) = hosts.pop() else { return };
        if !self.faults.active {
            return;
        }
        self.stop(host);
        let back = micros(self.setup.timers.handover_timeout) + SECOND;
        self.schedule_action(back, Action::Start { host });
        self.schedule_action(back + 5 * SECOND, Action::Roll { hosts });
    }

    fn cut_apart(&mut self, fault: Fault, host: usize) -> bool {
        if self.network.cuts.len() >= 4 || self.hosts.len() < 2 {
            return false;
        }
        let (mut one, mut other) = (Site::Host(host).bit(), 0);
        let clients = self.rng.bool();
        for index in 0..self.hosts.len() {
            let bit = Site::Host(index).bit();
            if bit == one && index == host {
                continue;
            }
            if self.rng.u32(..3) == 0 { one |= bit } else { other |= bit }
        }
        if fault == Fault::PartialPartition {
            one = Site::Host(host).bit();
            let peer = self.rng.usize(..self.hosts.len());
            other = Site::Host(peer).bit();
        } else if clients && fault != Fault::OneWayPartition {
            for client in 0..self.clients.len() {
                let bit = Site::Client(client).bit();
                if self.rng.bool() { one |= bit } else { other |= bit }
            }
        }
        if one == other || other == 0 {
            return false;
        }
        let short = micros(self.setup.timers.heartbeat_timeout);
        let dead = micros(self.setup.timers.dead_peer_timeout);
        let length = match fault {
            Fault::LongPartition if self.rng.u32(..3) == 0 => dead * 8 / 3,
            Fault::LongPartition => dead * 16 / 15,
            _ if self.rng.u32(..8) == 0 => self.duration(short, micros(self.setup.timers.reconnect_timeout) * 3 / 2),
            _ => self.duration(SECOND / 5, 3 * short),
        };
        let cut = self.cut(one, other);
        self.schedule_action(length, Action::Heal { cut });
        if fault != Fault::OneWayPartition {
            let back = self.cut(other, one);
            self.schedule_action(length, Action::Heal { cut: back });
        }
        self.note(format!("cut {one:x} from {other:x} for {} ms", length / 1000));
        true
    }

    fn reset_some(&mut self, kind: network::Kind) -> bool {
        let conns = self.network.of_kind(kind);
        let Some(conn) = self.rng.choice(conns) else { return false };
        self.note(format!("connection {conn} breaks"));
        if kind == network::Kind::Client && self.rng.bool() {
            // Resets right after a request, so that the answer is lost.
            let Some(Site::Client(client)) = self.network.connections.get(&conn).map(|c| c.ends[0].place) else {
                return false;
            };
            self.client_operation(client);
            let delay = self.rng.u64(300..1_500);
            self.schedule_action(delay, Action::Reset { conn });
            return true;
        }
        self.reset(conn);
        true
    }

    fn spike(&mut self, host: usize) -> bool {
        let extra = self.duration(SECOND / 20, 2 * SECOND);
        let id = self.slow_links(host, extra);
        let length = self.duration(SECOND, 30 * SECOND);
        self.schedule_action(length, Action::EndSpike { spike: id });
        true
    }

    /// Delays everything from and to a host. Returns the number of the spike.
    pub(crate) fn slow_links(&mut self, host: usize, extra: Micros) -> u64 {
        let id = self.network.number();
        self.network.spikes.push(Spike { id, places: Site::Host(host).bit(), extra });
        self.hosts[host].fault_period.begin(self.now);
        self.hosts[host].delays.begin(self.now);
        if self.breaks_links(extra) {
            self.strain(host);
        }
        id
    }

    pub(crate) fn end_spike(&mut self, spike: u64) {
        let now = self.now;
        let Some(index) = self.network.spikes.iter().position(|s| s.id == spike) else { return };
        let spike = self.network.spikes.remove(index);
        for host in 0..self.hosts.len() {
            if Site::Host(host).bit() & spike.places != 0 {
                self.hosts[host].fault_period.end(now);
                self.hosts[host].delays.end(now);
                if self.breaks_links(spike.extra) {
                    self.relieve(host);
                }
            }
        }
    }

    /// Starts a fault that delays a host so much that its links may break. It excuses the host until it ends.
    pub(crate) fn strain(&mut self, host: usize) {
        self.hosts[host].long_delays += 1;
        self.update_reach();
    }

    pub(crate) fn relieve(&mut self, host: usize) {
        self.hosts[host].long_delays = self.hosts[host].long_delays.saturating_sub(1);
        self.update_reach();
    }

    fn client_fault(&mut self, fault: Fault) -> bool {
        let alive: Vec<usize> = (0..self.clients.len()).filter(|client| self.clients[*client].alive()).collect();
        let Some(client) = self.rng.choice(alive) else { return false };
        match fault {
            Fault::ClientCrash => {
                let silent = self.rng.bool();
                self.client_crash(client, silent);
                let long = micros(self.setup.timers.reconnect_timeout) * 2;
                let down = self.duration(SECOND / 10, long);
                self.schedule_action(down, Action::StartClient { client });
                true
            }
            Fault::ClientMove => {
                if self.clients[client].attached_to().is_none() {
                    return false;
                }
                if self.rng.bool() {
                    self.client_operation(client);
                }
                self.client_move(client, None);
                true
            }
            Fault::ClientPartition => {
                let place = Site::Client(client).bit();
                let length = self.duration(SECOND, 2 * micros(self.setup.timers.heartbeat_timeout));
                for (from, to) in [(place, !0), (!0, place)] {
                    let cut = self.cut_clients(from, to);
                    self.schedule_action(length, Action::Heal { cut });
                }
                true
            }
            Fault::ClientPause => {
                let length = self.duration(SECOND, 2 * micros(self.setup.timers.heartbeat_timeout));
                self.client_pause(client, length);
                true
            }
            Fault::ReplacedProcess => self.keep_replaced_process(client),
            _ => self.second_process(client),
        }
    }

    /// Like a cut, but it excuses no host.
    fn cut_clients(&mut self, from: u128, to: u128) -> u64 {
        let id = self.network.number();
        self.network.cuts.push(crate::network::Cut { id, since: self.now, from, to, clients_only: true });
        self.update_reach();
        id
    }

    fn watcher_fault(&mut self, fault: Fault) -> bool {
        let real: Vec<usize> = (0..self.watchers.len()).filter(|s| !self.watchers[*s].observer).collect();
        let Some(watcher) = self.rng.choice(real) else { return false };
        if fault == Fault::SlowWatcher {
            let pace = self.watchers[watcher].pace;
            self.watchers[watcher].pace = self.duration(5 * SECOND, 60 * SECOND);
            let length = self.duration(30 * SECOND, 3 * MINUTE);
            self.schedule_action(length, Action::Pace { watcher, pace: pace.min(SECOND) });
            return true;
        }
        self.watcher_disconnect(watcher);
        let away = self.duration(SECOND / 10, 2 * micros(self.setup.timers.reconnect_timeout));
        self.schedule_action(away, Action::Reconnect { watcher });
        true
    }
}
