//! Connections with growing delay in one direction: the receiver gets frames all the time, but ever older ones (P6).

use crate::faults::Action;
use crate::network::{Kind, MINUTE, Micros, SECOND, Site};
use crate::world::{World, micros};

/// Time during which the delay excuses the pair of hosts. After that they must have replaced the connection.
const EXCUSED: Micros = 10 * SECOND;

/// A direction of a connection whose delay keeps growing.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    conn: u64,
    hosts: [usize; 2],
    excused_until: Micros,
    excused: bool,
    until: Micros,
}

impl World {
    /// Delays the frames of some link's dialer more and more, but never so much that the link is silent.
    pub(crate) fn congest(&mut self) -> bool {
        let links = self.network.of_kind(Kind::Peer);
        let Some(conn) = self.rng.choice(links) else { return false };
        let Some(connection) = self.network.connections.get(&conn) else { return false };
        let [Site::Host(one), Site::Host(other)] = connection.ends.map(|end| end.place) else { return false };
        self.note(format!("connection {conn} gets slower"));
        let now = self.now;
        for host in [one, other] {
            self.hosts[host].fault_period.begin(now);
        }
        self.reach.set_congested([one, other], true);
        self.update_reach();
        let until = now + self.duration(20 * SECOND, 3 * MINUTE);
        let congestion = Congestion { conn, hosts: [one, other], excused_until: now + EXCUSED, excused: true, until };
        self.schedule_action(0, Action::FallBehind { congestion });
        true
    }

    pub(crate) fn fall_behind(&mut self, mut congestion: Congestion) {
        let (now, timers) = (self.now, &self.setup.timers);
        let (interval, step) = (micros(timers.ping_interval), micros(timers.ping_timeout - timers.ping_interval) / 2);
        let open = self.network.connections.contains_key(&congestion.conn);
        let over = now >= congestion.until || !self.faults.active;
        if congestion.excused && (over || !open || now >= congestion.excused_until) {
            congestion.excused = false;
            for host in congestion.hosts {
                self.hosts[host].fault_period.end(now);
            }
            self.reach.set_congested(congestion.hosts, false);
            self.update_reach();
        }
        let Some(connection) = self.network.connections.get_mut(&congestion.conn) else { return };
        connection.extra = if over { 0 } else { connection.extra + step };
        if !over {
            self.schedule_action(interval, Action::FallBehind { congestion });
        }
    }
}
