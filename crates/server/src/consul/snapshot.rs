//! `/v1/snapshot`: the backup of the log as an archive of Consul's form (docs/consul-kv.md).

use super::answer::{with_index, with_type};
use super::archive::{self, ArchivedServer, Measured, Meter, Place};
use super::failure::Failure;
use super::params::Params;
use super::status::peer_address;
use crate::error::no_log_plane;
use crate::http::NamedLog;
use crate::surface::Surface;
use ::http::StatusCode;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use convoke_consul::show::node_id;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::Backup;
use futures_util::stream::poll_fn;
use http_body_util::BodyExt;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// A snapshot is aborted if the client reads nothing for this long.
const STALL: Duration = Duration::from_secs(60);
/// Bytes of a part of the body, and parts that wait for the client.
const PART_BYTES: usize = 64 * 1024;
const PARTS_MAX: usize = 4;
/// Bytes of a snapshot that are read and dropped before its restore is refused. The connection of a larger one is closed.
const DROPPED_BYTES_MAX: usize = 64 * 1024 * 1024;

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

/// Where the state comes from.
enum Origin {
    /// The replica of this node.
    Here(Box<Backup>),
    /// The leader, because this node has no replica or cannot confirm its state: the first part, and the others.
    Leader(Bytes, Box<tonic::Streaming<v1::BackupResponse>>),
}

/// `GET /v1/snapshot`
pub(crate) async fn save(State(surface): Shared, params: Params, _: NamedLog) -> Answer {
    let options = params.read_options()?;
    let log = surface.log()?;
    let permit = log.service.enter_backup()?;
    let (origin, index) = match log.handle.backup().await {
        Ok(backup) => {
            let index = backup.applied().index;
            (Origin::Here(Box::new(backup)), index)
        }
        Err(_) => of_leader(&surface).await?,
    };
    let place = Place { index, ..place(&surface)? };
    let (sender, mut parts) = mpsc::channel::<io::Result<Bytes>>(PARTS_MAX);
    let is_complete = Arc::new(AtomicBool::new(false));
    let (runtime, complete) = (Handle::current(), is_complete.clone());
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut out = Parts { sender, runtime: runtime.clone(), part: Vec::new() };
        match write(origin, place, &runtime, &mut out) {
            Ok(()) => complete.store(true, Ordering::Release),
            Err(error) => tracing::warn!(%error, "a snapshot was aborted"),
        }
    });
    // A client must not take a part of an archive for a whole one.
    let body = poll_fn(move |context| {
        parts.poll_recv(context).map(|part| match part {
            None if !is_complete.swap(true, Ordering::AcqRel) => Some(Err(io::ErrorKind::TimedOut.into())),
            part => part,
        })
    });
    let response = with_type("application/x-gzip", Body::from_stream(body));
    Ok(with_index(response, &surface, &options, index))
}

/// `PUT /v1/snapshot`. A restore makes another log, so no running node executes it.
pub(crate) async fn restore(request: Request) -> Failure {
    // Clients read no answer before they have sent the whole snapshot.
    let (mut body, mut dropped) = (request.into_body(), 0);
    while dropped < DROPPED_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
    let message = "Convoke restores no snapshots while it runs: stop the nodes and use `convoke log restore FILE`, which \
                   reads the archive; see docs/consul-kv.md";
    Failure::new(StatusCode::BAD_REQUEST, message)
}

async fn of_leader(surface: &Surface) -> Result<(Origin, u64), Error> {
    let timeout = surface.config.timeouts.request;
    let mut parts = surface.log()?.ambassador.backup(Some(timeout)).await?;
    let Some(first) = parts.message().await.map_err(Error::from)? else {
        return Err(Error::new(ErrorCode::Internal, "the leader sent an empty backup; try again"));
    };
    Ok((Origin::Leader(first.data, Box::new(parts)), first.applied))
}

/// The replicas of the log and its term, as this node knows them.
fn place(surface: &Surface) -> Result<Place, Error> {
    let status = surface.log_status().map_err(|_| no_log_plane())?;
    let term = status.epoch.split('@').next().and_then(|term| term.parse().ok()).unwrap_or_default();
    let server = |suffrage| {
        move |name: &String| ArchivedServer {
            suffrage,
            id: node_id(surface.node.cluster(), name),
            address: peer_address(surface, name).unwrap_or_default(),
        }
    };
    let servers = status.voters.iter().map(server(0)).chain(status.learners.iter().map(server(1))).collect();
    Ok(Place { index: 0, term, servers })
}

/// The archive names the size of the state before the state, so the state is produced twice, or stored in between.
fn write(origin: Origin, place: Place, runtime: &Handle, out: &mut Parts) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = u64::try_from(now).unwrap_or(u64::MAX);
    match origin {
        Origin::Here(backup) => {
            let mut meter = Meter::default();
            backup.frames().for_each(|frame| meter.take(&frame));
            let frames = Frames { frames: backup.frames(), frame: io::Cursor::new(Vec::new()) };
            archive::write(out, place, &meter.finish(), now_ms, frames)
        }
        Origin::Leader(first, others) => {
            let (file, measured) = stored(first, others, runtime)?;
            archive::write(out, place, &measured, now_ms, io::BufReader::new(file))
        }
    }
}

/// Stores what the leader sends in a file without a name.
fn stored(
    first: Bytes,
    mut others: Box<tonic::Streaming<v1::BackupResponse>>,
    runtime: &Handle,
) -> io::Result<(std::fs::File, Measured)> {
    let (mut file, mut meter) = (tempfile::tempfile()?, Meter::default());
    let mut part = Some(first);
    while let Some(data) = part {
        meter.take(&data);
        file.write_all(&data)?;
        let next = runtime.block_on(async { tokio::time::timeout(STALL, others.message()).await });
        part = next?.map_err(io::Error::other)?.map(|response| response.data);
    }
    file.rewind()?;
    Ok((file, meter.finish()))
}

/// The frames of a backup, one after the other.
struct Frames<I> {
    frames: I,
    frame: io::Cursor<Vec<u8>>,
}

impl<I: Iterator<Item = Vec<u8>>> Read for Frames<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.frames.next() {
                Some(frame) => self.frame = io::Cursor::new(frame),
                None => return Ok(0),
            }
        }
    }
}

/// The body of the response. Written as fast as the client reads.
struct Parts {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    part: Vec<u8>,
}

impl Write for Parts {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.part.extend_from_slice(data);
        if self.part.len() >= PART_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = Bytes::from(std::mem::take(&mut self.part));
        let sent = self.runtime.block_on(self.sender.send_timeout(Ok(part), STALL));
        sent.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client does not read, or has disconnected"))
    }
}
