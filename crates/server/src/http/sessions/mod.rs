//! HTTP sessions: the handlers of `/api/v1/sessions`.

mod entries;
mod forward;
mod serve;

pub(crate) use entries::Sessions;

use super::body::parse;
use super::extract::{JsonBody, NoFields, Query, Segments, Switch};
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::convert::{member_spec, millis, version};
use crate::error::{invalid, rejected};
use crate::service::ClientConnection;
use crate::surface::Surface;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use convoke_access::Verb;
use convoke_core::member::{Liveness, MemberSpec, MetadataUpdate, UpdateMode};
use convoke_core::node::AttachMember;
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use convoke_http_session::{
    RANDOM_BYTES, Secret, SessionAnswer, SessionError, SessionOperation, SessionReply, SessionToken, session_gone,
};
use convoke_proto::{Error, json};
pub(crate) use forward::{ForwardedCredentials, OrderHeaders, Raw, ask_node};
use serde::{Deserialize, Serialize};
use serve::Served;
use std::collections::BTreeMap;
use std::sync::Arc;

type Shared = State<Arc<Surface>>;
/// The parameters of a query. A request with invalid parameters still counts as a heartbeat, so the handler gets the error.
type QueryParams<T> = Result<Query<T>, HttpError>;

/// `POST /api/v1/sessions`
pub(crate) async fn create(
    State(surface): Shared,
    caller: Caller,
    connection: Option<Extension<Arc<ClientConnection>>>,
    JsonBody(request): JsonBody<json::SessionRequest>,
) -> Result<Response, HttpError> {
    let liveness = match request.liveness.unwrap_or_default() {
        json::Liveness::Normal => Liveness::Normal,
        json::Liveness::Fast => Liveness::Fast,
    };
    let timeout_ms = match request.timeout_ms {
        None => 0,
        Some(0) => {
            return Err(
                invalid("timeout_ms", "timeout_ms must not be 0; omit it to use the default of the node").into()
            );
        }
        Some(ms) => u32::try_from(ms).map_err(|_| invalid("timeout_ms", format!("timeout_ms {ms} is too long")))?,
    };
    if request.client.as_deref() == Some("") {
        return Err(invalid("client", "client must not be empty; omit it to get a generated client id").into());
    }
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| rejected(no_randomness(error)))?;
    let creator = surface.node.origin().await.map_err(rejected)?;
    let secret = Secret::new(request.client.as_deref(), liveness, timeout_ms, &creator, random);
    let (session, client) = (secret.reveal(), secret.client());
    let (answer, token) = serve::create(&surface, secret, connection.as_deref(), &caller).await?;
    let response = json::SessionResponse {
        session,
        client,
        heartbeat_interval_ms: millis(answer.heartbeat_interval),
        timeout_ms: millis(answer.timeout),
    };
    Ok(with_token(Json(response).into_response(), &token))
}

/// `PUT /api/v1/sessions/{session}/heartbeat`
pub(crate) async fn heartbeat(
    State(surface): Shared,
    Segments(session): Segments<String>,
    query: QueryParams<NoFields>,
    raw: Raw,
) -> Result<Response, HttpError> {
    run(&surface, &session, without_arguments(query, &raw).map(|()| SessionOperation::Heartbeat), &raw).await
}

/// `DELETE /api/v1/sessions/{session}`
pub(crate) async fn close(
    State(surface): Shared,
    Segments(session): Segments<String>,
    query: QueryParams<NoFields>,
    raw: Raw,
) -> Result<Response, HttpError> {
    run(&surface, &session, without_arguments(query, &raw).map(|()| SessionOperation::Close), &raw).await
}

