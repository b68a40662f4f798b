//! gRPC: the services of `proto/convoke/v1`, reflection and the standard health service.

mod admin;
mod attach;
mod health;
mod key_watch;
mod log;
mod measure;
mod registry;
mod timed_body;
mod watch;

use crate::access::{Caller, Permission};
use crate::audit::Recording;
use crate::config::Config;
use crate::http;
use crate::log::{Directory, LogService, SharedFeeds};
use crate::rates::RateLimiter;
use crate::service::{ClientConnection, Reply};
use crate::surface::Surface;
use crate::traces;
use ::http::{Request, Response};
use axum::Router;
use convoke_access::{Kind, Verb};
use convoke_client::log::Ambassador;
use convoke_proto::v1::admin_server::AdminServer;
use convoke_proto::v1::log_server::LogServer;
use convoke_proto::v1::registry_server::RegistryServer;
use convoke_proto::{Error, FILE_DESCRIPTOR_SET, MESSAGE_BYTES_MAX};
use convoke_replica::LogHandle;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Instant;
use tonic::Status;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;
use tracing::Instrument;

pub(crate) use health::Health;
pub(crate) use log::Callers;
pub(crate) use measure::requests;

/// The gRPC services. They receive the requests with a gRPC content type.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    surface: Arc<Surface>,
    /// Called without the router, because its streams carry every heartbeat.
    registry: RegistryServer<registry::Registry>,
    /// All other services. Unknown methods are UNIMPLEMENTED.
    others: Router,
}

impl Services {
    pub(crate) fn new(surface: &Arc<Surface>) -> Self {
        let registry = RegistryServer::new(registry::Registry(surface.clone()));
        Services {
            surface: surface.clone(),
            registry: registry.max_decoding_message_size(MESSAGE_BYTES_MAX),
            others: others(surface),
        }
    }

    pub(crate) async fn call(mut self, mut request: Request<Incoming>) -> Response<Reply> {
        let begun = Instant::now();
        let method = measure::method(request.uri().path());
        let span = traces::grpc(measure::name(method), request.headers());
        let timeout = self.surface.config.timeouts.request;
        let path = request.uri().path().to_owned();
        let action = ("grpc", || path.clone());
        let recording = Recording::begin(&self.surface.audit, &mut request, action, measure::recorded(method));
        let connection = request.extensions().get::<Arc<ClientConnection>>().cloned();
        let request = request.map(|body| timed_body::TimedBody::new(&path, body, timeout, connection));
        let service = path.split('/').nth(1);
        let refused = http::check_grpc(&self.surface.hosts, request.version(), request.uri(), request.headers())
            .and_then(|()| authorize(&path, request.extensions()));
        let response = if let Err(error) = refused {
            Ok(Status::from(error).into_http().map(Reply::Grpc))
        } else if path == watch::PATH {
            let calling = watch::serve(self.surface.clone(), request).instrument(span.clone());
            Ok(calling.await.map(Reply::Grpc))
        } else if service == Some(RegistryServer::<registry::Registry>::NAME) {
            let calling = self.registry.call(request).instrument(span.clone());
            calling.await.map(|response| response.map(Reply::Grpc))
        } else {
            let calling = self.others.call(request).instrument(span.clone());
            calling.await.map(|response| response.map(Reply::Routed))
        };
        let Ok(response) = response;
        let (code, response) = measure::measured(&self.surface, method, begun, response);
        recording.finish(Status::from_header_map(response.headers()).map(|status| Error::from(status).code));
        traces::grpc_answered(&span, code);
        response
    }
}

/// Returns the path and the permission of every gRPC method: any of these.
pub fn method_permissions() -> Vec<(&'static str, &'static [(Verb, Kind)])> {
    measure::methods().map(|(path, permission)| (path, permission.needed())).collect()
}

/// Checks the credentials and the permission of the method.
fn authorize(path: &str, extensions: &::http::Extensions) -> Result<(), Error> {
    match measure::needed(path) {
        Permission::Public => Ok(()),
        needed => needed.check(&Caller::of(extensions)?),
    }
}

/// The log service of a replica without the rest of a node, for simulations with their own network. While the node has no
/// replica, it follows one with the ambassador.
pub fn log_service(
    log: LogHandle,
    directory: Arc<dyn Directory>,
    config: &Config,
    ambassador: Ambassador,
) -> LogServer<impl convoke_proto::v1::log_server::Log> {
    let rates = Arc::new(RateLimiter::new(config.rates));
    let service = Arc::new(LogService::new(log, directory, config, None, rates));
    let feeds = Arc::new(SharedFeeds::new(service.clone(), ambassador));
    log_server(Some(service), Some(feeds), Callers::Trusted)
}

/// `service` is `None` if this node runs no log plane. Without `feeds`, a node without a replica rejects watches.
pub(crate) fn log_server(
    service: Option<Arc<LogService>>,
    feeds: Option<Arc<SharedFeeds>>,
    callers: Callers,
) -> LogServer<log::Log> {
    LogServer::new(log::Log { service, feeds, callers }).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn others(surface: &Arc<Surface>) -> Router {
    let admin = AdminServer::new(admin::Admin(surface.clone()));
    let (service, feeds) = surface.log.as_ref().map(|log| (log.service.clone(), log.feeds.clone())).unzip();
    let routes = Routes::new(admin)
        .add_service(log_server(service, feeds, Callers::Authenticated))
        .add_service(surface.health.server());
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Both versions of the reflection protocol: many tools use only the older one.
    let routes = match (reflection().build_v1(), reflection().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "gRPC reflection is not available");
            routes
        }
    };
    routes.prepare().into_axum_router()
}
