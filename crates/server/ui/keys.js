// The log plane and its keys, where there is one.

import { get, serves } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { count } from "./format.js";
import { live } from "./live.js";

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

function row() {
  return h("li", {}, h("span", { class: "k-key mono" }), h("span", { class: "k-value mono muted" }), h("span", { class: "k-revision" }), h("span", { class: "k-lease muted" }));
}

function refresh(item, pair) {
  const [key, value, revision, lease] = item.children;
  text(key, pair.key);
  text(value, shown(pair.value ?? ""));
  text(revision, `revision ${pair.mod_revision}${pair.create_revision === pair.mod_revision ? "" : `, created at ${pair.create_revision}`}`);
  text(lease, pair.lease ? `lease ${pair.lease}` : "");
}

export function mount(root) {
  const stop = new AbortController();
  let timer = 0;
  const facts = h("dl", { class: "facts" });
  const log = h("section", { class: "card", hidden: true }, h("h2", {}, "Log"), facts);
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
        keyed(list, answer.keys, (pair) => pair.key, row, refresh);
        text(summary, `${count(answer.keys.length)} keys${answer.keys.length === LIMIT ? ", the first ones" : ""} at revision ${answer.revision}`);
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
      const { leader, epoch, commit, applied, role, voters, learners, error } = live.log;
      const pairs = error
        ? [["State", error]]
        : [["Leader", leader || "none"], ["Epoch", epoch], ["Commit", count(commit)], ["Applied", count(applied)], ["This node", role], ["Voters", voters.join(", ")], ["Learners", learners.join(", ") || "none"]];
      facts.replaceChildren(...pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
    },
    unmount() {
      stop.abort();
      clearTimeout(timer);
      clearTimeout(writing);
    },
  };
}
