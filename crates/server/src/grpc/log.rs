//! `convoke.v1.Log`: the node's own replica. It rejects requests that only the leader can serve.

use super::key_watch::{self, KeyWatchStream};
use crate::access::{Caller, authorize_read, authorize_watch};
use crate::error::{invalid, no_log_plane};
use crate::log::{
    LogService, Page, Sender, SharedFeeds, SubmitStream, barrier, fate, log_id, owner, read_key_at, read_keys,
    read_leases, read_locks, read_range_at, read_txn, record, request_id, wire_epoch,
};
use crate::service::ClientConnection;
use convoke_access::{Resource, Verb};
use convoke_log::command::LeaseId;
use convoke_log::{LogSessionId, Machine};
use convoke_proto::v1::log_server;
use convoke_proto::v1::read_request::What;
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use convoke_replica::{Backup, Consistency};
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::{Request, Response, Status, Streaming};

/// A backup is aborted if the client reads nothing for this long.
const BACKUP_STALL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Log {
    /// `None` if this node runs no log plane.
    pub(crate) service: Option<Arc<LogService>>,
    /// Serves watches of keys while this node has no replica.
    pub(crate) feeds: Option<Arc<SharedFeeds>>,
    pub(crate) callers: Callers,
}

/// Whose requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Clients of the client port. Their requests carry a [`Caller`].
    Authenticated,
    /// The node itself, which has authorised the request that it carries out, or a simulation.
    Trusted,
}

