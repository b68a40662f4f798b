//! Requests by route and outcome. All label values are known from the start: nobody can add more by asking for them.

use super::{Counter, Text};
use std::time::Duration;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 14] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug)]
pub(crate) struct Requests {
    codes: Vec<&'static str>,
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Route {
    /// As labels.
    name: String,
    /// One for each code.
    outcomes: Vec<Counter>,
    /// One for each bucket, and one for what is above.
    latencies: [Counter; BUCKETS.len() + 1],
    micros: Counter,
}

impl Requests {
    /// `routes` as labels, like `method="GET",path="/healthz"`; the last one stands for whatever is none of the others.
    pub(crate) fn new(routes: impl IntoIterator<Item = String>, codes: Vec<&'static str>) -> Self {
        let route = |name| Route {
            name,
            outcomes: codes.iter().map(|_| Counter::default()).collect(),
            latencies: Default::default(),
            micros: Counter::default(),
        };
        Requests { routes: routes.into_iter().map(route).collect(), codes }
    }

    /// A request of the route with this index took so long, and ended so.
    pub(crate) fn record(&self, route: Option<usize>, code: usize, took: Duration) {
        let other = self.routes.len().saturating_sub(1);
        let Some(route) = self.routes.get(route.unwrap_or(other).min(other)) else { return };
        if let Some(outcome) = route.outcomes.get(code) {
            outcome.add(1);
        }
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        route.latencies[bucket].add(1);
        route.micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Routes that were never asked for are left out.
    pub(super) fn render(&self, text: &mut Text, surface: &str) {
        let total = format!("convoke_{surface}_requests_total");
        text.head(&total, "counter", "Requests by route and outcome.");
        for route in &self.routes {
            for (code, outcome) in self.codes.iter().zip(&route.outcomes) {
                let count = outcome.read();
                if count > 0 {
                    text.sample(&total, &format!("{},code=\"{code}\"", route.name), count);
                }
            }
        }
        let duration = format!("convoke_{surface}_request_duration_seconds");
        text.head(&duration, "histogram", "Time to the answer by route; of streams, to their beginning.");
        for route in &self.routes {
            let counts: Vec<u64> = route.latencies.iter().map(Counter::read).collect();
            let all: u64 = counts.iter().sum();
            if all == 0 {
                continue;
            }
            let mut below = 0;
            let bucket = format!("{duration}_bucket");
            for (bound, count) in BUCKETS.iter().zip(&counts) {
                below += count;
                text.sample(&bucket, &format!("{},le=\"{bound}\"", route.name), below);
            }
            text.sample(&bucket, &format!("{},le=\"+Inf\"", route.name), all);
            text.sample(&format!("{duration}_sum"), &route.name, route.micros.read() as f64 / 1e6);
            text.sample(&format!("{duration}_count"), &route.name, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_code() {
        let requests = Requests::new(["path=\"/a\"".to_owned(), "path=\"other\"".to_owned()], vec!["OK", "NOT_FOUND"]);
        requests.record(Some(0), 0, Duration::from_millis(2));
        requests.record(Some(0), 0, Duration::from_secs(20));
        requests.record(None, 1, Duration::from_micros(1));
        let mut text = Text::default();
        requests.render(&mut text, "http");
        let text = text.into_string();
        for line in [
            "convoke_http_requests_total{path=\"/a\",code=\"OK\"} 2",
            "convoke_http_requests_total{path=\"other\",code=\"NOT_FOUND\"} 1",
            "convoke_http_request_duration_seconds_bucket{path=\"/a\",le=\"0.001\"} 0",
            "convoke_http_request_duration_seconds_bucket{path=\"/a\",le=\"0.0025\"} 1",
            "convoke_http_request_duration_seconds_bucket{path=\"/a\",le=\"10\"} 1",
            "convoke_http_request_duration_seconds_bucket{path=\"/a\",le=\"+Inf\"} 2",
            "convoke_http_request_duration_seconds_sum{path=\"/a\"} 20.002",
            "convoke_http_request_duration_seconds_count{path=\"/a\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} not in\n{text}");
        }
        assert!(!text.contains("path=\"/a\",code=\"NOT_FOUND\""));
    }
}
