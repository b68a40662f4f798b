// One key: its record, its recent changes, live.

import { get } from "./api.js";
import { h, text } from "./dom.js";
import { count, decoded } from "./format.js";
import { live } from "./live.js";
import { poller } from "./poller.js";
import { Stream } from "./stream.js";

const SHOWN = 100;

function event({ event: kind, data }) {
  return h(
    "li",
    {},
    h("span", { class: "chip", data: { state: kind === "put" ? "up" : "down" } }, kind),
    h("span", {}, `revision ${count(data.revision)}`),
    h("span", { class: "mono muted" }, kind === "put" ? decoded(data.value) : ""),
  );
}

export function mount(root, { argument }) {
  const facts = h("dl", { class: "facts" });
  const value = h("pre", { class: "mono value" });
  const problem = h("p", { class: "problem", hidden: true, role: "status" });
  const note = h("p", { class: "hint", role: "status" }, "");
  const list = h("ul", { class: "locks changes" });
  let stream = null;

  /** Starts at the creation of the key, or at the oldest revision that history has. */
  function follow(from) {
    stream = new Stream(`/api/v1/kv-watch?key=${encodeURIComponent(argument)}&from=${from}`, {
      events(batch) {
        const changes = batch.filter(({ event }) => event === "put" || event === "delete");
        list.prepend(...changes.map(event).reverse());
        while (list.children.length > SHOWN) list.lastChild.remove();
        if (changes.length > 0) poll.again();
      },
      state(name, error) {
        if (name !== "rejected") return;
        if (error.code === "COMPACTED" && error.known > from) {
          text(note, `History starts at revision ${count(error.known)}.`);
          follow(error.known);
        } else text(note, error.message);
      },
    });
  }

  const poll = poller(async (signal) => {
    let record = null;
    try {
      record = await get(`/api/v1/kv/${encodeURIComponent(argument)}`, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    text(value, record ? decoded(record.value) : "The key does not exist.");
    const pairs = record
      ? [
          ["Modify revision", count(record.mod_revision)],
          ["Create revision", count(record.create_revision)],
          ["Version", count(record.version)],
          ["Lease", record.lease || "none"],
        ]
      : [];
    facts.replaceChildren(...pairs.map(([name, what]) => h("div", {}, h("dt", {}, name), h("dd", {}, what))));
    if (!stream) follow(record?.create_revision ?? 1);
  }, problem);

  root.append(
    problem,
    h("section", { class: "card log" }, h("h2", {}, "Record"), facts, value),
    h("section", { class: "card" }, h("h2", {}, "Recent changes"), note, list),
  );
  return {
    update() {
      poll.first(live.known);
    },
    unmount() {
      poll.stop();
      stream?.close();
    },
  };
}
