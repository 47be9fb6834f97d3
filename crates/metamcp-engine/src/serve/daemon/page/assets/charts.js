// Small charts as drawings of our own, each with its meaning in words.
import { svg } from "./dom.js";

/** Values over time as an area, with a second series (failures) as bars on it. */
export function area(values, label, { bars = [], width = 600, height = 90, tone = "accent" } = {}) {
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  const y = (value) => height - 4 - (value / most) * (height - 16);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${y(value).toFixed(1)}`);
  const line = svg("polyline", { points: points.join(" "), class: "line", fill: "none" });
  const fill = svg("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "fill" });
  const marks = bars.map((value, at) => value > 0
    ? svg("rect", { x: (at * step - 1).toFixed(1), y: y(value).toFixed(1), width: Math.max(2, step * 0.6).toFixed(1), height: (height - y(value)).toFixed(1), class: "bar" })
    : null).filter(Boolean);
  const grid = [0.5, 1].map((part) => svg("line", { x1: 0, x2: width, y1: y(most * part).toFixed(1), y2: y(most * part).toFixed(1), class: "grid" }));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: `chart ${tone}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    grid, fill, line, marks);
}

/** The timeline of a call: parts of its time, one under the other. */
export function timeline(parts, total, label) {
  const row = 30;
  const height = parts.length * row + 6;
  const width = 1_000;
  const x = (at) => (total > 0 ? (at / total) * width : 0);
  const drawn = parts.map((part, at) => {
    const from = x(part.from);
    const long = Math.max(3, x(part.to) - from);
    return svg("rect", { x: from.toFixed(1), y: at * row + 8, width: long.toFixed(1), height: row - 14, rx: 3, class: `part ${part.tone}` });
  });
  const lines = parts.map((_, at) => svg("line", { x1: 0, x2: width, y1: at * row + row, y2: at * row + row, class: "grid" }));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", height, role: "img", "aria-label": label, preserveAspectRatio: "none" }, lines, drawn);
}
