//! `convoke status`

use convoke_base::date_time;
use convoke_cli::output::{Palette, Style, ago, counted, facts, print, print_json};
use convoke_cli::{Inspect, Result, call};
use convoke_proto::v1;

pub(crate) async fn status(inspect: &Inspect) -> Result {
    let status = call(&inspect.connect, async |node| node.admin().status(v1::StatusRequest {}).await).await?;
    if inspect.json { print_json(&status) } else { print(&render(&status, Palette::of_stdout())) }
}

fn render(status: &v1::StatusResponse, palette: Palette) -> String {
    let counts = status.counts.unwrap_or_default();
    let ports = status.ports.unwrap_or_default();
    let region = if status.region.is_empty() { String::new() } else { format!(", region {}", status.region) };
    let dns = if ports.dns == 0 { String::new() } else { format!(", DNS {}", ports.dns) };
    let state = match (status.ready, status.degraded.as_slice()) {
        (false, _) if !status.alone.is_empty() => palette.paint(Style::Doubtful, &format!("alone: {}", status.alone)),
        (false, _) => palette.paint(Style::Doubtful, "not ready: accepts no clients now"),
        (true, []) => palette.paint(Style::Good, "ready"),
        (true, reasons) => palette.paint(Style::Doubtful, &format!("degraded: {}", reasons.join("; "))),
    };
    let access = match status.access.as_str() {
        "open" => "open: every caller may do everything",
        other => other,
    };
    facts(
        &[
            ("Node", format!("{}, incarnation {}, up for {}", status.id, status.incarnation, ago(status.uptime_ms))),
            ("State", state),
            ("Cluster", format!("{}{region}", status.cluster)),
            ("Ports", format!("clients {}, peers {}{dns}", ports.client, ports.peer)),
            (
                "Holds",
                format!(
                    "{}, {}, {}",
                    counted(counts.members, "member"),
                    counted(counts.names, "name"),
                    counted(counts.tombstones, "tombstone")
                ),
            ),
            (
                "Serves",
                format!(
                    "{}, {}, linked to {}",
                    counted(counts.sessions, "client"),
                    counted(counts.watchers, "watcher"),
                    counted(counts.links, "node")
                ),
            ),
            ("TLS", tls(status, palette)),
            ("Log", status.log_role.clone()),
            ("Access", access.to_owned()),
            ("Version", status.version.clone()),
        ],
        palette,
    )
}

fn tls(status: &v1::StatusResponse, palette: Palette) -> String {
    let tls = status.tls.clone().unwrap_or_default();
    let mode = |mode: &str| if mode.is_empty() { "off".to_owned() } else { mode.to_owned() };
    let modes = format!("clients {}, peers {}", mode(&tls.client), mode(&tls.peer));
    match (tls.warning.as_str(), tls.not_after_ms) {
        ("", 0) => modes,
        ("", not_after_ms) => format!("{modes}; certificate valid until {}", date_time(not_after_ms)),
        (warning, _) => format!("{modes}; {}", palette.paint(Style::Doubtful, warning)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn the_status_of_a_node_is_rendered() {
        let status = v1::StatusResponse {
            id: "n1".into(),
            incarnation: 3,
            version: "0.1.0".into(),
            uptime_ms: 200_000,
            region: "eu".into(),
            cluster: "convoke".into(),
            ports: Some(v1::status_response::Ports { client: 7700, peer: 7701, dns: 0 }),
            counts: Some(v1::status_response::Counts {
                members: 12,
                names: 0,
                tombstones: 1,
                sessions: 2,
                watchers: 1,
                links: 2,
            }),
            degraded: Vec::new(),
            ready: true,
            log_role: "follower".into(),
            alone: String::new(),
            access: "enforced".into(),
            tls: Some(v1::status_response::Tls {
                client: "required".into(),
                peer: "optional".into(),
                not_after_ms: 1_800_000_000_000,
                warning: "the TLS certificate of this node expires in 25 days".into(),
            }),
        };
        golden!("golden/status.txt", &render(&status, Palette::PLAIN));
        let tls = v1::status_response::Tls { warning: String::new(), ..status.tls.clone().unwrap_or_default() };
        let calm = v1::StatusResponse { tls: Some(tls), ..status.clone() };
        let shown = render(&calm, Palette::PLAIN);
        assert!(shown.contains("peers optional; certificate valid until 2027-01-15 08:00:00 UTC\n"), "{shown}");
        let alone = v1::StatusResponse { ready: false, alone: "no seed was reached".into(), ..status.clone() };
        assert!(render(&alone, Palette::PLAIN).contains("alone: no seed was reached"));
        let degraded = v1::StatusResponse { degraded: vec!["most other nodes fell silent at once".into()], ..status };
        golden!("golden/status_degraded.txt", &render(&degraded, Palette::PLAIN));
    }
}
