//! The table of routes. `openapi.json` describes the same routes; a test compares them.

use super::{
    agentless, discovery, draining, election_watch, events, kv, kv_watch, leases, locks, log, node_reads, observe,
    reads, revocations, sessions, txn, ui, watch, watchers,
};
use crate::access::Permission;
use crate::audit::Recorded;
use crate::surface::Surface;
use ::http::Method;
use axum::routing::MethodRouter;
use std::sync::Arc;

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Arc<Surface>>,
    /// Whether the handler parses the query itself. If not, any query is rejected.
    pub(crate) query: bool,
    pub(crate) body: Body,
    pub(crate) probe: bool,
    pub(crate) waits: bool,
    pub(crate) recorded: Recorded,
    pub(crate) permission: Permission,
    pub(crate) dialect: Dialect,
}

/// Whose interface a route belongs to. It decides how errors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/api/v1`: JSON errors with codes.
    Native,
    /// `/v1`: plain text, as Consul writes it.
    Consul,
}

/// The body that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A JSON object. Its content type is checked.
    Json,
    /// Any bytes.
    Raw,
    /// None; it is not read.
    None,
}

/// A route as the layers around it see it. It is found when the router is built, not for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteInfo {
    /// Index in the table of routes.
    pub(crate) position: usize,
    /// The path with its parameter names.
    pub(crate) path: &'static str,
    /// Whether the handler parses the query.
    pub(crate) query: bool,
    pub(crate) body: Body,
    /// Whether load balancers call it, under any host name. Its answer contains no data.
    pub(crate) probe: bool,
    /// Whether the handler limits its time itself, because a request may wait for long.
    pub(crate) waits: bool,
    /// Which calls the audit log contains.
    pub(crate) recorded: Recorded,
    pub(crate) permission: Permission,
    pub(crate) dialect: Dialect,
}

impl Route {
    pub(crate) fn info(&self, position: usize) -> RouteInfo {
        let Route { path, query, body, probe, waits, recorded, permission, dialect, .. } = *self;
        RouteInfo { position, path, query, body, probe, waits, recorded, permission, dialect }
    }
}

/// The permission after the path is mandatory: `[public]`, or what the caller needs, `[Put Key | Delete Key]`. `with
/// query` means that the handler parses the query. A route that can have a body must name it: `takes json`, `takes raw` or
/// `takes nothing`. Without it, the table does not compile. `probe` marks routes of load balancers, `waiting` those that
/// may wait for long, `renewal` those that only keep something alive, and `export` those that read everything. The audit
/// log contains all calls of routes that can change something, all but GET and renewals, and of exports.
macro_rules! route_table {
    ($($method:ident $path:literal [$($permission:tt)+] $(with $query:ident)? $(takes $body:ident)? $(as $kind:ident)? => $handler:path,)+) => {
        vec![$($crate::http::Route {
            method: ::http::Method::$method,
            path: $path,
            handler: axum::routing::on(axum::routing::MethodFilter::$method, $handler),
            query: $crate::http::route_table!(@query $($query)?),
            body: $crate::http::route_table!(@body $method $($body)?),
            probe: $crate::http::route_table!(@probe $($kind)?),
            waits: $crate::http::route_table!(@waits $($kind)?),
            recorded: $crate::http::route_table!(@recorded $method $($kind)?),
            permission: $crate::access::permission!($($permission)+),
            dialect: $crate::http::Dialect::Native,
        },)+]
    };
    (@query query) => { true };
    (@query) => { false };
    (@probe probe) => { true };
    (@probe waiting) => { false };
    (@probe renewal) => { false };
    (@probe export) => { false };
    (@probe) => { false };
    (@waits waiting) => { true };
    (@waits probe) => { false };
    (@waits renewal) => { false };
    (@waits export) => { false };
    (@waits) => { false };
    (@recorded GET export) => { $crate::audit::Recorded::Calls };
    (@recorded GET $($kind:ident)?) => { $crate::audit::Recorded::Denials };
    (@recorded $method:ident renewal) => { $crate::audit::Recorded::Denials };
    (@recorded $method:ident $($kind:ident)?) => { $crate::audit::Recorded::Calls };
    (@body $method:ident json) => { $crate::http::Body::Json };
    (@body $method:ident raw) => { $crate::http::Body::Raw };
    (@body $method:ident nothing) => { $crate::http::Body::None };
    (@body GET) => { $crate::http::Body::None };
    (@body DELETE) => { $crate::http::Body::None };
    (@body $method:ident) => { compile_error!("name the body of the route: `takes json`, `takes raw` or `takes nothing`") };
}
pub(crate) use route_table;

/// All routes, in the order of their positions: those of `/api/v1`, then those of Consul's HTTP API.
pub(crate) fn all_routes() -> Vec<Route> {
    routes().into_iter().chain(crate::consul::routes()).collect()
}

