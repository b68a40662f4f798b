//! Registrations and updates over the SDK.

use super::cluster::Cluster;
use super::load::{Tally, measure};
use super::members::{clients, close, member, registered};
use super::report::Report;
use crate::args::{BenchCommon, WriteLoad};
use convoke_cli::Result;
use convoke_client::{Registration, Update};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;

/// Members that a node accepts from one client by default.
const MEMBERS_PER_CLIENT: u32 = 100_000;
/// Number of services of the registered members.
const SERVICES: u32 = 100;

pub(super) async fn register(common: &BenchCommon, load: &WriteLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let clients = clients(&cluster, load.clients).await?;
    let each = load.members.div_ceil(load.clients).min(MEMBERS_PER_CLIENT);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for (number, client) in (0..).zip(&clients) {
        let next = Arc::new(AtomicU32::new(0));
        for _ in 0..load.pipeline {
            let (client, next, tally) = (client.clone(), next.clone(), tally.clone());
            workers.spawn(async move {
                while tally.open() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= each {
                        break;
                    }
                    tally.time(client.register(member(index % SERVICES, number, index))).await;
                }
                Ok(())
            });
        }
    }
    let report = measure(&cluster, "register", &tally, workers).await?;
    close(clients).await?;
    Ok(report.figure("clients", "Clients", load.clients.into(), ""))
}

pub(super) async fn update(common: &BenchCommon, load: &WriteLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let clients = clients(&cluster, load.clients).await?;
    let members = registered(&clients, load.members.div_ceil(load.clients).min(MEMBERS_PER_CLIENT), SERVICES).await?;
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for registrations in members {
        let registrations: Arc<[Registration]> = registrations.into();
        let next = Arc::new(AtomicU32::new(0));
        for _ in 0..load.pipeline {
            let (registrations, next, tally) = (registrations.clone(), next.clone(), tally.clone());
            workers.spawn(async move {
                while tally.open() {
                    let count = next.fetch_add(1, Ordering::Relaxed);
                    let registration = &registrations[count as usize % registrations.len()];
                    tally.time(registration.update(Update::merge().set("load", count.to_string()))).await;
                }
                Ok(())
            });
        }
    }
    let report = measure(&cluster, "update", &tally, workers).await?;
    close(clients).await?;
    Ok(report.figure("clients", "Clients", load.clients.into(), ""))
}
