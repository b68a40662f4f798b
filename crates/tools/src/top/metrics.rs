//! Counters of a node, and their rates.

use std::collections::BTreeMap;
use std::time::Duration;

/// Rates on the screen: name, and the counters that are added up for it.
pub(crate) const RATES: &[(&str, &[&str])] = &[
    ("writes", &["convoke_registry_local_writes_total"]),
    ("from peers", &["convoke_registry_records_applied_total"]),
    ("heartbeats", &["convoke_registry_heartbeats_total"]),
    ("to watchers", &["convoke_registry_watcher_events_total"]),
    ("rejected", &["convoke_registry_requests_rejected_total"]),
    ("log entries", &["convoke_log_entries_total"]),
    ("bytes out", &["convoke_network_sent_bytes_total"]),
    ("bytes in", &["convoke_network_received_bytes_total"]),
    ("DNS", &["convoke_dns_queries_udp_total", "convoke_dns_queries_tcp_total"]),
];

/// Counters by name, summed over all labels.
pub(crate) type Sample = BTreeMap<String, f64>;

/// Parses the OpenMetrics text format; other lines are skipped.
pub(crate) fn parse(text: &str) -> Sample {
    let mut sample = Sample::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or(series);
        if let Ok(value) = value.parse::<f64>() {
            *sample.entry(name.to_owned()).or_default() += value;
        }
    }
    sample
}

/// Rates per second between two samples; `None` if a counter decreased, because the node was restarted.
pub(crate) fn rates(before: &Sample, now: &Sample, between: Duration) -> Option<Vec<(&'static str, f64)>> {
    let total = |sample: &Sample, names: &[&str]| names.iter().filter_map(|name| sample.get(*name)).sum::<f64>();
    let rate = |names: &[&str]| {
        let rise = total(now, names) - total(before, names);
        (rise >= 0.0 && !between.is_zero()).then(|| rise / between.as_secs_f64())
    };
    RATES.iter().map(|(name, names)| Some((*name, rate(names)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_up_and_rates_are_per_second() {
        let text = "# HELP x y\n# TYPE x counter\nconvoke_registry_local_writes_total 10\n\
                    convoke_members{status=\"up\"} 3\nconvoke_members{status=\"down\"} 1\nnonsense\n";
        let before = parse(text);
        assert_eq!(before["convoke_members"], 4.0);
        let now = parse("convoke_registry_local_writes_total 30\n");
        let found = rates(&before, &now, Duration::from_secs(2)).unwrap();
        assert_eq!(found[0], ("writes", 10.0));
        assert_eq!(rates(&now, &before, Duration::from_secs(2)), None, "a restarted node");
        assert_eq!(rates(&before, &now, Duration::ZERO), None);
    }
}
