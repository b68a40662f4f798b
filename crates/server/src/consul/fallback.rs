//! Paths and methods without a route.

use super::failure::Failure;
use crate::http::Bounds;
use crate::surface::Surface;
use ::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::body::Body;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use std::sync::Arc;

/// Paths that Consul has and Convoke has not, by prefix, with the reason.
const MISSING: &[(&str, &str)] = &[
    ("connect/", "service mesh (Connect)"),
    ("agent/connect/", "service mesh (Connect)"),
    ("catalog/connect/", "service mesh (Connect)"),
    ("health/connect/", "service mesh (Connect)"),
    ("catalog/gateway-services/", "service mesh (Connect)"),
    ("health/ingress/", "service mesh (Connect)"),
    ("discovery-chain/", "service mesh (Connect)"),
    ("config", "configuration entries"),
    ("acl/", "Consul's ACLs: see docs/access-control.md; tokens are issued by `convoke token issue`"),
    ("query", "prepared queries"),
    ("coordinate/", "network coordinates"),
    ("peering", "cluster peering"),
    ("namespace", "namespaces"),
    ("partition", "partitions"),
    ("agent/join/", "joining: nodes join by their configuration (docs/configuration.md)"),
    ("agent/force-leave/", "force-leave: use `convoke nodes forget`"),
    ("agent/leave", "leaving: stop the process"),
    ("agent/reload", "reloading: restart the node"),
    ("agent/metrics", "metrics of an agent: see /metrics (docs/metrics.md)"),
    ("agent/monitor", "the log of an agent: see that of the process"),
    ("agent/host", "descriptions of hosts"),
    ("agent/token/", "agent tokens: see docs/access-control.md"),
    ("operator/", "this operation: see docs/cli.md, `convoke log`"),
];

/// The answer to a path below `/v1` that has no route. What Consul offers and Convoke does not is named.
pub(crate) fn unknown(uri: &Uri) -> Response {
    let path = uri.path().strip_prefix(super::PREFIX).unwrap_or_default();
    match MISSING.iter().find(|(prefix, _)| path.starts_with(prefix)) {
        Some((_, what)) => {
            let text = format!("Convoke does not offer {what}; see docs/consul.md");
            Failure::new(StatusCode::NOT_FOUND, text).into_response()
        }
        None => Failure::new(StatusCode::NOT_FOUND, "").into_response(),
    }
}

/// Adds the answers to methods that a path does not support. `allowed` are the methods of its routes.
pub(crate) fn with_wrong_methods(
    router: MethodRouter<Arc<Surface>>,
    allowed: &[Method],
    bounds: Bounds,
) -> MethodRouter<Arc<Surface>> {
    let names: Vec<&str> = ["OPTIONS"].into_iter().chain(allowed.iter().map(Method::as_str)).collect();
    // Names of methods are valid in a header.
    let allow = HeaderValue::from_str(&names.join(",")).unwrap_or(HeaderValue::from_static("OPTIONS"));
    let answer = move |method: Method| async move { wrong_method(&method, allow) };
    // A GET route would answer HEAD as well.
    let router = router.on(MethodFilter::HEAD, answer.clone().layer(bounds.clone()));
    router.fallback(answer.layer(bounds))
}

fn wrong_method(method: &Method, allow: HeaderValue) -> Response {
    let mut response = match *method {
        Method::OPTIONS => Response::new(Body::empty()),
        _ => Failure::new(StatusCode::METHOD_NOT_ALLOWED, format!("method {method} not allowed")).into_response(),
    };
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table calls missing is not offered, and the other way round. `operator/` is offered in part.
    #[test]
    fn no_route_is_called_missing() {
        for route in super::super::routes() {
            let path = route.path.strip_prefix(super::super::PREFIX).unwrap_or_default();
            let missing = MISSING.iter().find(|(prefix, _)| path.starts_with(prefix) && *prefix != "operator/");
            assert!(missing.is_none(), "{path}: {missing:?}");
        }
    }
}
