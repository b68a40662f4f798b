//! The standard health service: SERVING while the node is ready.

use convoke_node::{NodeHandle, Phase};
use convoke_proto::v1::admin_server::AdminServer;
use convoke_proto::v1::registry_server::RegistryServer;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// The whole server, and each of its services.
const SERVICES: [&str; 3] =
    ["", RegistryServer::<super::registry::Registry>::NAME, AdminServer::<super::admin::Admin>::NAME];

#[derive(Debug)]
pub(crate) struct Health(HealthReporter);

impl Health {
    pub(crate) fn new() -> Self {
        Health(HealthReporter::new())
    }

    pub(crate) fn server(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.0.clone()))
    }

    /// Follows the node until it has ended.
    pub(crate) async fn follow(&self, node: &NodeHandle) {
        let mut phases = node.phases();
        loop {
            let phase = *phases.borrow_and_update();
            let status = if phase == Phase::Ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in SERVICES {
                self.0.set_service_status(service, status).await;
            }
            if matches!(phase, Phase::Stopped(_)) || phases.changed().await.is_err() {
                return;
            }
        }
    }
}
