// Small charts as SVG: two axes, and lines or bars. The style sheet has the colours.

import { formatCount, make, makeSvg } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 280;
const LEFT = 76;
const RIGHT = 26;
const TOP = 12;
const BOTTOM = 50;

/** Draw `lines`, each { name, points: [[x, y], ...] }, on the axes x and y. */
export function lineChart({ title, caption, x, y, lines }) {
  const paths = lines.map(({ points }, index) => {
    const steps = points.map(([px, py], n) => `${n ? "L" : "M"}${x.position(px).toFixed(1)} ${y.position(py).toFixed(1)}`);
    return makeSvg("path", { d: steps.join(""), class: `line line-${index}` });
  });
  return figure(title, caption, x, y, paths, lines.length > 1 ? lines.map(({ name }) => name) : []);
}

/** Draw a bar of each height between two neighbouring edges. */
export function barChart({ title, caption, x, y, edges, heights }) {
  const bars = heights.map((height, index) => {
    if (height <= 0) return null;
    const [left, right, top] = [x.position(edges[index]), x.position(edges[index + 1]), y.position(height)];
    const box = { x: left, y: top, width: Math.max(right - left - 0.5, 0.5), height: HEIGHT - BOTTOM - top };
    return makeSvg("rect", { ...box, class: "column" });
  });
  return figure(title, caption, x, y, bars, []);
}

function figure(title, caption, x, y, marks, names) {
  const parts = [axes(x, y), ...marks];
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${caption}` }, parts);
  const keys = names.map((name, index) => make("span", { class: `key key-${index}` }, name));
  const legend = keys.length > 0 && make("p", { class: "keys" }, keys);
  return make("figure", {}, make("h3", {}, title), legend, svg, make("figcaption", {}, caption));
}

function axes(x, y) {
  const [bottom, right] = [HEIGHT - BOTTOM, WIDTH - RIGHT];
  const yTicks = y.ticks.map((tick) => [
    makeSvg("path", { d: `M${LEFT} ${y.position(tick)}H${right}`, class: "grid" }),
    makeSvg("text", { x: LEFT - 6, y: y.position(tick) + 4, "text-anchor": "end" }, y.format(tick)),
  ]);
  const xTicks = x.ticks.map((tick) =>
    makeSvg("text", { x: x.position(tick), y: bottom + 18, "text-anchor": "middle" }, x.format(tick)),
  );
  const base = makeSvg("path", { d: `M${LEFT} ${bottom}H${right}`, class: "axis" });
  const xName = makeSvg("text", { x: (LEFT + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.name);
  const upright = { transform: `translate(16 ${(TOP + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" };
  return makeSvg("g", { "aria-hidden": "true" }, yTicks, xTicks, base, xName, makeSvg("text", upright, y.name));
}

export function linearX(name, low, high, format = formatTick) {
  return linearAxis(name, low, high, LEFT, WIDTH - RIGHT, format);
}

export function linearY(name, low, high, format = formatTick) {
  return linearAxis(name, low, high, HEIGHT - BOTTOM, TOP, format);
}

/** A logarithmic axis, for values that span several powers of ten. */
export function logY(name, low, high, format = formatTick) {
  const [from, to] = [Math.log10(low), Math.log10(high > low ? high : 10 * low)];
  const axis = linearAxis(name, from, to, HEIGHT - BOTTOM, TOP, format);
  return { ...axis, position: (value) => axis.position(Math.log10(value)), ticks: logTicks(from, to) };
}

function linearAxis(name, low, high, start, end, format) {
  const span = high - low || 1;
  const position = (value) => start + ((value - low) / span) * (end - start);
  return { name, format, ticks: linearTicks(low, low + span), position };
}

/** About five round numbers between two. */
function linearTicks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.99 * rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** Powers of ten, with 2 and 5 times each if there are few of them; round numbers within one power of ten. */
function logTicks(from, to) {
  if (to - from < 1) return linearTicks(10 ** from, 10 ** to).filter((tick) => tick > 0);
  const powers = Array.from({ length: Math.floor(to) - Math.floor(from) + 1 }, (_, index) => Math.floor(from) + index);
  const stride = Math.ceil(powers.length / 6);
  const multiples = powers.length <= 3 ? [1, 2, 5] : [1];
  const shown = powers.filter((_, index) => index % stride === 0);
  const ticks = shown.flatMap((power) => multiples.map((multiple) => multiple * 10 ** power));
  return ticks.filter((tick) => Math.log10(tick) >= from - 1e-9 && Math.log10(tick) <= to + 1e-9);
}

function formatTick(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(0).replace("e+", "e").replaceAll("-", "−");
  if (size >= 1e4) return `${formatCount(value / 1000)}k`;
  return formatCount(Number(value.toPrecision(3))).replace("-", "−");
}
