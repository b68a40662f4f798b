//! Conversion of the node's status, peers and services for operators.

use super::millis;
use super::sentences::{Since, sentences};
use convoke_core::member::{ChangeKind, NODE_ID_PREFIX, Status};
use convoke_core::node::{DegradedReason, Explanation, PeerState, PeerView, ServiceView};
use convoke_core::version::NodeId;
use convoke_node::{MemberChange, NodeHandle, NodeStatus, Phase};
use convoke_proto::v1;
use convoke_replica::{LogHandle, Role};
use convoke_tls::TlsStatus;
use std::net::SocketAddr;
use std::time::SystemTime;

pub(crate) fn status(
    node: &NodeHandle,
    status: &NodeStatus,
    client: SocketAddr,
    dns: Option<SocketAddr>,
) -> v1::StatusResponse {
    let sizes = &status.sizes;
    let count = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
    v1::StatusResponse {
        id: node.id().to_string(),
        incarnation: status.incarnation.number,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: millis(status.uptime),
        region: node.region().to_owned(),
        cluster: node.cluster().to_owned(),
        ports: Some(v1::status_response::Ports {
            client: client.port().into(),
            peer: node.local_address().port().into(),
            dns: dns.map_or(0, |dns| dns.port().into()),
        }),
        counts: Some(v1::status_response::Counts {
            members: count(sizes.members),
            names: count(sizes.names),
            tombstones: count(sizes.tombstones),
            sessions: count(sizes.sessions),
            watchers: count(sizes.watchers),
            links: count(sizes.links),
        }),
        degraded: status.degraded.iter().map(|reason| degraded(*reason).to_owned()).chain(diverged(status)).collect(),
        ready: node.is_ready(),
        log_role: "none".to_owned(),
        alone: alone(node),
        access: String::new(),
        tls: Some(v1::status_response::Tls { client: "off".to_owned(), peer: "off".to_owned(), ..Default::default() }),
    }
}

/// TLS of a node, as operators see it.
pub(crate) fn tls(status: &TlsStatus, now: SystemTime) -> v1::status_response::Tls {
    v1::status_response::Tls {
        client: status.client.to_string(),
        peer: status.peer.to_string(),
        not_after_ms: status.expiry.first().saturating_mul(1_000),
        warning: status.expiry.warning(now).unwrap_or_default(),
    }
}

/// Returns why a node that serves clients asserts no absence (N7); empty if it does.
fn alone(node: &NodeHandle) -> String {
    if node.phase() != Phase::Alone {
        return String::new();
    }
    node.absence().err().map(|rejection| rejection.message).unwrap_or_default()
}

/// Returns the reason why the log plane does not work or soon rejects requests, if there is one. The registry does not depend on it.
pub(crate) fn log_degraded(log: &LogHandle) -> Option<String> {
    let status = log.status();
    match status.role {
        _ if status.conflict.is_some() => status.conflict.map(|conflict| conflict.to_string()),
        _ if status.divergence.is_some() => {
            Some(format!("this replica of the log differs: {}", status.divergence.unwrap_or_default()))
        }
        Role::Failed => Some(format!("the log plane has stopped: {}", status.fault.unwrap_or_default())),
        Role::Outside if status.group.replicas.is_empty() => Some(match status.obstacle {
            Some(why) => format!("the log has not begun yet: {why}"),
            None => "the log has not begun yet".to_owned(),
        }),
        _ if status.excluded => {
            Some(format!("this replica of the log is excluded: {}", status.obstacle.unwrap_or_default()))
        }
        _ if !status.available => Some("the log has no leader with a majority".to_owned()),
        _ => status.quota_warning(),
    }
}

fn degraded(reason: DegradedReason) -> &'static str {
    match reason {
        DegradedReason::Sessions => "most clients of this node fell silent at once",
        DegradedReason::Nodes => "most other nodes fell silent at once",
        DegradedReason::Identity => "another node reports a newer incarnation or another process with this node id",
    }
}

/// Returns a reason if the records of this node differ from those of a peer (D16).
fn diverged(status: &NodeStatus) -> Option<String> {
    let peers: Vec<&str> = status.diverged.iter().map(NodeId::as_str).collect();
    (!peers.is_empty()).then(|| format!("the registry differs from that of {}", peers.join(", ")))
}

