//! The HTTP interface of the cluster manager.

use super::clusters::{Clusters, Entry, describe};
use super::{faults, health};
use crate::cluster::api::{
    AddRequest, ClientsRequest, ClusterInfo, Clusters as List, CreateRequest, Fault, Manager, NodeInfo, SERVICE,
    TargetGroup,
};
use crate::log_group;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use bytes::Bytes;
use convoke_lab::{LocalCluster, LocalNode, NODES_MAX, NodeState};
use convoke_proto::json::ErrorBody;
use convoke_proto::{Error, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

const BODY_MAX: usize = 64 * 1024;
/// More lines than any answer has.
const LINES_MAX: usize = NODES_MAX + 8;

type Answer = Result<Response, ErrorResponse>;

pub(crate) fn router(clusters: Arc<Clusters>) -> Router {
    Router::new()
        .route("/healthz", get(manager))
        .route("/clusters", get(list).post(create))
        .route("/clusters/{name}", get(info).delete(remove_cluster))
        .route("/clusters/{name}/nodes", post(add))
        .route("/clusters/{name}/nodes/{node}", delete(remove_node))
        .route("/clusters/{name}/clients", put(clients))
        .route("/clusters/{name}/faults", post(fault))
        .route("/clusters/{name}/health", get(check))
        .route("/clusters/{name}/sd/prometheus", get(targets))
        .fallback(async || {
            ErrorResponse(Error::new(ErrorCode::NotFound, "no such path: see docs/demo-and-clusters.md"))
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn_with_state(clusters.clone(), admit))
        .with_state(clusters)
}

/// Accepts requests of programs on this machine, but not of web pages that a browser has loaded from elsewhere.
async fn admit(State(clusters): State<Arc<Clusters>>, request: Request, next: Next) -> Response {
    let _request = clusters.request();
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if headers.contains_key(header::ORIGIN) || !["127.0.0.1", "localhost"].contains(&host) {
        let message = "the cluster manager accepts only local requests: use http://127.0.0.1";
        return ErrorResponse(Error::new(ErrorCode::PermissionDenied, message)).into_response();
    }
    next.run(request).await
}

async fn manager(State(clusters): State<Arc<Clusters>>) -> Answer {
    let (clusters, creating) = clusters.count();
    let (service, version) = (SERVICE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    answer(&Manager { service, version, pid: std::process::id(), clusters, creating })
}

async fn list(State(clusters): State<Arc<Clusters>>) -> Answer {
    let mut infos = Vec::new();
    for name in clusters.names() {
        // Clusters that are being created or deleted are not listed.
        if let Ok(info) = look(&clusters, &name).await {
            infos.push(info);
        }
    }
    answer(&List { clusters: infos })
}

/// Answers with lines of JSON; the last one is the result.
async fn create(State(clusters): State<Arc<Clusters>>, headers: HeaderMap, body: Bytes) -> Answer {
    let request: CreateRequest = parse(&headers, &body)?;
    let entry = clusters.reserve(&request)?;
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // Continues if the client disconnects: then it removes the cluster.
    tokio::spawn(clusters.create(entry, request, sender));
    let lines = ReceiverStream::new(receiver).map(|progress| {
        let mut line = serde_json::to_vec(&progress).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

async fn info(State(clusters): State<Arc<Clusters>>, Path(name): Path<String>) -> Answer {
    answer(&look(&clusters, &name).await?)
}

async fn look(clusters: &Clusters, name: &str) -> Result<ClusterInfo, ErrorResponse> {
    let entry = clusters.find(name)?;
    let cluster = entry.cluster.lock().await;
    let cluster = cluster.as_ref().ok_or_else(|| not_complete(&entry))?;
    let local_clients = entry.local_clients.lock().await;
    Ok(describe(cluster, &local_clients))
}

/// `?id=` deletes the cluster only if it still has that id.
async fn remove_cluster(
    State(clusters): State<Arc<Clusters>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let entry = clusters.find(&name)?;
    let id = query.as_deref().and_then(|query| query.strip_prefix("id="));
    if id.is_some_and(|id| *id != entry.id.to_string()) {
        let message = format!("cluster {name} with that id does not exist; another cluster has that name");
        return Err(Error::new(ErrorCode::NotFound, message).field("id").into());
    }
    // Continues if the client disconnects.
    let deleting = tokio::spawn(async move { clusters.delete(&entry).await });
    finished(deleting.await)?;
    answer(&serde_json::json!({ "deleted": name }))
}

async fn add(
    State(clusters): State<Arc<Clusters>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let request: AddRequest = parse(&headers, &body)?;
    let entry = clusters.find(&name)?;
    let adding = tokio::spawn(async move {
        let mut cluster = entry.cluster.lock().await;
        let cluster = cluster.as_mut().ok_or_else(|| not_complete(&entry))?;
        if cluster.nodes().len() >= NODES_MAX {
            let message = format!("cluster {} has {NODES_MAX} nodes already: remove one first", entry.name);
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(NODES_MAX as u64));
        }
        let id = cluster.add(&request.region).await.map_err(|error| faults::node_error(&error))?;
        let nodes = describe(cluster, &*entry.local_clients.lock().await).nodes;
        let added: Option<NodeInfo> = nodes.into_iter().find(|node| node.id == id);
        added.ok_or_else(|| Error::new(ErrorCode::Internal, "the node has ended"))
    });
    answer(&finished(adding.await)??)
}

/// `?force` even if the log is lost with it.
async fn remove_node(
    State(clusters): State<Arc<Clusters>>,
    Path((name, node)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Answer {
    let force = match query.as_deref() {
        None | Some("") => false,
        Some("force" | "force=true") => true,
        Some(other) => {
            let message = format!("unknown query {other:?}: only force is allowed");
            return Err(Error::new(ErrorCode::InvalidArgument, message).field("query").into());
        }
    };
    let entry = clusters.find(&name)?;
    let removing = tokio::spawn(async move {
        let mut cluster = entry.cluster.lock().await;
        let cluster = cluster.as_mut().ok_or_else(|| not_complete(&entry))?;
        if cluster.node(&node).is_some() && cluster.nodes().len() == 1 {
            let message = format!("{node} is the last node of {}: delete the cluster instead", entry.name);
            return Err(Error::new(ErrorCode::FailedPrecondition, message));
        }
        if cluster.node(&node).is_some()
            && let Err(reason) = log_group::leave(&places(cluster), &node).await
        {
            if let Some(rejection) = reason.rejection(&node, &entry.name).filter(|_| !force) {
                return Err(rejection);
            }
            // Without a majority the group cannot change: the node is removed from the cluster only.
            tracing::warn!(node, %reason, "node not removed from the log group");
        }
        if cluster.remove(&node).await { Ok(node) } else { Err(faults::unknown(cluster, &node)) }
    });
    answer(&serde_json::json!({ "removed": finished(removing.await)?? }))
}

fn places(cluster: &LocalCluster) -> Vec<log_group::Place> {
    let place = |node: &LocalNode| log_group::Place {
        id: node.id().to_owned(),
        address: node.clients().to_string(),
        running: node.state() == NodeState::Running,
    };
    cluster.nodes().iter().map(place).collect()
}

async fn fault(
    State(clusters): State<Arc<Clusters>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let fault: Fault = parse(&headers, &body)?;
    let entry = clusters.find(&name)?;
    let applying = tokio::spawn(async move {
        let mut cluster = entry.cluster.lock().await;
        let cluster = cluster.as_mut().ok_or_else(|| not_complete(&entry))?;
        faults::apply(cluster, fault).await?;
        Ok::<_, Error>(describe(cluster, &*entry.local_clients.lock().await))
    });
    answer(&finished(applying.await)??)
}

async fn clients(
    State(clusters): State<Arc<Clusters>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let request: ClientsRequest = parse(&headers, &body)?;
    let entry = clusters.find(&name)?;
    let addresses = {
        let cluster = entry.cluster.lock().await;
        let cluster = cluster.as_ref().ok_or_else(|| not_complete(&entry))?;
        cluster.nodes().iter().map(|node| node.clients().to_string()).collect::<Vec<_>>()
    };
    // The cluster is not locked meanwhile: faults and deletion still work.
    let changing = tokio::spawn(async move { entry.local_clients.lock().await.change(&request, &addresses).await });
    finished(changing.await)??;
    answer(&look(&clusters, &name).await?)
}

async fn check(State(clusters): State<Arc<Clusters>>, Path(name): Path<String>) -> Answer {
    let info = look(&clusters, &name).await?;
    answer(&health::examine(&info.nodes).await)
}

async fn targets(State(clusters): State<Arc<Clusters>>, Path(name): Path<String>) -> Answer {
    let info = look(&clusters, &name).await?;
    let groups = info.nodes.iter().map(|node| TargetGroup {
        targets: vec![node.address.clone()],
        labels: [("cluster", &info.name), ("node", &node.id), ("region", &node.region)]
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .into(),
    });
    answer(&groups.collect::<Vec<_>>())
}

fn not_complete(entry: &Entry) -> Error {
    Error::new(
        ErrorCode::NotReady,
        format!("cluster {} is being created or deleted: try again in a moment", entry.name),
    )
}

fn finished<T>(joined: Result<T, tokio::task::JoinError>) -> Result<T, ErrorResponse> {
    joined.map_err(|error| Error::new(ErrorCode::Internal, format!("internal error: {error}")).into())
}

/// Accepts only the content type JSON: web pages of other origins cannot send it without a preflight request.
fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, ErrorResponse> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let message = "send JSON, with content-type: application/json";
        return Err(Error::new(ErrorCode::InvalidArgument, message).field("content-type").into());
    }
    serde_json::from_slice(body)
        .map_err(|error| Error::new(ErrorCode::InvalidArgument, format!("invalid body: {error}")).into())
}

fn answer(value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A rejection as a response.
pub(crate) struct ErrorResponse(Error);

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> ErrorResponse {
        ErrorResponse(error)
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&ErrorBody { error: self.0 }).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
