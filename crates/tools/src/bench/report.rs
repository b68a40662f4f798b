//! Results of a benchmark, as text and as JSON.

use super::histogram::Latency;
use convoke_cli::output::{Palette, Style, facts};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) benchmark: &'static str,
    pub(super) nodes: usize,
    pub(super) seconds: f64,
    /// Successful operations.
    pub(super) operations: u64,
    pub(super) per_second: f64,
    /// Errors by code.
    pub(super) errors: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_us: Option<Latency>,
    /// CPU time of all nodes per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_cpu_us: Option<f64>,
    /// Cores that all nodes used together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_cores: Option<f64>,
    /// Figures that only some benchmarks have.
    #[serde(flatten, serialize_with = "by_key")]
    pub(super) figures: Vec<Figure>,
}

/// An additional figure.
#[derive(Debug)]
pub(super) struct Figure {
    /// Name in JSON.
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

fn by_key<S: serde::Serializer>(figures: &[Figure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|figure| (figure.key, figure.value)))
}

impl Report {
    pub(super) fn figure(mut self, key: &'static str, name: &'static str, value: f64, unit: &'static str) -> Report {
        self.figures.push(Figure { key, name, value, unit });
        self
    }

    pub(super) fn render(&self, palette: Palette) -> String {
        let mut lines = vec![
            ("Benchmark", format!("{}, {} nodes, {:.1} s", self.benchmark, self.nodes, self.seconds)),
            ("Done", format!("{} ({} per second)", self.operations, rounded(self.per_second))),
        ];
        if let Some(latency) = self.latency_us {
            let [p50, p99, p999, max] = [latency.p50, latency.p99, latency.p999, latency.max].map(time);
            lines.push(("Latency", format!("p50 {p50}, p99 {p99}, p99.9 {p999}, longest {max}")));
        }
        if let Some((each, cores)) = self.server_cpu_us.zip(self.server_cores) {
            lines.push(("Server CPU", format!("{each:.1} µs each; {cores:.2} cores in use")));
        }
        for figure in &self.figures {
            lines.push((figure.name, format!("{} {}", rounded(figure.value), figure.unit).trim_end().to_owned()));
        }
        let errors = match self.errors.is_empty() {
            true => "none".to_owned(),
            false => {
                let counted: Vec<String> = self.errors.iter().map(|(code, count)| format!("{count} {code}")).collect();
                palette.paint(Style::Bad, &counted.join(", "))
            }
        };
        lines.push(("Errors", errors));
        facts(&lines, palette)
    }
}

/// Rounds to the significant digits.
fn rounded(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    fn report() -> Report {
        let report = Report {
            benchmark: "propagate",
            nodes: 3,
            seconds: 10.0,
            operations: 100_000,
            per_second: 10_000.0,
            errors: BTreeMap::from([("RESOURCE_EXHAUSTED".to_owned(), 2)]),
            latency_us: Some(Latency { p50: 900, p99: 4_200, p999: 9_900, max: 1_200_000 }),
            server_cpu_us: Some(23.45),
            server_cores: Some(0.2345),
            figures: Vec::new(),
        };
        report.figure("missing", "Never arrived", 0.0, "changes")
    }

    #[test]
    fn a_report_for_people_and_one_for_scripts() {
        golden!("golden/report.txt", &report().render(Palette::PLAIN));
        golden!("golden/report.json", &(serde_json::to_string_pretty(&report()).unwrap_or_default() + "\n"));
    }
}
