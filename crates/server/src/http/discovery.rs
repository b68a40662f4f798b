//! HTTP service discovery for Prometheus: members as targets.

use super::extract::Query;
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::convert;
use crate::error::invalid;
use crate::surface::Surface;
use axum::extract::State;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_proto::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prometheus requires all targets in one response.
const TARGETS_MAX: usize = 50_000;
const PAGE: usize = 1_000;
/// Name of the endpoint that is scraped by default.
const METRICS: &str = "metrics";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TargetsQuery {
    service: Option<String>,
    filter: String,
    /// Name of the endpoint to scrape. Without it, `metrics` if the member has such an endpoint, else its address.
    endpoint: Option<String>,
    /// `routable`, the default, or `any`: down and drained members as well.
    status: Option<String>,
}

/// One group per member, because the labels differ.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    targets: [String; 1],
    labels: BTreeMap<String, String>,
}

/// Returns the members that have an address: the routable ones, or all. A target that disappears with its member raises no
/// alert, so nodes are scraped while they are down.
pub(crate) async fn prometheus(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<TargetsQuery>,
) -> Result<Json<Vec<Group>>, HttpError> {
    let mut filter = convert::filter(&query.filter)?;
    if let Some(pattern) = &query.service {
        filter = Filter::service(pattern).and(filter);
    }
    let any = match query.status.as_deref() {
        None | Some("routable") => false,
        Some("any") => true,
        Some(other) => return Err(invalid("status", format!("status {other:?} is neither routable nor any")).into()),
    };
    let filter = caller.readable(filter);
    let node = surface.readable()?;
    let mut groups = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = node.members(&filter, cursor.as_deref(), PAGE).map_err(crate::error::rejected)?;
        let wanted = page.members.iter().filter(|member| any || node.may_route(member));
        groups.extend(wanted.filter_map(|member| group(member, query.endpoint.as_deref())));
        if groups.len() > TARGETS_MAX {
            let message = format!("more than {TARGETS_MAX} targets: limit them with service or filter");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(TARGETS_MAX as u64).into());
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(Json(groups)),
        }
        tokio::task::yield_now().await;
    }
}

fn group(member: &Member, endpoint: Option<&str>) -> Option<Group> {
    let target = match endpoint {
        Some(name) => member.endpoints().get(name)?,
        None => member.endpoints().get(METRICS).unwrap_or_else(|| member.address()),
    };
    if target.is_empty() {
        return None;
    }
    let named = |name: &str, value: &str| (format!("__meta_convoke_{name}"), value.to_owned());
    let mut labels = BTreeMap::from([
        named("id", member.id()),
        named("service", member.service()),
        named("locality", member.locality()),
        named("revision", member.revision()),
        named("address", member.address()),
        named("node", member.owner().node),
    ]);
    labels.extend(member.metadata().iter().map(|(key, value)| named(&format!("metadata_{}", label(key)), value)));
    Some(Group { targets: [target.to_owned()], labels })
}

/// Replaces characters that a label name must not contain: it consists of letters, digits and underscores.
fn label(key: &str) -> String {
    key.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
