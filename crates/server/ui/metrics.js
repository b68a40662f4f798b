// Rates from the node's counters at /metrics. The history lives in this page only.

const KEPT = 150;

/** What is drawn: a sum of counters, as change per second. */
export const SERIES = [
  { name: "writes", title: "Writes here", unit: "/s", of: ["convoke_registry_local_writes_total"], help: "Changes that clients of this node made" },
  { name: "applied", title: "Changes from peers", unit: "/s", of: ["convoke_registry_records_applied_total"], help: "Records from other nodes that were news" },
  { name: "told", title: "Told to subscribers", unit: "/s", of: ["convoke_registry_watcher_events_total"], help: "Changes queued for subscribers of this node" },
  { name: "heartbeats", title: "Heartbeats", unit: "/s", of: ["convoke_registry_heartbeats_total"], help: "Heartbeats of clients of this node" },
  { name: "http", title: "HTTP requests", unit: "/s", of: ["convoke_http_requests_total"], help: "Requests over HTTP, this page's own among them" },
  { name: "grpc", title: "gRPC calls", unit: "/s", of: ["convoke_grpc_requests_total"], help: "Calls over gRPC" },
  { name: "log", title: "Log entries", unit: "/s", of: ["convoke_log_entries_total"], help: "Entries written to the log here" },
  { name: "reads", title: "Keys read", unit: "/s", of: ["convoke_log_reads_confirmed_total", "convoke_log_reads_local_total"], help: "Reads of keys that this node answered" },
  { name: "synced", title: "Log bytes", unit: "bytes/s", of: ["convoke_log_written_bytes_total"], help: "Bytes written to the log here" },
  { name: "sent", title: "Sent to peers", unit: "bytes/s", of: ["convoke_network_sent_bytes_total"], help: "Bytes sent to other nodes" },
  { name: "received", title: "Received from peers", unit: "bytes/s", of: ["convoke_network_received_bytes_total"], help: "Bytes received from other nodes" },
  { name: "refused", title: "Refused requests", unit: "/s", of: ["convoke_registry_requests_rejected_total"], help: "Requests of clients that the registry refused" },
];

const wanted = new Map(SERIES.flatMap((series) => series.of.map((metric) => [metric, series.name])));

/** Sums of the wanted counters in a Prometheus text. */
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
    // After a restart of the node, or a long break, there is no rate to tell: a gap.
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