/// Rejects a query or a body for requests that take neither.
fn without_arguments(query: QueryParams<NoFields>, raw: &Raw) -> Result<(), Error> {
    query.map_err(HttpError::into_error)?;
    parse::<NoFields>(&raw.body).map(drop)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RegisterQuery {
    takeover: Switch,
}

/// `PUT /api/v1/sessions/{session}/members/{id}`
pub(crate) async fn register(
    State(surface): Shared,
    caller: Caller,
    Segments((session, id)): Segments<(String, String)>,
    query: QueryParams<RegisterQuery>,
    raw: Raw,
) -> Result<Response, HttpError> {
    let operation = query.map_err(HttpError::into_error).and_then(|Query(query)| {
        let spec = with_id(parse(&raw.body)?, id)?;
        surface.check_registration(&caller, &spec, query.takeover.0)?;
        Ok(SessionOperation::Register(Arc::new(AttachMember { spec, takeover: query.takeover.0 })))
    });
    run(&surface, &session, operation, &raw).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpdateQuery {
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Merge,
    Replace,
}

/// `PATCH /api/v1/sessions/{session}/members/{id}`
pub(crate) async fn update(
    State(surface): Shared,
    caller: Caller,
    Segments((session, id)): Segments<(String, String)>,
    query: QueryParams<UpdateQuery>,
    raw: Raw,
) -> Result<Response, HttpError> {
    let operation = query.map_err(HttpError::into_error).and_then(|Query(query)| {
        surface.check_member(&caller, Verb::Register, &id)?;
        let mode = match query.mode {
            Mode::Merge => UpdateMode::Merge,
            Mode::Replace => UpdateMode::Replace,
        };
        let changes = parse::<BTreeMap<String, Option<String>>>(&raw.body)?;
        let update = Arc::new(MetadataUpdate { mode, changes });
        Ok(SessionOperation::Update { id, update, expected: expected(&raw)? })
    });
    run(&surface, &session, operation, &raw).await
}

/// `DELETE /api/v1/sessions/{session}/members/{id}`
pub(crate) async fn unregister(
    State(surface): Shared,
    caller: Caller,
    Segments((session, id)): Segments<(String, String)>,
    query: QueryParams<NoFields>,
    raw: Raw,
) -> Result<Response, HttpError> {
    let checked = without_arguments(query, &raw).and_then(|()| surface.check_member(&caller, Verb::Register, &id));
    run(&surface, &session, checked.map(|()| SessionOperation::Unregister(id)), &raw).await
}

/// Returns the member in the body of a registration. The body may omit the id, because the path contains it.
fn with_id(member: json::MemberSpec, id: String) -> Result<MemberSpec, Error> {
    if !member.id.is_empty() && member.id != id {
        return Err(invalid("id", format!("the body describes {:?}, the path names {id:?}", member.id)));
    }
    member_spec(json::MemberSpec { id, ..member })
}

/// Returns the version in `If-Match`, with or without the quotes of an entity tag.
fn expected(raw: &Raw) -> Result<Option<Version>, Error> {
    let Some(text) = &raw.if_match else { return Ok(None) };
    let text = text.to_str().map_err(|_| invalid("If-Match", "If-Match is not a version"))?.trim();
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if bare == "*" { Ok(None) } else { version("If-Match", bare).map(Some) }
}

/// The answer to a heartbeat.
#[derive(Debug, Serialize)]
struct HeartbeatResponse {
    node: String,
    heartbeat_interval_ms: u64,
    timeout_ms: u64,
    /// The members of the session, if this request attached it to this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<String>>,
    /// Members that the session lost: other clients took them over, or they expired at another node (C20).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    taken_over: Vec<String>,
}

/// The answer to an unregistration and to the end of a session.
#[derive(Debug, Serialize)]
struct WriteResponse {
    replicated: bool,
}

/// The answer `WRITES_LOST`, with which a client can repair its session.
#[derive(Debug, Serialize)]
struct WritesLostResponse {
    error: Error,
    /// The members of the session, with their versions.
    members: BTreeMap<String, String>,
}

/// Executes the operation of a request. An invalid request is executed as a heartbeat, then rejected.
async fn run(
    surface: &Surface,
    session: &str,
    operation: Result<SessionOperation, Error>,
    raw: &Raw,
) -> Result<Response, HttpError> {
    let Some(secret) = Secret::parse(session) else { return Err(rejected(session_gone()).into()) };
    let heartbeat = matches!(operation, Ok(SessionOperation::Heartbeat));
    let (operation, invalid) = match operation.and_then(|operation| raw.order.client_order().map(|_| operation)) {
        Ok(operation) => (operation, None),
        Err(error) => (SessionOperation::Heartbeat, Some(error)),
    };
    let served = match &invalid {
        None => serve::serve(surface, secret, operation, raw).await?,
        Some(_) => serve::serve(surface, secret, operation, &raw.as_heartbeat(session)).await?,
    };
    let (result, token) = match (served, invalid) {
        (Served::Relayed(response), None) => return Ok(response),
        (Served::Relayed(response), Some(error)) => {
            let token = response.headers().get(forward::TOKEN).cloned();
            let mut response = HttpError::from(error).into_response();
            response.headers_mut().extend(token.map(|token| (forward::TOKEN, token)));
            return Ok(response);
        }
        (Served::Local(Ok(_), token), Some(error)) => {
            return Ok(with_token(HttpError::from(error).into_response(), &token));
        }
        (Served::Local(result, token), _) => (result, token),
    };
    let response = match result {
        Err(SessionError::WritesLost { members }) => writes_lost(members),
        Err(error) => HttpError::from(serve::error(error)).into_response(),
        Ok(answer) => match answer.reply {
            SessionReply::Written(version) => {
                let (version, replicated) = (version.to_string(), answer.replicated);
                Json(json::MemberWritten { version, replicated }).into_response()
            }
            SessionReply::Done if heartbeat => Json(heartbeat_response(surface, answer)).into_response(),
            SessionReply::Done => Json(WriteResponse { replicated: answer.replicated }).into_response(),
        },
    };
    Ok(with_token(response, &token))
}

fn with_token(mut response: Response, token: &SessionToken) -> Response {
    if let Ok(token) = token.text().parse() {
        response.headers_mut().insert(forward::TOKEN, token);
    }
    response
}

fn writes_lost(members: Vec<(String, Version)>) -> Response {
    let error = serve::error(SessionError::WritesLost { members: Vec::new() });
    let mut response = HttpError::from(error.clone()).into_response();
    let members = members.into_iter().map(|(id, version)| (id, version.to_string())).collect();
    let body = serde_json::to_vec(&WritesLostResponse { error, members }).unwrap_or_default();
    *response.body_mut() = body.into();
    response
}

fn heartbeat_response(surface: &Surface, answer: SessionAnswer) -> HeartbeatResponse {
    HeartbeatResponse {
        node: surface.node.id().to_string(),
        heartbeat_interval_ms: millis(answer.heartbeat_interval),
        timeout_ms: millis(answer.timeout),
        members: answer.members,
        taken_over: answer.taken_over,
    }
}

fn no_randomness(error: getrandom::Error) -> Rejection {
    Rejection::new(ErrorCode::Internal, format!("the operating system returned no random numbers: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_omit_the_id_but_not_name_another_one() {
        let member = |id: &str| with_id(json::MemberSpec::new(id, "s"), "a".to_owned());
        assert_eq!(member("").unwrap(), MemberSpec::new("a", "s"));
        assert_eq!(member("a").unwrap(), MemberSpec::new("a", "s"));
        assert_eq!(member("b").unwrap_err().field.as_deref(), Some("id"));
    }
}
