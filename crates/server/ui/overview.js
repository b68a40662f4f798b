// The whole at a glance: nodes and links, counts, the log, what is wrong, what happened last.

import { chart, line } from "./chart.js";
import { h, keyed, text } from "./dom.js";
import { count, membersLink, quoted, rate, chip } from "./format.js";
import { entry, timeline } from "./events.js";
import { graph, remarks } from "./graph.js";
import { live } from "./live.js";
import { SERIES } from "./metrics.js";

const SHOWN = ["writes", "applied", "told"];
const LAST_EVENTS = 8;

function tile(title, href) {
  const value = h("div", { class: "tile-value" }, "–");
  const note = h("div", { class: "tile-note" });
  const element = h(href ? "a" : "div", { class: "tile card", href }, h("div", { class: "tile-title" }, title), value, note);
  return { element, set: (shown, said) => (text(value, shown), text(note, said)) };
}

function logWords(log) {
  if (!log) return ["off", "this node runs no log plane"];
  if (log.error) return ["unknown", log.error];
  const leader = log.leader ? `leader ${log.leader}` : "no leader";
  return [leader, `epoch ${log.epoch} · commit ${count(log.commit)} · applied ${count(log.applied)}`];
}

export function mount(root) {
  const tiles = {
    members: tile("Members", "#/members"),
    services: tile("Services", "#/services"),
    nodes: tile("Nodes"),
    clients: tile("Clients here"),
    subscribers: tile("Subscribers here", "#/subscribers"),
    log: tile("Log", "#/keys"),
  };
  const picture = graph();
  const list = h("ul", { class: "nodes" });
  const charts = SHOWN.map((name) => {
    const series = SERIES.find((one) => one.name === name);
    const value = h("b", { class: "tile-value" }, "–");
    const svg = chart(series.help);
    return { name, svg, value, element: h("div", { class: "rate" }, h("div", { class: "tile-title" }, series.title), value, svg) };
  });
  const recent = h("ol", { class: "timeline" });
  const events = timeline("", (last) => keyed(recent, last.slice(0, LAST_EVENTS), (item) => item.key, (item) => entry(item)));

  root.append(
    h("section", { class: "tiles", "aria-label": "Counts" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "columns" },
      h("section", { class: "card wide", "aria-labelledby": "o-nodes" },
        h("h2", { id: "o-nodes" }, "Nodes and links"),
        h("p", { class: "hint" }, "Lines are links as both ends see them. Dashed: only one end says so, or only one could be asked."),
        picture.element,
        list),
      h("div", { class: "stack" },
        h("section", { class: "card", "aria-labelledby": "o-rates" },
          h("h2", { id: "o-rates" }, h("a", { href: "#/rates" }, "Rates")),
          charts.map((one) => one.element)),
        h("section", { class: "card", "aria-labelledby": "o-events" },
          h("h2", { id: "o-events" }, h("a", { href: "#/events" }, "Last events")),
          recent))),
  );

  return {
    update() {
      const { status, nodes, services, log, history, views } = live;
      if (!status) return;
      const sum = (name) => services.reduce((total, service) => total + service[name], 0);
      const [up, down, drained] = [sum("up"), sum("down"), sum("drained")];
      tiles.members.set(count(up + down + drained), `${count(up)} up · ${count(down)} down · ${count(drained)} drained`);
      const ill = services.filter((service) => service.down > 0).length;
      tiles.services.set(count(services.length), ill > 0 ? `${count(ill)} with members down` : "none with members down");
      const reachable = nodes.filter((node) => node.state === "up").length;
      tiles.nodes.set(`${reachable} of ${nodes.length}`, reachable === nodes.length ? "all up" : nodes.filter((node) => node.state !== "up").map((node) => `${node.id} ${node.state}`).join(", "));
      tiles.clients.set(count(status.counts.sessions), "sessions at this node");
      tiles.subscribers.set(count(status.counts.subscribers), "streams at this node");
      tiles.log.set(...logWords(log));
      picture.update(nodes, views);
      keyed(list, nodes, (node) => node.id, nodeItem, updateNode);
      for (const { name, svg, value } of charts) {
        const latest = history.latest(name);
        text(value, latest === null ? "–" : `${rate(latest)}/s`);
        line(svg, history.points.map((point) => point.rates?.get(name) ?? null), 44);
      }
    },
    unmount: () => events.close(),
  };
}

function nodeItem(node) {
  return h("li", {},
    h("a", { class: "mono", href: membersLink(`owner == ${quoted(node.id)}`), title: "The members it owns" }, node.id),
    h("span", { class: "node-state" }),
    h("span", { class: "node-region muted" }),
    h("span", { class: "node-address mono muted" }),
    h("span", { class: "node-remarks muted" }));
}

function updateNode(item, node) {
  const [, state, region, address, said] = item.children;
  if (state.dataset.state !== node.state) {
    state.dataset.state = node.state;
    state.replaceChildren(chip(node.state));
  }
  text(region, node.region ? `region ${node.region}` : "no region");
  text(address, node.address || "no client port");
  text(said, remarks(node));
}
