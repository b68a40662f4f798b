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
    let mut table = Table::new(&["SERVICE", "UP", "DOWN", "DRAINED"]);
    for service in services {
        let count = |count: u64, style| (count.to_string(), if count == 0 { Style::Dim } else { style });
        table.row(vec![
            (service.service.clone(), Style::Plain),
            count(service.up, Style::Good),
            count(service.down, Style::Bad),
            count(service.drained, Style::Doubtful),
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
        let service = |service: &str, up, down, drained| v1::Service { service: service.into(), up, down, drained };
        let services = [service("convoke", 3, 0, 0), service("orders", 11_000, 2, 1)];
        golden!("golden/services.txt", &render(&services, Palette::PLAIN));
    }
}
