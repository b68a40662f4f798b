// The nodes and the links between them, as the nodes report them.

import { s, text } from "./dom.js";
import { duration } from "./format.js";

const SIZE = { width: 720, height: 400 };

/** Whether a node reports a connection to another. `null`: its view is unknown. */
function reports(views, from, to) {
  const view = views.get(from);
  if (!view) return null;
  return view.find((node) => node.id === to)?.state === "up";
}

/** State of a link: `up`, `one-way` (the two disagree), `known` (only one of them responds), or `none`. */
export function link(views, a, b) {
  const [ab, ba] = [reports(views, a, b), reports(views, b, a)];
  if (ab === null && ba === null) return "none";
  if (ab === null || ba === null) return (ab ?? ba) ? "known" : "none";
  if (ab && ba) return "up";
  return ab || ba ? "one-way" : "none";
}

/** Nodes on an ellipse, those of a region side by side. */
function places(nodes) {
  const sorted = [...nodes].sort((a, b) => (a.region < b.region ? -1 : a.region > b.region ? 1 : a.id < b.id ? -1 : 1));
  const [cx, cy] = [SIZE.width / 2, SIZE.height / 2];
  if (sorted.length === 1) return new Map([[sorted[0].id, { x: cx, y: cy }]]);
  const flat = sorted.length === 2;
  return new Map(
    sorted.map((node, index) => {
      const angle = (flat ? Math.PI : -Math.PI / 2) + (index / sorted.length) * 2 * Math.PI;
      return [node.id, { x: cx + Math.cos(angle) * 230, y: cy + Math.sin(angle) * 130 }];
    }),
  );
}

/** Remarks on a node from the view of the node that serves this page. */
export function remarks(node) {
  if (node.self) return "this node";
  const parts = [];
  if (node.evidence_age_ms !== null && node.evidence_age_ms !== undefined) {
    const via = node.evidence_via ? ` via ${node.evidence_via}` : "";
    parts.push(`last evidence ${duration(node.evidence_age_ms)} ago${via}`);
  }
  if (node.behind > 0) parts.push(`${node.behind} writes behind`);
  if (node.state === "up" && !node.ready) parts.push("starting");
  if (node.drained) parts.push("drained");
  return parts.join(" · ");
}

export function graph() {
  const lines = s("g", { class: "graph-links" });
  const dots = s("g", { class: "graph-nodes" });
  const svg = s(
    "svg",
    { class: "graph", viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": "Nodes and their links" },
    lines,
    dots,
  );
  let drawn = "";
  const labels = new Map();

  function draw(nodes, views) {
    labels.clear();
    lines.replaceChildren();
    dots.replaceChildren();
    const at = places(nodes);
    const heights = [...at.values()].map((place) => place.y);
    const top = Math.min(...heights) - 66;
    svg.dataset.many = nodes.length > 10;
    svg.setAttribute("viewBox", `0 ${top} ${SIZE.width} ${Math.max(...heights) + 72 - top}`);
    nodes.forEach((a, index) => {
      for (const b of nodes.slice(index + 1)) {
        const state = link(views, a.id, b.id);
        const [p, q] = [at.get(a.id), at.get(b.id)];
        const words = {
          up: "linked",
          "one-way": "reported by one of them only",
          known: "linked (reported by one of them)",
          none: "not linked",
        };
        lines.append(
          s(
            "line",
            { x1: p.x, y1: p.y, x2: q.x, y2: q.y, data: { state } },
            s("title", {}, `${a.id} – ${b.id}: ${words[state]}`),
          ),
        );
      }
    });
    for (const node of nodes) {
      const { x, y } = at.get(node.id);
      const above = y < SIZE.height / 2 - 1;
      const lag = s("text", { class: "graph-lag", y: above ? -27 : 59 });
      labels.set(node.id, lag);
      dots.append(
        s(
          "g",
          { transform: `translate(${x} ${y})`, data: { state: node.state, self: node.self } },
          s("circle", { class: "graph-halo", r: 25 }),
          s("circle", { class: "graph-dot", r: 17 }),
          s(
            "text",
            { class: "graph-mark", y: 5 },
            { up: "✓", lost: "?", failed: "✕", left: "–", connecting: "…", distant: "≈" }[node.state] ?? "",
          ),
          s(
            "text",
            { class: "graph-id", y: above ? -43 : 43 },
            `${node.id}${node.region ? ` · ${node.region}` : ""} · ${node.state}`,
          ),
          lag,
        ),
      );
    }
  }

  return {
    element: svg,
    update(nodes, views) {
      const shape = JSON.stringify([
        nodes.map((node) => [node.id, node.state, node.region, node.self]),
        nodes.map((a) => nodes.map((b) => link(views, a.id, b.id))),
      ]);
      if (shape !== drawn) draw(nodes, views);
      drawn = shape;
      for (const node of nodes) text(labels.get(node.id), remarks(node));
    },
  };
}
