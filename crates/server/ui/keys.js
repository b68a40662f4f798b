// The log plane and its keys, where there is one.

import { get, serves } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { bytes, chip, count } from "./format.js";
import { live } from "./live.js";
import { words } from "./log.js";

const LIMIT = 500;
const AGAIN = 3000;
const WRITING = 300;

/** A value as text if it is text, else its size. */
function shown(value) {
  const raw = Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0));
  try {
    const words = new TextDecoder("utf-8", { fatal: true }).decode(raw.slice(0, 400));
    return raw.length > 400 ? `${words}…` : words || "(empty)";
  } catch {
    return `${count(raw.length)} bytes`;
  }
}

/** A key that is no text is shown by its bytes. */
const name = (pair) => pair.key ?? `base64 ${pair.key_base64}`;

function row() {
  return h("li", {}, h("span", { class: "k-key mono" }), h("span", { class: "k-value mono muted" }), h("span", { class: "k-revision" }), h("span", { class: "k-lease muted" }));
}

function refresh(item, pair) {
  const [key, value, revision, lease] = item.children;
  text(key, name(pair));
  text(value, shown(pair.value ?? ""));
  text(revision, `revision ${pair.mod_revision}${pair.create_revision === pair.mod_revision ? "" : `, created at ${pair.create_revision}`}`);
  text(lease, pair.lease ? `lease ${pair.lease}` : "");
}

/** How far the log is, as the asked node sees it. A node without a replica knows only who leads. */
function reached(log) {
  const { leader, epoch, commit, applied, role, revision, keys, bytes: size, sessions } = log;
  const pairs = [["Leader", leader], ["Epoch", epoch], ["This node", role]];
  if (role === "outside" || role === "removed") return pairs;
  return [...pairs, ["Commit", count(commit)], ["Applied", count(applied)], ["Revision", count(revision)], ["Keys", `${count(keys)}, ${bytes(size)}`], ["Sessions", count(sessions)]];
}

function replica(one) {
  return h("li", {}, h("span", { class: "mono" }, one.node), h("span"), h("span", { class: "mono muted" }));
}

function updateReplica(item, one) {
  const [, role, address] = item.children;
  const does = one.leader ? "leader" : one.voter ? "voter" : "learner";
  if (role.dataset.role !== does) {
    role.dataset.role = does;
    role.replaceChildren(chip(does === "leader" ? "up" : "idle", does));
  }
  text(address, one.address || one.peer_address);
}

export function mount(root) {
  const stop = new AbortController();
  let timer = 0;
  const facts = h("dl", { class: "facts" });
  const replicas = h("ul", { class: "replicas" });
  const log = h("section", { class: "card log", hidden: true }, h("h2", {}, "Log"), facts, replicas);
  const off = h("section", { class: "card notice", hidden: true },
    h("h2", {}, "The log plane is off"),
    h("p", {}, "This node serves the registry only: no keys, leases, locks or elections. Members, services and events do not need them."));
  const box = h("input", { type: "search", "data-filter": true, class: "mono", "aria-label": "Keys that begin with", placeholder: "Keys that begin with…  ( / )", spellcheck: "false", autocomplete: "off" });
  const summary = h("p", { class: "hint", role: "status" });
  const list = h("ul", { class: "keys" });
  const keys = h("div", { hidden: true }, h("div", { class: "toolbar" }, box), summary, h("div", { class: "card" }, list));

  async function ask() {
    clearTimeout(timer);
    const there = await serves("/api/v1/kv/{key}");
    if (stop.signal.aborted) return;
    off.hidden = there;
    keys.hidden = !there;
    if (there && !document.hidden) {
      try {
        const where = box.value === "" ? "/api/v1/kv" : `/api/v1/kv/${encodeURIComponent(box.value)}`;
        const answer = await get(`${where}?prefix&limit=${LIMIT}`, stop.signal);
        keyed(list, answer.keys, name, row, refresh);
        const all = answer.next_cursor === null ? "" : ", the first ones";
        text(summary, answer.keys.length === 0 ? `No keys${box.value === "" ? " yet: convoke kv put KEY VALUE" : " begin with that"}.` : `${count(answer.keys.length)} keys${all}, at revision ${count(answer.revision)}`);
      } catch (error) {
        if (stop.signal.aborted) return;
        text(summary, error.message);
      }
    }
    timer = setTimeout(ask, AGAIN);
  }

  let writing = 0;
  box.addEventListener("input", () => {
    clearTimeout(writing);
    writing = setTimeout(ask, WRITING);
  });
  root.append(off, log, keys);
  ask();
  return {
    update() {
      log.hidden = !live.log;
      if (!live.log) return;
      const [state, why] = words(live.log);
      const pairs = live.log.error || live.log.fault || !live.log.available ? [["State", `${state}: ${why}`]] : reached(live.log);
      keyed(facts, pairs, ([name]) => name, ([name]) => h("div", {}, h("dt", {}, name), h("dd")), (item, [, value]) => text(item.lastChild, value));
      keyed(replicas, live.log.members ?? [], (one) => `${one.node} ${one.replica}`, replica, updateReplica);
    },
    unmount() {
      stop.abort();
      clearTimeout(timer);
      clearTimeout(writing);
    },
  };
}
