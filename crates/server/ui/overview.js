// The cluster at a glance: nodes and links, counts, the log, problems, the last events.

import { chart, line } from "./chart.js";
import { h, keyed, text } from "./dom.js";
import { count, membersLink, nodeCounts, quoted, rate, chip } from "./format.js";
import { entry, timeline } from "./events.js";
import { graph, remarks } from "./graph.js";
import { live } from "./live.js";
import { part, words } from "./log.js";
import { SERIES } from "./metrics.js";
import { make, refresh } from "./services.js";

const SHOWN = ["writes", "applied", "sent_events"];
const LAST_EVENTS = 8;
const SERVICES_MAX = 8;

function tile(title, href) {
  const value = h("div", { class: "tile-value" }, "–");
  const note = h("div", { class: "tile-note" });
  const element = h(
    href ? "a" : "div",
    { class: "tile card", href },
    h("div", { class: "tile-title" }, title),
    value,
    note,
  );
  return { element, set: (shown, detail) => (text(value, shown), text(note, detail)) };
}

export function mount(root) {
  const tiles = {
    members: tile("Members", "#/members"),
    services: tile("Services", "#/services"),
    nodes: tile("Nodes"),
    clients: tile("Clients"),
    watchers: tile("Watchers", "#/watchers"),
    log: tile("Log", "#/keys"),
  };
  const picture = graph();
  const list = h("ul", { class: "nodes" });
  const charts = SHOWN.map((name) => {
    const series = SERIES.find((one) => one.name === name);
    const value = h("b", { class: "tile-value" }, "–");
    const svg = chart(series.help);
    return {
      name,
      svg,
      value,
      element: h("div", { class: "rate" }, h("div", { class: "tile-title" }, series.title), value, svg),
    };
  });
  const recent = h("ol", { class: "timeline" });
  const events = timeline("", (last) =>
    keyed(
      recent,
      last.slice(0, LAST_EVENTS),
      (item) => item.key,
      (item) => entry(item),
    ),
  );

  const impairedServices = h("ul", { class: "impaired-services" });
  const servicesHint = h("p", { class: "hint" });

  root.append(
    h(
      "section",
      { class: "tiles", "aria-label": "Counts" },
      Object.values(tiles).map((one) => one.element),
    ),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "stack" },
        h(
          "section",
          { class: "card", "aria-labelledby": "o-nodes" },
          h("h2", { id: "o-nodes" }, "Nodes and links"),
          picture.element,
          h(
            "p",
            { class: "hint" },
            "Solid: both ends report the link. Dashed: only one end reports it, or only one end responds.",
          ),
          list,
        ),
        h(
          "section",
          { class: "card", "aria-labelledby": "o-events" },
          h("h2", { id: "o-events" }, h("a", { href: "#/events" }, "Last events")),
          recent,
        ),
      ),
      h(
        "div",
        { class: "stack" },
        h(
          "section",
          { class: "card", "aria-labelledby": "o-rates" },
          h("h2", { id: "o-rates" }, h("a", { href: "#/rates" }, "Rates")),
          charts.map((one) => one.element),
        ),
        h(
          "section",
          { class: "card", "aria-labelledby": "o-services" },
          h("h2", { id: "o-services" }, h("a", { href: "#/services" }, "Services with problems")),
          servicesHint,
          impairedServices,
        ),
      ),
    ),
  );

  return {
    update() {
      const { status, nodes, services, log, history, views } = live;
      if (!live.known) return;
      const sum = (name) => services.reduce((total, service) => total + service[name], 0);
      const [up, down, drained, critical] = [sum("up"), sum("down"), sum("drained"), sum("critical")];
      const parts = [`${count(up - critical)} up`, critical > 0 && `${count(critical)} critical`];
      parts.push(`${count(down)} down`, `${count(drained)} drained`);
      tiles.members.set(count(up + down + drained), parts.filter(Boolean).join(" · "));
      const bad = (service) => service.down + service.critical;
      const impaired = services.filter((service) => bad(service) > 0).sort((a, b) => bad(b) - bad(a));
      tiles.services.set(
        count(services.length),
        impaired.length > 0 ? `${count(impaired.length)} with problems` : "no problems",
      );
      keyed(impairedServices, impaired.slice(0, SERVICES_MAX), (service) => service.service, make, refresh);
      servicesHint.hidden = impaired.length > 0 && impaired.length <= SERVICES_MAX;
      text(
        servicesHint,
        impaired.length > 0
          ? `The ${SERVICES_MAX} services with the most members down or critical, of ${count(impaired.length)}.`
          : "None.",
      );
      tiles.nodes.set(...nodeCounts(nodes));
      tiles.clients.set(status ? count(status.counts.sessions) : "–", "at this node");
      tiles.watchers.set(status ? count(status.counts.watchers) : "–", "at this node");
      tiles.log.set(...words(log));
      picture.update(nodes, views);
      keyed(list, nodes, (node) => node.id, nodeItem, updateNode);
      for (const { name, svg, value } of charts) {
        const latest = history.latest(name);
        text(value, latest === null ? "–" : `${rate(latest)}/s`);
        line(
          svg,
          history.points.map((point) => point.rates?.get(name) ?? null),
          44,
        );
      }
    },
    unmount: () => events.close(),
  };
}

function nodeItem(node) {
  return h(
    "li",
    {},
    h("a", { class: "mono", href: membersLink(`owner == ${quoted(node.id)}`), title: "Members that it owns" }, node.id),
    h("span", { class: "node-state" }),
    h("span", { class: "node-region muted" }),
    h("span", { class: "node-address mono muted" }),
    h("span", { class: "node-remarks muted" }),
  );
}

function updateNode(item, node) {
  const [, state, region, address, note] = item.children;
  if (state.dataset.state !== node.state) {
    state.dataset.state = node.state;
    state.replaceChildren(chip(node.state));
  }
  text(region, node.region ? `region ${node.region}` : "no region");
  text(address, node.address || "no client address");
  text(note, [remarks(node), part(live.log, node.id)].filter(Boolean).join(" · "));
}
