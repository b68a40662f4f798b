//! One scrape: the current counters and sizes of the node.

use super::log;
use crate::convert;
use crate::surface::Surface;
use convoke_core::node::{PeerState, Sizes};
use convoke_counters::Count;
use convoke_node::{Counters, NodeStatus, Phase, QueueLengths};
use convoke_tls::NodeTls;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// Encodes all metrics of the process.
pub(crate) fn encode(surface: &Arc<Surface>, status: NodeStatus, counters: Counters) -> Result<String, fmt::Error> {
    let mut text = String::new();
    let mut scraped = Registry::default();
    scraped.register_collector(Box::new(Scrape { surface: surface.clone(), status, counters }));
    encode_registry(&mut text, &scraped)?;
    encode_registry(&mut text, &surface.metrics.registry)?;
    encode_eof(&mut text)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    surface: Arc<Surface>,
    status: NodeStatus,
    counters: Counters,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.node(&mut families)?;
        sizes(&mut families, &self.status.sizes)?;
        queues(&mut families, &self.status.queues)?;
        families.counters("registry", self.counters.registry.counts())?;
        families.counters("network", self.counters.network.counts())?;
        self.clients(&mut families)?;
        self.tls(&mut families)?;
        families.counters("audit", self.surface.audit.counters().counts())?;
        let (members, checks) = self.surface.checker.sizes();
        families.gauge("convoke_checks_members", "Members whose checks this node runs.", members)?;
        families.gauge("convoke_checks_assigned", "Checks that this node runs.", checks)?;
        families.counters("checks", self.surface.checker.counters().counts())?;
        if let Some(dns) = &self.surface.dns {
            families.counters("dns", dns.counters().counts())?;
        }
        if let Some(log) = &self.surface.log {
            log::encode(&mut families, log)?;
        }
        traces(&mut families)
    }
}

impl Scrape {
    fn node(&self, families: &mut Families<'_>) -> fmt::Result {
        let (node, status) = (&self.surface.node, &self.status);
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("node", node.id().as_str()),
            ("cluster", node.cluster()),
            ("region", node.region()),
        ];
        families
            .describe("convoke_build", "Version and identity of the node.", MetricType::Info)?
            .encode_info(&build)?;
        families.gauge("convoke_ready", "Readiness for clients: 1 if ready, else 0.", u32::from(node.is_ready()))?;
        let alone = u32::from(node.phase() == Phase::Alone);
        families.gauge("convoke_alone", "1 if the node has reached none of its seeds, else 0.", alone)?;
        let log_reason = self.surface.log.as_ref().and_then(|log| convert::log_degraded(&log.handle));
        let diverged = status.diverged.len();
        let tls = self.surface.config.tls.as_ref().map_or(0, |tls| tls.status().degraded(SystemTime::now()).len());
        let clocks = &self.surface.clocks;
        let own = [log_reason, self.surface.gate.degraded(), self.surface.audit.degraded(), clocks.degraded()];
        let reasons = status.degraded.len() + usize::from(diverged > 0) + own.iter().flatten().count() + tls;
        families.gauge("convoke_degraded", "Reasons for which the node is degraded.", reasons)?;
        let help = "Largest difference between the wall clocks of this node and a connected one.";
        families.gauge("convoke_clock_difference_seconds", help, clocks.largest())?;
        let help = "Peers that hold other records, although both have received the same writes.";
        families.gauge("convoke_registry_diverged", help, diverged)?;
        families.gauge("convoke_incarnation", "Incarnation number of the node.", status.incarnation.number)?;
        families.gauge("convoke_uptime_seconds", "Time since the start of the node.", status.uptime.as_secs_f64())?;
        let help = "Other nodes by the state of the link to them.";
        let mut nodes = families.describe("convoke_nodes", help, MetricType::Gauge)?;
        for state in PeerState::ALL {
            let count = status.peers.get(&state).copied().unwrap_or(0);
            nodes.encode_family(&[("state", state.as_str())])?.encode_gauge(&count)?;
        }
        let help = "Attached sessions of clients with a stream.";
        families.gauge("convoke_registry_sessions_streamed", help, status.streamed_sessions)?;
        let help = "Those sessions above the share of this node in its region.";
        families.gauge("convoke_registry_sessions_excess", help, status.session_excess)?;
        let (mut up, mut down, mut drained) = (0, 0, 0);
        for service in node.services() {
            up += service.up;
            down += service.down;
            drained += service.drained;
        }
        let help = "Members by status; drained members are not counted as up.";
        let mut members = families.describe("convoke_members", help, MetricType::Gauge)?;
        for (status, count) in [("up", up), ("down", down), ("drained", drained)] {
            members.encode_family(&[("status", status)])?.encode_gauge(&count)?;
        }
        Ok(())
    }

    /// All values are 0 without TLS.
    fn tls(&self, families: &mut Families<'_>) -> fmt::Result {
        let tls = self.surface.config.tls.as_ref();
        let expiry = tls.map(|tls| tls.status().expiry);
        let end = expiry.map_or(0, |expiry| expiry.certificate);
        families.gauge("convoke_tls_certificate_not_after_seconds", "End of the certificate of the node.", end)?;
        let end = expiry.map_or(0, |expiry| expiry.authority);
        families.gauge("convoke_tls_authority_not_after_seconds", "End of the trusted certificate authority.", end)?;
        let pending = tls.map_or(0, NodeTls::pending);
        families.gauge("convoke_tls_client_handshakes", "TLS handshakes in progress on the client port.", pending)?;
        families.counters("tls", tls.map(NodeTls::counters).unwrap_or_default().counts())
    }

    fn clients(&self, families: &mut Families<'_>) -> fmt::Result {
        let surface = &self.surface;
        let (limits, gates) = (&surface.config.limits, &surface.gates);
        let used = |limit: usize, gate: &tokio::sync::Semaphore| limit.saturating_sub(gate.available_permits());
        for (name, help, value) in [
            ("connections", "Open client connections.", used(limits.connections, &gates.connections)),
            ("attaches", "Open attach streams.", surface.attached()),
            ("http_streams", "Open event streams over HTTP.", used(limits.http_watchers, &gates.watchers)),
            ("http_sessions", "HTTP sessions held by this node.", surface.sessions.len()),
        ] {
            families.gauge(&format!("convoke_client_{name}"), help, value)?;
        }
        let help = "Calls and messages refused or delayed by rate limits.";
        families.counter("convoke_client_rate_limited", help, surface.rates.refused())?;
        families.counters("client", surface.metrics.clients.read().counts())
    }
}

