//! Consul's HTTP API under `/v1` (docs/consul.md). The requests are translated to the registry and the log; nothing is
//! stored for Consul's clients alone.

mod agent;
mod agent_checks;
mod answer;
mod archive;
mod blocking;
mod body;
mod catalog;
mod catalog_changes;
mod changes;
mod check_definition;
mod check_results;
mod checks;
mod definition;
mod events;
mod failure;
mod fallback;
mod health;
mod known_leader;
mod kv;
mod log_routes;
mod operator;
mod params;
mod reads;
mod registry;
mod rendered;
mod session;
mod snapshot;
mod status;
mod token;
mod txn;

use crate::http::{Dialect, Route, route_table};
pub(crate) use failure::Failure;
pub(crate) use fallback::{unknown, with_wrong_methods};
use known_leader::KnownLeader;
use rendered::Rendered;
pub(crate) use token::{PREFIX, elsewhere, take_token};

/// What a node keeps for answers to Consul's clients.
#[derive(Debug)]
pub(crate) struct ConsulAnswers {
    rendered: Rendered,
    leader: KnownLeader,
}

impl ConsulAnswers {
    pub(crate) fn new() -> ConsulAnswers {
        ConsulAnswers { rendered: Rendered::default(), leader: KnownLeader::new() }
    }
}

/// Every path of the routes begins with [`PREFIX`]. Bodies are `raw`: Consul's clients send JSON without a content type,
/// and no form can send the methods that change something.
pub(crate) fn routes() -> Vec<Route> {
    let routes = route_table! {
        GET "/v1/status/leader" [Observe Cluster] with query => status::leader,
        GET "/v1/status/peers" [Observe Cluster] with query => status::peers,
        GET "/v1/agent/self" [Read Service | Observe Cluster] with query => agent::this,
        GET "/v1/agent/members" [Read Service | Observe Cluster] with query => agent::members,
        GET "/v1/agent/services" [Read Service] with query => agent::services,
        GET "/v1/agent/service/{id}" [Read Service] with query => agent::service,
        GET "/v1/agent/checks" [Read Service] with query => agent::checks,
        PUT "/v1/agent/service/register" [Register Service] with query takes raw => agent::register,
        PUT "/v1/agent/service/deregister/" [Register Service] with query takes nothing => agent::no_deregister,
        PUT "/v1/agent/service/deregister/{id}" [Register Service] with query takes nothing => agent::deregister,
        PUT "/v1/agent/service/maintenance/" [Drain Service] with query takes nothing => agent::no_maintenance,
        PUT "/v1/agent/service/maintenance/{id}" [Drain Service] with query takes nothing => agent::maintain_service,
        PUT "/v1/agent/maintenance" [Drain Node] with query takes nothing => agent::maintain_node,
        GET "/v1/agent/health/service/name/{name}" [Read Service] with query => agent::health_by_name,
        GET "/v1/agent/health/service/id/{id}" [Read Service] with query => agent::health_by_id,
        PUT "/v1/agent/check/register" [Register Service] with query takes raw => agent_checks::register,
        PUT "/v1/agent/check/deregister/{id}" [Register Service] with query takes nothing => agent_checks::deregister,
        PUT "/v1/agent/check/pass/{id}" [Register Service] with query takes nothing as renewal => agent_checks::pass,
        PUT "/v1/agent/check/warn/{id}" [Register Service] with query takes nothing as renewal => agent_checks::warn,
        PUT "/v1/agent/check/fail/{id}" [Register Service] with query takes nothing as renewal => agent_checks::fail,
        PUT "/v1/agent/check/update/{id}" [Register Service] with query takes raw as renewal => agent_checks::update,
        GET "/v1/operator/raft/configuration" [Observe Log] with query => operator::raft,
        GET "/v1/operator/autopilot/health" [Observe Log] with query => operator::health,
        GET "/v1/operator/autopilot/configuration" [Observe Log] with query => operator::autopilot,
        PUT "/v1/catalog/register" [Register Service] with query takes raw => catalog_changes::register,
        PUT "/v1/catalog/deregister" [Register Service] with query takes raw => catalog_changes::deregister,
        GET "/v1/catalog/datacenters" [Read Service] with query => catalog::datacenters,
        GET "/v1/catalog/nodes" [Read Service] with query as waiting => catalog::nodes,
        GET "/v1/catalog/services" [Read Service] with query as waiting => catalog::services,
        GET "/v1/catalog/service/" [Read Service] with query => catalog::no_service,
        GET "/v1/catalog/service/{name}" [Read Service] with query as waiting => catalog::service,
        GET "/v1/catalog/node/" [Read Service] with query => catalog::no_node,
        GET "/v1/catalog/node/{name}" [Read Service] with query as waiting => catalog::node,
        GET "/v1/catalog/node-services/" [Read Service] with query => catalog::no_node,
        GET "/v1/catalog/node-services/{name}" [Read Service] with query as waiting => catalog::node_services,
        GET "/v1/health/service/" [Read Service] with query => catalog::no_service,
        GET "/v1/health/service/{name}" [Read Service] with query as waiting => health::service,
        GET "/v1/health/checks/" [Read Service] with query => catalog::no_service,
        GET "/v1/health/checks/{name}" [Read Service] with query as waiting => health::of_service,
        GET "/v1/health/node/" [Read Service] with query => catalog::no_node,
        GET "/v1/health/node/{name}" [Read Service] with query as waiting => health::of_node,
        GET "/v1/health/state/" [Read Service] with query => health::no_state,
        GET "/v1/health/state/{state}" [Read Service] with query as waiting => health::in_state,
    };
    routes.into_iter().chain(log_routes::routes()).map(|route| Route { dialect: Dialect::Consul, ..route }).collect()
}