/// Returns all nodes, including this one, sorted by id.
pub(crate) fn nodes(node: &NodeHandle, own: &NodeStatus, peers: Vec<PeerView>) -> v1::NodesResponse {
    let drained = |id: &str| node.member(&format!("{NODE_ID_PREFIX}{id}")).is_some_and(|member| member.drained());
    let others = peers.into_iter().map(|peer| v1::Node {
        drained: drained(peer.node.as_str()),
        id: peer.node.to_string(),
        state: peer_state(peer.state).into(),
        region: peer.region,
        address: peer.client_address,
        peer_address: peer.peer_address,
        incarnation: peer.incarnation.map_or(0, |incarnation| incarnation.number),
        ready: peer.serving,
        self_: false,
        evidence_age_ms: peer.evidence.as_ref().map(|evidence| millis(evidence.age)),
        evidence_via: peer.evidence.and_then(|evidence| evidence.via).map(|via| via.to_string()).unwrap_or_default(),
        behind: peer.behind,
        alone: false,
        sessions: peer.sessions,
    });
    let own_node = v1::Node {
        id: node.id().to_string(),
        state: v1::NodeState::Up.into(),
        region: node.region().to_owned(),
        address: node.client_address().to_owned(),
        peer_address: node.peer_address().to_owned(),
        incarnation: own.incarnation.number,
        ready: node.is_ready(),
        drained: drained(node.id().as_str()),
        self_: true,
        evidence_age_ms: None,
        evidence_via: String::new(),
        behind: 0,
        alone: node.phase() == Phase::Alone,
        sessions: own.streamed_sessions,
    };
    let mut nodes: Vec<v1::Node> = others.chain([own_node]).collect();
    nodes.sort_by(|a, b| a.id.cmp(&b.id));
    v1::NodesResponse { nodes }
}

fn peer_state(state: PeerState) -> v1::NodeState {
    match state {
        PeerState::Connecting => v1::NodeState::Connecting,
        PeerState::Up => v1::NodeState::Up,
        PeerState::Lost => v1::NodeState::Lost,
        PeerState::Failed => v1::NodeState::Failed,
        PeerState::Left => v1::NodeState::Left,
        PeerState::Distant => v1::NodeState::Distant,
    }
}

pub(crate) fn services(services: Vec<ServiceView>, complete: bool) -> v1::ServicesResponse {
    let count = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
    let services = services.into_iter().map(|service| v1::Service {
        service: service.service,
        up: count(service.up),
        down: count(service.down),
        drained: count(service.drained),
        critical: count(service.critical),
        panic: service.panic,
    });
    v1::ServicesResponse { services: services.collect(), complete }
}

/// `history` are the last changes of the member at this node, newest first.
pub(crate) fn explanation(explanation: &Explanation, own: &NodeId, history: &[MemberChange]) -> v1::ExplainResponse {
    use v1::explain_response::{Change, Departure, Evidence, Inferred, Maintenance, Session};
    // After an unregistration, the change carries the last state of the member.
    let status = |change: &MemberChange| match change.kind {
        ChangeKind::Unregistered => Status::Left,
        _ => change.member.status(),
    };
    let since = history.iter().take_while(|change| status(change) == explanation.shown).last();
    // The oldest kept change need not be the one that brought the status.
    let since = since.filter(|change| !matches!(change.kind, ChangeKind::Updated | ChangeKind::OwnerChanged));
    let drained = history.iter().take_while(|change| change.member.drained());
    // Without an earlier change, the mark may be older.
    let drained = drained.last().filter(|_| history.last().is_some_and(|oldest| !oldest.member.drained()));
    let since = Since { shown: since.map(|change| change.wall_ms), drained: drained.map(|change| change.wall_ms) };
    let text = |node: &Option<NodeId>| node.as_ref().map(ToString::to_string).unwrap_or_default();
    v1::ExplainResponse {
        id: explanation.id.clone(),
        status: v1::Status::from(explanation.shown).into(),
        stated: v1::Status::from(explanation.stated).into(),
        version: explanation.version.to_string(),
        owner: explanation.written.origin.node.to_string(),
        written: explanation.written.to_string(),
        client: explanation.client.clone(),
        claim: explanation.claim,
        owner_admitted: explanation.owner_admitted,
        evidence: Some(Evidence {
            liveness_counter: explanation.evidence.liveness_counter,
            age_ms: millis(explanation.evidence.age),
            via: text(&explanation.evidence.via),
        }),
        inferred: explanation.inferred.as_ref().map(|inferred| Inferred {
            by: inferred.by.to_string(),
            liveness_counter: inferred.liveness_counter,
            applies: inferred.applies,
        }),
        responsible: text(&explanation.responsible),
        session: explanation.session.as_ref().map(|session| Session {
            silence_ms: millis(session.silence),
            timeout_ms: millis(session.timeout),
            connected: session.connected,
            superseded: session.superseded,
            cut: session.cut,
        }),
        sentences: sentences(explanation, own, since),
        drained: explanation.drained,
        maintenance: explanation.maintenance.as_ref().map(|maintenance| Maintenance {
            reason: maintenance.reason.clone(),
            remaining_ms: maintenance.remaining.map(millis),
        }),
        departure: explanation
            .departure
            .map(|departure| Departure { expired: departure.expired, age_ms: millis(departure.age) }),
        history: history
            .iter()
            .map(|change| Change {
                at: change.wall_ms,
                change: change.kind.as_str().to_owned(),
                status: v1::Status::from(status(change)).into(),
                owner: change.member.owner().node.to_owned(),
            })
            .collect(),
    }
}
