//! The standard gRPC health service: SERVING while the node is ready.

use convoke_node::{NodeHandle, Phase};
use convoke_proto::v1::admin_server::AdminServer;
use convoke_proto::v1::log_server::LogServer;
use convoke_proto::v1::registry_server::RegistryServer;
use convoke_replica::LogHandle;
use std::time::Duration;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// The server as a whole (the empty name) and its services.
const SERVICES: [&str; 3] =
    ["", RegistryServer::<super::registry::Registry>::NAME, AdminServer::<super::admin::Admin>::NAME];
/// SERVING while this node knows a leader of the log.
const LOG: &str = LogServer::<super::log::Log>::NAME;
/// Interval at which the state of the log is checked.
const LOG_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Health(HealthReporter);

impl Health {
    pub(crate) fn new() -> Self {
        Health(HealthReporter::new())
    }

    pub(crate) fn server(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.0.clone()))
    }

    /// Updates the status of the log service, if the node runs the log plane.
    pub(crate) async fn follow_log(&self, log: Option<&LogHandle>) {
        let mut reported = None;
        loop {
            let available = log.is_some_and(LogHandle::is_available);
            if reported.replace(available) != Some(available) {
                let status = if available { ServingStatus::Serving } else { ServingStatus::NotServing };
                self.0.set_service_status(LOG, status).await;
            }
            match log {
                Some(_) => tokio::time::sleep(LOG_INTERVAL).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Publishes the status of the other services in this phase of the node. The client port accepts connections after
    /// the first call, because the reporter starts with SERVING.
    pub(crate) async fn publish(&self, phase: Phase) {
        let status = if phase == Phase::Ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }

    /// Updates the status of the other services until the node has stopped.
    pub(crate) async fn follow(&self, node: &NodeHandle) {
        let mut phases = node.phases();
        loop {
            let phase = *phases.borrow_and_update();
            self.publish(phase).await;
            if matches!(phase, Phase::Stopped(_)) || phases.changed().await.is_err() {
                return;
            }
        }
    }
}
