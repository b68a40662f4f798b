// The log plane in words, for all pages that speak of it. `log` is its state as the asked node sees it, `null` where it is off.

import { count } from "./format.js";

/** In two or three words, and what else is to be said. */
export function words(log) {
  if (!log) return ["off", "no log plane"];
  if (log.error) return ["unknown", log.error];
  if (log.fault) return ["stopped", log.fault];
  if (!log.available) return ["no leader", log.voters.length > 0 ? `voters ${log.voters.join(", ")}` : "no replica was heard of"];
  const reached = log.role === "outside" ? "no replica here" : log.role === "removed" ? "removed from the group" : `commit ${count(log.commit)} · applied ${count(log.applied)}`;
  return [`leader ${log.leader}`, `epoch ${log.epoch} · ${reached}`];
}

/** What a node does in it; empty if nothing. */
export function part(log, id) {
  if (!log || log.error) return "";
  if (log.available && log.leader === id) return "log leader";
  if (log.voters.includes(id)) return "log voter";
  return log.learners.includes(id) ? "log learner" : "";
}
