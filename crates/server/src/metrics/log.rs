//! The log plane's part of the metrics.

use super::render::Text;
use convoke_replica::{Counters, LogHandle, Status, SyncTimes};

pub(super) fn render(text: &mut Text, log: &LogHandle) {
    let status = log.status();
    gauges(text, &status);
    counters(text, &log.counters());
    syncs(text, &log.sync_times());
}

fn gauges(text: &mut Text, status: &Status) {
    text.head("convoke_log_role", "gauge", "What this node does in the log plane.");
    text.sample("convoke_log_role", &format!("role=\"{}\"", status.role.as_str()), 1);
    let term = status.group.epoch.map_or(0, |epoch| epoch.term);
    let voters = status.group.members.iter().filter(|member| member.voter).count() as u64;
    // A leader alone knows how far others are.
    let slowest = status.matched.iter().map(|(_, index)| *index).min();
    let lag = slowest.map_or(0, |slowest| status.last.saturating_sub(slowest));
    let learners = status.group.members.len() as u64 - voters;
    for (name, help, value) in [
        (
            "available",
            "Whether there is a leader that can serve, as far as this node can tell.",
            status.available.into(),
        ),
        ("settled", "Whether the group is as it was last recorded.", status.settled.into()),
        ("term", "Of the leader last heard of.", term),
        ("voters", "Replicas that vote.", voters),
        ("learners", "Replicas that do not vote.", learners),
        ("last_index", "Last entry in the log.", status.last),
        ("commit_index", "Last entry known to be committed.", status.commit),
        ("applied_index", "Last entry applied.", status.applied),
        ("lag_entries", "Entries that the slowest replica has not got yet; 0 where this node does not lead.", lag),
        ("snapshot_index", "Last entry in a snapshot.", status.snapshot),
        ("purged_index", "Last entry no longer in the log.", status.purged),
        ("keys", "Keys in the store.", status.keys),
        ("key_bytes", "Bytes of keys and values.", status.bytes),
        ("revision", "Revision of the keys.", status.revision),
        ("sessions", "Open log sessions.", status.sessions),
    ] {
        text.gauge(&format!("convoke_log_{name}"), help, value);
    }
}

fn counters(text: &mut Text, counters: &Counters) {
    // All of them: a new one does not compile until it has a place here.
    let Counters {
        proposals,
        refused,
        refused_busy,
        unknown,
        reads_confirmed,
        reads_local,
        keep_alives,
        terms,
        expiries,
        snapshots,
        snapshots_installed,
        snapshots_sent,
        batches,
        entries,
        bytes_written,
        connections,
        connections_refused,
        garbage,
        rpc_failures,
    } = *counters;
    for (name, help, value) in [
        ("proposals", "Commands put in line for the log.", proposals),
        ("refused", "Commands refused for any reason but load.", refused),
        ("refused_busy", "Commands and reads refused because too much was under way.", refused_busy),
        ("unknown", "Commands whose fate the leader lost sight of.", unknown),
        ("reads_confirmed", "Reads for which leadership was confirmed.", reads_confirmed),
        ("reads_local", "Reads from local state.", reads_local),
        ("keep_alives", "Keep-alives of sessions.", keep_alives),
        ("terms", "Terms that this replica led.", terms),
        ("expiries", "Sessions that this replica proposed to expire.", expiries),
        ("snapshots", "Snapshots written here.", snapshots),
        ("snapshots_installed", "Snapshots taken over from a leader.", snapshots_installed),
        ("snapshots_sent", "Snapshots sent to others.", snapshots_sent),
        ("batches", "Batches written to the log, each with one fsync.", batches),
        ("entries", "Entries in them.", entries),
        ("written_bytes", "Bytes in them.", bytes_written),
        ("connections", "Connections of other replicas.", connections),
        ("connections_refused", "Connections refused.", connections_refused),
        ("garbage", "Connections closed because of what came over them.", garbage),
        ("rpc_failures", "Messages to other replicas without an answer.", rpc_failures),
    ] {
        text.counter(&format!("convoke_log_{name}_total"), help, value);
    }
}

fn syncs(text: &mut Text, times: &SyncTimes) {
    let name = "convoke_log_sync_duration_seconds";
    text.head(name, "histogram", "Time to write a batch and sync it.");
    let bucket = format!("{name}_bucket");
    for (bound, count) in &times.within {
        text.sample(&bucket, &format!("le=\"{bound}\""), count);
    }
    text.sample(&bucket, "le=\"+Inf\"", times.count);
    text.sample(&format!("{name}_sum"), "", times.sum.as_secs_f64());
    text.sample(&format!("{name}_count"), "", times.count);
}
