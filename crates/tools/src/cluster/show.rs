//! Text output of the cluster commands.

use super::api::{ClusterInfo, Health};
use convoke_cli::output::{Palette, Style, Table, counted};

pub(crate) fn list(clusters: &[ClusterInfo]) -> String {
    if clusters.is_empty() {
        return "No clusters. Create one with `convoke cluster create`.\n".to_owned();
    }
    let mut table = Table::new(&["NAME", "NODES", "RUNNING", "FAULTS", "CLIENTS"]);
    for cluster in clusters {
        let running = cluster.nodes.iter().filter(|node| node.state == "running").count();
        let first = cluster.nodes.first().map(|node| node.address.clone()).unwrap_or_default();
        let cells = [
            cluster.name.clone(),
            cluster.nodes.len().to_string(),
            running.to_string(),
            cluster.faults.len().to_string(),
            first,
        ];
        table.row(cells.into_iter().map(|cell| (cell, Style::Plain)).collect());
    }
    table.render(Palette::of_stdout())
}

pub(crate) fn cluster(cluster: &ClusterInfo) -> String {
    let mut table = Table::new(&["NODE", "STATE", "REGION", "CLIENTS", "PEERS", "PID"]);
    for node in &cluster.nodes {
        let style = match node.state.as_str() {
            "running" => Style::Good,
            "paused" => Style::Doubtful,
            _ => Style::Bad,
        };
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        table.row(vec![
            plain(&node.id),
            (node.state.clone(), style),
            plain(&node.region),
            plain(&node.address),
            plain(&node.peer_address),
            plain(&node.pid.map(|pid| pid.to_string()).unwrap_or_default()),
        ]);
    }
    let mut text = table.render(Palette::of_stdout());
    for (service, count) in &cluster.clients {
        text += &format!("{} of {service}\n", counted(*count as u64, "client"));
    }
    for fault in &cluster.faults {
        let (from, to) = (&fault.from, &fault.to);
        if fault.cut {
            text += &format!("{from} -> {to}: cut\n");
        }
        if fault.delay_ms > 0 {
            text += &format!("{from} -> {to}: delayed by {} ms\n", fault.delay_ms);
        }
    }
    text
}

pub(crate) fn created(info: &ClusterInfo, port: u16) -> String {
    let addresses: Vec<&str> = info.nodes.iter().map(|node| node.address.as_str()).collect();
    let name = &info.name;
    let mut text = cluster(info);
    text += &format!("\nexport CONVOKE_ADDR={}\n", addresses.join(","));
    if let Some(first) = addresses.first() {
        text += &format!("dashboard   http://{first}/ui/\n");
    }
    text += &format!("prometheus  http://127.0.0.1:{port}/clusters/{name}/sd/prometheus\n");
    text + &format!("delete      convoke cluster delete {name}\n")
}

pub(crate) fn health(health: &Health) -> String {
    let palette = Palette::of_stdout();
    if health.healthy {
        let good = palette.paint(Style::Good, "healthy");
        return format!("{good}: all nodes are connected and agree on {}\n", counted(health.members as u64, "member"));
    }
    let mut text = format!("{}\n", palette.paint(Style::Bad, "not healthy"));
    for problem in &health.problems {
        text += &format!("  {problem}\n");
    }
    if health.equal {
        text += &format!("The nodes that answer agree on {}.\n", counted(health.members as u64, "member"));
    }
    for (member, by_node) in &health.differences {
        let shown: Vec<String> =
            by_node.iter().map(|(node, shown)| format!("{node}: {}", shown.as_deref().unwrap_or("missing"))).collect();
        text += &format!("  {member}  {}\n", shown.join(", "));
    }
    text
}
