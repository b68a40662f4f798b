// The log and its keys.

import { get } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { bytes, chip, count, decoded, keyLink } from "./format.js";
import { live, logIsOff } from "./live.js";
import { words } from "./log.js";

const LIMIT = 500;
const AGAIN = 3000;
const TYPING_PAUSE = 300;

/** A key that is not UTF-8 is shown in base64. */
const name = (pair) => (pair.key_base64 ? `base64 ${pair.key_base64}` : pair.key);

function row(pair) {
  // The page of a key reads it by its text.
  const tag = pair.key_base64 ? "span" : "a";
  return h(
    "li",
    {},
    h(tag, { class: "k-key mono", href: pair.key_base64 ? null : keyLink(pair.key) }),
    h("span", { class: "k-value mono muted" }),
    h("span", { class: "k-revision" }),
  );
}

function refresh(item, pair) {
  const [key, value, revision] = item.children;
  const { create_revision, mod_revision } = pair;
  const created = create_revision === mod_revision ? "" : `, created at ${create_revision}`;
  text(key, name(pair));
  text(value, decoded(pair.value ?? ""));
  text(revision, `revision ${pair.mod_revision}${created}`);
}

function summarised(answer, prefix) {
  if (answer.keys.length === 0) {
    return prefix === "" ? "No keys yet. Add one with: convoke kv put KEY VALUE" : "No keys with this prefix.";
  }
  const part = answer.next_cursor === null ? "" : " (first page)";
  return `${count(answer.keys.length)} keys${part}, at revision ${count(answer.revision)}`;
}

/** Progress of the log at this node. A node without a replica reports only the leader. */
function progress(log) {
  const { leader, epoch, commit, applied, role, revision, keys, bytes: size, sessions } = log;
  const pairs = [
    ["Leader", leader],
    ["Epoch", epoch],
    ["This node", role],
  ];
  if (role === "outside" || role === "removed") return pairs;
  return [
    ...pairs,
    ["Commit", count(commit)],
    ["Applied", count(applied)],
    ["Revision", count(revision)],
    ["Keys", `${count(keys)}, ${bytes(size)}`],
    ["Log sessions", count(sessions)],
  ];
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
  const off = h(
    "section",
    { class: "card notice", hidden: true },
    h("h2", {}, "The log is off"),
    h(
      "p",
      {},
      "This node runs without the log (log.enabled = false) and serves no keys. The registry is not affected.",
    ),
  );
  const box = h("input", {
    type: "search",
    "data-filter": true,
    class: "mono",
    "aria-label": "Key prefix",
    placeholder: "Key prefix…  ( / )",
    spellcheck: "false",
    autocomplete: "off",
  });
  const summary = h("p", { class: "hint", role: "status" });
  const list = h("ul", { class: "keys" });
  const keys = h(
    "div",
    { hidden: true },
    h("div", { class: "toolbar" }, box),
    summary,
    h("div", { class: "card" }, list),
  );

  async function poll() {
    clearTimeout(timer);
    if (live.known && !logIsOff(live.status) && !document.hidden) {
      try {
        const where = box.value === "" ? "/api/v1/kv" : `/api/v1/kv/${encodeURIComponent(box.value)}`;
        const answer = await get(`${where}?prefix&limit=${LIMIT}`, stop.signal);
        keyed(list, answer.keys, name, row, refresh);
        text(summary, summarised(answer, box.value));
      } catch (error) {
        if (stop.signal.aborted) return;
        text(summary, error.message);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(poll, AGAIN);
  }

  let typing = 0;
  box.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(poll, TYPING_PAUSE);
  });
  root.append(off, log, keys);
  poll();
  return {
    update() {
      if (live.known && keys.hidden === off.hidden) poll();
      off.hidden = !live.known || !logIsOff(live.status);
      keys.hidden = !live.known || logIsOff(live.status);
      log.hidden = !live.log;
      if (!live.log) return;
      const [state, why] = words(live.log);
      const pairs =
        live.log.error || live.log.fault || !live.log.available ? [["State", `${state}: ${why}`]] : progress(live.log);
      keyed(
        facts,
        pairs,
        ([name]) => name,
        ([name]) => h("div", {}, h("dt", {}, name), h("dd")),
        (item, [, value]) => text(item.lastChild, value),
      );
      keyed(replicas, live.log.replicas ?? [], (one) => `${one.node} ${one.replica}`, replica, updateReplica);
    },
    unmount() {
      stop.abort();
      clearTimeout(timer);
      clearTimeout(typing);
    },
  };
}
