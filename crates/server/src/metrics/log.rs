//! Metrics of the log.

use super::scrape::Families;
use crate::log::LogPlane;
use convoke_log::machine::Field;
use convoke_replica::ReplicaStatus;
use prometheus_client::metrics::MetricType;
use std::fmt;

pub(super) fn encode(families: &mut Families<'_>, plane: &LogPlane) -> fmt::Result {
    let log = &plane.handle;
    let status = log.status();
    gauges(families, &status)?;
    quotas(families, &status)?;
    let (proposals, reads) = log.in_flight();
    families.gauge(
        "convoke_log_awaited_places",
        "Clients that wait at this leader for a change of their place in a lock.",
        log.awaited_places(),
    )?;
    families.gauge(
        "convoke_log_http_waits",
        "HTTP requests that wait for locks and elections.",
        plane.service.waiting(),
    )?;
    families.gauge(
        "convoke_log_watch_streams",
        "Open streams of watches of keys and locks.",
        plane.service.watching(),
    )?;
    families.counter(
        "convoke_log_watch_streams_rejected",
        "Streams of watches of keys and locks rejected by a limit of the node or of their connection.",
        plane.service.watches_rejected(),
    )?;
    families.gauge(
        "convoke_log_watch_upstreams",
        "Streams from replicas for the watches of a node without a replica.",
        plane.feeds.streams(),
    )?;
    families.counter(
        "convoke_log_watch_upstream_events",
        "Events that shared streams from replicas carried.",
        plane.feeds.events(),
    )?;
    families.counter(
        "convoke_log_watch_catch_ups",
        "Reads of events for watches that were behind the shared feed of this node.",
        plane.feeds.catch_ups(),
    )?;
    families.gauge(
        "convoke_log_principals",
        "Principals that write to the log over HTTP at this node, each with its own log session.",
        plane.principals(),
    )?;
    families.gauge("convoke_log_proposals_in_flight", "Commands accepted and not answered yet.", proposals)?;
    families.gauge("convoke_log_reads_in_flight", "Reads accepted and not answered yet.", reads)?;
    families.counters("log", log.counters().counts())?;
    families.counters("log_client", plane.ambassador.limit_counters().counts())?;
    families.metric("convoke_log_sync_duration_seconds", "Time to write and sync a batch.", &log.sync_times())
}

fn gauges(families: &mut Families<'_>, status: &ReplicaStatus) -> fmt::Result {
    let mut role = families.describe("convoke_log_role", "Role of the node in the log.", MetricType::Gauge)?;
    role.encode_family(&[("role", status.role.as_str())])?.encode_gauge(&1_u32)?;
    let term = status.group.epoch.map_or(0, |epoch| epoch.term);
    let voters = status.group.replicas.iter().filter(|member| member.voter).count() as u64;
    let learners = status.group.replicas.len() as u64 - voters;
    // Only the leader has the progress of the other replicas.
    let slowest = status.matched.iter().map(|(_, index)| *index).min();
    let lag = slowest.map_or(0, |slowest| status.last.saturating_sub(slowest));
    for (name, help, value) in [
        ("available", "Leader that can serve requests, as seen by this node: 1 or 0.", status.available.into()),
        (
            "excluded",
            "Whether the replica is excluded because its disk went back in time: 1 or 0.",
            status.excluded.into(),
        ),
        ("conflict", "More than one log in the cluster: 1 or 0.", status.conflict.is_some().into()),
        (
            "diverged",
            "Whether the state of this replica differs from the leader's: 1 or 0.",
            status.divergence.is_some().into(),
        ),
        ("settled", "Whether the group has reached the recorded configuration: 1 or 0.", status.settled.into()),
        ("term", "Term of the last known leader.", term),
        ("voters", "Replicas that vote.", voters),
        ("learners", "Replicas that do not vote.", learners),
        ("last_index", "Index of the last entry in the log.", status.last),
        ("commit_index", "Index of the last entry known to be committed.", status.commit),
        ("applied_index", "Index of the last entry applied.", status.applied),
        ("lag_entries", "Entries not yet replicated to the slowest replica; 0 unless this node leads.", lag),
        ("snapshot_index", "Index of the last entry in a snapshot.", status.snapshot),
        ("purged_index", "Index of the last entry removed from the log.", status.purged),
        ("keys", "Keys in the key store.", status.keys),
        ("key_bytes", "Size of all keys and values.", status.bytes),
        ("revision", "Revision of the key store.", status.revision),
        ("sessions", "Open log sessions.", status.sessions),
        ("leases", "Leases.", status.leases),
        ("locks", "Locks and elections in use.", status.locks),
        ("lock_places", "Holders and waiters of all locks and elections.", status.places),
        ("lock_waiters", "Waiters of all locks and elections.", status.waiters),
    ] {
        families.gauge(&format!("convoke_log_{name}"), help, value)?;
    }
    Ok(())
}

/// The use of limits. Alert from 0.8 on: at 1, requests that grow are rejected.
fn quotas(families: &mut Families<'_>, status: &ReplicaStatus) -> fmt::Result {
    let help = "Used part of a limit of the log, from 0 to 1.";
    let mut used = families.describe("convoke_log_quota_used", help, MetricType::Gauge)?;
    for quota in &status.quotas {
        let name = match quota.field {
            Field::Store => "bytes",
            Field::Places => "lock_places",
            field => field.as_str(),
        };
        #[allow(clippy::cast_precision_loss, reason = "a ratio for display")]
        let part = quota.used as f64 / quota.limit as f64;
        used.encode_family(&[("quota", name)])?.encode_gauge(&part)?;
    }
    Ok(())
}
