//! The log plane behind the client port: the node's own replica, and the node as a client of the log through its own ambassador.
//!
//! gRPC speaks to the replica and refuses where it does not lead. HTTP works at every node: what the replica cannot answer itself goes
//! through the ambassador to whoever leads.

mod convert;
mod submit;

use convert::refusal;
pub(crate) use convert::{barrier, fate, key_range, record, request_id, wire_epoch};
pub(crate) use submit::SubmitStream;

use crate::config::Config;
use crate::surface::Surface;
use convoke_client::log::{Ambassador, Kv, Options};
use convoke_node::core::member::NODE_ID_PREFIX;
use convoke_proto::{Code, Error, v1};
use convoke_replica::{ChangeError, Group, LogHandle, Refusal, Status, SubmitError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Requests of HTTP clients on their way at once; they share one session.
const WINDOW: usize = 512;

/// The log plane of a node.
#[derive(Debug)]
pub(crate) struct LogPlane {
    pub(crate) handle: LogHandle,
    pub(crate) ambassador: Ambassador,
    /// The session of everybody who comes over HTTP.
    pub(crate) kv: Kv,
}

impl LogPlane {
    /// Within a tokio runtime. The ambassador asks this node first, which names the others.
    pub(crate) fn new(handle: LogHandle, config: &Config, own: SocketAddr) -> LogPlane {
        let seeds = [reachable(own).to_string()];
        let ambassador = Ambassador::start(seeds).expect("a socket address is host:port, and there is a runtime");
        let kv = ambassador.kv_with(Options::default().window(WINDOW).timeout(config.timeouts.request));
        LogPlane { handle, ambassador, kv }
    }
}

/// An address that listens everywhere is reached at home.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Surface {
    /// The log plane, if this node has one.
    pub(crate) fn log(&self) -> Result<&LogPlane, Error> {
        let message = "this node runs no log plane: set log.enabled, or ask a node that does";
        self.log.as_ref().ok_or_else(|| Error::new(Code::NotReady, message))
    }

    /// Members of the group, the last known leader first, with the addresses clients use.
    pub(crate) fn replicas(&self, group: &Group) -> Vec<v1::Replica> {
        let members = group.members.iter().map(|member| v1::Replica {
            replica: member.replica.0,
            node: member.node.to_string(),
            address: self.client_address(&member.node),
            peer_address: member.address.to_string(),
            voter: member.voter,
            leader: group.leader == Some(member.replica),
        });
        members.collect()
    }

    /// As the registry has it; empty if it does not know.
    fn client_address(&self, node: &str) -> String {
        if node == self.node.id().as_str() {
            return self.node.client_address().to_owned();
        }
        let member = self.node.member(&format!("{NODE_ID_PREFIX}{node}"));
        member.map(|member| member.address().to_owned()).unwrap_or_default()
    }

    /// A refusal of the replica, as clients see it.
    pub(crate) fn log_refused(&self, why: &Refusal) -> Error {
        let error = refusal(why);
        match why.group() {
            Some(group) => error.members(self.replicas(group), group.epoch.map(wire_epoch)),
            None => error,
        }
    }

    pub(crate) fn not_submitted(&self, error: &SubmitError) -> Error {
        match error {
            SubmitError::Refused(why) => self.log_refused(why),
            SubmitError::Unknown => Error::new(Code::OutcomeUnknown, error.to_string()),
        }
    }

    pub(crate) fn not_changed(&self, error: &ChangeError) -> Error {
        match error {
            ChangeError::Submit(error) => self.not_submitted(error),
            other => Error::new(Code::from_str_name(other.code()).unwrap_or(Code::Internal), other.to_string()),
        }
    }

    pub(crate) fn log_status(&self) -> Result<v1::LogStatusResponse, Error> {
        Ok(self.shown(&self.log()?.handle.status()))
    }

    fn shown(&self, status: &Status) -> v1::LogStatusResponse {
        let members = self.replicas(&status.group);
        let ids = |voter: bool| {
            let wanted = members.iter().filter(move |member| member.voter == voter);
            let mut ids: Vec<String> = wanted.map(|member| member.node.clone()).collect();
            ids.sort();
            ids
        };
        v1::LogStatusResponse {
            leader: status.group.leader().map(|leader| leader.node.to_string()).unwrap_or_default(),
            voters: ids(true),
            learners: ids(false),
            epoch: status.group.epoch.map(|epoch| wire_epoch(epoch).to_string()).unwrap_or_default(),
            commit: status.commit,
            applied: status.applied,
            role: status.role.as_str().to_owned(),
            node: self.node.id().to_string(),
            log: status.log.map(|log| format!("{log:032x}")).unwrap_or_default(),
            available: status.available,
            last: status.last,
            snapshot: status.snapshot,
            purged: status.purged,
            revision: status.revision,
            keys: status.keys,
            bytes: status.bytes,
            sessions: status.sessions,
            configuration: status.configuration,
            settled: status.settled,
            fault: status.fault.clone().unwrap_or_default(),
            members,
        }
    }
}
