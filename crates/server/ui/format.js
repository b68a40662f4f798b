// Numbers, times and states in words.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en");
export const count = (value) => whole.format(value);

export function rate(value) {
  if (value < 0.05) return "0";
  if (value >= 1000) return whole.format(Math.round(value));
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB")
      return `${value >= 100 || unit === "B" ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
}

export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return two(seconds / 60, "min", seconds % 60, "s");
  if (seconds < 86400) return two(seconds / 3600, "h", (seconds % 3600) / 60, "min");
  return two(seconds / 86400, "d", (seconds % 86400) / 3600, "h");
}

function two(large, largeUnit, small, smallUnit) {
  const rest = Math.floor(small);
  return `${Math.floor(large)} ${largeUnit}${rest > 0 ? ` ${rest} ${smallUnit}` : ""}`;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** Local wall time, to the second; with the date if it is not today's. */
export function clock(ms) {
  const date = new Date(ms);
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}`;
}

export const exactly = (ms) => new Date(ms).toISOString();

export function time(ms) {
  return h("time", { datetime: exactly(ms), title: exactly(ms) }, clock(ms));
}

/** The nodes that are alive of all, and which the others are. Distant nodes are reached through their region. */
export function nodeCounts(nodes) {
  const linked = nodes.filter((node) => node.state === "up").length;
  const distant = nodes.filter((node) => node.state === "distant").length;
  const others = nodes.filter((node) => node.state !== "up" && node.state !== "distant");
  const parts = others.map((node) => `${node.id} ${node.state}`);
  if (distant > 0) parts.unshift(`${linked} linked`, `${distant} distant`);
  return [`${linked + distant} of ${nodes.length}`, parts.length > 0 ? parts.join(" · ") : "all up"];
}

/** Status of a member in one word. */
export function standing(member) {
  if (member.status !== "up") return member.status;
  if (member.drained) return "drained";
  return member.health === "critical" || member.health === "warning" ? member.health : "up";
}

/** A state as a mark with its word: never by colour alone. */
export function chip(state, words = state) {
  return h("span", { class: "chip", data: { state } }, words);
}

/** Text as a string of the filter language. */
export function quoted(value) {
  const escaped = value
    .replace(/[\\"]/g, "\\$&")
    .replace(/[\u0000-\u001f\u007f]/g, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
  return `"${escaped}"`;
}

/** A value in base64 as text if it is text, else its size. */
export function decoded(value) {
  const raw = Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0));
  try {
    const words = new TextDecoder("utf-8", { fatal: true }).decode(raw.slice(0, 400));
    return raw.length > 400 ? `${words}…` : words || "(empty)";
  } catch {
    return `${count(raw.length)} bytes`;
  }
}

/** The value of a holder or waiter of a lock. */
export const valueOf = (place) => (place.value_base64 ? decoded(place.value_base64) : place.value);
/** An election in the form of a lock: its leader is the only holder. */
export const asLock = ({ election, leader, candidates, queue }) => ({
  lock: election,
  permits: 1,
  holders: leader ? [leader] : [],
  waiting: candidates,
  queue,
});

export const keyLink = (key) => `#/key/${encodeURIComponent(key)}`;
export const lockLink = (kind, name) => `#/lock/${kind}/${encodeURIComponent(name)}`;
export const memberLink = (id) => `#/member/${encodeURIComponent(id)}`;
export const membersLink = (filter) => `#/members?filter=${encodeURIComponent(filter)}`;
