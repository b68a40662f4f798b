//! `convoke.v1.Log`: the node's own replica, which refuses where it does not lead.

use crate::error::invalid;
use crate::log::{SubmitStream, barrier, fate, key_range, record, request_id, wire_epoch};
use crate::surface::{Gates, Surface};
use convoke_proto::v1::log_server;
use convoke_proto::v1::read_request::What;
use convoke_proto::{Code, Error, PART_BYTES, v1};
use convoke_replica::log::Machine;
use convoke_replica::{Backup, ChangeError, Consistency, Edit};
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

#[derive(Debug)]
pub(crate) struct Log(pub(crate) Arc<Surface>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl log_server::Log for Log {
    type SubmitStream = SubmitStream;
    type BackupStream = BackupStream;

    async fn submit(&self, request: Request<Streaming<v1::SubmitRequest>>) -> Answer<SubmitStream> {
        let surface = &self.0;
        let log = surface.log()?.handle.clone();
        let permit = Gates::enter(&surface.gates.log_links, "links to the log", surface.config.limits.log_links)?;
        let epoch = log.epoch().map_err(|why| surface.log_refused(&why))?;
        Ok(Response::new(SubmitStream::new(request.into_inner(), surface.clone(), log, wire_epoch(epoch), permit)))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Answer<v1::ReadResponse> {
        let request = request.into_inner();
        let consistency = match request.consistency() {
            v1::Consistency::Unspecified | v1::Consistency::Linearizable => Consistency::Linearizable,
            v1::Consistency::Local => Consistency::Local,
            v1::Consistency::Barrier => barrier(request.barrier)?,
        };
        let what = request.what.ok_or_else(|| invalid("what", "say what to read: key, range or peek"))?;
        let machine = self.0.read_log(consistency).await?;
        Ok(Response::new(look(&machine, what)?))
    }

    async fn resolve(&self, request: Request<v1::ResolveRequest>) -> Answer<v1::ResolveResponse> {
        let id = request_id(request.into_inner().request)?;
        let told = self.0.resolve_here(id).await?;
        Ok(Response::new(v1::ResolveResponse { fate: Some(told) }))
    }

    async fn members(&self, request: Request<v1::MembersRequest>) -> Answer<v1::MembersResponse> {
        Ok(Response::new(self.0.change_members(request.into_inner()).await?))
    }

    async fn status(&self, _: Request<v1::LogStatusRequest>) -> Answer<v1::LogStatusResponse> {
        Ok(Response::new(self.0.log_status()?))
    }

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Answer<BackupStream> {
        let surface = &self.0;
        let backup = surface.log()?.handle.backup().await.map_err(|why| surface.log_refused(&why))?;
        Ok(Response::new(BackupStream::new(backup)))
    }
}

fn look(machine: &Machine, what: What) -> Result<v1::ReadResponse, Error> {
    let mut response = v1::ReadResponse {
        revision: machine.keys().revision(),
        applied: machine.applied().index,
        applied_epoch: Some(wire_epoch(machine.applied().epoch)),
        ..v1::ReadResponse::default()
    };
    match what {
        What::Key(key) => response.records.extend(machine.keys().get(&key).map(|found| record(found))),
        What::Range(v1::ReadRange { range, limit, keys_only }) => {
            let range = range.ok_or_else(|| invalid("range", "name a range of keys"))?;
            let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
            let page = machine.keys().range(&key_range(range), limit, PART_BYTES as u64);
            response.more = page.more;
            response.records = page.records.iter().map(|found| record(found)).collect();
            if keys_only {
                response.records.iter_mut().for_each(|record| record.value.clear());
            }
        }
        What::Peek(id) => response.fate = Some(fate(&machine.peek(request_id(Some(id))?))),
    }
    Ok(response)
}

impl Surface {
    /// The state to read from, at this node.
    pub(crate) async fn read_log(&self, consistency: Consistency) -> Result<Arc<Machine>, Error> {
        let reading = self.log()?.handle.read(consistency);
        match timeout(self.config.timeouts.request, reading).await {
            Ok(read) => read.map_err(|why| self.log_refused(&why)),
            Err(_) => Err(Error::new(Code::Timeout, "the leader could not confirm that it leads in time; try again")),
        }
    }

    /// Makes the fate of a request final, if this node leads.
    pub(crate) async fn resolve_here(&self, id: convoke_replica::log::RequestId) -> Result<v1::Fate, Error> {
        let resolving = self.log()?.handle.resolve(id);
        match timeout(self.config.timeouts.request, resolving).await {
            Ok(resolved) => resolved.map(|told| fate(&told)).map_err(|error| self.not_submitted(&error)),
            Err(_) => Err(Error::new(Code::Timeout, "the request could not be fenced in time; resolve it again")),
        }
    }

    /// Changes the group, if this node leads.
    pub(crate) async fn change_members(&self, request: v1::MembersRequest) -> Result<v1::MembersResponse, Error> {
        use v1::members_request::Change;
        let log = &self.log()?.handle;
        let v1::MembersRequest { replaces, wait_ms, change } = request;
        let edit = match change.ok_or_else(|| invalid("change", "say what to change"))? {
            Change::Add(v1::AddReplica { node, address }) => {
                Edit::Add { address: self.peer_address(&node, address).await?.into(), node: named("add", node)?.into() }
            }
            Change::Promote(node) => Edit::Promote { node: named("promote", node)?.into() },
            Change::Demote(node) => Edit::Demote { node: named("demote", node)?.into() },
            Change::Remove(node) => Edit::Remove { node: named("remove", node)?.into() },
            Change::Replace(v1::ReplaceReplica { old, node, address }) => Edit::Replace {
                address: self.peer_address(&node, address).await?.into(),
                old: named("replace", old)?.into(),
                node: named("with", node)?.into(),
            },
            Change::Transfer(node) => {
                log.transfer(&node).await.map_err(|error| self.not_changed(&error))?;
                return Ok(v1::MembersResponse { configuration: 0, settled: true });
            }
        };
        let number = log.change_from(&edit, replaces).await.map_err(|error| self.not_changed(&error))?;
        let settled = match log.settled(number, Duration::from_millis(wait_ms)).await {
            Ok(()) => true,
            Err(ChangeError::NotSettled) => false,
            Err(error) => return Err(self.not_changed(&error)),
        };
        Ok(v1::MembersResponse { configuration: number, settled })
    }

    /// Where other replicas reach a node: as given, or as this node knows it.
    async fn peer_address(&self, node: &str, given: String) -> Result<String, Error> {
        if !given.is_empty() {
            return Ok(given);
        }
        if node == self.node.id().as_str() {
            return Ok(self.node.peer_address().to_owned());
        }
        let peers = self.node.nodes().await.map_err(crate::error::refused)?;
        let known = peers.into_iter().find(|peer| peer.node.as_str() == node && !peer.peer_address.is_empty());
        known.map(|peer| peer.peer_address).ok_or_else(|| {
            let message = format!("this node knows no node {node:?}; start it with --join, or give its peer address");
            Error::new(Code::NotFound, message).field("node")
        })
    }
}

fn named(field: &str, node: String) -> Result<String, Error> {
    if node.is_empty() { Err(invalid(field, "name a node by its id")) } else { Ok(node) }
}

/// The state in frames, a few at a time: they are made as fast as the other end takes them.
#[derive(Debug)]
pub(crate) struct BackupStream(mpsc::Receiver<v1::BackupResponse>);

impl BackupStream {
    fn new(backup: Backup) -> Self {
        let (sender, receiver) = mpsc::channel(2);
        tokio::task::spawn_blocking(move || {
            let (applied, state_hash) = (backup.applied().index, format!("{:032x}", backup.state_hash()));
            let mut first = Some((applied, state_hash));
            for frame in backup.frames() {
                for part in frame.chunks(PART_BYTES) {
                    let (applied, state_hash) = first.take().unwrap_or_default();
                    let response = v1::BackupResponse { data: part.to_vec().into(), applied, state_hash };
                    if sender.blocking_send(response).is_err() {
                        return;
                    }
                }
            }
        });
        BackupStream(receiver)
    }
}

impl Stream for BackupStream {
    type Item = Result<v1::BackupResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        self.get_mut().0.poll_recv(context).map(|part| part.map(Ok))
    }
}
