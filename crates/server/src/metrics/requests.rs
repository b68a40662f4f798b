//! Requests by route and outcome.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::OnceLock;
use std::time::Duration;

/// Upper bounds of the latency buckets, in seconds.
const BOUNDS: [f64; 14] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(crate) type Labels = Vec<(&'static str, String)>;

/// Counts the requests of a fixed set of routes. A route and an outcome appear in a scrape when they are first used.
///
/// The families hold the metrics for the scrape. A request does not look its metrics up there, which takes a lock and
/// hashes the labels: each route keeps its own.
#[derive(Debug)]
pub(crate) struct Requests {
    codes: Vec<&'static str>,
    routes: Vec<Route>,
    total: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
}

#[derive(Debug)]
struct Route {
    labels: Labels,
    /// One counter for each code.
    outcomes: Vec<OnceLock<Counter>>,
    duration: OnceLock<Histogram>,
}

impl Requests {
    /// The last route counts all requests that match no other.
    pub(crate) fn new(routes: impl IntoIterator<Item = Labels>, codes: Vec<&'static str>) -> Self {
        let outcomes = || codes.iter().map(|_| OnceLock::new()).collect();
        let route = |labels| Route { labels, outcomes: outcomes(), duration: OnceLock::new() };
        Requests {
            routes: routes.into_iter().map(route).collect(),
            codes,
            total: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry, surface: &str) {
        let registry = registry.sub_registry_with_prefix(format!("convoke_{surface}"));
        registry.register("requests", "Requests by route and outcome", self.total.clone());
        let help = "Time to the response by route; for streams, time to the first byte";
        registry.register_with_unit("request_duration", help, Unit::Seconds, self.durations.clone());
    }

    /// Records a finished request of the route with this index.
    pub(crate) fn record(&self, route: Option<usize>, code: usize, took: Duration) {
        let other = self.routes.len().saturating_sub(1);
        let Some(route) = self.routes.get(route.unwrap_or(other).min(other)) else { return };
        if let (Some(outcome), Some(code)) = (route.outcomes.get(code), self.codes.get(code)) {
            let labels = || [route.labels.as_slice(), &[("code", (*code).to_owned())]].concat();
            outcome.get_or_init(|| self.total.get_or_create_owned(&labels())).inc();
        }
        let duration = route.duration.get_or_init(|| self.durations.get_or_create_owned(&route.labels));
        duration.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn requests_are_counted_by_route_and_code() {
        let route = |path: &str| vec![("path", path.to_owned())];
        let requests = Requests::new([route("/a"), route("other")], vec!["OK", "NOT_FOUND"]);
        requests.record(Some(0), 0, Duration::from_millis(2));
        requests.record(Some(0), 0, Duration::from_secs(20));
        requests.record(None, 1, Duration::from_micros(1));
        let mut registry = Registry::default();
        requests.register(&mut registry, "http");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "convoke_http_requests_total{path=\"/a\",code=\"OK\"} 2",
            "convoke_http_requests_total{path=\"other\",code=\"NOT_FOUND\"} 1",
            "convoke_http_request_duration_seconds_bucket{le=\"0.001\",path=\"/a\"} 0",
            "convoke_http_request_duration_seconds_bucket{le=\"0.0025\",path=\"/a\"} 1",
            "convoke_http_request_duration_seconds_bucket{le=\"10.0\",path=\"/a\"} 1",
            "convoke_http_request_duration_seconds_bucket{le=\"+Inf\",path=\"/a\"} 2",
            "convoke_http_request_duration_seconds_sum{path=\"/a\"} 20.002",
            "convoke_http_request_duration_seconds_count{path=\"/a\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} not in\n{text}");
        }
        assert!(!text.contains("path=\"/a\",code=\"NOT_FOUND\""));
    }
}