impl Log {
    fn service(&self) -> Result<&Arc<LogService>, Error> {
        self.service.as_ref().ok_or_else(no_log_plane)
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Error> {
        match self.callers {
            Callers::Authenticated => Caller::of(request.extensions()),
            Callers::Trusted => Ok(Caller::unrestricted()),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl log_server::Log for Log {
    type SubmitStream = SubmitStream;
    type BackupStream = BackupStream;
    type WatchStream = KeyWatchStream;

    async fn submit(&self, request: Request<Streaming<v1::SubmitRequest>>) -> Answer<SubmitStream> {
        let named = named(&request)?;
        let connection = request.extensions().get::<Arc<ClientConnection>>().cloned();
        let sender = Sender { connection, caller: self.caller(&request)? };
        Ok(Response::new(SubmitStream::open(self.service()?, Box::pin(request.into_inner()), sender, named)?))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Answer<v1::ReadResponse> {
        let (named, caller) = (named(&request)?, self.caller(&request)?);
        let request = request.into_inner();
        if let Some(what) = &request.what {
            authorize_read(&caller, what)?;
        }
        self.service()?.check_conflict(request.log.map(Into::into).or(named))?;
        let consistency = match request.consistency() {
            v1::Consistency::Unspecified | v1::Consistency::Linearizable => Consistency::Linearizable,
            v1::Consistency::Local => Consistency::Local,
            v1::Consistency::Barrier => {
                let sent = request.barrier.clone().unwrap_or_default();
                let consistency = barrier(request.barrier)?;
                self.service()?.check(&caller, log_id(sent.log)?, LogSessionId(sent.session), owner(&sent.secret)?)?;
                consistency
            }
        };
        self.service()?.check_named(request.log)?;
        if let Some(What::Peek(id)) = &request.what {
            self.service()?.check_request(&caller, Verb::Observe, *id)?;
            self.service()?.check_named(id.log)?;
        }
        let what =
            request.what.ok_or_else(|| invalid("what", "a key, a range or something else to read is required"))?;
        let machine = self.service()?.read(consistency).await?;
        let hidden = hides_lease(&caller, &machine, &what);
        let mut response = read_state(self.service()?, &machine, what, request.revision)?;
        if hidden {
            response.leases.clear();
        }
        Ok(Response::new(response))
    }

    async fn watch(&self, request: Request<v1::KeyWatchRequest>) -> Answer<KeyWatchStream> {
        let (named, caller) = (named(&request)?, self.caller(&request)?);
        let connection = request.extensions().get::<Arc<ClientConnection>>().cloned();
        let service = self.service()?;
        let request = request.into_inner();
        authorize_watch(&caller, &request.watches)?;
        service.check_conflict(request.log.map(Into::into).or(named))?;
        Ok(Response::new(key_watch::watch(service, self.feeds.as_ref(), request, connection.as_ref()).await?))
    }

    async fn resolve(&self, request: Request<v1::ResolveRequest>) -> Answer<v1::ResolveResponse> {
        let (header, caller) = (named(&request)?, self.caller(&request)?);
        let named = request.into_inner().request;
        self.service()?.check_request(&caller, Verb::Resolve, named.unwrap_or_default())?;
        self.service()?.check_conflict(named.and_then(|id| id.log).map(Into::into).or(header))?;
        self.service()?.check_named(named.and_then(|id| id.log))?;
        let id = request_id(named)?;
        let fate = self.service()?.resolve(id).await?;
        Ok(Response::new(v1::ResolveResponse { fate: Some(fate) }))
    }

    async fn members(&self, request: Request<v1::MembersRequest>) -> Answer<v1::MembersResponse> {
        self.service()?.check_conflict(named(&request)?)?;
        Ok(Response::new(self.service()?.change(request.into_inner()).await?))
    }

    async fn sessions(&self, request: Request<v1::SessionsRequest>) -> Answer<v1::SessionsResponse> {
        self.service()?.check_conflict(named(&request)?)?;
        Ok(Response::new(self.service()?.sessions(request.into_inner()).await?))
    }

    async fn end_sessions(&self, request: Request<v1::EndSessionsRequest>) -> Answer<v1::EndSessionsResponse> {
        self.service()?.check_conflict(named(&request)?)?;
        Ok(Response::new(self.service()?.end_sessions(request.into_inner()).await?))
    }

    async fn upgrade(&self, request: Request<v1::UpgradeRequest>) -> Answer<v1::UpgradeResponse> {
        self.service()?.check_conflict(named(&request)?)?;
        Ok(Response::new(self.service()?.upgrade().await?))
    }

    async fn status(&self, _: Request<v1::LogStatusRequest>) -> Answer<v1::LogStatusResponse> {
        Ok(Response::new(self.service()?.status()))
    }

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Answer<BackupStream> {
        let service = self.service()?;
        service.check_conflict(named(&request)?)?;
        let permit = service.enter_backup()?;
        let backup = service.handle.backup().await.map_err(|why| service.rejected(&why))?;
        Ok(Response::new(BackupStream::new(backup, permit)))
    }
}

/// Returns the log that the client names in the header `convoke-log` (FD6).
fn named<T>(request: &Request<T>) -> Result<Option<u128>, Error> {
    let Some(value) = request.metadata().get(convoke_proto::LOG_HEADER) else { return Ok(None) };
    let log = value.to_str().ok().and_then(|text| text.parse::<v1::LogId>().ok());
    let log = log.ok_or_else(|| invalid(convoke_proto::LOG_HEADER, "expected a log id of 32 hexadecimal digits"))?;
    Ok(Some(log.into()))
}

fn read_state(service: &LogService, machine: &Machine, what: What, revision: u64) -> Result<v1::ReadResponse, Error> {
    let mut response = v1::ReadResponse {
        revision: machine.keys().revision(),
        applied: machine.applied().index,
        applied_epoch: Some(wire_epoch(machine.applied().epoch)),
        ..v1::ReadResponse::default()
    };
    let found = match what {
        What::Key(key) if revision == 0 => {
            response.records.extend(machine.keys().get(&key).map(|found| record(found)));
            return Ok(response);
        }
        What::Key(key) => read_key_at(machine, key, revision)?,
        What::Range(range) => read_range_at(machine, range, revision)?,
        What::Query(query) => read_keys(machine, query, revision)?,
        What::Txn(_) | What::Peek(_) | What::Leases(_) | What::Locks(_) if revision > 0 => {
            return Err(invalid("revision", "only keys can be read at an older revision"));
        }
        What::Txn(txn) => {
            let (succeeded, revision, results) = read_txn(machine, txn)?;
            return Ok(v1::ReadResponse { succeeded: Some(succeeded), revision, results: Some(results), ..response });
        }
        What::Leases(wanted) => {
            let Page { found: leases, more } = read_leases(machine, &wanted, |lease| service.handle.lease_left(lease))?;
            return Ok(v1::ReadResponse { leases, more, log_time_us: log_time(service, machine), ..response });
        }
        What::Locks(wanted) => {
            let Page { found: locks, more } = read_locks(machine, wanted)?;
            return Ok(v1::ReadResponse { locks, more, log_time_us: log_time(service, machine), ..response });
        }
        What::Peek(id) => {
            response.fate = Some(fate(&machine.peek(request_id(Some(id))?)));
            return Ok(response);
        }
    };
    (response.more, response.count) = (found.more, found.count);
    response.records = found.records.iter().map(|found| record(found)).collect();
    Ok(response)
}

/// Whether a read names a lease of another principal. It does not exist for the caller (AU16).
fn hides_lease(caller: &Caller, machine: &Machine, what: &What) -> bool {
    let What::Leases(query) = what else { return false };
    let found = machine.lease(LeaseId(query.lease)).filter(|lease| !caller.owns(&lease.owner));
    found.is_some() && !caller.may(Verb::Observe, Resource::Log)
}

/// Returns the current log time in microseconds, as far as this replica knows it.
fn log_time(service: &LogService, machine: &Machine) -> u64 {
    service.handle.log_time().unwrap_or_else(|| machine.log_time()).as_micros()
}

/// The state in frames. Frames are produced as fast as the client reads them.
#[derive(Debug)]
pub(crate) struct BackupStream {
    parts: mpsc::Receiver<v1::BackupResponse>,
    /// All frames were queued, or an error was.
    ended: Arc<AtomicBool>,
}

impl BackupStream {
    fn new(backup: Backup, permit: OwnedSemaphorePermit) -> Self {
        let (sender, parts) = mpsc::channel(2);
        let ended = Arc::new(AtomicBool::new(false));
        let (runtime, whole) = (tokio::runtime::Handle::current(), ended.clone());
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let (applied, state_hash) = (backup.applied().index, format!("{:032x}", backup.state_hash()));
            let mut first = Some((applied, state_hash));
            for frame in backup.frames() {
                for part in frame.chunks(PART_BYTES) {
                    let (applied, state_hash) = first.take().unwrap_or_default();
                    let response = v1::BackupResponse { data: part.to_vec().into(), applied, state_hash };
                    // A client that reads nothing must not occupy a thread and a state forever.
                    if runtime.block_on(sender.send_timeout(response, BACKUP_STALL)).is_err() {
                        return;
                    }
                }
            }
            whole.store(true, Ordering::Release);
        });
        BackupStream { parts, ended }
    }
}

impl Stream for BackupStream {
    type Item = Result<v1::BackupResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.parts.poll_recv(context).map(|part| match part {
            Some(part) => Some(Ok(part)),
            None if this.ended.swap(true, Ordering::AcqRel) => None,
            None => {
                let message =
                    format!("the client read nothing for {} s; take the backup again", BACKUP_STALL.as_secs());
                Some(Err(Error::new(ErrorCode::Timeout, message).into()))
            }
        })
    }
}