fn sizes(families: &mut Families<'_>, sizes: &Sizes) -> fmt::Result {
    // Without `..`: a new size does not compile until it is exported.
    let Sizes { members, names, tombstones, sessions, watchers, watcher_queue, links, origins, retired, timers } =
        sizes;
    for (name, help, value) in [
        ("members", "Registered members, down ones included.", members),
        ("names", "Names registered by nodes.", names),
        ("tombstones", "Tombstones not yet collected.", tombstones),
        ("sessions", "Client sessions attached to this node.", sessions),
        ("watchers", "Watchers at this node.", watchers),
        ("watcher_queue_length_max", "Changes queued for the slowest watcher.", watcher_queue),
        ("links", "Peers with a direct connection.", links),
        ("origins", "Origins whose writes are tracked.", origins),
        ("origins_retired", "Nodes with retired origins.", retired),
        ("timers", "Pending timers.", timers),
    ] {
        families.gauge(&format!("convoke_registry_{name}"), help, *value)?;
    }
    Ok(())
}

fn queues(families: &mut Families<'_>, queues: &QueueLengths) -> fmt::Result {
    // Without `..`: a new queue does not compile until it is exported.
    let QueueLengths { client_requests, calls, peer_inputs, link_bytes_max } = queues;
    for (name, help, value) in [
        ("client_requests_waiting", "Requests of clients that wait for the event loop.", client_requests),
        ("calls_waiting", "Calls of this process that wait for the event loop.", calls),
        ("peer_inputs_waiting", "Batches of peer frames that wait for the event loop.", peer_inputs),
        ("link_queue_max_bytes", "Size of the longest queue to a peer.", link_bytes_max),
    ] {
        families.gauge(&format!("convoke_network_{name}"), help, *value)?;
    }
    Ok(())
}

fn traces(families: &mut Families<'_>) -> fmt::Result {
    let counters = convoke_trace::counters();
    families.counter("convoke_trace_spans_exported", "Spans accepted by the collector.", counters.exported())?;
    let help = "Spans dropped because the queue was full or the collector did not accept them.";
    let mut dropped = families.describe("convoke_trace_spans_dropped", help, MetricType::Counter)?;
    for (reason, count) in [("queue", counters.dropped_queue()), ("collector", counters.dropped_collector())] {
        encode_count(&mut dropped.encode_family(&[("reason", reason)])?, count)?;
    }
    Ok(())
}

/// Writes metric families under their full names, without the `_total` of counters.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    pub(super) fn describe<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        let (stem, unit) = match name {
            _ if name.ends_with("_bytes") => (name.trim_end_matches("_bytes"), Some(&Unit::Bytes)),
            _ if name.ends_with("_seconds") => (name.trim_end_matches("_seconds"), Some(&Unit::Seconds)),
            _ => (name, None),
        };
        self.0.encode_descriptor(stem, help, unit, kind)
    }

    #[allow(clippy::needless_pass_by_value, reason = "the values are numbers")]
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        encode_count(&mut self.describe(name, help, MetricType::Counter)?, value)
    }

    pub(super) fn counters(&mut self, section: &str, counts: impl IntoIterator<Item = Count>) -> fmt::Result {
        for count in counts {
            self.counter(&format!("convoke_{section}_{}", count.name), count.help(), count.value)?;
        }
        Ok(())
    }

    pub(super) fn metric(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.describe(name, help, metric.metric_type())?)
    }
}

fn encode_count(encoder: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    encoder.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)
}
