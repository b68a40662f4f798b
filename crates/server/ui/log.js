// The status of the log in words. `log` is its status as the node reports it, `null` if the log is off.

import { count } from "./format.js";

/** A headline and a detail. */
export function words(log) {
  if (!log) return ["off", "the log is disabled at this node"];
  if (log.error) return ["unknown", log.error];
  if (log.fault) return ["stopped", log.fault];
  if (!log.available) {
    return ["no leader", log.voters.length > 0 ? `voters ${log.voters.join(", ")}` : "no replica is known"];
  }
  return [`leader ${log.leader}`, `epoch ${log.epoch} · ${progress(log)}`];
}

function progress(log) {
  if (log.role === "outside") return "no replica at this node";
  if (log.role === "removed") return "removed from the group";
  return `commit ${count(log.commit)} · applied ${count(log.applied)}`;
}

/** The role of a node in the log; empty if it has none. */
export function part(log, id) {
  if (!log || log.error) return "";
  if (log.available && log.leader === id) return "log leader";
  if (log.voters.includes(id)) return "log voter";
  return log.learners.includes(id) ? "log learner" : "";
}
