//! The original request, and how a node forwards it to another node.

use crate::access::{Caller, FORWARDED, ON_BEHALF};
use crate::error::invalid;
use crate::http::body;
use crate::http::http_error::HttpError;
use crate::http::peer_client::PeerError;
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use axum::body::Body;
use axum::extract::FromRequest;
use bytes::Bytes;
use convoke_core::version::REQUEST_MAX;
use convoke_http_session::{ClientOrder, SessionToken, TOKENS_MAX};
use convoke_proto::Error;
use http_body_util::Full;
use std::sync::Arc;
use tokio::time::Instant;

/// The number that a client gave to its request (C10).
const NUMBER: HeaderName = HeaderName::from_static("convoke-session-request");
/// The session tokens that a client sends (C11).
pub(super) const TOKEN: HeaderName = HeaderName::from_static("convoke-session-token");

/// The headers with which a client orders its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderHeaders {
    number: Option<HeaderValue>,
    /// Separated by commas.
    tokens: Option<HeaderValue>,
}

impl OrderHeaders {
    fn new(headers: &HeaderMap) -> Self {
        // Several headers of one name mean the same as one header with a list.
        let tokens: Vec<&[u8]> = headers.get_all(TOKEN).iter().map(HeaderValue::as_bytes).collect();
        let joined = (!tokens.is_empty()).then(|| HeaderValue::from_bytes(&tokens.join(&b","[..])));
        OrderHeaders { number: headers.get(NUMBER).cloned(), tokens: joined.and_then(Result::ok) }
    }

    /// Parses the headers.
    pub(super) fn client_order(&self) -> Result<ClientOrder, Error> {
        let number = self.number.as_ref().map(|value| {
            let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
            number.filter(|number| (1..=REQUEST_MAX).contains(number)).ok_or_else(|| {
                let message = format!("Convoke-Session-Request is not a number between 1 and {REQUEST_MAX}");
                Error { limit: Some(REQUEST_MAX), ..invalid("Convoke-Session-Request", message) }
            })
        });
        let tokens = self.tokens.as_ref().map(|value| {
            let tokens = value.to_str().ok().and_then(SessionToken::parse_all);
            tokens.ok_or_else(|| {
                let message = format!(
                    "Convoke-Session-Token is not a list of up to {TOKENS_MAX} tokens; copy them unchanged from answers, or omit it"
                );
                invalid("Convoke-Session-Token", message)
            })
        });
        Ok(ClientOrder { number: number.transpose()?, tokens: tokens.transpose()?.unwrap_or_default() })
    }
}

/// The original request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) if_match: Option<HeaderValue>,
    pub(crate) order: OrderHeaders,
    pub(crate) body: Bytes,
    /// Another node forwarded it to this node.
    pub(crate) forwarded: bool,
    /// The connection on which it arrived.
    pub(crate) connection: Option<Arc<ClientConnection>>,
    /// Who sent it.
    pub(crate) caller: Caller,
    /// Credentials of the client, for the node that the request is forwarded to.
    pub(crate) credentials: ForwardedCredentials,
}

/// The credentials that a forwarded request carries. The other node verifies a token itself; it believes the name of a
/// certificate only from a node (AU12).
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardedCredentials {
    authorization: Option<HeaderValue>,
    certificate: Option<HeaderValue>,
}

impl ForwardedCredentials {
    pub(crate) fn new(headers: &HeaderMap, connection: Option<&ClientConnection>) -> Self {
        let certificate = connection.and_then(|connection| connection.certificate.as_ref());
        let mut authorization = headers.get(header::AUTHORIZATION).cloned();
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        ForwardedCredentials {
            authorization,
            certificate: certificate.and_then(|certificate| HeaderValue::from_str(&certificate.name).ok()),
        }
    }
}

impl Raw {
    /// Returns a heartbeat of the same session.
    pub(super) fn as_heartbeat(&self, session: &str) -> Raw {
        let uri = format!("/api/v1/sessions/{session}/heartbeat");
        let uri = Uri::try_from(uri).unwrap_or_default();
        let order =
            OrderHeaders { number: None, tokens: self.order.client_order().ok().and(self.order.tokens.clone()) };
        Raw { method: Method::PUT, uri, if_match: None, order, body: Bytes::new(), ..self.clone() }
    }
}

impl FromRequest<Arc<Surface>> for Raw {
    type Rejection = HttpError;

    async fn from_request(request: axum::extract::Request, surface: &Arc<Surface>) -> Result<Self, HttpError> {
        let (parts, body) = request.into_parts();
        let connection = parts.extensions.get::<Arc<ClientConnection>>().cloned();
        Ok(Raw {
            caller: Caller::of(&parts.extensions)?,
            credentials: ForwardedCredentials::new(&parts.headers, connection.as_deref()),
            connection,
            method: parts.method,
            uri: parts.uri,
            if_match: parts.headers.get(header::IF_MATCH).cloned(),
            order: OrderHeaders::new(&parts.headers),
            forwarded: parts.headers.contains_key(FORWARDED),
            body: body::read(surface, body).await?,
        })
    }
}

/// Sends a request to the node at this address.
pub(crate) async fn ask_node(
    surface: &Surface,
    address: &str,
    raw: &Raw,
    deadline: Instant,
) -> Result<Response<Body>, PeerError> {
    let mut request = Request::new(Full::new(raw.body.clone()));
    *request.method_mut() = raw.method.clone();
    *request.uri_mut() = raw.uri.clone();
    let headers = request.headers_mut();
    let own = HeaderValue::from_str(surface.node.id().as_str());
    headers.insert(FORWARDED, own.unwrap_or_else(|_| HeaderValue::from_static("unknown")));
    let ForwardedCredentials { authorization, certificate } = raw.credentials.clone();
    headers.extend(authorization.map(|token| (header::AUTHORIZATION, token)));
    headers.extend(certificate.map(|name| (ON_BEHALF, name)));
    // The other node's spans belong to the same trace.
    if let Some(here) = convoke_trace::current()
        && let Ok(here) = HeaderValue::from_str(&here.to_string())
    {
        headers.insert(convoke_trace::TRACEPARENT, here);
    }
    if let Some(expected) = &raw.if_match {
        headers.insert(header::IF_MATCH, expected.clone());
    }
    for (name, value) in [(NUMBER, &raw.order.number), (TOKEN, &raw.order.tokens)] {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    let (parts, body) = surface.peers.send(address, request, deadline).await?.into_parts();
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = parts.status;
    for name in [header::CONTENT_TYPE, header::CACHE_CONTROL, TOKEN] {
        if let Some(value) = parts.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Ok(answer)
}
