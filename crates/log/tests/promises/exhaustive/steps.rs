//! All possible next steps.

use super::state::{BEGINNING, Effect, Item, Message, Reading, SERVERS, Server, Slot, State, System};
use convoke_log::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    GiveUp(usize),
    Deliver(Message, usize),
    Elect {
        candidate: usize,
        voter: usize,
    },
    Replicate {
        from: usize,
        to: usize,
    },
    /// The leader starts the requested read.
    BeginRead(usize),
    ConfirmRead(usize),
    FinishRead(usize),
}

impl System {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend([0, 1].into_iter().filter(|client| !state.abandoned[*client]).map(Step::GiveUp));
        for at in 0..SERVERS {
            let server = &state.servers[at];
            if server.leads == 0 {
                continue;
            }
            if server.log.len() < self.log_max[usize::from(server.leads) - 1] {
                steps.extend(state.sent.iter().map(|message| Step::Deliver(*message, at)));
            }
            steps.extend((0..SERVERS).filter(|to| *to != at).map(|to| Step::Replicate { from: at, to }));
            match server.reading {
                Reading::Idle if state.abandoned[1] && state.read.is_none() => steps.push(Step::BeginRead(at)),
                Reading::Raised if state.read.is_none() => steps.push(Step::ConfirmRead(at)),
                Reading::Confirmed(_) if state.read.is_none() => steps.push(Step::FinishRead(at)),
                _ => {}
            }
        }
        if state.leader_of_second.is_none() {
            // The two followers are symmetric: the one that is elected or votes is the first.
            steps.extend([(0, 1), (1, 0), (1, 2)].map(|(candidate, voter)| Step::Elect { candidate, voter }));
        }
    }

    pub(super) fn after(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::GiveUp(client) => state.abandoned[client] = true,
            Step::Deliver(message, at) => self.deliver(&mut state, message, at)?,
            Step::Elect { candidate, voter } => self.elect(&mut state, candidate, voter)?,
            Step::Replicate { from, to } => replicate(&mut state, from, to),
            Step::BeginRead(at) => {
                state.servers[at].reading = Reading::Raised;
                let _raised = self.gate(&state, at).2.ok()?;
            }
            Step::ConfirmRead(at) => {
                let leads = state.servers[at].leads;
                if state.servers.iter().filter(|server| server.term <= leads).count() < 2 {
                    return None;
                }
                state.servers[at].reading = Reading::Confirmed(state.servers[at].commit);
            }
            Step::FinishRead(at) => self.finish_read(&mut state, at)?,
        }
        state.send();
        self.commit(&mut state);
        (state != *last).then_some(state)
    }

    fn deliver(&self, state: &mut State, message: Message, at: usize) -> Option<()> {
        let term = state.servers[at].leads;
        if message.term == term {
            let (mut leadership, machine, _) = self.gate(state, at);
            let command = Command::Request(self.request(state, message));
            let _ = leadership.gate.admit(&command, &machine).ok()?;
        }
        // Another epoch: the check was made under another leadership than the append.
        state.servers[at].log.push(Slot { term, item: Item::Request(message) });
        Some(())
    }

    fn finish_read(&self, state: &mut State, at: usize) -> Option<()> {
        let server = &state.servers[at];
        let Reading::Confirmed(read_index) = server.reading else { return None };
        let (leadership, _, barrier) = self.gate(state, at);
        let wait_for = leadership.gate.wait_for(&barrier.ok()?, read_index.into())?;
        if u64::from(server.commit) < wait_for {
            return None;
        }
        state.read = Some(server.commit);
        state.servers[at].reading = Reading::Done;
        Some(())
    }

    fn elect(&self, state: &mut State, candidate: usize, voter: usize) -> Option<()> {
        let last = |server: &Server| (server.log.last().map_or(0, |slot| slot.term), server.log.len());
        if last(&state.servers[voter]) > last(&state.servers[candidate])
            || state.servers[candidate].log.len() >= self.log_max[1]
        {
            return None;
        }
        for at in [candidate, voter] {
            step_down(&mut state.servers[at], 2);
        }
        let leader = &mut state.servers[candidate];
        leader.leads = 2;
        leader.log.push(Slot { term: 2, item: Item::First });
        state.leader_of_second = Some(candidate as u8);
        Some(())
    }

    /// Applies what this step committed.
    fn commit(&self, state: &mut State) {
        let Some(longest) = state.servers.iter().max_by_key(|server| server.commit) else { return };
        if longest.commit <= state.committed {
            return;
        }
        let log = longest.log[..longest.commit.into()].to_vec();
        let (mut effects, mut superseded) = (Vec::new(), false);
        self.replay(state, &log, |index, slot, effective, rejected| {
            superseded |= rejected;
            if let (Item::Request(message), true) = (slot.item, effective) {
                let Message { client, number, term: meant_for } = message;
                effects.push(Effect { client, number, index, term: slot.term, meant_for });
            }
        });
        (state.committed, state.effects, state.superseded) = (log.len() as u8, effects, superseded);
    }
}

fn step_down(server: &mut Server, term: u8) {
    (server.leads, server.term, server.commit, server.reading) = (0, term, BEGINNING, Reading::Idle);
}

/// Copies the whole log of a leader to another server, or reports a higher term to the leader.
fn replicate(state: &mut State, from: usize, to: usize) {
    let leads = state.servers[from].leads;
    let higher = state.servers[to].term;
    if higher > leads {
        step_down(&mut state.servers[from], higher);
        return;
    }
    if higher < leads {
        step_down(&mut state.servers[to], leads);
    }
    let source = state.servers[from].log.clone();
    let follower = &mut state.servers[to];
    let common = source.iter().zip(&follower.log).take_while(|(a, b)| a.term == b.term).count();
    if common < source.len() {
        follower.log.clone_from(&source);
    }
    // Together with the leader this is a majority.
    if source.last().is_some_and(|slot| slot.term == leads) {
        state.servers[from].commit = source.len() as u8;
    }
}
