// Locks, elections and leases of the log.

import { get } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { asLock, chip, count, duration, lockLink, memberLink, time, valueOf } from "./format.js";
import { live, logIsOff } from "./live.js";
import { poller } from "./poller.js";

const LIMIT = 200;

/** The member or the lease of a holder. */
export function owner({ member, lease }) {
  return member ? h("a", { href: memberLink(member) }, member) : h("span", { class: "muted" }, `lease ${lease}`);
}

function holder(one) {
  return h(
    "span",
    { class: "l-holder" },
    owner(one),
    h("span", { class: "muted" }, ` fence ${one.fence}, since `, time(one.since)),
  );
}

/** A lock is held, free but delayed after the death of its holder, or has free permits. */
function state(lock) {
  if (lock.delayed_until) return ["drained", "delayed"];
  return lock.holders.length > 0 ? ["up", "held"] : ["idle", "free"];
}

const row = (kind) => (lock) =>
  h(
    "li",
    {},
    h("a", { class: "k-key mono", href: lockLink(kind, lock.lock) }, lock.lock),
    h("span"),
    h("span"),
    h("span"),
    h("span", { class: "k-value mono muted" }),
  );

function refresh(item, lock) {
  const [, mark, holders, waiting, value] = item.children;
  const shape = JSON.stringify([lock.holders, lock.delayed_until]);
  if (item.dataset.shape !== shape) {
    item.dataset.shape = shape;
    mark.replaceChildren(chip(...state(lock)));
    const rest = lock.holders.length > 3 ? [h("span", { class: "muted" }, `and ${lock.holders.length - 3} more`)] : [];
    holders.replaceChildren(...lock.holders.slice(0, 3).map(holder), ...rest);
    text(value, lock.holders.length === 1 ? valueOf(lock.holders[0]) : "");
  }
  const permits = lock.permits > 1 ? `${lock.holders.length} of ${lock.permits} permits, ` : "";
  text(waiting, `${permits}${count(lock.waiting)} waiting`);
}

function leaseRow({ lease }) {
  return h("li", {}, h("span", { class: "mono" }, lease), h("span"), h("span"), h("span"), h("span"));
}

function refreshLease(item, lease) {
  const [, term, left, keys, granted] = item.children;
  if (term.dataset.term !== "set") {
    term.dataset.term = "set";
    if (lease.member) term.replaceChildren("bound to ", h("a", { href: memberLink(lease.member) }, lease.member));
    else text(term, `ttl ${duration(lease.ttl_ms)}`);
    granted.replaceChildren("granted ", time(lease.since));
  }
  text(left, lease.left_ms === undefined || lease.left_ms === null ? "" : `${duration(lease.left_ms)} left`);
  text(keys, `${count(lease.keys)} keys`);
}

function section(title, unit, none) {
  const list = h("ul", { class: "locks" });
  const summary = h("p", { class: "hint", role: "status" }, none);
  return { list, summary, unit, none, root: h("section", { class: "card" }, h("h2", {}, title), summary, list) };
}

function show({ list, summary, unit, none }, rows, more, key, make, update) {
  keyed(list, rows, key, make, update);
  text(summary, rows.length === 0 ? none : `${count(rows.length)} ${unit}${more ? ", first page" : ""}`);
}

export function mount(root) {
  const locks = section("Locks", "in use", "No lock is in use. Hold one with: convoke lock NAME -- COMMAND");
  const noElection = "No election is in use. Take part with: convoke elect NAME --value VALUE";
  const elections = section("Elections", "in use", noElection);
  const leases = section("Leases", "granted", "No lease exists. Grant one with: convoke lease grant 30s");
  const problem = h("p", { class: "problem", hidden: true, role: "status" });
  const off = h(
    "section",
    { class: "card notice", hidden: true },
    h("h2", {}, "The log is off"),
    h("p", {}, "This node runs without the log (log.enabled = false) and serves no locks."),
  );
  const poll = poller(async (signal) => {
    if (!live.known || logIsOff(live.status)) return;
    const read = (what) => get(`/api/v1/${what}?limit=${LIMIT}`, signal);
    const [first, second, third] = await Promise.all(["locks", "elections", "leases"].map(read));
    show(locks, first.locks, first.next_cursor, (lock) => lock.lock, row("locks"), refresh);
    const held = second.elections.map(asLock);
    show(elections, held, second.next_cursor, (lock) => lock.lock, row("elections"), refresh);
    show(leases, third.leases, third.next_cursor, (one) => one.lease, leaseRow, refreshLease);
  }, problem);
  root.append(off, problem, locks.root, elections.root, leases.root);
  return {
    update() {
      off.hidden = !live.known || !logIsOff(live.status);
      for (const part of [locks, elections, leases]) part.root.hidden = !off.hidden;
      poll.first(live.known);
    },
    unmount: poll.stop,
  };
}
