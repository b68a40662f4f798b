//! `convoke nodes`

use convoke_cli::output::{Palette, Style, Table, print, print_json};
use convoke_cli::{Inspect, Result, call};
use convoke_proto::v1::{self, NodeState};

pub(crate) async fn nodes(inspect: &Inspect) -> Result {
    let nodes = call(&inspect.connect, async |node| node.admin().nodes(v1::NodesRequest {}).await).await?;
    if inspect.json { print_json(&nodes) } else { print(&render(&nodes.nodes, Palette::of_stdout())) }
}

fn render(nodes: &[v1::Node], palette: Palette) -> String {
    let mut table = Table::new(&["ID", "STATE", "REGION", "CLIENTS", "PEERS", "INCARNATION", "REMARKS"]);
    for node in nodes {
        let (word, style) = state(node.state());
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        let run = if node.incarnation == 0 { String::new() } else { node.incarnation.to_string() };
        table.row(vec![
            plain(&node.id),
            (word.to_owned(), style),
            plain(&node.region),
            plain(&node.address),
            plain(&node.peer_address),
            plain(&run),
            plain(&remarks(node)),
        ]);
    }
    table.render(palette)
}

fn state(state: NodeState) -> (&'static str, Style) {
    match state {
        NodeState::Up => ("up", Style::Good),
        NodeState::Lost => ("lost", Style::Doubtful),
        NodeState::Failed => ("failed", Style::Bad),
        NodeState::Left => ("left", Style::Dim),
        NodeState::Connecting => ("connecting", Style::Doubtful),
        NodeState::Distant => ("distant", Style::Plain),
        NodeState::Unspecified => ("unknown", Style::Doubtful),
    }
}

fn remarks(node: &v1::Node) -> String {
    let mut remarks = Vec::new();
    if node.self_ {
        remarks.push("this node");
    }
    if node.drained {
        remarks.push("drained");
    }
    if node.alone {
        remarks.push("alone: no seed reached");
    } else if node.state() == NodeState::Up && !node.ready {
        remarks.push("not ready");
    }
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn every_state_is_rendered() {
        let node = |id: &str, state: NodeState| v1::Node {
            id: id.into(),
            state: state.into(),
            region: "eu".into(),
            address: format!("{id}.example:7700"),
            peer_address: format!("{id}.example:7701"),
            incarnation: 2,
            ready: true,
            drained: false,
            sessions: 0,
            self_: false,
            evidence_age_ms: Some(40),
            evidence_via: String::new(),
            behind: 0,
            alone: false,
        };
        let nodes = [
            v1::Node { self_: true, ..node("n1", NodeState::Up) },
            v1::Node { drained: true, ready: false, ..node("n2", NodeState::Up) },
            node("n3", NodeState::Lost),
            node("n4", NodeState::Failed),
            node("n5", NodeState::Left),
            v1::Node { incarnation: 0, region: String::new(), ..node("n6", NodeState::Connecting) },
            node("n7", NodeState::Distant),
        ];
        golden!("golden/nodes.txt", &render(&nodes, Palette::PLAIN));
    }
}
