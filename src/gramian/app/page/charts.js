// Small pictures as SVG: a frame with two scales, and lines or bars in it. Colours are the style sheet's.

import { count, make, makeSvg } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 260;
const LEFT = 58;
const RIGHT = 26;
const TOP = 12;
const BOTTOM = 44;

/** A figure of `lines`, each { name, points: [[x, y], ...] }; the scales are linear or logarithmic, by their kind. */
export function lineChart({ title, caption, x, y, lines }) {
  const drawn = lines.map(({ points }, at) => {
    const path = points.map(([px, py], n) => `${n ? "L" : "M"}${x.at(px).toFixed(1)} ${y.at(py).toFixed(1)}`).join("");
    return makeSvg("path", { d: path, class: `line line-${at}` });
  });
  return figure(title, caption, x, y, drawn, lines.length > 1 ? lines.map(({ name }) => name) : []);
}

export function barChart({ title, caption, x, y, edges, heights }) {
  const bars = heights.map((height, at) => {
    if (height <= 0) return null;
    const [left, right, top] = [x.at(edges[at]), x.at(edges[at + 1]), y.at(height)];
    const given = { x: left, y: top, width: Math.max(right - left - 0.5, 0.5), height: HEIGHT - BOTTOM - top };
    return makeSvg("rect", { ...given, class: "column" });
  });
  return figure(title, caption, x, y, bars, []);
}

function figure(title, caption, x, y, drawn, names) {
  const parts = [makeSvg("title", {}, title), frame(x, y), ...drawn];
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title }, parts);
  const keys = names.map((name, at) => make("span", { class: `key key-${at}` }, name));
  const legend = keys.length > 0 && make("p", { class: "keys" }, keys);
  return make("figure", {}, make("h3", {}, title), legend, svg, make("figcaption", {}, caption));
}

function frame(x, y) {
  const [bottom, right] = [HEIGHT - BOTTOM, WIDTH - RIGHT];
  const across = y.ticks.map((tick) => [
    makeSvg("path", { d: `M${LEFT} ${y.at(tick)}H${right}`, class: "grid" }),
    makeSvg("text", { x: LEFT - 6, y: y.at(tick) + 4, "text-anchor": "end" }, y.words(tick)),
  ]);
  const along = x.ticks.map((tick) =>
    makeSvg("text", { x: x.at(tick), y: bottom + 18, "text-anchor": "middle" }, x.words(tick)),
  );
  const base = makeSvg("path", { d: `M${LEFT} ${bottom}H${right}`, class: "axis" });
  const name = makeSvg("text", { x: (LEFT + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.name);
  return makeSvg("g", { "aria-hidden": "true" }, across, along, base, name);
}

export function alongLinear(name, low, high, words = plain) {
  return linear(name, low, high, LEFT, WIDTH - RIGHT, words);
}

export function upLinear(name, low, high, words = plain) {
  return linear(name, low, high, HEIGHT - BOTTOM, TOP, words);
}

/** Upwards by factors: for what spans several powers of ten. */
export function upLog(name, low, high, words = plain) {
  const [from, to] = [Math.log10(low), Math.log10(high > low ? high : 10 * low)];
  const scale = linear(name, from, to, HEIGHT - BOTTOM, TOP, words);
  return { ...scale, at: (value) => scale.at(Math.log10(value)), ticks: factors(from, to) };
}

function linear(name, low, high, start, end, words) {
  const span = high - low || 1;
  return { name, words, ticks: steps(low, low + span), at: (value) => start + ((value - low) / span) * (end - start) };
}

/** Round numbers, about five, between two. */
function steps(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.99 * rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

/** Powers of ten, with their doubles and fives where there are few of them; round numbers where there are hardly any. */
function factors(from, to) {
  if (to - from < 1) return steps(10 ** from, 10 ** to).filter((tick) => tick > 0);
  const powers = Array.from({ length: Math.floor(to) - Math.floor(from) + 1 }, (_, at) => Math.floor(from) + at);
  const every = Math.ceil(powers.length / 6);
  const within = powers.length <= 3 ? [1, 2, 5] : [1];
  const ticks = powers.filter((_, at) => at % every === 0).flatMap((power) => within.map((factor) => factor * 10 ** power));
  return ticks.filter((tick) => Math.log10(tick) >= from - 1e-9 && Math.log10(tick) <= to + 1e-9);
}

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(0).replace("e+", "e").replaceAll("-", "−");
  if (size >= 1e4) return `${count(value / 1000)}k`;
  return count(Number(value.toPrecision(3))).replace("-", "−");
}
