// Rates from the counters at /metrics. The history exists in this page only.

const KEPT = 150;

/** The series that are drawn: a sum of counters, as change per second. */
export const SERIES = [
  {
    name: "writes",
    title: "Local writes",
    unit: "/s",
    of: ["convoke_registry_local_writes_total"],
    help: "Writes accepted by this node",
  },
  {
    name: "applied",
    title: "Changes from peers",
    unit: "/s",
    of: ["convoke_registry_records_applied_total"],
    help: "Records from peers that changed the registry",
  },
  {
    name: "sent_events",
    title: "Changes to watchers",
    unit: "/s",
    of: ["convoke_registry_watcher_events_total"],
    help: "Changes queued for watchers at this node",
  },
  {
    name: "heartbeats",
    title: "Heartbeats",
    unit: "/s",
    of: ["convoke_registry_heartbeats_total"],
    help: "Heartbeats received from clients",
  },
  {
    name: "http",
    title: "HTTP requests",
    unit: "/s",
    of: ["convoke_http_requests_total"],
    help: "HTTP requests, including those of this page",
  },
  { name: "grpc", title: "gRPC calls", unit: "/s", of: ["convoke_grpc_requests_total"], help: "gRPC calls" },
  {
    name: "log",
    title: "Log entries",
    unit: "/s",
    of: ["convoke_log_entries_total"],
    help: "Entries written to the log at this node",
  },
  {
    name: "reads",
    title: "Key reads",
    unit: "/s",
    of: ["convoke_log_reads_confirmed_total", "convoke_log_reads_local_total"],
    help: "Key reads answered by this node",
  },
  {
    name: "synced",
    title: "Log bytes",
    unit: "bytes/s",
    of: ["convoke_log_written_bytes_total"],
    help: "Bytes written to the log at this node",
  },
  {
    name: "sent",
    title: "Sent to peers",
    unit: "bytes/s",
    of: ["convoke_network_sent_bytes_total"],
    help: "Bytes sent to peers",
  },
  {
    name: "received",
    title: "Received from peers",
    unit: "bytes/s",
    of: ["convoke_network_received_bytes_total"],
    help: "Bytes received from peers",
  },
  {
    name: "rejections",
    title: "Rejections",
    unit: "/s",
    of: ["convoke_registry_requests_rejected_total"],
    help: "Client requests rejected by the registry",
  },
];

const wanted = new Map(SERIES.flatMap((series) => series.of.map((metric) => [metric, series.name])));

/** Sums of these counters in an OpenMetrics text. */
export function totals(text) {
  const sums = new Map(SERIES.map((series) => [series.name, 0]));
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const end = line.search(/[{ ]/);
    const name = wanted.get(line.slice(0, end));
    if (name) sums.set(name, sums.get(name) + Number(line.slice(line.lastIndexOf(" ") + 1)));
  }
  return sums;
}

/** Rates over time. */
export class History {
  points = [];
  #last = null;

  add(at, sums) {
    const last = this.#last;
    this.#last = { at, sums };
    if (!last) return;
    const seconds = (at - last.at) / 1000;
    const restarted = [...sums].some(([name, value]) => value < last.sums.get(name));
    // After a restart of the node or a long pause there is no rate: a gap.
    if (restarted || seconds <= 0 || seconds > 15) {
      this.points.push({ at, rates: null });
    } else {
      const rates = new Map([...sums].map(([name, value]) => [name, (value - last.sums.get(name)) / seconds]));
      this.points.push({ at, rates });
    }
    if (this.points.length > KEPT) this.points.shift();
  }

  latest(name) {
    return this.points.at(-1)?.rates?.get(name) ?? null;
  }
}
