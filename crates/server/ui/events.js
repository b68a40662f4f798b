// Events of nodes, links and members, newest first.

import { eachFrame, h, keyed, text } from "./dom.js";
import { filterBox } from "./filter.js";
import { count, memberLink, time } from "./format.js";
import { Stream } from "./stream.js";

const KEPT = 2_000;
const SHOWN = 300;
export const KINDS = ["node", "register", "update", "status", "owner", "unregister"];

/** Follows the events of a node; `changed(list, state, error)` gets the newest first. */
export function timeline(filter, changed) {
  let list = [];
  let state = "";
  let error = null;
  let numbered = 0;
  const draw = eachFrame(() => changed(list, state, error));
  const stream = new Stream(`/api/v1/events?filter=${encodeURIComponent(filter)}`, {
    events(batch) {
      const news = [];
      for (const { event, data } of batch) {
        if (event === "reset") {
          news.length = 0;
          list = [];
          news.push({
            key: numbered++,
            kind: "gap",
            at: Date.now(),
            text: "The node has restarted; earlier events are lost.",
          });
        } else if (event === "missed") {
          // At the start of a stream it only means that older events are not kept.
          if (list.length > 0 || news.length > 0)
            news.push({
              key: numbered++,
              kind: "gap",
              at: Date.now(),
              text: `${count(data.count)} events were skipped because too many occurred at once.`,
            });
        } else if (event !== "caught-up") {
          news.push({ key: numbered++, kind: event, ...data });
        }
      }
      list = [...news.reverse(), ...list].slice(0, KEPT);
      draw();
    },
    state(name, why) {
      state = name;
      error = why ?? null;
      draw();
    },
  });
  return { close: () => (stream.close(), draw.cancel()) };
}

/** What keeps a member that is up from being fully usable. */
const impairments = ({ drained, health }) =>
  [drained && "drained", health !== "passing" && health].filter(Boolean).map((word) => `, ${word}`).join("");

const TEXTS = {
  register: (event) => ` registered at ${event.owner}${event.status === "up" ? "" : `, ${event.status}`}`,
  update: (event) => ` updated${impairments(event)}`,
  status: (event) => ` is ${event.status}`,
  owner: (event) => ` moved to ${event.owner}${event.status === "up" ? "" : `, ${event.status}`}`,
  unregister: () => " unregistered",
};

/** One event as a list item; on the page of its member (`own`) without the member's id. */
export function entry(event, own = false) {
  const critical = event.kind === "update" && event.health === "critical";
  const tone = event.kind === "gap" || event.warning || event.status === "down" || critical ? "warning" : "";
  const content =
    event.kind in TEXTS
      ? [
          !own && [
            h("a", { class: "mono", href: memberLink(event.id) }, event.id),
            h("span", { class: "muted" }, ` ${event.service}`),
          ],
          TEXTS[event.kind](event),
        ]
      : [event.text];
  return h(
    "li",
    { data: { kind: event.kind, tone } },
    time(event.at),
    h("span", { class: "kind" }, event.kind),
    h("span", { class: "message" }, content),
  );
}

export function mount(root, { query }) {
  let feed = null;
  let list = [];
  /** The list that is shown while paused. */
  let frozen = null;
  let state = "";
  const shown = new Set(KINDS);

  const box = filterBox({
    label: "Filter",
    placeholder: 'service == "orders"',
    value: query.get("filter") ?? "",
    page: "events",
    changed: follow,
  });
  const pause = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: () => {
        frozen = frozen ? null : list;
        pause.setAttribute("aria-pressed", String(frozen !== null));
        text(pause, frozen ? "Resume" : "Pause");
        draw();
      },
    },
    "Pause",
  );
  const kinds = KINDS.map((kind) => {
    const input = h("input", {
      type: "checkbox",
      checked: true,
      onchange: () => {
        if (input.checked) shown.add(kind);
        else shown.delete(kind);
        draw();
      },
    });
    return h("label", { class: "kind-choice" }, input, kind === "node" ? "nodes" : kind);
  });
  const summary = h("p", { class: "hint", role: "status" });
  const items = h("ol", { class: "timeline" });

  const draw = eachFrame(() => {
    const wanted = (frozen ?? list).filter((event) => event.kind === "gap" || shown.has(event.kind));
    keyed(
      items,
      wanted.slice(0, SHOWN),
      (event) => event.key,
      (event) => entry(event),
    );
    const last = frozen && frozen.length > 0 ? frozen[0].key : -1;
    const waiting = frozen ? list.filter((event) => event.key > last).length : 0;
    const words = state === "waiting" ? " · reconnecting" : frozen ? ` · paused, ${count(waiting)} new` : " · live";
    const part = wanted.length > SHOWN ? `, the last ${SHOWN} shown` : "";
    text(summary, `${count(wanted.length)} events${part}${words}`);
  });

  function follow(filter) {
    feed?.close();
    feed = timeline(filter, (news, name, error) => {
      state = name;
      if (name === "rejected") {
        box.reject(filter, error);
      } else {
        box.accept();
        list = news;
      }
      draw();
    });
  }

  root.append(
    h("div", { class: "toolbar" }, box.element, pause),
    box.problem,
    h("fieldset", { class: "kinds" }, h("legend", { class: "hidden" }, "Kinds of events"), kinds),
    summary,
    h("div", { class: "card" }, items),
  );
  follow(box.filter);
  return {
    unmount() {
      box.unmount();
      feed.close();
      draw.cancel();
    },
  };
}
