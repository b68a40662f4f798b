//! The log plane behind the client port: the node's own replica, and the node as a client of the log through its own
//! ambassador.
//!
//! gRPC requests go to the replica, which rejects them if it does not lead. HTTP requests work at every node: if the
//! replica cannot answer, the ambassador sends them to the leader.

mod convert;
mod coordination;
mod directory;
mod feed;
#[cfg(test)]
mod fuzz;
mod ids;
mod local;
mod members;
mod owners;
mod principals;
mod service;
mod sessions;
mod submit;
mod txn;
mod watch_limits;

pub(crate) use convert::{barrier, fate, log_id, owner, record, request_id, wire_epoch};
pub(crate) use coordination::{Page, lock_event, lock_name, read_leases, read_locks};
pub use directory::Directory;
pub(crate) use feed::{Feed, SharedFeeds, Source, WantedWatch, event_position, wanted};
pub use ids::registered_logs;
use local::ConnectLocally;
pub(crate) use members::binding;
use principals::{PRINCIPALS_MAX, Principals};
pub(crate) use service::LogService;
pub(crate) use submit::{Sender, SubmitStream};
pub(crate) use txn::{compacted_error, read_key_at, read_keys, read_range_at, read_txn};
pub(crate) use watch_limits::WatchPermit;

use crate::config::Config;
use crate::error::no_log_plane;
use crate::net::Stage;
use crate::rates::RateLimiter;
use crate::surface::Surface;
use convoke_client::TokenSource;
use convoke_client::log::{Ambassador, Kv, Options};
use convoke_log::Machine;
use convoke_node::NodeHandle;
use convoke_proto::{Error, v1};
use convoke_replica::{Consistency, LogHandle};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Largest number of pending requests in a log session of this node.
const WINDOW: usize = 512;

/// The log plane of a node.
#[derive(Debug)]
pub(crate) struct LogPlane {
    pub(crate) handle: LogHandle,
    pub(crate) service: Arc<LogService>,
    pub(crate) ambassador: Ambassador,
    /// The log session of HTTP clients without a principal. Reads of all clients use it, too.
    pub(crate) kv: Kv,
    /// Serves watches while this node has no replica.
    pub(crate) feeds: Arc<SharedFeeds>,
    /// The log sessions of principals.
    principals: Mutex<Principals<Kv>>,
    options: Options,
    started: Instant,
    tasks: [JoinHandle<()>; 3],
}

impl LogPlane {
    /// Must be called in a tokio runtime. The ambassador starts with this node, within the process, and learns the
    /// others from it.
    pub(crate) fn new(
        handle: LogHandle,
        node: NodeHandle,
        config: &Config,
        own: SocketAddr,
        stage: watch::Receiver<Stage>,
        rates: Arc<RateLimiter>,
    ) -> LogPlane {
        let own = reachable(own).to_string();
        let id = node.id().to_string();
        let addresses = [own.clone(), node.client_address().to_owned()];
        let registry = node.clone();
        let service = Arc::new(LogService::new(handle.clone(), Arc::new(node), config, Some(stage), rates));
        let token = config.auth.as_ref().and_then(|auth| auth.node_token.clone()).map(TokenSource::file);
        // Observers of elections at this node share its feed, too.
        let own_feeds = Arc::new(OnceLock::new());
        let connect = Arc::new(ConnectLocally::new(addresses, &service, own_feeds.clone(), token, config.tls.clone()));
        let ambassador =
            Ambassador::start_with([own], connect).expect("a socket address is host:port, and there is a runtime");
        let options = Options::default().of_node(id).window(WINDOW).timeout(config.timeouts.request);
        let kv = ambassador.kv_with(options.clone());
        let following = tokio::spawn(follow(handle.clone(), ambassador.clone()));
        let tasks = [
            following,
            tokio::spawn(ids::watch(handle.clone(), registry.clone())),
            tokio::spawn(members::watch(handle.clone(), registry)),
        ];
        let feeds = Arc::new(SharedFeeds::new(service.clone(), ambassador.clone()));
        let _ = own_feeds.set(Arc::downgrade(&feeds));
        let principals = Mutex::new(Principals::new(PRINCIPALS_MAX));
        LogPlane { handle, service, ambassador, kv, feeds, principals, options, started: Instant::now(), tasks }
    }
}

impl Drop for LogPlane {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Notifies the ambassador of every new leader that the replica of this node learns of. The ambassador would otherwise
/// wait for the answers of a leader that has fallen silent.
async fn follow(handle: LogHandle, ambassador: Ambassador) {
    let mut known = None;
    loop {
        let epoch = handle.later_leader(known).await;
        if let Ok(log) = handle.log() {
            // The node must not become a client of another log (FD6).
            ambassador.use_log(log.into());
        }
        ambassador.leave_before(wire_epoch(epoch));
        known = Some(epoch);
    }
}

/// Replaces an unspecified listen address by the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Surface {
    /// Returns the log plane, if this node runs one.
    pub(crate) fn log(&self) -> Result<&LogPlane, Error> {
        self.log.as_ref().ok_or_else(no_log_plane)
    }

    /// Returns the state to read from, at this node.
    pub(crate) async fn read_log(&self, consistency: Consistency) -> Result<Arc<Machine>, Error> {
        self.log()?.service.read(consistency).await
    }

    pub(crate) fn log_status(&self) -> Result<v1::LogStatusResponse, Error> {
        Ok(self.log()?.service.status())
    }
}