pub(crate) fn routes() -> Vec<Route> {
    route_table! {
        // Browsers and proxies add arbitrary parameters to the addresses of pages.
        GET "/" [public] with query => ui::root,
        GET "/ui" [public] with query => ui::redirect_to_ui,
        GET "/ui/" [public] with query => ui::index,
        GET "/ui/{file}" [public] with query => ui::file,
        GET "/healthz" [public] as probe => reads::alive,
        GET "/readyz" [public] with query as probe => reads::ready,
        GET "/metrics" [Observe Cluster] => observe::metrics,
        GET "/api/v1/openapi.json" [Observe Cluster] => observe::openapi,
        GET "/api/v1/status" [Observe Cluster] => reads::status,
        GET "/api/v1/nodes" [Observe Cluster] => reads::nodes,
        POST "/api/v1/nodes/{id}/drain" [Drain Node] takes json => draining::drain_node,
        DELETE "/api/v1/nodes/{id}/drain" [Drain Node] => draining::undrain_node,
        DELETE "/api/v1/nodes/{id}" [Forget Node] => draining::forget_node,
        GET "/api/v1/nodes/{id}/{resource}" [Observe Cluster] => node_reads::read_node,
        GET "/api/v1/services" [Read Service] with query => reads::services,
        PUT "/api/v1/services/{service}/members/{id}" [Register Service] takes json => agentless::register,
        DELETE "/api/v1/services/{service}/members/{id}" [Register Service] => agentless::deregister,
        PUT "/api/v1/services/{service}/members/{id}/checks/{check}" [Register Service] takes json as renewal => agentless::report,
        GET "/api/v1/members" [Read Service] with query => reads::members,
        GET "/api/v1/members/{id}" [Read Service] => reads::member,
        GET "/api/v1/members/{id}/explain" [Observe Service] => reads::explain,
        POST "/api/v1/members/{id}/drain" [Drain Service] takes json => draining::drain_member,
        DELETE "/api/v1/members/{id}/drain" [Drain Service] => draining::undrain_member,
        GET "/api/v1/sd/prometheus" [Read Service] with query => discovery::prometheus,
        GET "/api/v1/watch" [Read Service] with query => watch::watch,
        GET "/api/v1/events" [Observe Cluster] with query => events::events,
        GET "/api/v1/watchers" [Observe Cluster] with query => watchers::watchers,
        GET "/api/v1/kv" [Read Key] with query => kv::list_all,
        GET "/api/v1/kv/" [Read Key] with query => kv::list_all,
        GET "/api/v1/kv/{*key}" [Read Key] with query => kv::get,
        PUT "/api/v1/kv/{*key}" [Put Key] with query takes raw => kv::put,
        DELETE "/api/v1/kv/{*key}" [Delete Key] with query => kv::delete,
        GET "/api/v1/kv-watch" [Read Key] with query => kv_watch::watch,
        POST "/api/v1/txn" [Put Key | Delete Key | Read Key] with query takes json => txn::txn,
        GET "/api/v1/leases" [Observe Log] with query => leases::list,
        POST "/api/v1/leases" [Lock LockName | Lock Election | Put Key] takes json => leases::grant,
        GET "/api/v1/leases/{id}" [Lock LockName | Lock Election | Put Key | Observe Log] with query => leases::show,
        DELETE "/api/v1/leases/{id}" [Lock LockName | Lock Election | Put Key | Resolve Log] => leases::revoke,
        PUT "/api/v1/leases/{id}/keep-alive" [Lock LockName | Lock Election | Put Key] takes json as renewal => leases::keep_alive,
        GET "/api/v1/locks" [Observe Log] with query => locks::list,
        GET "/api/v1/locks/{name}" [Read LockName] with query => locks::show,
        POST "/api/v1/locks/{name}" [Lock LockName] takes json as waiting => locks::acquire,
        DELETE "/api/v1/locks/{name}" [Lock LockName | Release LockName] with query => locks::release,
        GET "/api/v1/elections" [Observe Log] with query => locks::elections,
        GET "/api/v1/elections/{name}" [Read Election] with query => locks::election,
        POST "/api/v1/elections/{name}" [Lock Election] takes json as waiting => locks::campaign,
        PUT "/api/v1/elections/{name}" [Lock Election] takes json => locks::proclaim,
        DELETE "/api/v1/elections/{name}" [Lock Election | Release Election] with query => locks::resign,
        GET "/api/v1/elections/{name}/watch" [Read Election] => election_watch::watch,
        GET "/api/v1/log/status" [Observe Log] => log::status,
        POST "/api/v1/log/members" [Reconfigure Log] takes json => log::members,
        POST "/api/v1/log/upgrade" [Reconfigure Log] takes json => log::upgrade,
        GET "/api/v1/log/requests/{session}/{number}" [Put Key | Delete Key | Lock LockName | Lock Election | Observe Log] with query => log::peek,
        POST "/api/v1/log/requests/{session}/{number}/resolve" [Put Key | Delete Key | Lock LockName | Lock Election | Resolve Log] with query takes json => log::resolve,
        GET "/api/v1/log/sessions" [Observe Log] with query => log::sessions,
        DELETE "/api/v1/log/sessions/{session}" [Resolve Log] => log::end_session,
        POST "/api/v1/revocations" [Revoke Cluster] takes json => revocations::revoke,
        POST "/api/v1/sessions" [Register Service] takes json => sessions::create,
        // Any request of a session counts as a heartbeat, even if it is rejected.
        DELETE "/api/v1/sessions/{session}" [Register Service] with query => sessions::close,
        PUT "/api/v1/sessions/{session}/heartbeat" [Register Service] with query takes json as renewal => sessions::heartbeat,
        PUT "/api/v1/sessions/{session}/members/{id}" [Register Service] with query takes json => sessions::register,
        PATCH "/api/v1/sessions/{session}/members/{id}" [Register Service] with query takes json => sessions::update,
        DELETE "/api/v1/sessions/{session}/members/{id}" [Register Service] with query => sessions::unregister,
    }
}
