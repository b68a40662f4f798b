//! `convoke services`

use convoke_cli::output::{Palette, Style, Table, print, print_json};
use convoke_cli::{Inspect, Result, call};
use convoke_proto::v1;

pub(crate) async fn services(inspect: &Inspect) -> Result {
    let services =
        call(&inspect.connect, async |node| node.admin().services(v1::ServicesRequest { partial: false }).await)
            .await?;
    if inspect.json { print_json(&services) } else { print(&render(&services.services, Palette::of_stdout())) }
}

fn render(services: &[v1::Service], palette: Palette) -> String {
    let mut table = Table::new(&["SERVICE", "UP", "DOWN", "DRAINED", "CRITICAL"]);
    for service in services {
        let count = |count: u64, style| (count.to_string(), if count == 0 { Style::Dim } else { style });
        let critical = match service.panic {
            // All members that are up are routable.
            true => (format!("{} (ignored: too many)", service.critical), Style::Bad),
            false => count(service.critical, Style::Bad),
        };
        table.row(vec![
            (service.service.clone(), Style::Plain),
            count(service.up, Style::Good),
            count(service.down, Style::Bad),
            count(service.drained, Style::Doubtful),
            critical,
        ]);
    }
    table.render(palette)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn services_are_counted() {
        let service = |service: &str, up, down, drained, critical| v1::Service {
            service: service.into(),
            up,
            down,
            drained,
            critical,
            panic: critical * 2 > up,
        };
        let services =
            [service("convoke", 3, 0, 0, 0), service("orders", 11_000, 2, 1, 4), service("shop", 3, 0, 0, 2)];
        golden!("golden/services.txt", &render(&services, Palette::PLAIN));
    }
}
