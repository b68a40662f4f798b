//! `convoke init`

use super::directory::{Directory, cannot, days, write_certificate};
use super::nodes::{PlannedNode, configuration, plan};
use crate::args::InitArgs;
use convoke_cli::Result;
use convoke_cli::output::{print, print_json};
use convoke_tls::{Identity, Request, write_private};

pub(crate) fn init(arguments: &InitArgs) -> Result {
    let nodes = plan(&arguments.nodes, &arguments.host)?;
    let directory = Directory(arguments.directory.clone());
    let authority = directory.create(&arguments.cluster)?;
    for node in &nodes {
        let into = directory.node(&node.id);
        let request = Request { identity: Identity::node(&arguments.cluster, &node.id), hosts: node.names() };
        write_certificate(&authority, &into, &request, days(arguments.days))?;
        let path = into.join("convoke.toml");
        let text = configuration(&arguments.cluster, node, &nodes);
        write_private(&path, text.as_bytes()).map_err(cannot("write", &path))?;
    }
    if arguments.json {
        return print_json(&serde_json::json!({
            "directory": directory.0,
            "ca": directory.ca(),
            "nodes": nodes.iter().map(|node| serde_json::json!({
                "id": node.id,
                "directory": directory.node(&node.id),
                "client_address": node.client_address(),
            })).collect::<Vec<_>>(),
        }));
    }
    print(&summary(&directory, &nodes))
}

fn summary(directory: &Directory, nodes: &[PlannedNode]) -> String {
    let shown = directory.0.display();
    let mut text =
        format!("{shown} holds the certificate authority of the cluster: keep it, and never copy ca.key to a node\n\n");
    for node in nodes {
        text += &format!("copy {shown}/nodes/{}/ to node {}, and start it there:\n", node.id, node.id);
        text += &format!("  convoke start --config {shown}/nodes/{}/convoke.toml\n", node.id);
    }
    if let Some(first) = nodes.first() {
        text += &format!(
            "\nthen use the cluster:\n  convoke status --ca {shown}/ca.pem --addr https://{}\n",
            first.client_address()
        );
    }
    text
}
