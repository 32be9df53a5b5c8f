// The page of one model.

import { linkTo } from "./address.js";
import { fetchJson } from "./api.js";
import { barChart, linearX, linearY, lineChart, logY } from "./charts.js";
import { $, fill, formatCount, formatMean, formatPercent, loadOrShowRefusal, make, pluralize } from "./dom.js";

const POPULAR_SHARE = 0.1; // of the items, called the most popular

export async function showModel(name, signal) {
  const model = await loadOrShowRefusal(fetchJson(`models/${encodeURIComponent(name)}`, { signal }), name);
  if (!model) return;
  const explore = make("a", { href: linkTo({ view: "explore", of: "", models: [model.name] }) }, "Explore with this model alone");
  fill(
    $("page"),
    make("h1", {}, model.name),
    make("p", {}, make("code", {}, model.spec), " · ", explore),
    model.failed && make("p", { class: "bad" }, `A newer version could not be loaded: ${model.failed}`),
    make("div", { class: "facts" }, recipeTable(model.recipe), dataTable(model), model.measured.map(metricTable)),
    make("div", { class: "charts" }, weightChart(model.picture), popularityChart(model.popularity)),
  );
}

function recipeTable({ name, params }) {
  return factTable("Recipe", [["model", name], ...Object.entries(params).map(([key, value]) => [key, formatParam(value)])]);
}

function dataTable({ users, items, interactions, loaded }) {
  const time = new Date(loaded).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const sizes = Object.entries({ users, items, interactions }).map(([name, size]) => [name, formatCount(size)]);
  return factTable("Data", [...sizes, ["loaded", time]]);
}

function metricTable({ data, metrics, stderr, users }) {
  const rows = Object.entries(metrics).map(([metric, value]) => [metric, formatMean(value, stderr[metric])]);
  return factTable(`Measured on ${data}`, rows, `Mean over ${users ? pluralize(users, "user") : "users"} ± standard error`);
}

function factTable(heading, rows, about) {
  const body = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
  return make("section", {}, make("h2", {}, heading), make("table", {}, body), about && make("p", { class: "small" }, about));
}

/** Format a parameter: a number, a word, or a part with parameters of its own. */
function formatParam(value) {
  if (value === null) return "none";
  if (typeof value !== "object") return String(value);
  const params = Object.entries(value.params ?? {}).map(([name, inner]) => `${name}=${formatParam(inner)}`);
  return `${value.name}(${params.join(", ")})`;
}

function weightChart(picture) {
  if (picture?.kind === "spectrum") return spectrumChart(picture.values);
  if (picture?.kind === "weights") return weightHistogram(picture);
  return null;
}

function spectrumChart(values) {
  const points = values.map((value, index) => [index + 1, value]).filter(([, value]) => value > 0);
  if (points.length < 2) return null;
  return lineChart({
    title: "Spectrum",
    caption: "Singular values of the model, largest first.",
    x: linearX("position, largest first", 1, points.at(-1)[0]),
    y: logY("singular value (log scale)", points.at(-1)[1], points[0][1]),
    lines: [{ name: "singular values", points }],
  });
}

function weightHistogram({ edges, counts }) {
  return barChart({
    title: "Weights",
    caption: "How many item-to-item weights have each size, in a sample of the items.",
    x: linearX("weight of one item for another", edges[0], edges.at(-1)),
    y: logY("weights (log scale)", 0.7, Math.max(...counts, 1)),
    edges,
    heights: counts,
  });
}

function popularityChart(curves) {
  if (!curves) return null;
  const { items, events, lists } = curves;
  const pointsOf = (shares) => items.map((share, index) => [share, shares[index]]);
  const shareOf = (shares) => formatPercent(interpolate(items, shares, POPULAR_SHARE));
  const lines = [{ name: "interactions", points: pointsOf(events) }];
  let caption = `The ${formatPercent(POPULAR_SHARE)} most popular items have ${shareOf(events)} of the interactions`;
  if (lists.length) {
    lines.unshift({ name: "recommendations", points: pointsOf(lists) });
    caption += ` and ${shareOf(lists)} of the recommendations, in a sample of users`;
  }
  return lineChart({
    title: "Popularity",
    caption: `${caption}.`,
    x: linearX("share of items, most popular first", 0, 1, formatPercent),
    y: linearY("cumulative share", 0, 1, formatPercent),
    lines,
  });
}

/** Return the height of a curve between its points. */
function interpolate(xs, ys, x) {
  const next = Math.max(1, xs.findIndex((value) => value >= x));
  const [x0, x1, y0, y1] = [xs[next - 1], xs[next], ys[next - 1], ys[next]];
  return x1 > x0 ? y0 + ((x - x0) / (x1 - x0)) * (y1 - y0) : y1;
}
