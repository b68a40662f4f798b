//! The layer around every route: metrics, limits of sizes and the origin of the request before it is parsed, and the
//! timeout.

use super::extract::no_query;
use super::http_error::{Failed, HttpError};
use super::routes::{Dialect, RouteInfo};
use super::site;
use crate::access::{Caller, Permission, permission};
use crate::audit::{Recorded, Recording};
use crate::consul::Failure;
use crate::surface::Surface;
use crate::traces;
use ::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use convoke_proto::{Error, ErrorCode};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tower::{Layer, Service};
use tracing::Instrument;

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// For answers that are no page: a browser that shows one runs and loads nothing. The dashboard sets its own policy.
const NO_PAGE: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// Puts the bounds around a route. Not made with `axum::middleware::from_fn`, which clones the route and boxes it twice for every
/// request.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) surface: Arc<Surface>,
    /// `None` if no route matches the request.
    pub(crate) route: Option<RouteInfo>,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { bounds: self.clone(), inner }
    }
}

/// A route with bounds around it.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<S> {
    bounds: Bounds,
    inner: S,
}

impl<S> Service<Request> for Bounded<S>
where
    S: Service<Request, Error = Infallible, Future: Send + 'static>,
    S::Response: IntoResponse,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let begun = Instant::now();
        let Bounds { surface, route } = self.bounds.clone();
        let span = traces::http(request.method(), route.map(|route| route.path), request.headers());
        let reading = request.method() == Method::GET || request.method() == Method::HEAD;
        let dialect = dialect(route, &request);
        let recording = record(&surface, route, &mut request);
        let answering = check(&surface, route, dialect, &request).map(|()| self.inner.call(request));
        Box::pin(async move {
            let mut response = match answering {
                Ok(answering) if route.is_some_and(|route| route.waits) => {
                    let Ok(response) = answering.instrument(span.clone()).await;
                    response.into_response()
                }
                Ok(answering) => in_time(&surface, dialect, reading, answering).instrument(span.clone()).await,
                Err(refused) => *refused,
            };
            // A browser must not guess that data is a script or a page.
            let headers = response.headers_mut();
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
            headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NO_PAGE);
            let failed = response.extensions().get::<Failed>().map(|failed| failed.0);
            recording.finish(failed);
            let code = failed.map_or(0, |code| code as usize);
            surface.metrics.http.record(route.map(|route| route.position), code, begun.elapsed());
            traces::http_answered(&span, response.status(), failed.map(ErrorCode::as_str));
            Ok(response)
        })
    }
}

/// Begins the record of the audit log.
fn record(surface: &Surface, route: Option<RouteInfo>, request: &mut Request) -> Recording {
    let (method, template) = (request.method().clone(), route.map_or("", |route| route.path));
    let action = move || format!("{method} {template}").trim_end().to_owned();
    let recorded = route.map_or(Recorded::Denials, |route| route.recorded);
    let recording = Recording::begin(&surface.audit, request, ("http", action), recorded);
    recording.path(template, request.uri().path());
    recording
}

async fn in_time<R: IntoResponse>(
    surface: &Surface,
    dialect: Dialect,
    reading: bool,
    answering: impl Future<Output = Result<R, Infallible>>,
) -> Response {
    // The body and the answer have a timeout each.
    let timeout = surface.config.timeouts.request * 2;
    let error = match tokio::time::timeout(timeout, answering).await {
        Ok(Ok(response)) => return response.into_response(),
        Err(_) if reading => Error::new(ErrorCode::Timeout, "the node is too busy; try again or use another node"),
        Err(_) => {
            let message = "the node did not answer in time; the request may or may not have been executed";
            Error::new(ErrorCode::OutcomeUnknown, message)
        }
    };
    refusal(dialect, error.into())
}

/// The interface that a request uses. A path without a route belongs to one as well.
fn dialect(route: Option<RouteInfo>, request: &Request) -> Dialect {
    match route {
        Some(route) => route.dialect,
        None if request.uri().path().starts_with(crate::consul::PREFIX) => Dialect::Consul,
        None => Dialect::Native,
    }
}

/// Writes an error of these layers as the interface of the request does.
fn refusal(dialect: Dialect, error: HttpError) -> Response {
    match dialect {
        Dialect::Consul => Failure::from(error).into_response(),
        Dialect::Native => error.into_response(),
    }
}

/// Returns the response to a request that is not executed.
fn check(
    surface: &Surface,
    route: Option<RouteInfo>,
    dialect: Dialect,
    request: &Request,
) -> Result<(), Box<Response>> {
    let refused = |error| Box::new(refusal(dialect, error));
    check_sizes(surface, request).map_err(refused)?;
    // Who uses a name that the node does not accept must learn how to allow it, with Consul's programs as well.
    site::check(&surface.hosts, route, request.method(), request.uri(), request.headers()).map_err(|error| {
        Box::new(match dialect {
            Dialect::Consul => Failure::with_reason(error).into_response(),
            Dialect::Native => error.into_response(),
        })
    })?;
    authorize(route, request).map_err(refused)?;
    match (route, request.uri().query()) {
        (Some(route), Some(query)) if !route.query => no_query(query).map_err(|error| refused(error.into())),
        _ => Ok(()),
    }
}

fn check_sizes(surface: &Surface, request: &Request) -> Result<(), HttpError> {
    let limits = &surface.config.limits;
    let uri = request.uri().path_and_query().map_or(0, |text| text.as_str().len());
    if uri > limits.uri_bytes {
        return Err(too_large(StatusCode::URI_TOO_LONG, "path and query", uri, limits.uri_bytes));
    }
    let headers = header_bytes(request.headers());
    if headers > limits.header_bytes {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(too_large(status, "headers", headers, limits.header_bytes));
    }
    Ok(())
}

/// Checks the credentials and the permission of the route. A path without a route shows whether it exists only to callers
/// who may observe the cluster.
fn authorize(route: Option<RouteInfo>, request: &Request) -> Result<(), HttpError> {
    let permission = route.map_or(permission!(Observe Cluster), |route| route.permission);
    if permission == Permission::Public {
        return Ok(());
    }
    let caller = Caller::of(request.extensions())?;
    Ok(permission.check(&caller)?)
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn too_large(status: StatusCode, what: &str, bytes: usize, limit: usize) -> HttpError {
    let message = format!("{what} of {bytes} bytes exceeds the limit of {limit}");
    HttpError::with_status(status, Error::new(ErrorCode::TooLarge, message).limit(limit as u64))
}
