//! `convoke cluster`: clusters on this machine, for development and tests.
//!
//! The commands send HTTP requests to a manager in the background, which owns the clusters. Rules and the API:
//! docs/demo-and-clusters.md.

mod api;
mod client;
mod create;
mod manager;
mod settings;
mod show;

use crate::VariableOf;
use crate::args::{ClusterArgs, ClusterCommand, FaultCommand};
use api::{AddRequest, ClientsRequest, ClusterInfo, Fault, Health, NodeInfo};
use client::ManagerClient;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, Result, exit};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

const HEALTH_PAUSE: Duration = Duration::from_millis(250);

/// Runs a command and returns its exit code.
pub(crate) async fn run(arguments: ClusterArgs, variable_of: VariableOf) -> Result<u8> {
    let ClusterArgs { port, json, command } = arguments;
    let manager = ManagerClient::new(port);
    match command {
        ClusterCommand::Serve { background } => manager::serve(port, background, variable_of).await?,
        ClusterCommand::Create(arguments) => create::create(&manager, &arguments, json, variable_of).await?,
        ClusterCommand::List => {
            let clusters = manager.clusters().await?;
            if json { print_json(&clusters)? } else { print(&show::list(&clusters.clusters))? }
        }
        ClusterCommand::Info { cluster } => {
            let name = manager.name(cluster.name).await?;
            let info: ClusterInfo = manager.get(&format!("/clusters/{name}")).await?;
            if json { print_json(&info)? } else { print(&show::cluster(&info))? }
        }
        ClusterCommand::Add { cluster, region } => {
            let name = manager.name(cluster.name).await?;
            eprintln!("starting a node");
            let request = AddRequest { region: region.unwrap_or_default() };
            let node: NodeInfo = manager.post(&format!("/clusters/{name}/nodes"), &request).await?;
            if json { print_json(&node)? } else { print(&format!("{} is ready at {}\n", node.id, node.address))? }
        }
        ClusterCommand::Remove { node, force, cluster } => {
            let name = manager.name(cluster.name).await?;
            eprintln!("removing {node}; its clients move to other nodes");
            let query = if force { "?force" } else { "" };
            let answer: Value = manager.delete(&format!("/clusters/{name}/nodes/{}{query}", path_part(&node)?)).await?;
            if json { print_json(&answer)? } else { print(&format!("{node} removed\n"))? }
        }
        ClusterCommand::Clients { count, service, crash, cluster } => {
            let name = manager.name(cluster.name).await?;
            let request = ClientsRequest { count, service, crash };
            let info: ClusterInfo = manager.put(&format!("/clusters/{name}/clients"), &request).await?;
            if json { print_json(&info)? } else { print(&show::cluster(&info))? }
        }
        ClusterCommand::Fault { cluster, fault } => {
            let name = manager.name(cluster.name).await?;
            let info: ClusterInfo = manager.post(&format!("/clusters/{name}/faults"), &asked(fault)).await?;
            if json { print_json(&info)? } else { print(&show::cluster(&info))? }
        }
        ClusterCommand::Health { cluster, wait } => return health(&manager, cluster.name, wait, json).await,
        ClusterCommand::Delete { cluster, all } => delete(&manager, cluster.name, all, json).await?,
    }
    Ok(0)
}

fn asked(fault: FaultCommand) -> Fault {
    match fault {
        FaultCommand::Drop { nodes } => Fault::Drop { nodes },
        FaultCommand::Blackhole { nodes } => Fault::Blackhole { nodes },
        FaultCommand::Partition { groups } => {
            let split = |group: &String| group.split(',').map(|id| id.trim().to_owned()).collect();
            Fault::Partition { groups: groups.iter().map(split).collect() }
        }
        FaultCommand::OneWay { from, to } => Fault::OneWay { from, to },
        FaultCommand::Delay { time, nodes } => {
            Fault::Delay { ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), nodes }
        }
        FaultCommand::Pause { node } => Fault::Pause { node },
        FaultCommand::Resume { node } => Fault::Resume { node },
        FaultCommand::Kill { node } => Fault::Kill { node },
        FaultCommand::Restart { node } => Fault::Restart { node },
        FaultCommand::Heal { nodes } => Fault::Heal { nodes },
    }
}

async fn health(manager: &ManagerClient, name: Option<String>, wait: Option<Duration>, json: bool) -> Result<u8> {
    let name = manager.name(name).await?;
    let deadline = Instant::now() + wait.unwrap_or_default();
    let health = loop {
        let health: Health = manager.get(&format!("/clusters/{name}/health")).await?;
        if health.healthy || Instant::now() >= deadline {
            break health;
        }
        tokio::time::sleep(HEALTH_PAUSE).await;
    };
    if json {
        print_json(&health)?;
    } else {
        print(&show::health(&health))?;
    }
    Ok(if health.healthy { 0 } else { exit::FAILED })
}

async fn delete(manager: &ManagerClient, name: Option<String>, all: bool, json: bool) -> Result {
    let names = if all {
        manager.clusters().await?.clusters.into_iter().map(|cluster| cluster.name).collect()
    } else {
        vec![manager.name(name).await?]
    };
    for name in &names {
        let _: Value = manager.delete(&format!("/clusters/{name}")).await?;
    }
    manager.wait_ended().await?;
    if json {
        return print_json(&serde_json::json!({ "deleted": names }));
    }
    names.iter().try_for_each(|name| print(&format!("{name} deleted\n")))
}

/// Checks that a node id is safe in paths.
fn path_part(id: &str) -> Result<&str> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if id.chars().all(fits) && !id.is_empty() {
        return Ok(id);
    }
    Err(CommandError::usage(format!("{id:?} is not a node id: see `convoke cluster info`")))
}
