// All members, or those that match a filter, live.

import { eachFrame, h, text } from "./dom.js";
import { filterBox, searched } from "./filter.js";
import { chip, count, memberLink, standing } from "./format.js";
import { Rows } from "./rows.js";
import { Stream } from "./stream.js";
import { VirtualTable } from "./table.js";

/** Limits the memory of the tab in very large clusters. */
const ROWS_MAX = 50_000;
const EXAMPLES = ["status == down", "health == critical", "drained", 'meta.version != "v1"', 'locality matches "eu-*"'];

const put = (cell, value) => text(cell.firstChild, value);
const span = (classes) => () => h("span", { class: classes });
const COLUMNS = [
  {
    name: "status",
    title: "Status",
    sort: true,
    make: () => chip("up"),
    update: (cell, member) => {
      const state = standing(member);
      if (cell.firstChild.dataset.state !== state) cell.firstChild.dataset.state = state;
      text(cell.firstChild, state);
    },
  },
  {
    name: "id",
    title: "Id",
    sort: true,
    make: () => h("a", { class: "mono", tabindex: "-1" }),
    update: (cell, member) => {
      if (cell.firstChild.textContent !== member.id) {
        cell.firstChild.href = memberLink(member.id);
        cell.firstChild.textContent = member.id;
        cell.firstChild.title = member.id;
      }
    },
  },
  {
    name: "service",
    title: "Service",
    sort: "ascending",
    make: span(),
    update: (cell, member) => put(cell, member.service),
  },
  { name: "address", title: "Address", make: span("mono"), update: (cell, one) => put(cell, one.address || "–") },
  {
    name: "locality",
    title: "Locality",
    sort: true,
    make: span(),
    update: (cell, member) => put(cell, member.locality || "–"),
  },
  {
    name: "owner",
    title: "Owner",
    sort: true,
    make: span("mono"),
    update: (cell, member) => put(cell, member.owner.node),
  },
];

export function mount(root, { query }) {
  const rows = new Rows();
  let stream = null;
  let state = "";
  let caughtUp = false;
  let cut = false;
  /** The last valid filter: its rows stay while another filter is rejected. */
  let good = null;

  const box = filterBox({
    label: "Filter",
    placeholder: 'orders, or service == "orders" and status == down',
    value: query.get("filter") ?? "",
    page: "members",
    changed: follow,
  });
  const summary = h("p", { class: "hint", role: "status" });
  const table = new VirtualTable({
    label: "Members",
    columns: COLUMNS,
    key: (member) => member.id,
    open: (member) => (location.hash = memberLink(member.id)),
    sorted: (column, descending) => (rows.sortBy(column, descending), draw()),
  });

  const draw = eachFrame(() => {
    table.show(rows.ordered());
    const what = good ? "match" : rows.size === 1 ? "member" : "members";
    const words = { waiting: "reconnecting", live: caughtUp ? "live" : "loading", "": "loading" }[state] ?? "";
    const live = `${count(rows.size)} ${what}${words ? ` · ${words}` : ""}`;
    text(
      summary,
      cut ? `More than ${count(ROWS_MAX)} members match; some are shown, not live. Narrow the filter.` : live,
    );
    table.element.dataset.state = caughtUp ? "live" : "reading";
  });

  function take(batch) {
    for (const { event, data } of batch) {
      if (event === "reset") {
        rows.clear();
        caughtUp = false;
      } else if (event === "caught-up") caughtUp = true;
      else if (event === "unregister") rows.remove(data.id);
      else rows.put(data.member);
    }
    if (rows.size > ROWS_MAX) {
      cut = true;
      stream.close();
    }
    draw();
  }

  function follow(filter) {
    let begun = false;
    stream?.close();
    stream = new Stream(`/api/v1/watch?filter=${encodeURIComponent(searched(filter))}`, {
      events: take,
      state(name, error) {
        if (name === "rejected") {
          box.reject(filter, error);
          state = "rejected";
        } else {
          state = name;
          if (name === "live" && !begun) {
            begun = true;
            begin(filter);
          }
        }
        draw();
      },
    });
  }

  /** The node has accepted the filter. */
  function begin(filter) {
    rows.clear();
    good = filter;
    caughtUp = false;
    cut = false;
    box.accept();
    table.body.scrollTop = 0;
  }

  const examples = EXAMPLES.map((example) =>
    h("button", { type: "button", class: "example mono", onclick: () => box.set(example) }, example),
  );
  root.append(
    box.element,
    box.problem,
    h("div", { class: "examples", "aria-label": "Examples" }, examples),
    summary,
    table.element,
  );
  follow(box.filter);
  return {
    unmount() {
      box.unmount();
      stream.close();
      draw.cancel();
      table.unmount();
    },
  };
}
