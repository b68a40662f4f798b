//! gRPC: the services of `proto/convoke/v1`, reflection and the standard health service.

mod admin;
mod attach;
mod health;
mod log;
mod measure;
mod registry;
mod watch;

use crate::surface::Surface;
use axum::Router;
use axum::middleware::from_fn_with_state;
use convoke_proto::v1::admin_server::AdminServer;
use convoke_proto::v1::log_server::LogServer;
use convoke_proto::v1::registry_server::RegistryServer;
use convoke_proto::{FILE_DESCRIPTOR_SET, MESSAGE_BYTES_MAX};
use std::sync::Arc;
use tonic::service::Routes;

pub(crate) use health::Health;
pub(crate) use measure::requests;

/// The services, for requests with a gRPC content type; unknown methods are UNIMPLEMENTED.
pub(crate) fn router(surface: &Arc<Surface>) -> Router {
    let registry = RegistryServer::new(registry::Registry(surface.clone()));
    let admin = AdminServer::new(admin::Admin(surface.clone()));
    let log = LogServer::new(log::Log(surface.clone()));
    let routes = Routes::new(registry.max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(admin)
        .add_service(log.max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(surface.health.server());
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Both versions of the protocol: tools in the field speak the older one.
    let routes = match (reflection().build_v1(), reflection().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!("no reflection: {error}");
            routes
        }
    };
    routes.prepare().into_axum_router().layer(from_fn_with_state(surface.clone(), measure::measured))
}
