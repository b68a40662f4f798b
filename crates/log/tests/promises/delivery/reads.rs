//! Barrier reads (LR4), step by step as a leader performs them.

use super::world::{ToClient, World};
use super::{Check, cluster::Lead};
use convoke_log::leader::{Barrier, NotAppended};
use convoke_log::{Epoch, LogSessionId, RequestId};

/// A barrier read of a client that has abandoned everything below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRequest {
    pub(super) client: usize,
    /// Sequence number of the read.
    pub(super) id: u64,
    pub(super) session: LogSessionId,
    pub(super) epoch: Epoch,
    pub(super) below: u64,
}

#[derive(Debug)]
pub(super) struct PendingRead {
    request: ReadRequest,
    barrier: Barrier,
    /// The commit index taken when leadership was confirmed.
    confirmed: Option<u64>,
}

impl World {
    /// Step 1: the volatile floor.
    pub(super) fn begin_read(&mut self, at: usize, request: ReadRequest) {
        let server = &mut self.cluster.servers[at];
        let Some(lead) = &mut server.lead else { return };
        match lead.state.barrier(request.session, request.epoch, request.below, &server.machine) {
            Ok(barrier) => lead.reads.push(PendingRead { request, barrier, confirmed: None }),
            Err(NotAppended::SessionNotOpen) => self.not_open(at, RequestId::new(request.session, request.below)),
            Err(_) => {}
        }
    }

    /// Takes the commit index and confirms leadership, for all waiting reads.
    pub(super) fn confirm_reads(&mut self, at: usize) {
        if !self.cluster.is_confirmed(at) {
            return;
        }
        let server = &mut self.cluster.servers[at];
        let Some(lead) = &mut server.lead else { return };
        for read in lead.reads.iter_mut().filter(|read| read.confirmed.is_none()) {
            read.confirmed = Some(server.commit);
        }
    }

    /// Performs reads whose index is applied.
    pub(super) fn finish_reads(&mut self, at: usize) -> Check {
        let server = &mut self.cluster.servers[at];
        let applied = server.machine.applied().index;
        let Some(Lead { state, reads, .. }) = &mut server.lead else { return Ok(()) };
        let is_ready = |read: &mut PendingRead| {
            let read_index = read.confirmed?;
            state.gate.wait_for(&read.barrier, read_index).filter(|index| applied >= *index)
        };
        let ready: Vec<PendingRead> = reads.extract_if(.., |read| is_ready(read).is_some()).collect();
        let keys = server.machine.keys().clone();
        for read in ready {
            self.checks.read(read.request.session, read.request.below, applied)?;
            self.to_clients.push((read.request.client, ToClient::Read(read.request, keys.clone())));
        }
        Ok(())
    }
}
