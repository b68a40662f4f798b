// Rates of this node since the page was opened.

import { chart, line } from "./chart.js";
import { h, text } from "./dom.js";
import { bytes, clock, count, rate } from "./format.js";
import { live } from "./live.js";
import { SERIES } from "./metrics.js";

export function mount(root) {
  const cards = SERIES.map((series) => {
    const value = h("div", { class: "tile-value" }, "–");
    const note = h("div", { class: "tile-note" });
    const svg = chart(series.help, 72);
    const shown = (number) => (series.unit === "bytes/s" ? `${bytes(number)}/s` : `${rate(number)}/s`);
    return {
      ...series,
      value,
      note,
      svg,
      shown,
      element: h(
        "section",
        { class: "card rate-card", title: series.help },
        h("h2", {}, series.title),
        value,
        svg,
        note,
      ),
    };
  });
  const since = h("p", { class: "hint" });
  const sizes = h("dl", { class: "facts" });
  root.append(
    since,
    h(
      "div",
      { class: "rates" },
      cards.map((card) => card.element),
    ),
    h("section", { class: "card" }, h("h2", {}, "Sizes at this node"), sizes),
  );
  return {
    update() {
      const { history, status } = live;
      const points = history.points;
      text(since, points.length > 0 ? `Since ${clock(points[0].at)}, every two seconds, from /metrics.` : "Loading…");
      for (const { name, svg, value, note, shown } of cards) {
        const values = points.map((point) => point.rates?.get(name) ?? null);
        const latest = history.latest(name);
        text(value, latest === null ? "–" : shown(latest));
        const top = line(svg, values, 72);
        text(note, values.some((one) => one !== null) ? `maximum ${shown(top < 1e-6 ? 0 : top)}` : "");
      }
      if (!status) return;
      const held = Object.entries(status.counts).map(([name, number]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, count(number))),
      );
      sizes.replaceChildren(...held);
    },
  };
}
