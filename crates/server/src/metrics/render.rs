//! The text format of Prometheus.

use crate::surface::Surface;
use convoke_node::core::node::{Counters as RegistryCounters, Sizes};
use convoke_node::{Counters, NetworkCounters, Status};
use std::fmt::{Display, Write};

#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a text does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Everything there is to say.
pub(crate) fn render(surface: &Surface, status: &Status, counters: &Counters) -> String {
    let mut text = Text::default();
    node(&mut text, surface, status);
    sizes(&mut text, &status.sizes);
    registry(&mut text, &counters.registry);
    network(&mut text, &counters.network);
    clients(&mut text, surface);
    if let Some(dns) = &surface.dns {
        answers(&mut text, &dns.counters());
    }
    if let Some(log) = &surface.log {
        super::log::render(&mut text, &log.handle);
    }
    traces(&mut text);
    surface.metrics.http.render(&mut text, "http");
    surface.metrics.grpc.render(&mut text, "grpc");
    text.into_string()
}

fn node(text: &mut Text, surface: &Surface, status: &Status) {
    let node = &surface.node;
    let labels = format!(
        "version=\"{}\",node=\"{}\",cluster=\"{}\",region=\"{}\"",
        env!("CARGO_PKG_VERSION"),
        escaped(node.id().as_str()),
        escaped(node.cluster()),
        escaped(node.region())
    );
    text.head("convoke_build_info", "gauge", "Which node this is.");
    text.sample("convoke_build_info", &labels, 1);
    text.gauge("convoke_ready", "Whether this node takes clients.", u8::from(node.is_ready()));
    text.gauge("convoke_degraded", "Reasons to doubt what this node sees.", status.degraded.len());
    text.gauge("convoke_incarnation", "Number of this run of the node.", status.incarnation.number);
    text.gauge("convoke_uptime_seconds", "Since the node started.", status.uptime.as_secs_f64());
    let (mut up, mut down, mut drained) = (0, 0, 0);
    for service in node.services() {
        up += service.up;
        down += service.down;
        drained += service.drained;
    }
    text.head("convoke_members", "gauge", "Members by how they are shown; drained ones are up.");
    for (status, count) in [("up", up), ("down", down), ("drained", drained)] {
        text.sample("convoke_members", &format!("status=\"{status}\""), count);
    }
}

fn sizes(text: &mut Text, sizes: &Sizes) {
    // All of them: a new one does not compile until it has a place here.
    let Sizes { members, names, tombstones, sessions, subscribers, subscriber_queue, links, origins, retired, timers } =
        sizes;
    for (name, help, value) in [
        ("convoke_registry_members", "Live members, as registered.", members),
        ("convoke_registry_names", "Names registered by nodes.", names),
        ("convoke_registry_tombstones", "Unregistered entries not yet forgotten.", tombstones),
        ("convoke_registry_sessions", "Sessions of clients at this node.", sessions),
        ("convoke_registry_subscribers", "Subscribers at this node.", subscribers),
        ("convoke_registry_subscriber_queue_longest", "Changes waiting for the slowest subscriber.", subscriber_queue),
        ("convoke_registry_links", "Nodes connected directly.", links),
        ("convoke_registry_origins", "Runs of nodes whose writes are tracked.", origins),
        ("convoke_registry_origins_retired", "Nodes with forgotten runs.", retired),
        ("convoke_registry_timers", "Timers set.", timers),
    ] {
        text.gauge(name, help, value);
    }
}

fn registry(text: &mut Text, counters: &RegistryCounters) {
    let RegistryCounters {
        frames_received,
        frames_malformed,
        handshakes_refused,
        records_applied,
        records_known,
        records_outranked,
        records_refused,
        conflicts,
        pushes_sent,
        pushes_gapped,
        pushes_too_large,
        pushes_suspended,
        exchanges_started,
        chunks_sent,
        full_merges,
        local_writes,
        requests_refused,
        heartbeats,
        sessions_down,
        sessions_left,
        takeovers,
        collected,
        subscriber_events,
        subscriber_resets,
    } = counters;
    for (name, help, value) in [
        ("frames_received", "Frames from peers.", frames_received),
        ("frames_malformed", "Frames that could not be read; their links were closed.", frames_malformed),
        ("handshakes_refused", "Peers refused.", handshakes_refused),
        ("records_applied", "Records from peers that were news.", records_applied),
        ("records_known", "Records from peers that were old news.", records_known),
        ("records_outranked", "Records from peers below the one held.", records_outranked),
        ("records_refused", "Records from peers that could not be taken.", records_refused),
        ("conflicts", "Writes at two places at once.", conflicts),
        ("pushes_sent", "Pushes to peers.", pushes_sent),
        ("pushes_gapped", "Pushes from peers with something missing before them.", pushes_gapped),
        ("pushes_too_large", "Pushes left to an exchange because of their size.", pushes_too_large),
        ("pushes_suspended", "Pushes left to an exchange because the peer was slow.", pushes_suspended),
        ("exchanges_started", "Exchanges with peers.", exchanges_started),
        ("chunks_sent", "Chunks of deltas and full merges sent.", chunks_sent),
        ("full_merges", "Registries of peers taken over as a whole.", full_merges),
        ("local_writes", "Writes of this node.", local_writes),
        ("requests_refused", "Requests of clients refused.", requests_refused),
        ("heartbeats", "Heartbeats of clients.", heartbeats),
        ("sessions_down", "Sessions that fell silent.", sessions_down),
        ("sessions_left", "Sessions given up after their silence.", sessions_left),
        ("takeovers", "Members of silent nodes unregistered by this one.", takeovers),
        ("collected", "Tombstones forgotten.", collected),
        ("subscriber_events", "Changes queued for subscribers.", subscriber_events),
        ("subscriber_resets", "Subscribers told to start over.", subscriber_resets),
    ] {
        text.counter(&format!("convoke_registry_{name}_total"), help, *value);
    }
}

