// A small line over time.

import { s } from "./dom.js";

const WIDTH = 240;
/** A line with fewer points does not fill the whole width. */
const POINTS_MIN = 30;

/** Draws points (`null` is a gap) into an SVG; returns the largest. */
export function line(svg, points, height) {
  const top = Math.max(...points.map((value) => value ?? 0), 1e-9);
  const span = Math.max(points.length, POINTS_MIN) - 1;
  const x = (index) => (WIDTH - ((points.length - 1 - index) / span) * WIDTH).toFixed(1);
  const y = (value) => (height - 2 - (value / top) * (height - 6)).toFixed(1);
  let path = "";
  let area = "";
  let begun = null;
  const end = (index) => {
    if (begun !== null) area += `L${x(index)} ${height}L${x(begun)} ${height}Z`;
    begun = null;
  };
  points.forEach((value, index) => {
    if (value === null) return end(index - 1);
    const step = `${begun === null ? "M" : "L"}${x(index)} ${y(value)}`;
    begun ??= index;
    path += step;
    area += step;
  });
  end(points.length - 1);
  svg.replaceChildren(s("path", { class: "chart-area", d: area }), s("path", { class: "chart-line", d: path }));
  return top;
}

export function chart(label, height = 44) {
  return s("svg", {
    class: "chart",
    viewBox: `0 0 ${WIDTH} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
}
