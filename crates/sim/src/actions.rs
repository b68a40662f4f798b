//! Scheduled actions: the end of a fault, the next fault, the next client operation.

use crate::client::ProcessState;
use crate::faults::{Action, Fault, STARVED_MAX};
use crate::host::HostState;
use crate::network::Item;
use crate::world::{Crash, World};

impl World {
    pub(crate) fn act(&mut self, action: Action) {
        self.trace.event(self.now, 6, 0, 0);
        match action {
            Action::NextFault => {
                if self.faults.active {
                    self.inject();
                    let mean = self.faults.fault_interval;
                    let delay = self.rng.u64(..2 * mean);
                    self.schedule_action(delay, Action::NextFault);
                }
            }
            Action::NextOperation => {
                if self.faults.active {
                    self.operate();
                    let mean = self.faults.operation_interval;
                    let delay = self.rng.u64(..2 * mean);
                    self.schedule_action(delay, Action::NextOperation);
                }
            }
            Action::NextAgentless => self.next_agentless(),
            Action::Serving { host, boot } => self.application_serving(host, boot),
            Action::Start { host } => {
                if self.hosts[host].state == HostState::Down {
                    self.faults.count(Fault::Restart);
                    self.start(host);
                }
            }
            Action::Heal { cut } => {
                if self.network.cuts.iter().any(|c| c.id == cut) {
                    self.note(format!("cut {cut} heals"));
                    self.heal(cut);
                }
            }
            Action::EndSpike { spike } => self.end_spike(spike),
            Action::EndSlow { host, boot } => {
                if self.hosts[host].boot == boot && self.hosts[host].slow > 0 {
                    self.end_slow(host);
                }
            }
            Action::Starve { host, left } => {
                if left > 0 && self.faults.active {
                    let pause = self.rng.u64(50_000..STARVED_MAX);
                    self.pause(host, pause);
                    let gap = pause + self.rng.u64(1_000..200_000);
                    self.hosts[host].fault_period.touch(self.now);
                    self.schedule_action(gap, Action::Starve { host, left: left - 1 });
                } else {
                    self.hosts[host].delays.end(self.now);
                    if self.breaks_links(STARVED_MAX) {
                        self.relieve(host);
                    }
                }
            }
            Action::Roll { hosts } => self.roll(hosts),
            Action::EndSecondProcess { host } => {
                self.crash(host, Crash::Process);
                self.hosts[host].state = HostState::Gone;
                if let Some(first) = self.hosts[host].duplicate {
                    self.hosts[first].duplicate = None;
                    self.hosts[first].duplicate_ended_at = Some(self.now);
                    self.reach.second_process_changed(self.now);
                    self.update_reach();
                }
            }
            Action::StartClient { client } => {
                if self.clients[client].process == ProcessState::Dead {
                    self.faults.count(Fault::ClientRestart);
                    self.client_start(client);
                }
            }
            Action::ClientResume { client, process } => {
                if self.clients[client].process_number == process {
                    self.client_resume(client);
                }
            }
            Action::StopClient { client } => self.client_close(client),
            Action::Reconnect { watcher } => self.watcher_return(watcher),
            Action::Pace { watcher, pace } => {
                self.watchers[watcher].pace = pace;
                self.schedule_read(watcher);
            }
            Action::Reset { conn } => self.reset(conn),
            Action::FallBehind { congestion } => self.fall_behind(congestion),
            Action::ExpectDetected { host, stopped, observers } => self.require_detected(host, stopped, &observers),
            Action::ReplacedProcessHeartbeat { process } => self.replaced_process_heartbeat(process),
            Action::Replicated { close } => self.answer_when_replicated(*close),
            Action::Duplicate { conn, message } => {
                if self.end_open(conn, 0) {
                    self.faults.count(Fault::DuplicateRequest);
                    self.push(conn, 0, Item::ToNode(message));
                }
            }
        }
    }
}