fn network(text: &mut Text, counters: &NetworkCounters) {
    let NetworkCounters {
        links_accepted,
        links_unidentified_refused,
        handshakes_timed_out,
        garbage_refused,
        links_overflowed,
        log_connections,
        log_connections_refused,
        dials,
        dials_failed,
        bytes_sent,
        bytes_received,
        inbox_full,
        clients_overflowed,
        turns,
        inputs,
        restarts,
    } = counters;
    for (name, help, value) in [
        ("links_accepted", "Connections of peers accepted.", links_accepted),
        ("links_unidentified_refused", "Closed: too many had not said who they are.", links_unidentified_refused),
        ("handshakes_timed_out", "Peers that did not say in time who they are.", handshakes_timed_out),
        ("garbage_refused", "Connections to the peer port that were no peer's.", garbage_refused),
        ("links_overflowed", "Links closed because the peer read too slowly.", links_overflowed),
        ("log_connections", "Connections handed to the log plane.", log_connections),
        ("log_connections_refused", "Closed: no log plane here, or it is busy.", log_connections_refused),
        ("dials", "Attempts to connect to peers.", dials),
        ("dials_failed", "Attempts that failed.", dials_failed),
        ("sent_bytes", "Sent to peers.", bytes_sent),
        ("received_bytes", "Received from peers.", bytes_received),
        ("inbox_full", "Requests refused because the node was busy.", inbox_full),
        ("clients_overflowed", "Clients cut off because they did not take their notices.", clients_overflowed),
        ("turns", "Turns of the owner task.", turns),
        ("inputs", "Inputs to the owner task.", inputs),
        ("restarts", "New runs in this process.", restarts),
    ] {
        text.counter(&format!("convoke_network_{name}_total"), help, *value);
    }
}

fn clients(text: &mut Text, surface: &Surface) {
    let limits = &surface.config.limits;
    let gates = &surface.gates;
    let used = |limit: usize, gate: &tokio::sync::Semaphore| limit.saturating_sub(gate.available_permits());
    for (name, help, value) in [
        ("connections", "Connections of clients.", used(limits.connections, &gates.connections)),
        ("attaches", "Attach streams.", surface.attached()),
        ("watchers", "Event streams over HTTP.", used(limits.watchers, &gates.watchers)),
        ("http_sessions", "Sessions over HTTP held here.", surface.sessions.len()),
    ] {
        text.gauge(&format!("convoke_client_{name}"), help, value);
    }
    let metrics = &surface.metrics;
    for (name, help, counter) in [
        ("connections_accepted", "Connections accepted.", &metrics.connections_accepted),
        ("connections_refused", "Connections closed because there were too many.", &metrics.connections_refused),
        ("connections_silent", "Connections closed that said nothing in time.", &metrics.connections_silent),
        ("connections_malformed", "Connections closed because what came was no HTTP.", &metrics.connections_malformed),
        ("sessions_forwarded", "Requests of sessions passed on to their node.", &metrics.sessions_forwarded),
        ("sessions_reattached", "Sessions over HTTP attached here again.", &metrics.sessions_reattached),
    ] {
        text.counter(&format!("convoke_client_{name}_total"), help, counter.read());
    }
}

fn traces(text: &mut Text) {
    let counters = convoke_trace::counters();
    let exported = "convoke_trace_spans_exported_total";
    text.counter(exported, "Spans that the collector took.", counters.exported());
    let dropped = "convoke_trace_spans_dropped_total";
    text.head(dropped, "counter", "Spans lost: too many were waiting, or the collector did not take them.");
    text.sample(dropped, "reason=\"queue\"", counters.dropped_queue());
    text.sample(dropped, "reason=\"collector\"", counters.dropped_collector());
}

fn answers(text: &mut Text, counters: &convoke_dns::Counters) {
    let convoke_dns::Counters {
        queries_udp,
        queries_tcp,
        answered,
        unknown_names,
        refused,
        malformed,
        failed,
        truncated,
        ignored,
        connections_refused,
    } = counters;
    for (name, help, value) in [
        ("queries_udp", "DNS queries over UDP.", queries_udp),
        ("queries_tcp", "DNS queries over TCP.", queries_tcp),
        ("answered", "DNS queries answered with records, or that there are none.", answered),
        ("unknown_names", "DNS queries for names that do not exist.", unknown_names),
        ("refused", "DNS queries outside the zone, of another class, or for a transfer.", refused),
        ("malformed", "DNS queries that were not one well-formed question.", malformed),
        ("failed", "DNS queries while the node was not ready.", failed),
        ("truncated", "DNS answers that did not fit.", truncated),
        ("ignored", "DNS packets that deserved no answer.", ignored),
        ("connections_refused", "DNS connections closed because there were too many.", connections_refused),
    ] {
        text.counter(&format!("convoke_dns_{name}_total"), help, *value);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
