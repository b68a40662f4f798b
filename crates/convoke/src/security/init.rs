//! `convoke init`

use super::directory::{Directory, cannot, days, write_certificate};
use super::nodes::{PlannedNode, configuration, plan};
use crate::access::random;
use crate::args::InitArgs;
use convoke_base::date_time;
use convoke_cli::Result;
use convoke_cli::output::{print, print_json, unix_ms};
use convoke_tls::{CertificateRequest, Identity, write_private};
use std::path::Path;

pub(crate) fn init(arguments: &InitArgs) -> Result {
    let nodes = plan(&arguments.nodes, &arguments.host)?;
    let directory = Directory(arguments.directory.clone());
    let authority = directory.create(&arguments.cluster)?;
    let operator = directory.create_tokens(&arguments.cluster, random()?, random()?, unix_ms() / 1_000)?;
    for node in &nodes {
        let into = directory.node(&node.id);
        let request =
            CertificateRequest { identity: Identity::node(&arguments.cluster, &node.id), hosts: node.names() };
        write_certificate(&authority, &into, &request, days(arguments.days))?;
        directory.write_node_keys(&node.id)?;
        let path = into.join("convoke.toml");
        let text = configuration(&arguments.cluster, node, &nodes);
        write_private(&path, text.as_bytes()).map_err(cannot("write", &path))?;
    }
    if arguments.json {
        return print_json(&serde_json::json!({
            "directory": directory.0,
            "ca": directory.ca(),
            "signing_key": directory.signing_key(),
            "operator_token": { "file": directory.operator_token(), "id": operator.jti, "expires": operator.exp },
            "nodes": nodes.iter().map(|node| serde_json::json!({
                "id": node.id,
                "directory": directory.node(&node.id),
                "client_address": node.client_address(),
            })).collect::<Vec<_>>(),
        }));
    }
    print(&summary(&directory, &nodes, operator.exp))
}

/// The next steps. Every indented line is a command that works as it is.
fn summary(directory: &Directory, nodes: &[PlannedNode], expires: u64) -> String {
    let shown = directory.0.display();
    let mut text = format!("{shown} holds the keys of the cluster: never copy ca.key or signing.key to a node\n\n");
    for node in nodes {
        let own = directory.node(&node.id);
        text += &format!("copy {} to node {}, and start it there:\n", own.display(), node.id);
        text += &format!("  convoke start --config {}\n", quoted(&own.join("convoke.toml")));
    }
    if let Some(first) = nodes.first() {
        text += &format!(
            "\nthen use the cluster:\n  convoke status --addr https://{} --ca {} --token-file {}\n",
            first.client_address(),
            quoted(&directory.ca()),
            quoted(&directory.operator_token()),
        );
    }
    text +=
        &format!("\nthe token of the operator allows everything until {}\n", date_time(expires.saturating_mul(1_000)));
    text
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell() {
        for (path, word) in [("./a-b/c.pem", "./a-b/c.pem"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
